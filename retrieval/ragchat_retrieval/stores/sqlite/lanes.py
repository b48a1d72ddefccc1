"""The threads and connections that SQL runs on.

A connection is taken by whoever runs SQL and put back afterwards, so that two never share one.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from ragchat_retrieval.errors import (
    NotAStore,
    StoreClosed,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

NAME: Final = "sqlite"

_inherited: list[Lane] = []
"""Lanes of a parent process that were at work during the fork; never touched again."""


class WouldWait(Exception):
    """Work cannot be done at once; it belongs in a thread."""


class Lane:
    """A few threads with their connections, each opened when no other is free.

    Args:
        threads: Most threads that work at the same time.
        connect: Opens a connection.
    """

    def __init__(self, threads: int, connect: Callable[[], sqlite3.Connection]) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ragchat-sqlite")
        self._connect = connect
        # The last one put back is taken first: its pages are in its cache, and in the processor's.
        self._free: deque[sqlite3.Connection] = deque()
        self._connections: list[sqlite3.Connection] = []
        self._active: set[int] = set()
        self._closed = False
        # Whoever drops a store without closing it, or ends, leaves no connection open.
        weakref.finalize(self, _close_own, self._connections, os.getpid())

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` in a thread.

        Raises:
            StoreClosed: The lane was closed.
        """
        try:
            future = self._pool.submit(self._work, work)
        except RuntimeError:  # closed since the caller looked
            raise StoreClosed(store=NAME) from None
        return await asyncio.wrap_future(future)

    def run_at_once(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` in the calling thread.

        Raises:
            WouldWait: No open connection is free.
        """
        try:
            connection = self._free.pop()
        except IndexError:
            raise WouldWait from None
        return self._used(connection, work)

    def submit(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Queues `work` for a thread.

        Raises:
            RuntimeError: The lane was closed.
        """
        self._pool.submit(self._work, work)

    def close(self) -> None:
        """Waits for the threads and closes all connections."""
        self._pool.shutdown(wait=True)
        self._closed = True
        self._close_free()

    def abandon(self) -> None:
        """Lets go, in a forked process, of connections that its parent opened and still uses.

        Closing them frees what SQLite keeps in this process about the file, which would be wrong
        here; it takes no lock of the parent away. One at work cannot be closed and is left alone.
        """
        if self._active:
            _inherited.append(self)
        else:
            for connection in self._connections:
                connection.close()

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        thread = threading.get_ident()
        self._active.add(thread)  # opening a connection is work on the file, too
        try:
            with typed_errors():
                try:
                    connection = self._free.pop()
                except IndexError:
                    connection = self._connect()
                    self._connections.append(connection)
            return self._used(connection, work)
        finally:
            self._active.discard(thread)

    def _used(self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        thread = threading.get_ident()
        self._active.add(thread)
        try:
            with typed_errors():
                return work(connection)
        finally:
            self._active.discard(thread)
            self._free.append(connection)
            if self._closed:  # meanwhile, by another thread
                self._close_free()

    def _close_free(self) -> None:
        while True:
            try:
                self._free.pop().close()
            except IndexError:
                return


def _close_own(connections: list[sqlite3.Connection], pid: int) -> None:
    """Closes connections in the process that opened them."""
    if os.getpid() == pid:
        for connection in connections:
            connection.close()


def is_busy(error: sqlite3.Error) -> bool:
    """Says whether the driver failed because of what another connection does."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    }


@contextmanager
def typed_errors() -> Iterator[None]:
    """Turns errors of the driver into ours; the driver's own is the cause."""
    try:
        yield
    except sqlite3.Error as error:
        raise _typed(error) from error


def _typed(error: sqlite3.Error) -> StoreError:
    if is_busy(error):
        return StoreUnavailable("busy with other writers", store=NAME, retryable=True)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_READONLY:
        return StoreReadOnly("the file cannot be written", store=NAME)
    if code == sqlite3.SQLITE_NOTADB:
        return NotAStore("the file is no SQLite database", store=NAME)
    problems = {
        sqlite3.SQLITE_CORRUPT: "the file is damaged",
        sqlite3.SQLITE_CANTOPEN: "the file cannot be opened, or its folder is not there",
        sqlite3.SQLITE_FULL: "the disk is full",
        sqlite3.SQLITE_IOERR: "the disk fails",
    }
    return StoreUnavailable(problems.get(code, f"SQLite error {code}"), store=NAME)
