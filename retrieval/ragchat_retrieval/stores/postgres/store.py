"""The store in PostgreSQL: one schema, both lanes in SQL, every write one transaction."""

from __future__ import annotations

import copy
import importlib.util
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from ragchat_retrieval.errors import InvalidSetting, MissingExtra, StoreClosed, StoreReadOnly
from ragchat_retrieval.ports import Capabilities, StoreCounts
from ragchat_retrieval.stores.checks import check_write, checked_name
from ragchat_retrieval.stores.postgres import layout, reading
from ragchat_retrieval.stores.postgres.keyword import TermStatistics
from ragchat_retrieval.stores.postgres.lanes import PostgresLanes, Reading
from ragchat_retrieval.stores.postgres.layout import NAME, Tables
from ragchat_retrieval.stores.postgres.state import first_revision, read_state
from ragchat_retrieval.stores.postgres.writing import Writing, compute
from ragchat_retrieval.text import is_storable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.ports import Identity
    from ragchat_retrieval.stores.postgres.layout import Catalog
    from ragchat_retrieval.stores.postgres.sessions import Session, Transactions
    from ragchat_retrieval.values import Document, Passage, Revision

T = TypeVar("T")

EXACT_UP_TO: Final = 10_000
"""Vectors that are compared one by one in a few milliseconds (measured at 384 dimensions)."""

_LONGEST: Final = (2**31 - 1) // 1000
"""Seconds that a timeout must stay below: the server keeps milliseconds in 31 bits."""


@dataclass(slots=True, eq=False)
class _Shared:
    """What the handles of one store have in common."""

    transactions: Transactions
    schema: str
    read_only: bool
    exact_up_to: int
    statistics: TermStatistics = field(default_factory=TermStatistics)
    catalog: layout.Catalog | None = None
    """What the database said of itself when everything was there."""

    closed: bool = False


class PostgresStore(PostgresLanes):
    """Keeps documents, postings and vectors in PostgreSQL with pgvector.

    Implements `ragchat_retrieval.ports.Store`, whose docstrings say what the methods promise. The
    ranking is the embedded store's, scores included, with one exception: from `exact_up_to` vectors
    on, the vector lane asks an HNSW index, which is approximate. Under a filter that leaves no more
    than `exact_up_to` passages, and wherever the index comes back with too few, all are compared.

    Every write is one transaction; writers of one corpus take turns under an advisory lock, in any
    number of processes, and readers wait for nobody. Schema and tables are made by the first write.
    Every corpus has tables of its own.

    Given a URL, the store opens connections when it needs them, at most `connections` on each event
    loop that it is used from. A connection or pool of psycopg's that is given instead is never
    closed. In a transaction of the caller's the store works in savepoints, so that index and rows
    of the application change together; the isolation of reads is then the caller's.

    Args:
        where: ``postgresql://…`` or another conninfo string, an `psycopg.AsyncConnection`, or a
            `psycopg_pool.AsyncConnectionPool`, opened.
        corpus: The corpus to work with.
        schema: The schema that holds the tables.
        read_only: Refuse writes, and create nothing.
        exact_up_to: Number of vectors up to which all are compared; more get an HNSW index.
        connections: Most connections to open on one event loop.
        timeout: Seconds to wait for the server, for a free connection, and for other writers.

    Raises:
        MissingExtra: The extra ``postgres`` is not installed.
        InvalidSetting: A setting cannot work. The server is first asked when the store is used.
    """

    def __init__(
        self,
        where: object,
        *,
        corpus: str = "default",
        schema: str = "ragchat",
        read_only: bool = False,
        exact_up_to: int = EXACT_UP_TO,
        connections: int = 8,
        timeout: float = 30.0,
    ) -> None:
        if importlib.util.find_spec("psycopg") is None:
            raise MissingExtra("postgres", "PostgresStore")
        from ragchat_retrieval.stores.postgres import sessions  # noqa: PLC0415 - needs the extra

        layout.check_schema(schema)
        if not 0 < timeout < _LONGEST:
            raise InvalidSetting("timeout", "must be a positive number of seconds")
        if connections < 1:
            raise InvalidSetting("connections", "must be at least 1")
        if exact_up_to < 0:
            raise InvalidSetting("exact_up_to", "must not be negative")
        self._corpus = checked_name(corpus)
        self._shared = _Shared(
            sessions.transactions(where, size=connections, timeout=timeout),
            schema,
            read_only,
            exact_up_to,
        )

    @property
    def name(self) -> str:
        """``postgres``."""
        return NAME

    @property
    def capabilities(self) -> Capabilities:
        """Everything: both lanes, filters inside each, atomic batches, reset."""
        return Capabilities()

    @property
    def corpus_name(self) -> str:
        """The corpus this handle reads and writes."""
        return self._corpus

    def corpus(self, name: str) -> PostgresStore:
        """Returns a handle on another corpus of the same schema; closing one closes all."""
        handle = copy.copy(self)
        handle._corpus = checked_name(name)  # noqa: SLF001 - of our own class
        return handle

    # --- writing ---

    async def replace(
        self,
        revisions: Sequence[Revision],
        *,
        identity: Identity,
        scope: Filter,
        expected: Mapping[str, str] | None = None,
    ) -> None:
        """Makes these revisions the only ones of their documents; see `ports.Store.replace`."""
        given = tuple(revisions)
        self._check_open(write=True)
        await compute(
            lambda: check_write(given, identity=identity, scope=scope, store=NAME),
            passages=sum(len(revision.passages) for revision in given),
        )
        if given:
            await self._write(
                lambda w: w.replace(given, identity=identity, scope=scope, expected=expected)
            )

    async def delete(self, document_ids: Collection[str], *, scope: Filter) -> int:
        """Removes documents and returns how many there were; unknown ids are no error."""
        ids = reading.storable(document_ids)
        return await self._write(lambda w: w.delete("id = ANY(%(value)s)", ids, scope=scope))

    async def delete_by_source(self, source: str, *, scope: Filter) -> int:
        """Removes every document of a source and returns how many there were."""
        sources = reading.storable([source])
        return await self._write(
            lambda w: w.delete("source = ANY(%(value)s)", sources, scope=scope)
        )

    async def reset(self) -> None:
        """Removes everything from the corpus, identity included."""
        await self._write(lambda w: w.clear(drop=False))

    async def drop_corpus(self) -> None:
        """Removes this corpus with everything in it."""
        await self._write(lambda w: w.clear(drop=True))

    async def swap_corpus(self, other: str, *, expected: int | None = None) -> None:
        """Exchanges this corpus and another; see `ports.SwappableStore`."""
        if checked_name(other) != self._corpus:
            await self._write(lambda w: w.swap(other, expected=expected))

    async def repair(self) -> None:
        """Counts anew, forgets terms that nothing holds, and makes the HNSW index anew.

        The server's own means look after the rest: a crash leaves nothing behind.
        """
        await self._write(lambda w: w.repair())

    # --- reading ---

    async def identity(self) -> Identity | None:
        """Returns what the corpus was written with; None before the first write and after reset."""
        return await self._read(lambda r: _done(r.state.identity), None)

    async def revision(self) -> int:
        """Returns a counter that every write of the corpus raises."""

        async def work(session: Session) -> int:
            if not await self._catalog(session):
                return 0
            state = await read_state(session, self._shared.schema, self._corpus)
            if state is None:
                return await first_revision(session, self._shared.schema)
            return state.revision

        return await self._transaction(work, write=False)

    async def corpora(self) -> Sequence[str]:
        """Returns the names of all corpora that were written, in ascending order."""

        async def work(session: Session) -> list[str]:
            if not await self._catalog(session):
                return []
            rows = await session.fetch(
                f'SELECT name FROM "{self._shared.schema}".corpora ORDER BY name'  # noqa: S608 - a checked name
            )
            return [name for (name,) in rows]

        return await self._transaction(work, write=False)

    async def ids(self, *, scope: Filter) -> Sequence[str]:
        """Returns all passage ids in ascending order."""
        return await self._read(lambda r: reading.passage_ids(r.session, r.tables, scope), [])

    async def document_ids(self, *, scope: Filter) -> Sequence[str]:
        """Returns all document ids in ascending order."""
        return await self._read(lambda r: reading.document_ids(r.session, r.tables, scope), [])

    async def document(self, document_id: str, *, scope: Filter) -> Document | None:
        """Returns a document with its text, or None."""
        if not is_storable(document_id):
            document_id = ""  # no document has it
        return await self._read(
            lambda r: reading.document(r.session, r.tables, document_id, scope), None
        )

    async def get(self, passage_ids: Sequence[str], *, scope: Filter) -> Mapping[str, Passage]:
        """Returns the known ones among these passages, by id."""
        ids = reading.storable(passage_ids)
        return await self._read(lambda r: reading.passages(r.session, r.tables, ids, scope), {})

    async def vectors(
        self, passage_ids: Sequence[str], *, scope: Filter
    ) -> Mapping[str, NDArray[np.float32]]:
        """Returns the vectors of the known ones that have one, float32 [dimension]."""
        ids = reading.storable(passage_ids)

        async def work(r: Reading) -> dict[str, NDArray[np.float32]]:
            if not r.state.vectors:
                return {}
            known, matrix = await reading.vectors(r.session, r.catalog, r.tables, ids, scope)
            return {id_: row.copy() for id_, row in zip(known, matrix, strict=True)}

        return await self._read(work, {})

    async def neighbours(
        self, document_id: str, ordinal: int, n: int, *, scope: Filter
    ) -> Sequence[Passage]:
        """Returns the passages at ordinals ``ordinal − n … ordinal + n``, in order."""
        around = (ordinal - n, ordinal + n)
        owner = document_id if is_storable(document_id) else ""  # no document has it
        return await self._read(
            lambda r: reading.neighbours(r.session, r.tables, owner, around, scope), []
        )

    async def hashes(
        self, document_ids: Collection[str] | None = None, *, scope: Filter
    ) -> Mapping[str, str]:
        """Returns the fingerprints of the known ones among these documents; None means all."""
        ids = None if document_ids is None else reading.storable(document_ids)
        return await self._read(lambda r: reading.hashes(r.session, r.tables, ids, scope), {})

    async def count(self, *, scope: Filter) -> StoreCounts:
        """Returns how much the corpus holds."""

        async def work(r: Reading) -> StoreCounts:
            state = r.state
            if not scope:
                return StoreCounts(state.documents, state.passages, state.vectors)
            has_vectors = state.dimension is not None
            return await reading.counts(r.session, r.tables, scope, has_vectors=has_vectors)

        return await self._read(work, StoreCounts(0, 0, 0))

    # --- closing ---

    async def aclose(self) -> None:
        """Closes the connections that the store opened; closing twice is no error."""
        self._shared.closed = True
        await self._shared.transactions.aclose()

    # --- inside ---

    @property
    def _statistics(self) -> TermStatistics:
        return self._shared.statistics

    @property
    def _exact_up_to(self) -> int:
        return self._shared.exact_up_to

    async def _read(
        self,
        work: Callable[[Reading], Awaitable[T]],
        absent: T,
        *,
        otherwise: Callable[[], object] = lambda: None,
    ) -> T:
        """Runs `work` on the corpus; where there is none, `otherwise`, and returns `absent`."""

        async def inside(session: Session) -> T:
            catalog = await self._catalog(session)
            schema = self._shared.schema
            state = await read_state(session, schema, self._corpus) if catalog else None
            if catalog is None or state is None:
                otherwise()
                return absent
            if state.dimension is not None and catalog.extension is None:
                # Installed since the catalog was read.
                self._shared.catalog = None
                catalog = await self._catalog(session) or catalog
            return await work(Reading(session, catalog, Tables(schema, state.key), state))

        return await self._transaction(inside, write=False)

    async def _write(self, work: Callable[[Writing], Awaitable[T]]) -> T:
        shared = self._shared

        def inside(session: Session) -> Awaitable[T]:
            return work(
                Writing(session, shared.schema, self._corpus, exact_up_to=shared.exact_up_to)
            )

        return await self._transaction(inside, write=True)

    async def _transaction(self, work: Callable[[Session], Awaitable[T]], *, write: bool) -> T:
        self._check_open(write=write)
        return await self._shared.transactions.run(work, write=write)

    async def _catalog(self, session: Session) -> Catalog | None:
        """Returns what the database says of itself, asking until our schema is there."""
        shared = self._shared
        if shared.catalog is not None and not session.joins:
            return shared.catalog
        catalog = await layout.read_catalog(session, shared.schema)
        if not session.joins:
            shared.catalog = catalog if catalog.prepared else None
        return catalog if catalog.prepared else None

    def _check_open(self, *, write: bool) -> None:
        if self._shared.closed:
            raise StoreClosed(store=NAME)
        if write and self._shared.read_only:
            raise StoreReadOnly(store=NAME)


async def _done(value: T) -> T:
    return value
