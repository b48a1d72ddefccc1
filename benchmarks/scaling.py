"""What stores take and give as a corpus grows, each in a process of its own.

    python benchmarks/scaling.py --data FOLDER [--sizes 10000,100000,1000000] [--only sqlite]

The folder is that of ``speed.py``. Beyond its own passages a corpus is made of them: the words of a
text begin at another place, and its vector is moved at random. Passages are written a thousand
documents at a time with their vectors. What the store makes of them in the background (a graph,
merged segments) is waited for, after one search. "postgres loaded" puts the HNSW index off until
everything is written, and makes it then. Then 300 questions ask each lane for the top 50,
and both together; a lane that is not through after a minute stops there.

Memory is told as in ``memory.py``: that of this process and, with a plus before it, that of the
server which it started. Qdrant, in ``--only``, is the server at ``QDRANT_URL``, of which neither
memory nor disk is told. Disk is everything in the folder of the store. Recall is the share of the
ten nearest passages, by all vectors, that are among the ten first of the vector lane.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from memory import BATCH, resident
from opened import STORES
from speed import EVERYTHING, TOP, Given, revisions

import ragchat
from ragchat_retrieval.lexical import DEFAULT_ANALYZER
from ragchat_retrieval.stores.postgres.store import EXACT_UP_TO

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import Store

CASES = (
    *("memory", "sqlite", "sqlite int8", "sqlite hnsw"),
    *("postgres", "postgres loaded", "opensearch"),
)
QUESTIONS = 300
PATIENCE = 60.0
"""Seconds after which a lane is asked no more questions."""

NEAREST = 10
SHIFT = 7
"""Words by which a text is turned each time it is used again."""

NOISE = 0.5
"""Length of what is added to a vector of length 1 each time it is used again."""


@asynccontextmanager
async def opened(case: str, place: Path) -> AsyncIterator[Store]:
    """Opens an empty store of one case."""
    kind, _, way = case.partition(" ")
    if kind != "sqlite" or not way:
        async with STORES[kind](place) as store:
            if way:
                store._shared.exact_up_to = sys.maxsize  # type: ignore[attr-defined]  # noqa: SLF001 - its option
            yield store
        return
    store = ragchat.SQLiteStore(place / "kb.sqlite", vectors=way)  # type: ignore[arg-type] - checked by the store
    yield store
    await store.aclose()


def corpus(
    texts: Sequence[str], vectors: NDArray[np.float32], size: int
) -> Iterator[tuple[list[ragchat.Revision], NDArray[np.float32]]]:
    """Yields the documents of a corpus of so many passages and their vectors, by batches."""
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
        yield revisions(turned, part, first=low), part


def turn(text: str, words: int) -> str:
    """Returns the text with its first words at its end."""
    if not words:
        return text
    split = text.split(" ")
    words %= len(split)
    return " ".join(split[words:] + split[:words])


class Exact:
    """The nearest passages of each question among all that were shown.

    Args:
        queries: float32 [questions, dimension].
    """

    def __init__(self, queries: NDArray[np.float32]) -> None:
        self._queries = queries
        self._ids = np.empty((len(queries), 0), np.int64)
        self._scores = np.empty((len(queries), 0), np.float32)
        self.seen = 0
        """How many passages were shown."""

    def show(self, vectors: NDArray[np.float32]) -> None:
        """Takes the vectors of the next documents."""
        numbers = np.arange(self.seen, self.seen + len(vectors))
        ids = np.hstack([self._ids, np.broadcast_to(numbers, (len(self._queries), len(vectors)))])
        scores = np.hstack([self._scores, self._queries @ vectors.T])
        best = np.argsort(-scores, axis=1)[:, :NEAREST]
        self._ids = np.take_along_axis(ids, best, axis=1)
        self._scores = np.take_along_axis(scores, best, axis=1)
        self.seen += len(vectors)

    def recall(self, found: Sequence[Sequence[int]]) -> float:
        """Returns the mean share of them in the answers to the first questions."""
        pairs = zip(self._ids.tolist(), found, strict=False)
        return float(np.mean([len({*best} & {*answer}) / NEAREST for best, answer in pairs]))


async def measured(case: str, folder: Path, size: int, place: Path) -> None:
    """Prints the row of one case and size."""
    questions = json.loads((folder / "queries.json").read_text(encoding="utf-8"))[:QUESTIONS]
    queries = np.load(folder / "qvectors.npy")[:QUESTIONS]
    async with opened(case, place) as store:
        index = ragchat.HybridIndex(store, embedder=Given(questions, queries))
        await ragchat.in_memory(8).search(questions[0])
        gc.collect()
        before, exact, spent = resident(), Exact(queries), 0.0
        texts = json.loads((folder / "passages-100k.json").read_text(encoding="utf-8"))
        vectors = np.load(folder / "vectors-100k.npy")
        for batch, part in corpus(texts, vectors, size):
            began = time.perf_counter()
            await index.replace(*batch)
            spent += time.perf_counter() - began
            exact.show(part)
            print(f"\r{exact.seen:,} in {spent:.0f} s", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        del texts, vectors, batch, part
        began = time.perf_counter()
        await index.search(questions[0], top_k=TOP, candidates=TOP)
        first = time.perf_counter() - began
        began = time.perf_counter()
        await settled(store)
        waited = time.perf_counter() - began
        found: list[list[str]] = []

        async def keyword(n: int) -> object:
            terms = DEFAULT_ANALYZER.weights(questions[n])
            return await store.search_text(terms, TOP, filter=EVERYTHING, scope=EVERYTHING)

        async def vector(n: int) -> object:
            hits = await store.search_vector(queries[n], TOP, filter=EVERYTHING, scope=EVERYTHING)
            found.append([hit.passage_id for hit in hits[:NEAREST]])
            return hits

        async def both(n: int) -> object:
            return await index.search(questions[n], top_k=TOP, candidates=TOP)

        tails = [await timed(work, len(questions)) for work in (keyword, vector, both)]
        gc.collect()
        own, mapped = (now - then for now, then in zip(resident(), before, strict=True))
        memory = f"{own:,.0f} + {mapped:,.0f} MB"
        if servers := running_in(place):
            memory += f", + {sum(map(proportional, servers)):,.0f} MB"
        cells = [case, f"{size:,}", f"{size / spent:,.0f}", f"{first:.1f} s", f"{waited:.0f} s"]
        cells += [
            memory,
            f"{on_disk(place):,.0f} MB",
            *tails,
            f"{exact.recall(await documents(store, found)):.3f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


async def documents(store: Store, found: Sequence[Sequence[str]]) -> list[list[int]]:
    """Returns the numbers of the documents that passages are from."""
    numbers = []
    for ids in found:
        passages = await store.get(ids, scope=EVERYTHING)
        numbers.append([int(passage.document_id[1:]) for passage in passages.values()])
    return numbers


async def settled(store: Store) -> None:
    """Waits until the store is done with what it does in the background after writes."""
    if isinstance(store, ragchat.SQLiteStore) and store.vector_search == "hnsw":
        nearest = store._nearest  # type: ignore[attr-defined]  # noqa: SLF001 - a look inside
        await asyncio.to_thread(nearest.settle)
        # What was written while the graph was built is in the next one.
        await store.search_vector(
            np.ones(384, np.float32), TOP, filter=EVERYTHING, scope=EVERYTHING
        )
        await asyncio.to_thread(nearest.settle)
    elif isinstance(store, ragchat.PostgresStore):
        shared = store._shared  # noqa: SLF001 - in place of a second store
        if shared.exact_up_to != EXACT_UP_TO:
            shared.exact_up_to = EXACT_UP_TO
            await store.repair()
    elif store.name == "qdrant":
        call = store._shared.engine._clients.call  # type: ignore[attr-defined]  # noqa: SLF001 - a look inside
        names = [c.name for c in (await call("get_collections")).collections]
        working = True
        while working:
            await asyncio.sleep(0.5)
            states = [(await call("get_collection", name)).status for name in names]
            working = any(state != "green" for state in states)
    elif store.name == "opensearch":
        call = store._shared.engine._clients.call  # type: ignore[attr-defined]  # noqa: SLF001 - a look inside
        merging = True
        while merging:
            await asyncio.sleep(0.5)
            nodes = (await call("nodes.stats", metric="indices"))["nodes"].values()
            merging = any(node["indices"]["merges"]["current"] for node in nodes)


async def timed(work: Callable[[int], Awaitable[object]], rounds: int) -> str:
    """Does the work of each question; returns p50 and p99 in milliseconds."""
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < rounds and time.perf_counter() < started + PATIENCE:
        began = time.perf_counter()
        await work(len(times))
        times.append((time.perf_counter() - began) * 1e3)
    middle, tail = np.percentile(times, [50, 99])
    return f"{middle:.1f} / {tail:.1f}"


def running_in(place: Path) -> list[Path]:
    """Returns the folders in ``/proc`` of processes that work in a folder, or were given it."""
    found = []
    for process in Path("/proc").glob("[1-9]*"):
        try:
            inside = (process / "cwd").readlink().is_relative_to(place)
            given = str(place).encode() in (process / "cmdline").read_bytes()
        except OSError:  # ended, or not ours
            continue
        if (inside or given) and process.name != str(os.getpid()):
            found.append(process)
    return found


def proportional(process: Path) -> float:
    """Returns a process's memory in MB, with its share of what it has together with others."""
    lines = (process / "smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


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
        "| store | passages | written a second | first search | then waited "
        "| memory: own + mapped, + server | disk "
        "| keyword, p50 / p99 ms | vector | hybrid | recall@10 |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    for size in args.sizes.split(","):
        for case in args.only.split(","):
            command = [sys.executable, __file__, "--data", str(args.data), "--case", case, size]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
