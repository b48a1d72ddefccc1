"""Prints what the kit has measured as Markdown: medians of the rounds, and what was promised.

    python benchmarks/peers/table.py KIT

The promises are ratios within one run; figures of different runs do not compare.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

Rounds = list[dict[str, Any]]


class Results:
    """What ``run.py`` left in the kit's folder of results."""

    def __init__(self, kit: Path) -> None:
        self._parts = {p.stem: json.loads(p.read_text()) for p in (kit / "results").glob("*.json")}

    def of(self, part: str) -> dict[str, Any]:
        """Returns a part's results by contestant; empty if it was not run."""
        found: dict[str, Any] = self._parts.get(part, {})
        return found

    def figure(self, part: str, name: str, *keys: str) -> float | None:
        """Returns the median over rounds; None if it was not measured."""
        found: Any = self.of(part).get(name)
        *path, last = keys
        for key in path:
            found = (found or {}).get(key)
        values = [r[last] for r in found or () if r.get(last) is not None]
        return statistics.median(values) if values else None


COLUMNS: dict[str, tuple[str, ...]] = {
    "200 passages, 0 ms: ms": ("tiny", "ms0", "p50"),
    "10k, 0 ms: ms": ("jobs", "ms0", "p50"),
    "10k, 100 ms: ms": ("jobs", "ms100", "p50"),
    "loop blocked: ms": ("jobs", "lag", "max"),
    "64 at once: /s": ("throughput", "per_s"),
    "p50: ms": ("throughput", "p50"),
    "p99: ms": ("throughput", "p99"),
    "ingest 10k: s": ("jobs", "ingest10k", "s"),
    "ingest 100k: s": ("search100k", "ingest100k", "s"),
}


def table(results: Results) -> str:
    """Returns a row for each contestant."""
    names = dict.fromkeys(name for path in COLUMNS.values() for name in results.of(path[0]))
    lines = ["| | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name in names:
        figures = (results.figure(part, name, *keys) for part, *keys in COLUMNS.values())
        shown = ("" if value is None else f"{value:,.1f}" for value in figures)
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def promises(results: Results) -> str:
    """Returns each promise, what it says and what was measured."""
    lines = ["| promise | measured |", "|---|---|"]

    def say(promise: str, one: float | None, other: float | None = 1.0) -> None:
        if one is not None and other:
            lines.append(f"| {promise} | {one / other:.2f} |")

    def at(column: str, name: str) -> float | None:
        part, *keys = COLUMNS[column]
        return results.figure(part, name, *keys)

    tiny, job, rate = "200 passages, 0 ms: ms", "10k, 100 ms: ms", "64 at once: /s"
    say("orchestration through openai ≤ 1.25 × floor", at(tiny, "ragchat"), at(tiny, "floor"))
    say("orchestration through a raw callable ≤ 2 ms", at(tiny, "ragchat-raw"))
    say("job at 100 ms a call ≤ 1.05 × floor", at(job, "ragchat"), at(job, "floor"))
    say("planner at 100 ms a call ≤ 225 ms", at(job, "ragchat-planner"))
    say("64 at once ≥ 0.9 × floor", at(rate, "ragchat"), at(rate, "floor"))
    say("planner, 64 at once ≥ 1.2 × floor", at(rate, "ragchat-planner"), at(rate, "floor"))
    for name in ("ragchat", "ragchat-planner", "ragchat-raw"):
        say(f"{name}: p99 ≤ 2 × p50", at("p99: ms", name), at("p50: ms", name))
        say(f"{name}: loop blocked ≤ 20 ms", at("loop blocked: ms", name))
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004 - the script and the folder
        raise SystemExit(__doc__)
    given = Results(Path(sys.argv[1]))
    print(f"{table(given)}\n\n{promises(given)}")
