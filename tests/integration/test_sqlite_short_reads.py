"""Short reads of the embedded store run at once; whatever would wait goes to a thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.engine import Snapshot
from ragchat_retrieval.stores import questions
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.testing.store_suite_kit import ALL, by_words, put, revision

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

QUERY = np.eye(8, dtype=np.float32)[0]


def watched(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Returns a list that tells of each search of a lane whether the loop's thread did it."""
    at_once: list[bool] = []
    for name in ("search_text", "search_vectors"):
        plain = getattr(Snapshot, name)

        def spy(self: Snapshot, *args: object, plain=plain) -> object:
            at_once.append(threading.current_thread() is threading.main_thread())
            return plain(self, *args)

        monkeypatch.setattr(Snapshot, name, spy)
    return at_once


async def test_small_searches_take_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Current arrays answer at once; bringing them up to date, and large searches, do not."""
    at_once = watched(monkeypatch)
    writer, store = SQLiteStore(tmp_path / "kb.sqlite"), SQLiteStore(tmp_path / "kb.sqlite")
    await put(writer, revision("a", "one"))
    assert len(await by_words(store, "one")) == 1  # loads
    assert len(await by_words(store, "one")) == 1
    await put(writer, revision("b", "one two"))
    assert len(await by_words(store, "one")) == 2  # follows the other handle's write
    assert len(await by_words(store, "one")) == 2
    assert len(await store.search_vector(QUERY, 5, filter=ALL, scope=ALL)) == 2
    monkeypatch.setattr(questions, "_SMALL_FLOATS", 0)
    assert len(await store.search_vector(QUERY, 5, filter=ALL, scope=ALL)) == 2
    assert at_once == [False, True, False, True, True, False]
    await writer.aclose()
    await store.aclose()


async def test_a_locked_file_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    """A read waits for a lock in a thread, although the same read took none before."""
    path = tmp_path / "kb.sqlite"
    writer = SQLiteStore(path)
    await put(writer, revision("a", "one"))
    await writer.aclose()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode = DELETE")  # in which a writer locks readers out
    store = SQLiteStore(path, read_only=True)
    before = await store.revision()
    other.execute("BEGIN EXCLUSIVE")
    reading = asyncio.create_task(store.revision())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not reading.done()
    other.execute("COMMIT")
    async with asyncio.timeout(60):
        assert await reading == before
    other.close()
    await store.aclose()


async def test_a_read_needs_no_connection_that_another_one_uses(tmp_path: Path) -> None:
    """Two reads never share a connection: the second opens its own, in a thread."""
    store = SQLiteStore(tmp_path / "kb.sqlite")
    await put(store, revision("a", "one"))
    before = await store.revision()
    used, done = threading.Event(), threading.Event()

    def work(_: sqlite3.Connection) -> bool:
        used.set()
        return done.wait(60)

    first = asyncio.create_task(store._db.read(work))
    assert await asyncio.to_thread(used.wait, 60)
    assert await store.revision() == before
    done.set()
    assert await first
    await store.aclose()
