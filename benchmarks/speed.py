"""Speed of the embedded stores, as ratios to the bare operations in the same run.

    python benchmarks/speed.py --data FOLDER [--size 100k] [--rounds 100]

The folder holds ``passages-SIZE.json`` (texts), ``vectors-SIZE.npy`` (float32 [n, d], normalised),
``queries.json`` and ``qvectors.npy``. The searches run in turn with the bare operation that they
are compared with, so that other work on the machine hits all alike; figures are medians. The bare
matrix product is over the store's own vectors. A lane gives ids and scores; `vector search` and
`hybrid search` are whole searches of an index, which embed the question and read the passages, by
vectors alone and by both lanes.
With bm25s installed its numpy scoring is measured too, and writing is compared with the floor: what
it takes bm25s to tokenise and index the texts, and numpy to keep the vectors. Floor and stores take
turns, `--writes` times, with the first 10,000 passages and then with all; by processor time too,
which other work distorts least. `fsync` is what it takes to sync a file of SQLite's size. What the
stores take in memory is for ``memory.py`` to say, in processes that hold nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import ragchat
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.fusion import Weighted
from ragchat_retrieval.lexical import DEFAULT_ANALYZER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import Store

    Work = Callable[[int], Awaitable[object]]

try:
    import bm25s
except ImportError:
    bm25s = None

TOP = 50
SOME = 10_000
EVERYTHING = Filter()
SELECTIVITY = {"1 %": "hundredth", "10 %": "tenth", "50 %": "half"}


class Given:
    """An embedder that knows the vectors of the queries and no others."""

    model = "given"

    def __init__(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        self.dimension = vectors.shape[1]
        self._rows = dict(zip(texts, vectors, strict=True))

    async def embed(self, texts: Sequence[str], kind: str = "query") -> NDArray[np.float32]:
        """Returns the known vectors."""
        del kind
        return np.stack([self._rows[text] for text in texts])


def revisions(
    texts: Sequence[str], vectors: NDArray[np.float32], *, first: int = 0
) -> list[ragchat.Revision]:
    """Returns one document with one passage per text, numbered from `first`, with metadata."""
    made = []
    for at, text in enumerate(texts):
        n = first + at
        metadata = {"hundredth": n % 100 == 0, "tenth": n % 10 == 0, "half": n % 2 == 0}
        document = ragchat.Document(f"d{n}", text, metadata=metadata)
        passage = ragchat.Passage(
            text,
            document_id=document.id,
            metadata=metadata,
            span=(0, len(text)),
            digest=document.digest,
        )
        made.append(
            ragchat.Revision(document=document, passages=[passage], vectors=vectors[at : at + 1])
        )
    return made


async def interleaved(works: dict[str, Work], rounds: int) -> dict[str, list[float]]:
    """Runs all works in turn and returns the milliseconds of each run."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for n in range(-5, rounds):
        for name, work in works.items():
            began = time.perf_counter()
            await work(n % 300)
            if n >= 0:
                times[name].append((time.perf_counter() - began) * 1e3)
    return times


def show(title: str, times: dict[str, list[float]], base: str) -> None:
    """Prints medians, their ratio to `base`, and p99 over p50."""
    print(f"\n| {title} | ms | against {base} | p99 / p50 |\n|---|---|---|---|")
    reference = statistics.median(times[base])
    for name, values in times.items():
        middle = statistics.median(values)
        tail = float(np.percentile(values, 99)) / middle
        print(f"| {name} | {middle:.2f} | {middle / reference:.2f} × | {tail:.1f} |")


def blocks_of(store: Store) -> Sequence[NDArray[np.float32]]:
    """Returns the vectors where the store has them, so that their place in memory decides nothing.

    A product over huge pages is faster than one over small ones, or over a file's.
    """
    if isinstance(store, ragchat.MemoryStore):
        return store._state().snapshot.matrix.blocks  # noqa: SLF001 - a look inside
    assert isinstance(store, ragchat.SQLiteStore)  # noqa: S101 - the other of the two
    snapshot = store._mirrors[store.corpus_name].latest  # noqa: SLF001 - a look inside
    assert snapshot is not None  # noqa: S101 - it was written
    return snapshot.matrix.blocks


def bare_vector(blocks: Sequence[NDArray[np.float32]], queries: NDArray[np.float32]) -> Work:
    """Returns the least that an exact vector search can do."""
    ends = list(itertools.accumulate(map(len, blocks)))

    async def work(n: int) -> object:
        scores = np.empty(ends[-1], np.float32)
        for block, end in zip(blocks, ends, strict=True):
            np.dot(block, queries[n], out=scores[end - len(block) : end])
        top = np.argpartition(scores, -TOP)[-TOP:]
        return top[np.argsort(-scores[top])]

    return work


def bare_keywords(texts: Sequence[str], questions: Sequence[str]) -> Work | None:
    """Returns bm25s' numpy scoring with a top list; None if it is not installed."""
    if bm25s is None:
        return None
    index = floor(texts)
    split = bm25s.tokenize(list(questions), stopwords="en", show_progress=False, return_ids=False)

    async def work(n: int) -> object:
        scores = index.get_scores(split[n])
        top = np.argpartition(scores, -TOP)[-TOP:]
        return top[np.argsort(-scores[top])]

    return work


def floor(texts: Sequence[str]) -> Any:  # noqa: ANN401 - of an optional package
    """Returns bm25s' index of texts."""
    tokens = bm25s.tokenize(list(texts), stopwords="en", show_progress=False)
    index = bm25s.BM25(backend="numpy")
    index.index(tokens, show_progress=False)
    return index


async def timed(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Runs work; returns its seconds and its seconds of processor time."""
    gc.collect()
    began, worked = time.perf_counter(), time.process_time()
    await work()
    return time.perf_counter() - began, time.process_time() - worked


async def written(
    store: Store, data: dict[str, Any], made: Sequence[ragchat.Revision]
) -> tuple[float, float]:
    """Replaces revisions in a store; returns the seconds, as `timed`."""
    index = ragchat.HybridIndex(store, embedder=Given(data["questions"], data["queries"]))
    return await timed(lambda: index.replace(*made))


def synced(path: Path) -> float:
    """Returns the seconds it takes to sync a new file as large as this one."""
    content = path.read_bytes()
    with tempfile.NamedTemporaryFile(dir=path.parent) as copy:
        copy.write(content)
        copy.flush()
        began = time.perf_counter()
        os.fsync(copy.fileno())
        return time.perf_counter() - began


async def writes(data: dict[str, Any], size: int, rounds: int) -> None:
    """Measures writing into empty stores, in turn with the floor."""

    async def bare() -> object:
        return floor(data["texts"][:size]), np.ascontiguousarray(data["vectors"][:size])

    times: dict[str, list[tuple[float, float]]] = {"memory": [], "sqlite": []}
    if bm25s is not None:
        times = {"floor": [], **times}
    syncs = []
    made = revisions(data["texts"][:size], data["vectors"][:size])
    for _ in range(rounds):
        if bm25s is not None:
            times["floor"].append(await timed(bare))
        store: Store = ragchat.MemoryStore()
        times["memory"].append(await written(store, data, made))
        await store.aclose()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "written.sqlite"
            store = ragchat.SQLiteStore(path)
            times["sqlite"].append(await written(store, data, made))
            await store.aclose()
            syncs.append(synced(path))
    base = next(iter(times))
    print(
        f"\n| {size} passages written | s | against {base} | by processor time |\n|---|---|---|---|"
    )
    first = [statistics.median(column) for column in zip(*times[base], strict=True)]
    for name, runs in times.items():
        wall, worked = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"| {name} | {wall:.2f} | {wall / first[0]:.2f} × | {worked / first[1]:.2f} × |")
    print(f"| fsync | {statistics.median(syncs):.2f} | | |")


async def lanes(name: str, store: Store, data: dict[str, Any], rounds: int) -> None:
    """Measures the lanes of a filled store against the bare operations."""
    questions, queries = data["questions"], data["queries"]
    terms = [DEFAULT_ANALYZER.weights(question) for question in questions[:300]]
    index = ragchat.HybridIndex(store, embedder=Given(questions, queries))

    def keyword(chosen: Filter) -> Work:
        return lambda n: store.search_text(terms[n], TOP, filter=chosen, scope=EVERYTHING)

    def vector(chosen: Filter) -> Work:
        return lambda n: store.search_vector(queries[n], TOP, filter=chosen, scope=EVERYTHING)

    def search(fusion: Weighted | None) -> Work:
        return lambda n: index.search(questions[n], top_k=TOP, candidates=TOP, fusion=fusion)

    works = {"keyword lane": keyword(EVERYTHING)}
    if data["bm25s"] is not None:
        works = {"bm25s (numpy)": data["bm25s"], **works}
    for label, key in SELECTIVITY.items():
        works[f"keyword lane, {label}"] = keyword(Filter(ragchat.Eq(key, value=True)))
    show(f"{name}: keywords", await interleaved(works, rounds), next(iter(works)))
    works = {
        "matrix product and argpartition": bare_vector(blocks_of(store), queries),
        "vector lane": vector(EVERYTHING),
        "vector search": search(Weighted(keyword=0.0)),
        "hybrid search": search(None),
    }
    for label, key in SELECTIVITY.items():
        works[f"vector lane, {label}"] = vector(Filter(ragchat.Eq(key, value=True)))
    show(f"{name}: vectors", await interleaved(works, rounds), next(iter(works)))


async def main() -> None:
    """Fills both stores and measures them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--size", default="100k")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--writes", type=int, default=3)
    args = parser.parse_args()
    texts = json.loads((args.data / f"passages-{args.size}.json").read_text(encoding="utf-8"))
    questions = json.loads((args.data / "queries.json").read_text(encoding="utf-8"))
    vectors = np.load(args.data / f"vectors-{args.size}.npy")
    queries = np.load(args.data / "qvectors.npy")
    data = {"texts": texts, "questions": questions, "queries": queries, "vectors": vectors}
    data["bm25s"] = bare_keywords(texts, questions[:300])
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            "memory": ragchat.MemoryStore(),
            "sqlite": ragchat.SQLiteStore(Path(folder) / "speed.sqlite"),
        }
        for name, store in stores.items():
            made = revisions(texts, vectors)
            gc.collect()
            async with asyncio.timeout(600):
                seconds, _ = await written(store, data, made)
            del made
            gc.collect()
            print(f"\n{name}: {len(texts)} passages written in {seconds:.1f} s")
            await lanes(name, store, data, args.rounds)
            await store.aclose()
        began = time.perf_counter()
        store = ragchat.SQLiteStore(Path(folder) / "speed.sqlite")
        await store.search_text({"python": 1.0}, TOP, filter=EVERYTHING, scope=EVERYTHING)
        print(f"\nsqlite: opened and searched in {(time.perf_counter() - began) * 1e3:.0f} ms")
        await store.aclose()
    for size in sorted({min(SOME, len(texts)), len(texts)} if args.writes else ()):
        await writes(data, size, args.writes)


if __name__ == "__main__":
    asyncio.run(main())
