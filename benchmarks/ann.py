"""What a graph of near neighbours and eight bits save in `SQLiteStore`, and what they cost.

    python benchmarks/ann.py --data FOLDER [--size 100k] [--cache benchmarks/.cache/minilm.sqlite]

The folder holds ``vectors-SIZE.npy`` (float32 [n, d], normalised) and ``qvectors.npy``, as for
``speed.py``. With a cache of real embeddings (``quality.py`` fills it) these are measured too: all
of them once, then copies with noise until there are as many, each question being a vector of the
cache with noise of its own. Each way is measured in a process of its own, for its memory; searches
are for the top 10, which the index asks 100 candidates a lane for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ragchat
from ragchat_retrieval.filters import Filter

Matrix = NDArray[np.float32]

EVERYTHING = Filter()
WAYS = ("float32", "int8", "hnsw")
LIMIT, TOP, QUERIES, NOISE = 100, 10, 200, 0.4
BATCH = 2000


def embeddings(cache: Path, count: int) -> tuple[Matrix, Matrix]:
    """Returns vectors and questions made of the real embeddings in a cache."""
    connection = sqlite3.connect(f"{cache.resolve().as_uri()}?mode=ro", uri=True)
    rows = connection.execute("SELECT vector FROM vectors ORDER BY key").fetchall()
    connection.close()
    real = np.frombuffer(b"".join(row[0] for row in rows), "<f4").reshape(len(rows), -1)
    chance = np.random.default_rng(0)
    copies = real[chance.integers(0, len(real), max(0, count - len(real)))]
    vectors = np.concatenate([real[:count], noisy(copies, chance)])
    return vectors, noisy(real[chance.integers(0, len(real), QUERIES)], chance)


def noisy(rows: Matrix, chance: np.random.Generator) -> Matrix:
    """Returns unit vectors at a cosine of about 0.93 to the rows given."""
    noise = chance.normal(size=rows.shape) / np.sqrt(rows.shape[1])
    moved = rows + NOISE * noise
    return (moved / np.linalg.norm(moved, axis=1, keepdims=True)).astype(np.float32)


async def fill(path: Path, vectors: Matrix) -> None:
    """Writes a file with one passage a vector."""
    async with ragchat.HybridIndex(ragchat.SQLiteStore(path)) as index:
        for low in range(0, len(vectors), BATCH):
            given = []
            for n in range(low, min(low + BATCH, len(vectors))):
                document = ragchat.Document(
                    f"d{n}", f"passage {n}", metadata={"tenth": n % 10 == 0}
                )
                passage = ragchat.Passage(
                    document.text, document_id=document.id, metadata=document.metadata
                )
                given.append(
                    ragchat.Revision(
                        document=document, passages=(passage,), vectors=vectors[n : n + 1]
                    )
                )
            await index.replace(*given)


async def measured(path: Path, way: str, queries: Matrix) -> dict[str, object]:
    """Searches in this process and returns what was found, how fast, and in how much memory."""
    before = resident()
    began = time.perf_counter()
    store = ragchat.SQLiteStore(path, vectors=way)  # type: ignore[arg-type] - checked by the store
    await store.search_vector(queries[0], LIMIT, filter=EVERYTHING, scope=EVERYTHING)
    opening = time.perf_counter() - began
    report: dict[str, object] = {"opening": opening}
    for name, chosen in (("all", EVERYTHING), ("tenth", Filter(ragchat.Eq("tenth", value=True)))):
        found, times = [], []
        for query in queries:
            began = time.perf_counter()
            hits = await store.search_vector(query, LIMIT, filter=chosen, scope=EVERYTHING)
            times.append((time.perf_counter() - began) * 1e3)
            found.append([hit.passage_id for hit in hits])
        report[name] = {
            "p50": statistics.median(times),
            "p99": float(np.percentile(times, 99)),
            "found": found,
        }
    report["memory"] = {name: size - before[name] for name, size in resident().items()}
    await store.aclose()
    report["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return report


def resident() -> dict[str, float]:
    """Returns MiB of this process's own memory, and of mapped files (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = dict(line.split(":", 1) for line in lines)
    return {name: int(sizes[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile")}


def compare(title: str, vectors: Matrix, queries: Matrix) -> None:
    """Measures all ways over the same vectors and prints a table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kb.sqlite"
        asyncio.run(fill(path, vectors))
        np.save(Path(folder) / "queries.npy", queries)
        began = time.perf_counter()
        asyncio.run(build(path))
        building = time.perf_counter() - began
        (graph,) = Path(f"{path}.index").glob("*.hnsw")
        print(f"\n{title}: {len(vectors):,} × {vectors.shape[1]}; graph built in {building:.0f} s,")
        print(f"{graph.stat().st_size / 2**20:.0f} MiB\n")
        print("| way | p50 ms | p99 | recall@10 | @100 | 1 in 10: p50 | recall@10 |", end="")
        print(" own MiB | mapped MiB |\n" + "|---" * 9 + "|")
        exact: dict[str, dict[str, list[list[str]]]] = {}
        for way in WAYS:
            command = [sys.executable, __file__, "--child", folder, way]
            report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            exact = exact or report
            cells = [f"{report['all'][p]:.2f}" for p in ("p50", "p99")]
            cells += [f"{recall(report['all'], exact['all'], top):.3f}" for top in (TOP, LIMIT)]
            cells += [f"{report['tenth']['p50']:.2f}"]
            cells += [f"{recall(report['tenth'], exact['tenth'], TOP):.3f}"]
            cells += [f"{report['memory'][name]:.0f}" for name in ("RssAnon", "RssFile")]
            print(f"| {way} | {' | '.join(cells)} |", flush=True)


async def build(path: Path) -> None:
    """Opens, has the graph made, and waits for it by closing."""
    store = ragchat.SQLiteStore(path, vectors="hnsw")
    identity = await store.identity()
    query = np.ones((identity and identity.dimension) or 1, np.float32)
    await store.search_vector(query, 1, filter=EVERYTHING, scope=EVERYTHING)
    await store.aclose()


def recall(found: dict[str, list[list[str]]], exact: dict[str, list[list[str]]], top: int) -> float:
    """Returns the mean share of the exact best that were found."""
    pairs = zip(found["found"], exact["found"], strict=True)
    return statistics.mean(len({*a[:top]} & {*b[:top]}) / len(b[:top]) for a, b in pairs)


def main() -> None:
    """Runs the benchmark and prints its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--size", default="100k")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "WAY"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        folder, way = Path(args.child[0]), args.child[1]
        queries = np.load(folder / "queries.npy")
        print(json.dumps(asyncio.run(measured(folder / "kb.sqlite", way, queries))))
        return
    if args.data is not None:
        vectors = np.load(args.data / f"vectors-{args.size}.npy")
        compare("Given vectors", vectors, np.load(args.data / "qvectors.npy")[:QUERIES])
    if args.cache is not None:
        count = int(args.size.replace("k", "000"))
        compare("Real embeddings and noisy copies", *embeddings(args.cache, count))


if __name__ == "__main__":
    main()
