"""Retrieval quality on public collections: lanes and fusions side by side, and conversations.

    python benchmarks/quality.py --data ../shared/data [--only scifact,mtrag-govt] [--store sqlite]

Every collection is indexed whole (one passage per document, title and text) with the local
embedding model; embeddings are cached in ``benchmarks/.cache``, so that a second run takes a
minute. Figures are nDCG@10 with gain 2^rel − 1. For conversations the last turn alone, the
model-free history expansion and the human rewrite are compared, in each lane.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import sys
import tempfile
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedding import cached_embedder
from opened import STORES

import ragchat
from ragchat.evaluation import HISTORY, LAST_TURN, REWRITE, ways_of_asking
from ragchat_retrieval.evaluation import evaluate, load_collection

if TYPE_CHECKING:
    from ragchat_retrieval.evaluation import Evaluation

    Measured = dict[str, dict[str, float]]

HERE = Path(__file__).resolve().parent
COLLECTIONS = ("scifact", "cranfield", "python-docs", "mtrag-clapnq", "mtrag-fiqa", "mtrag-govt")
OTHERS = {
    "not completed": ragchat.Weighted(keyword=0.3, complete=False),
    "RRF": ragchat.RRF(),
}
RANKINGS = {"keyword": "keyword", "vector": "vector", "hybrid": "fused"}
"""Names in the tables, and what evaluation calls them."""

FUSIONS = (*RANKINGS, *OTHERS)
METRIC = "ndcg@10"


async def collection(
    folder: Path, store: ragchat.Store, embedder: ragchat.Embedder, limit: int | None
) -> Measured:
    """Returns the metric by way of asking and ranking, over all questions or the first ones."""
    found = load_collection(folder)
    if limit is not None:
        found = found.first(limit)
    corpus = store.corpus(found.name)
    index = ragchat.HybridIndex(corpus, embedder=embedder, splitter=ragchat.WholeText())
    await index.ingest(*found.documents(), on_progress=_progress(found.name))
    return {
        way: figures(await evaluate(index, found.topics, metrics=[METRIC], fusions=OTHERS, ask=ask))
        for way, ask in ways_of_asking(found.topics).items()
    }


def figures(evaluation: Evaluation) -> dict[str, float]:
    """Returns the metric's mean by ranking, as the tables name them; NaN for a missing lane."""
    names = {name: RANKINGS.get(name, name) for name in FUSIONS}
    return {
        name: evaluation.mean(METRIC, ranking) if ranking in evaluation.rankings else math.nan
        for name, ranking in names.items()
    }


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Indexes and measures each collection."""
    embedder = cached_embedder()
    results: dict[str, Any] = {"collections": {}, "conversations": {}}
    with tempfile.TemporaryDirectory() as folder:
        async with STORES[args.store](Path(folder)) as store:
            for name in args.only.split(",") if args.only else COLLECTIONS:
                ways = await collection(args.data / name, store, embedder, args.limit)
                # The fusions are compared on questions as they stand.
                results["collections"][name] = ways.get(LAST_TURN) or next(iter(ways.values()))
                if HISTORY in ways:
                    results["conversations"][name] = {
                        way: ways[way] for way in (LAST_TURN, HISTORY, REWRITE)
                    }
    return results


def cell(value: float) -> str:
    """Returns a figure as tables show it."""
    return "–" if math.isnan(value) else f"{value:.4f}"


def _progress(name: str) -> Any:  # noqa: ANN401 - a callback
    def tell(share: float) -> None:
        print(f"\r{name}: {share:4.0%}", end="" if share < 1 else "\n", file=sys.stderr)

    return tell


def report(results: dict[str, Any]) -> str:
    """Renders the results as Markdown tables."""
    lines = ["| collection | " + " | ".join(FUSIONS) + " | hybrid over better lane | RRF over it |"]
    lines.append("|---" * (len(FUSIONS) + 3) + "|")
    gains: dict[str, list[float]] = {"hybrid": [], "not completed": [], "RRF": []}
    for name, row in results["collections"].items():
        best = max(row[lane] for lane in ("vector", "keyword") if not math.isnan(row[lane]))
        for label, values in gains.items():
            values.append(row[label] / best - 1)
        cells = " | ".join(cell(row[label]) for label in FUSIONS)
        lines.append(f"| {name} | {cells} | {gains['hybrid'][-1]:+.1%} | {gains['RRF'][-1]:+.1%} |")
    for label, values in gains.items():
        if values:
            mean = sum(values) / len(values)
            lines.append(f"\n{label}: worst {min(values):+.1%}, mean {mean:+.1%}")
    if not results["conversations"]:
        return "\n".join(lines)
    lines += [
        "",
        "| conversations | lane | last turn | history expansion | human rewrite | gap closed |",
    ]
    lines.append("|---" * 6 + "|")
    means: dict[str, list[float]] = {lane: [] for lane in RANKINGS}
    for name, ways in results["conversations"].items():
        for lane in RANKINGS:
            last, expanded, rewrite = (ways[way][lane] for way in ways)
            gap = (expanded - last) / (rewrite - last) if rewrite != last else float("nan")
            means[lane].append(gap)
            cells = " | ".join(map(cell, (last, expanded, rewrite)))
            lines.append(f"| {name} | {lane} | {cells} | {gap:.2f} |")
    for lane, gaps in means.items():
        lines.append(f"\n{lane}: mean gap closed {sum(gaps) / len(gaps):.2f}")
    return "\n".join(lines)


def main() -> None:
    """Runs the benchmark and prints its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--only", default="", help="comma-separated collections")
    parser.add_argument("--store", choices=STORES, default="memory")
    parser.add_argument("--limit", type=int, help="only the first questions")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    if not args.data.is_dir():
        parser.error(f"no folder {args.data}; give the collections' folder with --data")
    results = asyncio.run(measure(args))
    packages = ("numpy", "onnxruntime", "PyStemmer", "tokenizers")
    print(f"{date.today()}, Python {platform.python_version()}, {platform.machine()}, ", end="")  # noqa: DTZ011
    print(", ".join(f"{name} {version(name)}" for name in packages), f"({args.store} store)\n")
    print(report(results))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
