"""A bounded table of vectors by key, in an SQLite file or in memory; blocking calls."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import NotAStore, StoreClosed, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

STORE = "embedding cache"
"""Labels errors."""

_APPLICATION = 0x52434543
"""SQLite's application id of these files, "RCEC"."""

_SMALLEST = 512
"""Bytes of the smallest SQLite file that is not empty."""

_BUSY_SECONDS = 30.0
_PAUSE = 0.02
_AT_ONCE = 500
"""Keys a statement; SQLite may be built for as few as 999 variables."""

# Ids only ever grow, so the lowest ones are the oldest entries.
_TABLE = """
create table if not exists vectors (
    id integer primary key autoincrement,
    key blob not null unique,
    vector blob not null
)
"""

_MARKS = """select (select application_id from pragma_application_id),
                   (select count(*) from sqlite_master)"""
"""What a file is, in one statement: between two, another process could make the table."""

# A connection must not be used or closed in a forked child, so the child keeps it untouched.
_inherited: list[sqlite3.Connection] = []


class VectorFile:
    """Keeps the newest entries; safe for threads and, as a file, for processes.

    The file is opened, and created if need be, when it is first used.

    Args:
        path: The file; None keeps everything in memory.
        max_entries: Entries kept at most; the oldest go first.
    """

    def __init__(self, path: Path | None, *, max_entries: int) -> None:
        self._path = path
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._closed = False

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Returns the vectors of those keys that are known.

        Raises:
            NotAStore: The file is something else.
            StoreUnavailable: The file is damaged, busy or cannot be opened.
            StoreClosed: After `close`.
        """
        found: dict[bytes, bytes] = {}
        with self._opened() as connection:
            for start in range(0, len(keys), _AT_ONCE):
                some = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(some))
                sql = f"select key, vector from vectors where key in ({marks})"  # noqa: S608 - marks
                found.update(connection.execute(sql, some).fetchall())
        return found

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Adds or renews entries in one transaction and drops the oldest beyond the limit.

        Raises:
            NotAStore: The file is something else.
            StoreUnavailable: The file is damaged, busy, full or cannot be opened.
            StoreClosed: After `close`.
        """
        with self._opened() as connection, _transaction(connection):
            connection.executemany(
                "insert or replace into vectors (key, vector) values (?, ?)", entries.items()
            )
            connection.execute(
                "delete from vectors where id <= (select max(id) from vectors) - ?",
                [self._max_entries],
            )

    def close(self) -> None:
        """Closes the file; closing twice is no error."""
        with self._lock:
            self._closed = True
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._closed:
                raise StoreClosed(store=STORE)
            try:
                if self._connection is None or self._process != os.getpid():
                    if self._connection is not None:
                        _inherited.append(self._connection)
                    self._connection = _connect(self._path)
                    self._process = os.getpid()
                    # Whoever drops a cache without closing it leaves no connection open.
                    weakref.finalize(self, _close_own, self._connection, self._process)
                yield self._connection
            except sqlite3.Error as error:
                raise _typed(error) from error


def _close_own(connection: sqlite3.Connection, process: int) -> None:
    """Closes a connection in the process that opened it."""
    if os.getpid() == process:
        connection.close()


def _connect(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        _check_size(path)
    connection = sqlite3.connect(
        ":memory:" if path is None else path,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _check_file(connection)
        _use_wal(connection)
        connection.execute("pragma synchronous = normal")
        with _transaction(connection):
            _check_file(connection)  # another process may have been faster
            connection.execute(f"pragma application_id = {_APPLICATION}")
            connection.execute(_TABLE)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_size(path: Path) -> None:
    """Refuses a short file of another format, which SQLite would take for an empty database."""
    # Looking inside is out of the question: closing any handle on the file would drop the locks
    # that other caches of this process hold on it.
    if path.is_file() and 0 < path.stat().st_size < _SMALLEST:
        raise NotAStore("the file is no embedding cache", store=STORE)


def _check_file(connection: sqlite3.Connection) -> None:
    """Refuses a database that somebody else made, before anything in it changes."""
    application, tables = connection.execute(_MARKS).fetchone()
    if application != _APPLICATION and (application or tables):
        raise NotAStore("the file is a database, but no embedding cache", store=STORE)


def _use_wal(connection: sqlite3.Connection) -> None:
    # SQLite does not wait for other openers when it changes the journal mode, so this does.
    give_up = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("pragma journal_mode = wal").fetchone()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > give_up:
                raise
            time.sleep(_PAUSE)
        else:
            return


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("begin immediate")
    try:
        yield
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")


def _primary_code(error: sqlite3.Error) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _is_busy(error: sqlite3.Error) -> bool:
    return _primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _typed(error: sqlite3.Error) -> NotAStore | StoreUnavailable:
    if _primary_code(error) == sqlite3.SQLITE_NOTADB:
        return NotAStore("the file is no embedding cache", store=STORE)
    if _is_busy(error):
        return StoreUnavailable("busy", store=STORE, retryable=True)
    if _primary_code(error) == sqlite3.SQLITE_CORRUPT:
        return damaged()
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StoreUnavailable(f"the file cannot be used ({name})", store=STORE)


def damaged() -> StoreUnavailable:
    """Returns the error for content that cannot have been written here."""
    problem = "the file is damaged; delete it, and it is filled anew"
    return StoreUnavailable(problem, store=STORE)
