"""The embedded store reads passages where its arrays have them, and checks what stands there."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ragchat_retrieval.engine import Snapshot
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.sqlite import SQLiteStore, reading, rows
from ragchat_retrieval.testing.store_suite_kit import ALL, by_words, put, revision

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

DOCUMENTS = [
    revision(f"d{n}", f"one {n}", f"one and {n}", ids=[f"p{n}", f"q{n}"]) for n in range(9)
]


async def test_passages_are_found_though_the_arrays_are_behind_the_file(tmp_path: Path) -> None:
    """What another handle has replaced, moved, removed and added since is read as it is now."""
    path = tmp_path / "kb.sqlite"
    writer, reader, memory = SQLiteStore(path), SQLiteStore(path), MemoryStore()
    await put(writer, *DOCUMENTS)
    assert len(await by_words(reader, "one", 99)) == 18
    changed = [
        revision("d1", "other", ids=["p1"]),
        revision("d2"),
        revision("d3", "moved", "here", ids=["new", "q2"]),
    ]
    await put(writer, *changed)
    await put(memory, *DOCUMENTS)
    await put(memory, *changed)
    wanted = [f"{kind}{n}" for n in range(9) for kind in "pq"] + ["new", "nothing"]
    found = await reader.get(wanted, scope=ALL)
    assert found == await memory.get(wanted, scope=ALL)
    assert list(found) == [i for i in wanted if i in found]
    await writer.aclose()
    await reader.aclose()


async def test_a_key_that_leads_to_another_passage_misleads_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys tell where to look; ids tell what it is."""
    store = SQLiteStore(tmp_path / "kb.sqlite")
    await put(store, *DOCUMENTS)
    assert len(await by_words(store, "one", 99)) == 18
    wanted = ["p0", "q3", "p5"]
    expected = await store.get(wanted, scope=ALL)
    plain = Snapshot.keys

    def elsewhere(self: Snapshot, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return plain(self, rows) + np.arange(len(rows))

    monkeypatch.setattr(Snapshot, "keys", elsewhere)
    assert list(expected) == wanted
    assert await store.get(wanted, scope=ALL) == expected
    await store.aclose()


async def test_found_passages_are_read_by_primary_keys_alone(tmp_path: Path) -> None:
    """SQLite neither searches the index of ids nor walks through the corpus."""
    store = SQLiteStore(tmp_path / "kb.sqlite")
    await put(store, *DOCUMENTS)
    assert len(await by_words(store, "one", 99)) == 18
    near, every = store._mirrors["default"].latest, await store.ids(scope=ALL)

    def work(connection: sqlite3.Connection) -> list[str]:
        state = reading.read_state(connection, "default")
        assert state is not None
        asked: list[str] = []
        connection.set_trace_callback(asked.append)
        reading.passages(connection, state.key, every, ALL, near=near)
        connection.set_trace_callback(None)
        return [
            connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchone()[-1]
            for statement in asked
        ]

    assert await store._db.read(work) == [
        "SEARCH passages USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH documents USING INTEGER PRIMARY KEY (rowid=?)",
    ]
    await store.aclose()


@pytest.mark.parametrize(("length", "kept"), [(1_000, False), (rows._LONG + 1, True)])
async def test_a_passage_of_a_long_document_is_read_without_the_rest_of_it(
    tmp_path: Path, length: int, *, kept: bool
) -> None:
    """Text of a short one is kept once: its passages, slices of it, take no second copy."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    long = revision("d", "one", "é" * length, "two")
    await put(store, long)
    (first, _, last) = long.passages
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE documents SET text = ''")
    found = await store.get([last.id, first.id], scope=ALL)
    assert [passage.text for passage in found.values()] == (["two", "one"] if kept else ["", ""])
    await store.aclose()
