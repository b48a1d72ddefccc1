"""What the embedded store does with files: foreign, damaged, busy, read-only, very large."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import sqlite3
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from ragchat_retrieval.errors import (
    InvalidDocument,
    InvalidSetting,
    NotAStore,
    StoreReadOnly,
    StoreUnavailable,
)
from ragchat_retrieval.stores.sqlite import SQLiteStore, schema
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    by_words,
    contents,
    ids_of,
    passage_ids,
    put,
    revision,
)
from ragchat_retrieval.values import Document, Passage, Revision

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def files_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def a_foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE people (name TEXT)")
    connection.commit()
    connection.close()


def a_foreign_application(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 7")
    connection.commit()
    connection.close()


FOREIGN: dict[str, Callable[[Path], object]] = {
    "database": a_foreign_database,
    "application": a_foreign_application,
    "text": lambda path: path.write_text("# Notes\n" * 500),
    "short text": lambda path: path.write_text("x"),
    "bytes": lambda path: path.write_bytes(bytes(range(256)) * 64),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("read_only", [True, False], ids=["reading", "writing"])
async def test_a_foreign_file_is_left_alone(tmp_path: Path, kind: str, *, read_only: bool) -> None:
    """A file that is something else is a typed error, and not a byte of it changes."""
    path = tmp_path / "kb.sqlite"
    FOREIGN[kind](path)
    before = path.read_bytes()
    store = SQLiteStore(path, read_only=read_only)
    with pytest.raises(NotAStore):
        await store.count(scope=ALL)
    if not read_only:
        with pytest.raises(NotAStore):
            await put(store, revision("a", "one"))
    await store.aclose()
    assert path.read_bytes() == before
    assert files_in(tmp_path) == [path.name]


async def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    """A file of no bytes, as `mkstemp` leaves it, may be written; for reading it is no store."""
    path = tmp_path / "kb.sqlite"
    path.touch()
    reader = SQLiteStore(path, read_only=True)
    with pytest.raises(NotAStore):
        await reader.count(scope=ALL)
    await reader.aclose()
    store = SQLiteStore(path)
    await put(store, revision("a", "one"))
    assert await store.document_ids(scope=ALL) == ["a"]
    await store.aclose()


async def test_a_file_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    """A schema that this version does not know is refused with a word about why."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    await put(store, revision("a", "one"))
    await store.aclose()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    store = SQLiteStore(path)
    with pytest.raises(StoreUnavailable, match="newer version"):
        await store.count(scope=ALL)
    await store.aclose()


async def test_a_missing_file_is_made_by_writers_only(tmp_path: Path) -> None:
    """Opening for reading makes nothing; a folder that is missing is no place to write."""
    path = tmp_path / "kb.sqlite"
    reader = SQLiteStore(path, read_only=True)
    with pytest.raises(StoreUnavailable) as missing:
        await reader.count(scope=ALL)
    assert not missing.value.retryable
    await reader.aclose()
    assert files_in(tmp_path) == []
    for bad in (tmp_path / "no folder" / "kb.sqlite", tmp_path, tmp_path / ("x" * 300)):
        store = SQLiteStore(bad)
        with pytest.raises(StoreUnavailable):
            await put(store, revision("a", "one"))
        await store.aclose()


async def test_constructing_does_no_work(tmp_path: Path) -> None:
    """The constructor checks settings and touches no file."""
    store = SQLiteStore(tmp_path / "kb.sqlite")
    assert files_in(tmp_path) == []
    await store.aclose()
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"corpus": " "},
        {"corpus": "a\x00b"},
        {"path": ""},
        {"path": "a\x00b"},
        {"path": "a\ud800b"},
        {"path": ":memory:", "read_only": True},
    ],
    ids=str,
)
def test_bad_settings_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """A setting that cannot work is an error at construction."""
    with pytest.raises(InvalidSetting):
        SQLiteStore(**{"path": tmp_path / "kb.sqlite", **options})
    with pytest.raises(InvalidSetting):
        SQLiteStore(tmp_path / "kb.sqlite").corpus("")


async def test_a_damaged_file_is_a_typed_error(tmp_path: Path) -> None:
    """Pages overwritten with noise are reported, and no driver error comes out."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    await put(store, *(revision(f"d{n}", "word " * 300) for n in range(50)))
    await store.aclose()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xa5" * (len(whole) - 8192))
    store = SQLiteStore(path)
    for use in (
        store.document_ids(scope=ALL),
        by_words(store, "word"),
        put(store, revision("x", "one")),
        store.repair(),
    ):
        with pytest.raises(StoreUnavailable) as caught:
            await use
        assert not caught.value.retryable
    await store.aclose()


async def test_a_store_opened_for_reading_refuses_writes(tmp_path: Path) -> None:
    """Every write is `StoreReadOnly`, and reading works while others write."""
    path = tmp_path / "kb.sqlite"
    writer, reader = SQLiteStore(path), SQLiteStore(path, read_only=True)
    await put(writer, revision("a", "one"))
    assert await reader.document_ids(scope=ALL) == ["a"]
    for use in (
        put(reader, revision("b", "two")),
        reader.delete(["a"], scope=ALL),
        reader.delete_by_source("s", scope=ALL),
        reader.reset(),
        reader.drop_corpus(),
        reader.repair(),
        reader.corpus("other").drop_corpus(),
    ):
        with pytest.raises(StoreReadOnly):
            await use
    await put(writer, revision("b", "one two"))
    assert len(await by_words(reader, "one")) == len("ab")
    await writer.aclose()
    assert await reader.document_ids(scope=ALL) == ["a", "b"]
    await reader.aclose()


async def test_a_file_that_cannot_be_written_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a medium where nothing can be created, a closed file is complete by itself."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    await put(store, revision("a", "one two"))
    before = await contents(store)
    await store.aclose()
    real = sqlite3.connect
    asked: list[str] = []

    def connect(target: str, **options: Any) -> sqlite3.Connection:
        asked.append(target)
        if "immutable" not in target:  # what SQLite says in a folder without rights
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return real(target, **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    store = SQLiteStore(path, read_only=True)
    assert await contents(store) == before
    assert len(await by_words(store, "two")) == 1
    await store.aclose()
    assert all("mode=ro" in target for target in asked)


async def test_a_busy_file_is_a_typed_error_after_the_timeout(tmp_path: Path) -> None:
    """A writer that cannot start in time says that trying again may help; readers go on."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path, timeout=0.05)
    await put(store, revision("a", "one"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as caught:
        await put(store, revision("b", "two"))
    assert caught.value.retryable
    assert len(await by_words(store, "one")) == 1
    other.execute("ROLLBACK")
    other.close()
    await put(store, revision("b", "two"))
    assert await store.document_ids(scope=ALL) == ["a", "b"]
    await store.aclose()


async def test_waiting_writers_do_not_hold_up_readers(tmp_path: Path) -> None:
    """While many writes wait for another process, searches answer at once."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path, timeout=60)
    await put(store, revision("a", "one"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with asyncio.timeout(50):
        waiting = [asyncio.create_task(put(store, revision(f"d{n}", "x"))) for n in range(20)]
        for _ in range(20):
            assert len(await by_words(store, "one")) == 1
        assert not any(task.done() for task in waiting)
        other.execute("ROLLBACK")
        other.close()
        await asyncio.gather(*waiting)
    assert (await store.count(scope=ALL)).documents == 1 + len(waiting)
    await store.aclose()


async def test_many_stores_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    """Whoever comes first makes the tables; nobody fails, and every write is there."""
    path = tmp_path / "kb.sqlite"
    stores = [SQLiteStore(path) for _ in range(12)]
    await asyncio.gather(*(put(store, revision(f"d{n}", "word")) for n, store in enumerate(stores)))
    for store in stores:
        assert len(await by_words(store, "word", 100)) == len(stores)
    await asyncio.gather(*(store.aclose() for store in stores))


class Overtaken(sqlite3.Connection):
    """A connection that sees another one make the tables after its first statement."""

    def execute(self, sql: str, *parameters: Any) -> SimpleNamespace:
        rows = super().execute(sql, *parameters).fetchall()
        path = super().execute("PRAGMA database_list").fetchall()[0][2]
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            schema.prepare(other, path)
        return SimpleNamespace(fetchone=iter(rows).__next__)


def test_a_file_whose_tables_are_made_meanwhile_is_not_taken_for_a_foreign_one(
    tmp_path: Path,
) -> None:
    """It was empty or it is ours, whichever the reader saw."""
    path = str(tmp_path / "kb.sqlite")
    with contextlib.closing(sqlite3.connect(path, factory=Overtaken)) as connection:
        assert schema.is_prepared(connection, path) is False
        assert schema.is_prepared(connection, path) is True


class Reluctant(sqlite3.Connection):
    """A connection that is told to be busy, as during a recovery, where SQLite does not wait."""

    refusals: ClassVar[dict[str, int]] = {}

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        for beginning, left in self.refusals.items():
            if sql.startswith(beginning) and left:
                self.refusals[beginning] -= 1
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY_RECOVERY
                raise error
        return super().execute(sql, *parameters)


@pytest.mark.parametrize("beginning", ["PRAGMA journal_mode", "SELECT key, uuid"])
async def test_a_moment_of_business_is_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beginning: str
) -> None:
    """Where SQLite itself does not wait, the store does, up to its timeout."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    await put(store, revision("a", "one"))
    await store.aclose()
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **o: real(*a, factory=Reluctant, **o))
    monkeypatch.setattr(Reluctant, "refusals", {beginning: 3})
    store = SQLiteStore(path)
    assert len(await by_words(store, "one")) == 1
    await store.aclose()
    assert Reluctant.refusals == {beginning: 0}
    monkeypatch.setattr(Reluctant, "refusals", {beginning: 10**9})
    store = SQLiteStore(path, timeout=0.05)
    with pytest.raises(StoreUnavailable) as caught:
        await by_words(store, "one")
    assert caught.value.retryable
    await store.aclose()


async def test_closing_waits_for_running_writes(tmp_path: Path) -> None:
    """A write that was begun is complete after closing, and no connection or thread is left."""
    path = tmp_path / "kb.sqlite"
    before = set(threading.enumerate())
    store = SQLiteStore(path)
    task = asyncio.create_task(put(store, *(revision(f"d{n}", "word") for n in range(300))))
    await asyncio.sleep(0)
    await store.aclose()
    await task
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("ragchat-sqlite")]
    assert files_in(tmp_path) == [path.name, f"{path.name}.index"]
    again = SQLiteStore(path, read_only=True)
    assert (await again.count(scope=ALL)).documents == len(range(300))
    await again.aclose()


async def test_the_file_is_in_wal_mode(tmp_path: Path) -> None:
    """Readers never wait for a writer: the file is in write-ahead mode, also after closing."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    await put(store, revision("a", "one"))
    await store.aclose()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


async def test_forty_thousand_passages_with_few_bound_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A huge document is written, fetched, replaced and removed where SQLite binds 999 values."""
    real = sqlite3.connect

    def limited(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = real(*args, **options)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
        return connection

    monkeypatch.setattr(sqlite3, "connect", limited)
    store = SQLiteStore(tmp_path / "kb.sqlite")
    await put(store, revision("small", "part of another"))
    many = revision("big", *(f"part n{n}" for n in range(40_000)))
    await put(store, many)
    ids = passage_ids(many)
    found = await store.get(ids, scope=ALL)
    assert list(found) == ids
    assert found[ids[-1]] == many.passages[-1]
    assert len(await store.vectors(ids, scope=ALL)) == len(ids)
    assert ids_of(await by_words(store, "n39999")) == [ids[-1]]
    assert len(await store.hashes(ids, scope=ALL)) == 0
    fewer = revision("big", *(f"part n{n}" for n in range(39_000)))
    await put(store, fewer)
    assert await store.count(scope=ALL) == (2, 39_001, 39_001)
    assert await store.delete([*ids, "big"], scope=ALL) == 1
    assert await store.count(scope=ALL) == (1, 1, 1)
    assert await store.ids(scope=ALL) == passage_ids(revision("small", "part of another"))
    await store.aclose()


async def test_numbers_beyond_64_bits_are_a_typed_error(tmp_path: Path) -> None:
    """A page number that no column can hold is refused, with nothing written."""
    store = SQLiteStore(tmp_path / "kb.sqlite")
    document = Document("a", "one")
    passage = Passage("one", document_id="a", page=2**70)
    with pytest.raises(InvalidDocument):
        await put(store, Revision(document=document, passages=(passage,), terms=({"one": 1},)))
    assert await store.count(scope=ALL) == (0, 0, 0)
    await store.aclose()


async def test_a_store_that_is_dropped_leaves_no_connection_open(tmp_path):
    """Who forgets to close a store loses nothing, and keeps no file open."""
    path = tmp_path / "kb.sqlite"
    opened: list[sqlite3.Connection] = []

    class Watched(sqlite3.Connection):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            opened.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Watched))
        store = SQLiteStore(path)
        await store.identity()
    assert opened
    del store
    async with asyncio.timeout(60):
        while any(map(is_open, opened)):  # its thread may still be on the way out of the last call
            await asyncio.to_thread(gc.collect)


def is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("select 1")
    except sqlite3.ProgrammingError:
        return False
    return True
