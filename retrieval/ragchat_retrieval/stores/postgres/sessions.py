"""Connections, transactions and errors: the only module that knows psycopg.

Connections belong to the event loop that they were opened on, so there is a small pool for each
loop that the store is used from. A connection or pool that the caller gives is used and never
closed; inside a transaction of the caller's everything happens in a savepoint of it.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import psycopg
from psycopg import AsyncConnection, AsyncCursor, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ragchat_retrieval.errors import (
    InvalidSetting,
    StoreClosed,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from ragchat_retrieval.stores.postgres.layout import NAME

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from contextlib import AbstractAsyncContextManager

    Params = Sequence[Any] | Mapping[str, Any]

T = TypeVar("T")

TRIES = 5
"""How often work is begun where other transactions come in between."""

_READING = (
    "SET LOCAL jit = off; "
    "SELECT set_config('work_mem', greatest("
    "pg_size_bytes(current_setting('work_mem')) / 1024, 65536) || 'kB', true)"
)
"""Compiling costs more than such queries; and their sorts should stay in memory."""

_inherited: list[object] = []
"""Pools of a parent process; its connections are not ours to close."""


class Session:
    """A cursor inside a transaction.

    Args:
        cursor: The cursor.
        joins: Whether the transaction is the caller's. What is seen in it may never be committed.
    """

    def __init__(self, cursor: AsyncCursor[tuple[Any, ...]], *, joins: bool) -> None:
        self._cursor = cursor
        self.joins = joins

    async def fetch(self, query: str, params: Params | None = None) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""
        await self._cursor.execute(query.encode(), params, prepare=False, binary=True)
        return await self._cursor.fetchall()

    async def run(self, query: str, params: Params | None = None) -> int:
        """Runs a statement and returns how many rows it touched."""
        await self._cursor.execute(query.encode(), params, prepare=False)
        return self._cursor.rowcount

    async def allowed(self, statement: str) -> bool:
        """Runs a statement; returns False if the role or the server cannot do that."""
        return await self._passes(
            statement,
            errors.InsufficientPrivilege,
            errors.FeatureNotSupported,
            errors.UndefinedFile,
        )

    async def fits(self, statement: str) -> bool:
        """Runs a statement; returns False if it takes more memory or disk than there is."""
        return await self._passes(statement, errors.DiskFull, errors.OutOfMemory)

    async def _passes(self, statement: str, *refusals: type[psycopg.Error]) -> bool:
        try:
            async with self._cursor.connection.transaction():
                await self._cursor.execute(statement.encode(), prepare=False)
        except refusals:
            return False
        return True

    async def copy_rows(self, target: str, rows: Iterable[Sequence[Any]]) -> None:
        """Writes rows into ``table (columns)``."""
        async with self._cursor.copy(f"COPY {target} FROM STDIN".encode()) as copy:
            for row in rows:
                await copy.write_row(row)

    async def copy_binary(self, target: str, parts: Iterable[bytes | memoryview]) -> None:
        """Writes what is in PostgreSQL's binary form already into ``table (columns)``."""
        statement = f"COPY {target} FROM STDIN (FORMAT BINARY)".encode()
        async with self._cursor.copy(statement) as copy:
            for part in parts:
                await copy.write(part)


class Connections(Protocol):
    """Where connections come from."""

    def lend(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """Lends a connection that nobody else uses meanwhile."""
        ...

    async def aclose(self) -> None:
        """Closes what is ours."""
        ...


class _Pool(Protocol):
    def connection(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]: ...


def transactions(where: object, *, size: int, timeout: float) -> Transactions:
    """Returns the transactions that an argument of `PostgresStore` stands for.

    Args:
        where: A conninfo, or an async connection or pool of psycopg's.
        size: Most connections to open on one event loop.
        timeout: Seconds to wait for the server, for a free connection, and for other writers.

    Raises:
        InvalidSetting: It is nothing of these.
    """
    return Transactions(_source(where, size=size, timeout=timeout), timeout)


def _source(where: object, *, size: int, timeout: float) -> Connections:
    if isinstance(where, str):
        try:
            conninfo_to_dict(where)
        except psycopg.Error:
            # The driver's own message may quote the password.
            raise InvalidSetting("where", "is no PostgreSQL URL or conninfo string") from None
        return _Own(where, size=size, timeout=timeout)
    if isinstance(where, AsyncConnection):
        return _BorrowedConnection(where)
    if hasattr(where, "connection") and hasattr(where, "getconn"):
        return _BorrowedPool(cast("_Pool", where))
    raise InvalidSetting("where", "takes a URL, an AsyncConnection or an AsyncConnectionPool")


class Transactions:
    """Runs work in transactions.

    Args:
        source: Where connections come from.
        timeout: Seconds to wait for other writers.
    """

    def __init__(self, source: Connections, timeout: float) -> None:
        self._source = source
        self._timeout = timeout

    async def run(self, work: Callable[[Session], Awaitable[T]], *, write: bool) -> T:
        """Runs `work` in a transaction: committed at its end if it writes, rolled back otherwise.

        Reading sees one state of the database. Where another transaction came in between (a
        deadlock, tables that were dropped), the work is done again as a whole, unless it is part of
        a transaction of the caller's.

        Args:
            work: What to do; may be called several times.
            write: Whether it writes.

        Raises:
            StoreError: With the driver's errors turned into ours.
        """
        for left in reversed(range(TRIES)):
            joins = False
            try:
                with typed_errors(write=write):
                    async with self._source.lend() as connection:
                        joins = connection.info.transaction_status != TransactionStatus.IDLE
                        async with (
                            connection.transaction(force_rollback=not write),
                            AsyncCursor(connection, row_factory=tuple_row) as cursor,
                        ):
                            await cursor.execute(self._opening(write=write, joins=joins).encode())
                            return await work(Session(cursor, joins=joins))
            except _Disturbed as error:
                if joins or not left:
                    raise StoreUnavailable(str(error), store=NAME, retryable=True) from None
        raise AssertionError  # the last round returned or raised

    async def aclose(self) -> None:
        """Closes the connections that are ours."""
        await self._source.aclose()

    def _opening(self, *, write: bool, joins: bool) -> str:
        if write:
            # Under read committed, what follows the lock sees what was committed before it was got.
            isolation = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"
            limit = f"SET LOCAL lock_timeout = {max(1, round(self._timeout * 1000))}"
            return "SELECT 1" if joins else f"{isolation}; {limit}"
        isolation = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        return _READING if joins else f"{isolation}; {_READING}"


# --- where connections come from ---


@dataclass(slots=True, eq=False)
class _Here:
    """The connections of one event loop."""

    gate: asyncio.Semaphore
    idle: list[AsyncConnection[Any]] = field(default_factory=list)


class _Own:
    """Opens connections when they are needed, at most `size` on each event loop."""

    def __init__(self, conninfo: str, *, size: int, timeout: float) -> None:
        self._conninfo = conninfo
        self._size = size
        self._timeout = timeout
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, _Here] = {}
        self._pid = os.getpid()
        self._closed = False

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection[Any]]:
        here = self._here()
        try:
            async with asyncio.timeout(self._timeout):
                await here.gate.acquire()
        except TimeoutError:
            problem = "all connections are in use"
            raise StoreUnavailable(problem, store=NAME, retryable=True) from None
        try:
            connection = self._idle(here) or await self._connect()
            try:
                yield connection
            finally:
                self._take_back(here, connection)
        finally:
            here.gate.release()

    async def aclose(self) -> None:
        with self._lock:
            self._closed = True
            if self._pid == os.getpid():
                for here in self._loops.values():
                    _close_all(here.idle)
            self._loops = {}

    def _here(self) -> _Here:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise StoreClosed(store=NAME)
            if self._pid != os.getpid():
                _inherited.append(self._loops)
                self._loops, self._pid = {}, os.getpid()
            for gone in [other for other in self._loops if other.is_closed()]:
                _close_all(self._loops.pop(gone).idle)
            if loop not in self._loops:
                self._loops[loop] = _Here(asyncio.Semaphore(self._size))
            return self._loops[loop]

    def _idle(self, here: _Here) -> AsyncConnection[Any] | None:
        while here.idle:
            connection = here.idle.pop()
            if _is_silent(connection):
                return connection
            _close_all([connection])
        return None

    async def _connect(self) -> AsyncConnection[Any]:
        return await AsyncConnection.connect(
            self._conninfo,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=max(2, round(self._timeout)),
        )

    def _take_back(self, here: _Here, connection: AsyncConnection[Any]) -> None:
        sound = connection.info.transaction_status == TransactionStatus.IDLE
        with self._lock:
            if sound and not self._closed:
                here.idle.append(connection)
                return
        _close_all([connection])


class _BorrowedConnection:
    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._turns = asyncio.Lock()

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._turns:
            yield self._connection

    async def aclose(self) -> None:
        pass


class _BorrowedPool:
    def __init__(self, pool: _Pool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._pool.connection() as connection:
            yield connection

    async def aclose(self) -> None:
        pass


def _is_silent(connection: AsyncConnection[Any]) -> bool:
    """Says whether a connection that waits for work heard nothing, as a farewell of the server."""
    if connection.closed:
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        return not selector.select(0)


def _close_all(idle: list[AsyncConnection[Any]]) -> None:
    # Works from any thread, whatever became of the loop.
    for connection in idle:
        connection.pgconn.finish()
    idle.clear()


# --- errors ---


@contextmanager
def typed_errors(*, write: bool) -> Iterator[None]:
    """Turns errors of the driver into ours.

    The driver's own is the cause only where the connection failed: the others quote values.
    """
    try:
        yield
    except psycopg.OperationalError as error:
        raised = _typed(error, write=write)
        if error.sqlstate is None:
            raise raised from error
        raise raised from None
    except psycopg.Error as error:
        raise _typed(error, write=write) from None


class _Disturbed(Exception):
    """Another transaction came in between; doing everything again may help."""


def _typed(error: psycopg.Error, *, write: bool) -> Exception:  # noqa: PLR0911 - one return a case
    state = error.sqlstate or ""
    if isinstance(error, errors.DeadlockDetected | errors.SerializationFailure):
        return _Disturbed("other transactions came in between")
    if isinstance(error, errors.UndefinedTable):
        return _Disturbed("a table vanished")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreReadOnly("the server takes no writes", store=NAME)
    if isinstance(error, errors.InsufficientPrivilege):
        if write:
            return StoreReadOnly("the role may not do this", store=NAME)
        return StoreUnavailable("the role may not read here", store=NAME)
    if isinstance(error, errors.LockNotAvailable):
        return StoreUnavailable("busy with other writers", store=NAME, retryable=True)
    if isinstance(error, errors.DiskFull):
        return StoreUnavailable("the server's disk is full", store=NAME)
    if not state and isinstance(error, psycopg.OperationalError):
        return StoreUnavailable("the server cannot be reached", store=NAME, retryable=True)
    if isinstance(error, psycopg.OperationalError) or state.startswith("08"):
        problem = f"the server refused or stopped (PostgreSQL error {state})"
        return StoreUnavailable(problem, store=NAME, retryable=True)
    return StoreError(f"PostgreSQL error {state or type(error).__name__}", store=NAME)
