"""What the embedded stores take and give as a corpus grows, each in a process of its own.

    python benchmarks/scaling.py --data FOLDER [--sizes 10000,100000,1000000] [--only sqlite]

The folder is that of ``speed.py``. Beyond its own passages a corpus is made of them: the words of a
text begin at another place, and its vector is moved at random. Passages are written a thousand
documents at a time with their vectors; then 300 questions ask each lane for the top 50, and both
together. Memory is told as in ``memory.py``; disk is the file with all that stands beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from memory import BATCH, resident
from speed import EVERYTHING, TOP, Given, revisions

import ragchat
from ragchat_retrieval.lexical import DEFAULT_ANALYZER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import Store

CASES = ("memory", "sqlite", "sqlite int8", "sqlite hnsw")
QUESTIONS = 300
SHIFT = 7
"""Words by which a text is turned each time it is used again."""

NOISE = 0.5
"""Length of what is added to a vector of length 1 each time it is used again."""


def store_for(case: str, path: Path) -> Store:
    """Returns an empty store of one case."""
    match case:
        case "memory":
            return ragchat.MemoryStore()
        case "sqlite int8":
            return ragchat.SQLiteStore(path, vectors="int8")
        case "sqlite hnsw":
            return ragchat.SQLiteStore(path, vectors="hnsw")
        case _:
            return ragchat.SQLiteStore(path)


def corpus(
    texts: Sequence[str], vectors: NDArray[np.float32], size: int
) -> Iterator[list[ragchat.Revision]]:
    """Yields the documents of a corpus of so many passages, a batch at a time."""
    random = np.random.default_rng(7)
    for low in range(0, size, BATCH):
        numbers = range(low, min(low + BATCH, size))
        part = np.array([vectors[n % len(texts)] for n in numbers])
        moved = random.standard_normal(part.shape, np.float32) / np.sqrt(part.shape[1])
        used = np.array([n // len(texts) for n in numbers])
        part += np.where(used > 0, NOISE, 0)[:, np.newaxis].astype(np.float32) * moved
        part /= np.linalg.norm(part, axis=1, keepdims=True)
        turned = [
            turn(texts[n % len(texts)], SHIFT * time_used)
            for n, time_used in zip(numbers, used, strict=True)
        ]
        yield revisions(turned, part, first=low)


def turn(text: str, words: int) -> str:
    """Returns the text with its first words at its end."""
    if not words:
        return text
    split = text.split(" ")
    words %= len(split)
    return " ".join(split[words:] + split[:words])


async def measured(case: str, folder: Path, size: int, place: Path) -> None:
    """Prints the row of one case and size."""
    store = store_for(case, place / "kb.sqlite")
    questions = json.loads((folder / "queries.json").read_text(encoding="utf-8"))[:QUESTIONS]
    queries = np.load(folder / "qvectors.npy")[:QUESTIONS]
    index = ragchat.HybridIndex(store, embedder=Given(questions, queries))
    await ragchat.in_memory(8).search(questions[0])
    gc.collect()
    before = resident()
    texts = json.loads((folder / "passages-100k.json").read_text(encoding="utf-8"))
    vectors = np.load(folder / "vectors-100k.npy")
    spent = 0.0
    for batch in corpus(texts, vectors, size):
        began = time.perf_counter()
        await index.replace(*batch)
        spent += time.perf_counter() - began
    del texts, vectors, batch
    began = time.perf_counter()
    await index.search(questions[0], top_k=TOP, candidates=TOP)
    first = time.perf_counter() - began

    async def keyword(n: int) -> object:
        terms = DEFAULT_ANALYZER.weights(questions[n])
        return await store.search_text(terms, TOP, filter=EVERYTHING, scope=EVERYTHING)

    async def vector(n: int) -> object:
        return await store.search_vector(queries[n], TOP, filter=EVERYTHING, scope=EVERYTHING)

    async def both(n: int) -> object:
        return await index.search(questions[n], top_k=TOP, candidates=TOP)

    tails = []
    for work in (keyword, vector, both):
        times = []
        for n in range(len(questions)):
            began = time.perf_counter()
            await work(n)
            times.append((time.perf_counter() - began) * 1e3)
        middle, tail = np.percentile(times, [50, 99])
        tails.append(f"{middle:.1f} / {tail:.1f}")
    gc.collect()
    own, mapped = (now - then for now, then in zip(resident(), before, strict=True))
    await store.aclose()
    cells = [case, f"{size:,}", f"{size / spent:,.0f}", f"{first:.1f} s"]
    cells += [f"{own:,.0f} + {mapped:,.0f} MB", f"{on_disk(place):,.0f} MB", *tails]
    print(f"| {' | '.join(cells)} |", flush=True)


def on_disk(place: Path) -> float:
    """Returns the size of all files in a folder in MB."""
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) / 1e6


def main() -> None:
    """Runs each case and size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case is not None:
        case, size = args.case
        with tempfile.TemporaryDirectory() as place:
            asyncio.run(measured(case, args.data, int(size), Path(place)))
        return
    print(
        "| store | passages | written a second | first search | memory: own + mapped | disk "
        "| keyword, p50 / p99 ms | vector | hybrid |\n|---|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    for size in args.sizes.split(","):
        for case in args.only.split(","):
            command = [sys.executable, __file__, "--data", str(args.data), "--case", case, size]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
