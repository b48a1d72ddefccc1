"""What `vectors="int8"` costs in quality in each store, and saves in memory.

    python benchmarks/int8.py --data ../shared/data [--only scifact,cranfield]

As ``quality.py``: whole collections, one passage per document, the local embedding model with its
cache, questions as they stand. Then the time of one vector search over random vectors.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from embedding import cached_embedder

import ragchat
from ragchat_retrieval.engine import Batch, Coded, Engine, Snapshot
from ragchat_retrieval.evaluation import evaluate, load_collection
from ragchat_retrieval.values import Passage

HERE = Path(__file__).resolve().parent
COLLECTIONS = ("scifact", "cranfield", "python-docs", "mtrag-clapnq", "mtrag-fiqa", "mtrag-govt")
METRIC = "ndcg@10"
ROWS, DIMENSION, BATCH, SEARCHES, LIMIT = 100_000, 384, 4_000, 50, 50


async def quality(folder: Path, store: ragchat.Store) -> tuple[float, float]:
    """Returns the metric of the vector lane and of the hybrid."""
    found = load_collection(folder)
    embedder = cached_embedder()
    async with ragchat.HybridIndex(store, embedder=embedder, splitter=ragchat.WholeText()) as index:
        await index.ingest(*found.documents())
        done = await evaluate(index, found.topics, metrics=[METRIC])
    return done.mean(METRIC, "vector"), done.mean(METRIC, "fused")


def filled(*, spilled: bool) -> Snapshot:
    """Returns an engine's state with random vectors of length 1."""
    rows = np.random.default_rng(0).normal(size=(ROWS, DIMENSION)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    engine = Engine(spilled=spilled)
    for low in range(0, ROWS, BATCH):
        numbers = range(low, low + BATCH)
        passages = [Passage("t", id=f"p{n}", document_id=f"d{n}") for n in numbers]
        engine.apply(
            add=Batch.of_passages(numbers, passages, [{}] * BATCH, vectors=rows[low : low + BATCH])
        )
    return engine.snapshot


def main() -> None:
    """Runs the benchmark and prints its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--only", default=",".join(COLLECTIONS), help="comma-separated")
    args = parser.parse_args()
    print("| collection | lane | float32 | in memory, int8 | change | in a file, int8 | change |")
    print("|---" * 7 + "|")
    for name in args.only.split(","):
        full = asyncio.run(quality(args.data / name, ragchat.MemoryStore()))
        less = asyncio.run(quality(args.data / name, ragchat.MemoryStore(vectors="int8")))
        with tempfile.TemporaryDirectory() as folder:
            store = ragchat.SQLiteStore(Path(folder) / "kb.sqlite", vectors="int8")
            filed = asyncio.run(quality(args.data / name, store))
        for lane, base, *others in zip(("vector", "hybrid"), full, less, filed, strict=True):
            cells = [f"{other:.4f} | {other / base - 1:+.2%}" for other in others]
            print(f"| {name} | {lane} | {base:.4f} | {' | '.join(cells)} |", flush=True)
    queries = np.random.default_rng(1).normal(size=(SEARCHES, DIMENSION)).astype(np.float32)
    full, kept = filled(spilled=False), filled(spilled=True)
    coded = Coded(kept.matrix)
    ways = {
        "float32": lambda query: full.search_vector(query, LIMIT),
        "int8": lambda query: coded.search(kept, query, LIMIT, None),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for query in queries:
        for name, search in ways.items():
            start = time.process_time()
            search(query)
            times[name].append(time.process_time() - start)
    sizes = {"float32": sum(block.nbytes for block in full.matrix.blocks), "int8": coded.nbytes}
    print(f"\n{ROWS:,} vectors of {DIMENSION}, top {LIMIT}, processor time:", end="")
    for name, size in sizes.items():
        taken = statistics.median(times[name]) * 1000
        print(f" {name} {size / 2**20:.1f} MiB, {taken:.1f} ms;", end="")
    print()


if __name__ == "__main__":
    main()
