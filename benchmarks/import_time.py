"""What importing ragchat costs, beside what its dependencies cost anyway.

    python benchmarks/import_time.py [runs]

Each statement runs in fresh interpreters, interleaved with the others, so that a busy moment of the
machine hits all alike. The target: ``import ragchat`` takes at most 1.3 times as long as
``import numpy, jinja2, pydantic``.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

BASE = "import numpy, jinja2, pydantic"
STATEMENTS = {
    "python alone": "",
    BASE: BASE,
    "import ragchat": "import ragchat",
    "… and the names of a first script": (
        "from ragchat import Document, Preparer, quickstart\nquickstart()"
    ),
}
TARGET = 1.3


def seconds(statement: str) -> float:
    """Returns how long a fresh interpreter takes for a statement, by its own clock."""
    code = (
        f"import time; began = time.perf_counter()\n{statement}\nprint(time.perf_counter() - began)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main(runs: int) -> None:
    """Prints the median of each statement and its ratio to the base."""
    for statement in STATEMENTS.values():
        seconds(statement)  # once for the disk cache and the compiled files
    times: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(runs):
        for name, statement in STATEMENTS.items():
            times[name].append(seconds(statement))
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    for name, median in medians.items():
        print(f"{name:36} {median * 1000:7.1f} ms  {median / medians[BASE]:5.2f} ×")
    ratio = medians["import ragchat"] / medians[BASE]
    print(f"target: at most {TARGET} ×, {'met' if ratio <= TARGET else 'MISSED'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
