"""Processes that write an index and may die at any moment.

Run as a script it imports everything once, then forks one process per command, so that a test can
afford dozens of them. Commands are a line of JSON on standard input; every answer is one too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import warnings
from typing import TYPE_CHECKING, Any

import child_work
import numpy as np
from child_work import PAIR, say

from ragchat_retrieval.engine import Hnsw, graph
from ragchat_retrieval.stores.sqlite import SQLiteStore, graphs
from ragchat_retrieval.testing.store_suite_concurrency import version, versions_of
from ragchat_retrieval.testing.store_suite_kit import by_words, put

if TYPE_CHECKING:
    from collections.abc import Callable


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(statement: int) -> None:
    """Kills this process before the given SQL statement after the next ``BEGIN IMMEDIATE``."""
    seen = -1

    def heard(sql: str) -> None:
        nonlocal seen
        if seen >= 0 or sql == "BEGIN IMMEDIATE":
            seen += 1
        if seen == statement:
            die()

    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(heard)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]


def die_around(name: str, *, before: bool) -> None:
    """Kills this process before or after the next call of a function of `os`."""
    real: Callable[..., Any] = getattr(os, name)

    def deadly(*args: Any, **options: Any) -> None:
        if not before:
            real(*args, **options)
        die()

    setattr(os, name, deadly)


async def write_pairs(path: str, first: int, count: int, at: dict[str, Any]) -> None:
    """Writes revisions of a pair of documents, telling before and after each."""
    store = SQLiteStore(path)
    await by_words(store, "shared")
    if "statement" in at:
        die_at(at["statement"])
        await store.aclose()  # connections opened from now on are watched
        store = SQLiteStore(path)
    if "os" in at:
        die_around(at["os"], before=at["before"])
    for number in range(first, first + count):
        say(begin=number)
        await put(store, *(version(name, number) for name in PAIR))
        say(done=number)
        if number % 3 == 0:
            await by_words(store, "shared")
    await store.aclose()
    say(closed=True)


async def swap(path: str, other: str, statement: int) -> None:
    """Swaps two corpora, and dies before the given statement of it."""
    die_at(statement)
    store = SQLiteStore(path)
    await store.swap_corpus(other)
    say(done=statement)
    await store.aclose()


def ask_graphs() -> Hnsw:
    """Has a graph made of everything, renewed at every write, and asked however small it is."""
    graph._COMPARED = float("inf")
    graphs._FEW = 0
    graphs._MANY = 1_000_000
    return Hnsw(connectivity=8, expansion_add=32, exact_up_to=0)


async def write_and_search(path: str, *, vectors: str, **amounts: Any) -> None:
    """Opens the file and does what `child_work` says."""
    store = SQLiteStore(path, timeout=60, vectors=ask_graphs() if vectors == "hnsw" else vectors)
    await child_work.write_and_search(store, **amounts)


def use_over_a_fork(path: str) -> None:
    """Uses one store object in this process, in a fork of it, and here again."""
    store = SQLiteStore(path)

    async def use(number: int) -> None:
        await put(store, version("left", number))
        hits = await by_words(store, "shared", 100)
        say(seen=sorted(set(versions_of(hits, "left"))))

    asyncio.run(use(1))
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        pid = os.fork()  # newer Pythons warn of threads here, and they are the point
    if pid == 0:
        asyncio.run(use(2))
        asyncio.run(store.aclose())
        return
    os.waitpid(pid, 0)
    asyncio.run(use(3))
    asyncio.run(store.aclose())
    say(closed=True)


COMMANDS = {
    "write_pairs": write_pairs,
    "swap": swap,
    "write_and_search": write_and_search,
    "use_over_a_fork": use_over_a_fork,
}


def main() -> None:
    """Forks a process per command and tells how each ended; ends with the input."""
    running: set[int] = set()
    np.random.default_rng()  # loaded before the first fork
    say(ready=True)
    for line in sys.stdin:
        commands = json.loads(line)
        for command in commands:
            name = command.pop("command")
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    doing = COMMANDS[name](**command)
                    if doing is not None:
                        asyncio.run(doing)
                    code = 0
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            running.add(pid)
            say(pid=pid)
        while running:
            pid, status = os.wait()
            running.discard(pid)
            say(
                ended=pid,
                signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
                code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1,
            )


if __name__ == "__main__":
    main()
