"""What `Weighted(title=...)` is worth: nDCG@10 by the weight of the title and file name.

    python benchmarks/titles.py --data ../shared/data [--only scifact,cranfield]

As ``quality.py``: whole collections, one passage per document, the local embedding model with its
cache, questions as they stand. The lanes share what the title leaves as 0.3 to 0.7, their default.
The title is part of what both lanes index, with weight and without. File names play no part: none
of the collections has any that were not made of the answers.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from embedding import cached_embedder

import ragchat
from ragchat_retrieval.evaluation import evaluate, load_collection
from ragchat_retrieval.fusion import Weighted

HERE = Path(__file__).resolve().parent
COLLECTIONS = ("scifact", "cranfield", "python-docs", "mtrag-clapnq", "mtrag-govt")
"""Those of ``quality.py`` whose documents have titles."""

WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
METRIC = "ndcg@10"


def fusion(title: float) -> Weighted:
    """Returns the default fusion with some weight taken from both lanes alike."""
    return Weighted(0.3 * (1.0 - title), title=title)


async def measure(folder: Path) -> dict[str, float]:
    """Returns the metric by weight of the title."""
    found = load_collection(folder)
    embedder = cached_embedder()
    index = ragchat.HybridIndex(
        embedder=embedder, splitter=ragchat.WholeText(), fusion=fusion(WEIGHTS[1])
    )
    async with index:
        await index.ingest(*found.documents())
        fusions = {f"{weight:g}": fusion(weight) for weight in WEIGHTS}
        done = await evaluate(index, found.topics, metrics=[METRIC], fusions=fusions)
    return {name: done.mean(METRIC, name) for name in fusions}


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--only", default=",".join(COLLECTIONS), help="comma-separated")
    args = parser.parse_args()
    print("| collection | " + " | ".join(f"{weight:g}" for weight in WEIGHTS) + " |")
    print("|---" * (len(WEIGHTS) + 1) + "|")
    for name in args.only.split(","):
        row = asyncio.run(measure(args.data / name))
        print(f"| {name} | " + " | ".join(f"{value:.4f}" for value in row.values()) + " |")


if __name__ == "__main__":
    main()
