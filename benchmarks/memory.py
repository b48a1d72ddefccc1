"""Resident memory of the embedded stores, each in a process of its own.

    python benchmarks/memory.py --data FOLDER [--size 100k]

The folder is that of ``speed.py``. A process first imports everything and notes what is resident;
then it writes the corpus a thousand documents at a time, each read when its turn comes, or opens
the file that another process wrote, searches a hundred times, and is measured again. Memory of its
own and pages mapped from files are told apart: the system takes the latter back when it needs them,
and processes that read the same file share them. What a write needed and freed counts as long as
the C library keeps it; the last column shows what is left once it gives that back.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from speed import TOP, Given, revisions

import ragchat

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = ("memory, written", "sqlite, written", "sqlite, opened")
BATCH = 1000
SEARCHES = 100


def resident() -> tuple[float, float]:
    """Returns the resident memory of this process in MB: its own, and mapped from files."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in status)
    own, mapped = (int(fields[name].split()[0]) * 1024 / 1e6 for name in ("RssAnon", "RssFile"))
    return own, mapped


def one_by_one(path: Path) -> Iterator[str]:
    """Yields the texts of a JSON list without having all at a time, which would leave holes."""
    text = path.read_text(encoding="utf-8")
    decoder, at = json.JSONDecoder(), text.index("[") + 1
    while (at := text.find('"', at)) >= 0:
        found, at = decoder.raw_decode(text, at)
        yield found


async def measured(case: str, folder: Path, size: str, path: Path) -> None:
    """Prints the row of one case."""
    store = ragchat.MemoryStore() if case.startswith("memory") else ragchat.SQLiteStore(path)
    questions = json.loads((folder / "queries.json").read_text(encoding="utf-8"))
    index = ragchat.HybridIndex(store, embedder=Given(questions, np.load(folder / "qvectors.npy")))
    await ragchat.in_memory(8).search(questions[0])
    gc.collect()
    before = resident()
    if case.endswith("written"):
        vectors = np.load(folder / f"vectors-{size}.npy", mmap_mode="r")
        texts = one_by_one(folder / f"passages-{size}.json")
        low = 0
        while part := list(itertools.islice(texts, BATCH)):
            await index.replace(*revisions(part, np.array(vectors[low : low + BATCH]), first=low))
            low += len(part)
        del texts, vectors, part
    for question in questions[:SEARCHES]:
        await index.search(question, top_k=TOP, candidates=TOP)
    gc.collect()
    own, mapped = (now - then for now, then in zip(resident(), before, strict=True))
    ctypes.CDLL(None).malloc_trim(0)
    left = sum(resident()) - sum(before)
    total = payload(folder, size)
    print(
        f"| {case} | {own:.0f} MB | {mapped:.0f} MB | {(own + mapped) / total:.2f} × "
        f"| {left / total:.2f} × |"
    )
    await store.aclose()


def payload(folder: Path, size: str) -> float:
    """Returns the size of vectors and text in MB."""
    texts = json.loads((folder / f"passages-{size}.json").read_text(encoding="utf-8"))
    vectors = (folder / f"vectors-{size}.npy").stat().st_size
    return (vectors + sum(len(text.encode()) for text in texts)) / 1e6


def main() -> None:
    """Runs each case in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--size", default="100k")
    parser.add_argument("--case", choices=CASES, help="one case, in this process")
    parser.add_argument("--file", type=Path, help="the SQLite file of the case")
    args = parser.parse_args()
    if args.case is not None:
        asyncio.run(measured(args.case, args.data, args.size, args.file))
        return
    print(f"vectors + text: {payload(args.data, args.size):.0f} MB\n")
    print("| | own | mapped | against vectors + text | after malloc_trim |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--data", str(args.data), "--size", args.size]
        for case in CASES:
            file = str(Path(folder) / "memory.sqlite")
            subprocess.run([*command, "--case", case, "--file", file], check=True)


if __name__ == "__main__":
    main()
