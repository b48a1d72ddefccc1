"""The file: how it is opened, and how SQL runs on it beside the event loop.

Writes go through one thread, reads through a few, each with a connection of its own, so that a
waiting writer never holds up a reader. A cancelled caller leaves its statement running: a write is
one transaction and commits whole or not at all. Short reads need no thread.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ragchat_retrieval.errors import (
    InvalidSetting,
    NotAStore,
    StoreClosed,
    StoreReadOnly,
    StoreUnavailable,
)
from ragchat_retrieval.stores.sqlite import schema
from ragchat_retrieval.stores.sqlite.lanes import NAME, Lane, WouldWait, is_busy

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

READERS = 4
"""Threads, and so connections, that read at the same time."""

_WRITER_CACHE = 16 * 1024
_READER_CACHE = 8 * 1024
"""Page caches in KiB."""

_WAL_LIMIT = 64 * 1024 * 1024
"""Bytes that the write-ahead log keeps on disk after a checkpoint."""

_CHECKPOINT = 1000
"""Pages in the log after which a write moves them into the file; SQLite's own default."""

_MANY_CHANGES = 5000
"""Rows that make a write a large one."""

_PAUSE = 0.01
"""Seconds between two tries where SQLite itself does not wait."""

_SMALLEST = 512
"""Bytes of the smallest SQLite file that is not empty."""


class Database:
    """One file, opened on first use.

    Args:
        path: The file, or ``:memory:`` for a private database in memory.
        read_only: Refuse writes; the file must exist.
        timeout: Seconds to wait for another process that writes.

    Raises:
        InvalidSetting: The timeout is not a positive number, or ``:memory:`` is to be read-only.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool, timeout: float) -> None:
        if not 0 < timeout < threading.TIMEOUT_MAX:
            raise InvalidSetting("timeout", "must be a positive number of seconds")
        self.path = os.fspath(path)
        self.in_memory = self.path == ":memory:"
        if not self.path or (self.in_memory and read_only):
            raise InvalidSetting("path", "must name a file; a database in memory is writable")
        if "\x00" in self.path or not _is_name(self.path):
            raise InvalidSetting("path", "holds a character that no file's name can hold")
        self.read_only = read_only
        self._timeout = timeout
        self._closed = False
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._lost = False
        self._file: tuple[int, int] | None = None
        self._reader: Lane | None = None
        self._writer: Lane | None = None

    async def read(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        at_once: Callable[[sqlite3.Connection], T] | None = None,
    ) -> T:
        """Runs `work` inside one read transaction: it sees one state of the file.

        Args:
            work: Reads; runs in a thread.
            at_once: Does the same where that is short, and runs in the calling thread if nothing
                is in its way. It raises `WouldWait` to leave the work to the thread after all.
        """
        lane = self._lane(write=False)
        if at_once is not None and not self.in_memory:
            with suppress(WouldWait):
                return lane.run_at_once(lambda c: self._reading_at_once(c, at_once))
        return await lane.run(lambda c: self._reading(c, work))

    async def write(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        before: Callable[[], object] = lambda: None,
        after: Callable[[T], object] = lambda _: None,
    ) -> T:
        """Runs `work` inside one write transaction, committed at its end, rolled back if it raises.

        Args:
            work: Reads and writes.
            before: Runs first, while other processes may still write.
            after: Gets the result of `work` once it is committed.

        Raises:
            StoreReadOnly: The store was opened for reading.
        """

        def whole(connection: sqlite3.Connection) -> T:
            before()
            result = self._writing(connection, work)
            after(result)
            return result

        return await self._lane(write=True).run(whole)

    def later(self, work: Callable[[], object]) -> None:
        """Queues `work`, behind the writes if there were any; a closed file ignores it.

        So much was written before that the pages SQLite has cached for writing go back, too.
        """

        def whole(connection: sqlite3.Connection) -> None:
            work()
            connection.execute("PRAGMA shrink_memory")

        with suppress(StoreClosed, RuntimeError):
            lane = self._writer or self._lane(write=False)
            lane.submit(whole)

    async def close(self, last: Callable[[sqlite3.Connection], object]) -> None:
        """Waits for what runs, runs `last` if anything ran before, and closes all connections."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._after_fork()
            reader, writer = self._reader, self._writer
            self._reader = self._writer = None
        await asyncio.shield(asyncio.to_thread(self._shut, reader, writer, last))

    def _shut(
        self,
        reader: Lane | None,
        writer: Lane | None,
        last: Callable[[sqlite3.Connection], object],
    ) -> None:
        try:
            lane = writer or reader
            if lane is not None:
                lane.submit(lambda c: self._reading(c, last))
        finally:
            for lane in {reader, writer} - {None}:
                if lane is not None:
                    lane.close()

    def _lane(self, *, write: bool) -> Lane:
        with self._lock:
            if self._closed:
                raise StoreClosed(store=NAME)
            if write and self.read_only:
                raise StoreReadOnly(store=NAME)
            self._after_fork()
            if self._lost:
                problem = "a database in memory stays with the process that made it"
                raise StoreUnavailable(problem, store=NAME)
            if self.in_memory and self._writer is None:
                self._reader = self._writer = Lane(1, lambda: self._connect(write=True))
            elif write and self._writer is None:
                self._writer = Lane(1, lambda: self._connect(write=True))
            elif not write and self._reader is None:
                self._reader = Lane(READERS, lambda: self._connect(write=False))
            lane = self._writer if write else self._reader
        assert lane is not None  # noqa: S101 - set above
        return lane

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            for lane in {self._reader, self._writer} - {None}:
                if lane is not None:
                    lane.abandon()
                    self._lost = self.in_memory
            self._reader = self._writer = None
            self._pid = os.getpid()

    # --- in a worker thread ---

    def _reading(
        self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]
    ) -> T:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._reading_once(connection, work)
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE)

    def _reading_at_once(
        self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]
    ) -> T:
        try:
            return self._reading_once(connection, work)
        except sqlite3.OperationalError as error:
            if is_busy(error):
                raise WouldWait from None
            raise

    def _reading_once(
        self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]
    ) -> T:
        self._check_file()
        connection.execute("BEGIN")
        try:
            return work(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _writing(
        self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]
    ) -> T:
        self._check_file()
        connection.execute("BEGIN IMMEDIATE")
        changes = connection.total_changes
        try:
            result = work(connection)
            self._check_file()
            if connection.total_changes - changes > _MANY_CHANGES and not self.in_memory:
                self._commit_first(connection)
            else:
                connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise
        return result

    def _commit_first(self, connection: sqlite3.Connection) -> None:
        """Commits a large write; the caller need not wait until it has moved out of the log."""
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        try:
            connection.execute("COMMIT")
        finally:
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
        with suppress(RuntimeError):  # closing, which moves everything as well
            if self._writer is not None:
                self._writer.submit(lambda c: c.execute("PRAGMA wal_checkpoint(PASSIVE)"))

    def _connect(self, *, write: bool) -> sqlite3.Connection:
        self._check_file()  # else this connection would be to another file than the others
        self._check_size()
        connection = self._connect_read_only() if self.read_only else self._connect_any(write=write)
        if self._file is None and not self.in_memory:
            self._file = self._file_at_path()
        if not write:
            # Waiting is done between the statements, and not at all by who reads at once.
            connection.execute("PRAGMA busy_timeout = 0")
        return connection

    def _connect_any(self, *, write: bool) -> sqlite3.Connection:
        target = self.path if self.in_memory else f"{Path(self.path).absolute().as_uri()}?mode=rwc"
        connection = self._open(target, cache=_WRITER_CACHE if write else _READER_CACHE)
        try:
            if not schema.is_prepared(connection, self.path):
                schema.prepare(connection, self.path)
            self._use_wal(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_file(self) -> None:
        """Refuses to go on with a file that is no longer the one at the path.

        The system keeps a removed file for who has it open: what is written there is lost.
        """
        if self._file is not None and self._file_at_path() != self._file:
            problem = "the file was moved, removed or replaced while it was open"
            raise StoreUnavailable(problem, store=NAME)

    def _file_at_path(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - before every statement: half the cost
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _check_size(self) -> None:
        """Refuses a short file of something else, which SQLite would take for an empty database."""
        # Looking inside is out of the question: closing any handle on the file would drop the locks
        # that this process holds on it.
        if self.in_memory:
            return
        try:
            found = Path(self.path).stat()
        except OSError:
            return  # it is not there, or SQLite says what is wrong with the path
        if stat.S_ISREG(found.st_mode) and 0 < found.st_size < _SMALLEST:
            raise NotAStore(f"{self.path} is no SQLite database", store=NAME)

    def _connect_read_only(self) -> sqlite3.Connection:
        uri = f"{Path(self.path).absolute().as_uri()}?mode=ro"
        try:
            return self._checked(uri)
        except sqlite3.OperationalError:
            log = Path(f"{self.path}-wal")
            if not Path(self.path).is_file() or (log.exists() and log.stat().st_size):
                raise
        # A folder in which nothing can be created: without a log the file alone is complete.
        return self._checked(f"{uri}&immutable=1")

    def _checked(self, uri: str) -> sqlite3.Connection:
        connection = self._open(uri, cache=_READER_CACHE)
        try:
            prepared = schema.is_prepared(connection, self.path)
        except BaseException:
            connection.close()
            raise
        if not prepared:
            connection.close()
            raise NotAStore(f"{self.path} holds no index", store=NAME)
        return connection

    def _open(self, target: str, *, cache: int) -> sqlite3.Connection:
        connection = sqlite3.connect(
            target,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
            uri=not self.in_memory,
        )
        try:
            for pragma in (
                f"cache_size = -{cache}",
                f"journal_size_limit = {_WAL_LIMIT}",
                "synchronous = NORMAL",
                "temp_store = MEMORY",
                "trusted_schema = OFF",
            ):
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switches the file to write-ahead logging; SQLite does not wait for readers here."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY:
                    return  # readable all the same; writes will say so
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise
            else:
                return
            time.sleep(_PAUSE)


def _is_name(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True
