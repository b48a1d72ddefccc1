"""What a write does to the tables, in a transaction that holds the corpus's lock."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from ragchat_retrieval.errors import (
    CorpusChanged,
    PassageIDConflict,
    ScopeViolation,
    UnknownCorpus,
)
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.stores.checks import agreed_identity, check_expected
from ragchat_retrieval.stores.postgres import layout
from ragchat_retrieval.stores.postgres.layout import NAME, Tables
from ragchat_retrieval.stores.postgres.predicate import predicate
from ragchat_retrieval.stores.postgres.reading import hashes, storable
from ragchat_retrieval.stores.postgres.rows import (
    DOCUMENT_COLUMNS,
    PASSAGE_COLUMNS,
    POSTING_COLUMNS,
    binary_postings,
    binary_vectors,
    build,
)
from ragchat_retrieval.stores.postgres.state import (
    CorpusState,
    create_state,
    drop_state,
    read_state,
    swap_names,
    write_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import Identity
    from ragchat_retrieval.stores.postgres.layout import Catalog
    from ragchat_retrieval.stores.postgres.rows import Batch
    from ragchat_retrieval.stores.postgres.sessions import Session
    from ragchat_retrieval.values import Revision

T = TypeVar("T")

_FEW: Final = 100
"""Passages whose rows are built without a thread, in about a millisecond."""

_SETTLED: Final = 1000
"""Passages from which on the planner is told of growth."""


async def compute(work: Callable[[], T], *, passages: int) -> T:
    """Does the work of few passages at once, and of more in a thread beside the event loop."""
    return work() if passages <= _FEW else await asyncio.to_thread(work)


class Writing:
    """One write of one corpus.

    Args:
        session: In a write transaction.
        schema: Our schema.
        corpus: The corpus.
        exact_up_to: Vectors from which on there is an HNSW index.
    """

    def __init__(self, session: Session, schema: str, corpus: str, *, exact_up_to: int) -> None:
        self._session = session
        self._schema = schema
        self._corpus = corpus
        self._exact_up_to = exact_up_to

    async def replace(
        self,
        revisions: Sequence[Revision],
        *,
        identity: Identity,
        scope: Filter,
        expected: Mapping[str, str] | None,
    ) -> None:
        """Makes the revisions, which were checked, the only ones of their documents.

        Raises:
            IdentityMismatch: The corpus was written with something else.
            ScopeViolation: A stored document that would be replaced lies outside `scope`.
            DocumentChanged: A document is not the expected revision.
            PassageIDConflict: A document that is not replaced owns a passage id.
        """
        await self._lock()
        catalog = await layout.read_catalog(self._session, self._schema)
        if not catalog.prepared:
            catalog = await layout.prepare(self._session, self._schema)
        stored = await read_state(self._session, self._schema, self._corpus)
        agreed = agreed_identity(
            stored.identity if stored else None, identity, revisions, store=NAME
        )
        state = stored
        if state is None:
            state = await create_state(self._session, self._schema, self._corpus)
            await layout.create_tables(self._session, self._tables(state))
        if state.dimension is None and agreed.dimension is not None:
            catalog = await layout.create_vectors(
                self._session, catalog, self._tables(state), agreed.dimension
            )
        state = replace(state, identity=agreed)
        old = await self._replaced(state, revisions, scope)
        if expected:
            known = await hashes(self._session, self._tables(state), storable(expected), Filter())
            check_expected(expected, known, store=NAME)
        state = await self._remove(state, old)
        written = [revision for revision in revisions if revision.passages]
        if written:
            state = await self._insert(state, written)
        state = await self._keep_fast(state, catalog)
        await self._keep(state)

    async def delete(self, condition: str, value: object, *, scope: Filter) -> int:
        """Removes documents and returns how many there were.

        Args:
            condition: On the columns of a document, with the parameter ``value``.
            value: Its value.
            scope: Documents outside it stay.
        """
        state = await self._known()
        if state is None:
            return 0
        inside = predicate(scope, column="fields")
        rows = await self._session.fetch(
            f"SELECT key FROM {self._tables(state).documents} WHERE {condition} AND {inside.sql}",  # noqa: S608 - our own names and conditions
            {"value": value, **inside.params},
        )
        if rows:
            await self._keep(await self._remove(state, [key for (key,) in rows]))
        return len(rows)

    async def clear(self, *, drop: bool) -> None:
        """Removes everything in the corpus; if `drop`, the corpus itself too."""
        state = await self._known()
        if state is None:
            return
        tables = self._tables(state)
        if drop:
            await drop_state(self._session, self._schema, state)
        await layout.drop_tables(self._session, tables)
        if not drop:
            await layout.create_tables(self._session, tables)
            await self._keep(CorpusState(state.key, state.revision))

    async def swap(self, other: str, *, expected: int | None) -> None:
        """Lets the corpus and another one change names.

        Raises:
            UnknownCorpus: One of them was never written.
            CorpusChanged: The corpus is at another revision than the expected one.
        """
        for name in sorted((self._corpus, other)):  # two swaps never wait for each other
            await self._lock(name)
        catalog = await layout.read_catalog(self._session, self._schema)
        found = []
        for name in (self._corpus, other):
            state = None
            if catalog.prepared:
                state = await read_state(self._session, self._schema, name)
            if state is None:
                raise UnknownCorpus(name, store=NAME)
            found.append(state)
        if expected is not None and found[0].revision != expected:
            raise CorpusChanged(self._corpus, store=NAME)
        await swap_names(self._session, self._schema, (self._corpus, other))
        revision = max(state.revision for state in found)
        for state in found:
            await self._keep(replace(state, revision=revision))

    async def repair(self) -> None:
        """Counts anew, forgets terms that nothing holds, and makes the HNSW index anew."""
        state = await self._known()
        if state is None:
            return
        tables = self._tables(state)
        catalog = await layout.read_catalog(self._session, self._schema)
        await self._session.run(
            f"DELETE FROM {tables.terms} t "  # noqa: S608 - our own names
            f"WHERE NOT EXISTS (SELECT FROM {tables.postings} p WHERE p.term = t.id)"
        )
        ((documents, passages, length),) = await self._session.fetch(
            f"SELECT (SELECT count(*) FROM {tables.documents}), count(*), "  # noqa: S608 - our own names
            f"coalesce(sum(length), 0)::bigint FROM {tables.passages}"
        )
        vectors = 0
        if state.dimension is not None:
            ((vectors,),) = await self._session.fetch(f"SELECT count(*) FROM {tables.vectors}")  # noqa: S608 - our own names
        state = replace(
            state,
            documents=documents,
            passages=passages,
            length=length,
            vectors=vectors,
            indexed=False,
            analyzed=0,
        )
        await layout.drop_hnsw(self._session, tables)
        state = await self._keep_fast(state, catalog)
        await write_state(self._session, self._schema, state)

    # --- parts ---

    async def _lock(self, corpus: str | None = None) -> None:
        """Waits for other writers of the corpus; the lock ends with the transaction."""
        await self._session.run(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"ragchat: {self._schema} {corpus or self._corpus}"],
        )

    async def _known(self) -> CorpusState | None:
        await self._lock()
        catalog = await layout.read_catalog(self._session, self._schema)
        if not catalog.prepared:
            return None
        return await read_state(self._session, self._schema, self._corpus)

    async def _keep(self, state: CorpusState) -> None:
        await write_state(self._session, self._schema, replace(state, revision=state.revision + 1))

    async def _replaced(
        self, state: CorpusState, revisions: Sequence[Revision], scope: Filter
    ) -> list[int]:
        """Returns the keys of the stored documents that make room."""
        inside = predicate(scope, column="fields")
        rows = await self._session.fetch(
            f"SELECT key, id, {inside.sql} FROM {self._tables(state).documents} "  # noqa: S608 - our own names
            "WHERE id = ANY(%(ids)s)",
            {"ids": [revision.document.id for revision in revisions], **inside.params},
        )
        for _, document_id, visible in rows:
            if not visible:
                raise ScopeViolation(document_id=document_id)
        return [key for key, _, _ in rows]

    async def _remove(self, state: CorpusState, documents: Sequence[int]) -> CorpusState:
        if not documents:
            return state
        tables, session = self._tables(state), self._session
        rows = await session.fetch(
            f"DELETE FROM {tables.passages} WHERE document = ANY(%s) RETURNING key, length",  # noqa: S608 - our own names
            [[*documents]],
        )
        keys = [key for key, _ in rows]
        vectors = 0
        if state.dimension is not None and state.vectors:
            vectors = await session.run(
                f"DELETE FROM {tables.vectors} WHERE key = ANY(%s)",  # noqa: S608 - our own names
                [keys],
            )
        await session.run(
            f"DELETE FROM {tables.postings} WHERE passage = ANY(%s)",  # noqa: S608 - our own names
            [keys],
        )
        await session.run(
            f"DELETE FROM {tables.documents} WHERE key = ANY(%s)",  # noqa: S608 - our own names
            [[*documents]],
        )
        return replace(
            state,
            documents=state.documents - len(documents),
            passages=state.passages - len(rows),
            vectors=state.vectors - vectors,
            length=state.length - sum(length for _, length in rows),
        )

    async def _insert(self, state: CorpusState, revisions: Sequence[Revision]) -> CorpusState:
        tables, session = self._tables(state), self._session
        ids = [passage.id for revision in revisions for passage in revision.passages]
        taken = await session.fetch(
            f"SELECT min(id) FROM {tables.passages} WHERE id = ANY(%s)",  # noqa: S608 - our own names
            [ids],
        )
        if taken[0][0] is not None:
            raise PassageIDConflict(taken[0][0], store=NAME)

        def work() -> Batch:
            return build(
                revisions,
                first_document=state.next_document,
                first_passage=state.next_passage,
            )

        batch = await compute(work, passages=len(ids))
        await session.copy_rows(f"{tables.documents} ({DOCUMENT_COLUMNS})", batch.documents)
        await session.copy_rows(f"{tables.passages} ({PASSAGE_COLUMNS})", batch.passages)
        largest = state.largest
        if batch.vectors is not None:
            await session.copy_binary(
                f"{tables.vectors} (key, embedding)",
                binary_vectors(batch.vectors, batch.with_vector),
            )
            squares = np.einsum("ij,ij->i", batch.vectors, batch.vectors, dtype=np.float64)
            largest = max(largest, float(np.sqrt(squares.max())))
        term_ids, next_term = await self._intern(state, batch.terms)
        await session.copy_binary(
            f"{tables.postings} ({POSTING_COLUMNS})",
            await compute(
                lambda: [*binary_postings(batch, term_ids, first_passage=state.next_passage)],
                passages=len(ids),
            ),
        )
        return replace(
            state,
            documents=state.documents + len(revisions),
            passages=state.passages + len(ids),
            vectors=state.vectors + len(batch.with_vector),
            length=state.length + int(batch.lengths.sum()),
            largest=largest,
            next_document=state.next_document + len(revisions),
            next_passage=state.next_passage + len(ids),
            next_term=next_term,
        )

    async def _intern(
        self, state: CorpusState, terms: Sequence[str]
    ) -> tuple[NDArray[np.int32], int]:
        """Returns the numbers of terms, of which new ones get theirs here, and the next number."""
        tables = self._tables(state)
        rows = await self._session.fetch(
            f"SELECT t.term, t.id FROM unnest(%s::text[]) given JOIN {tables.terms} t "  # noqa: S608 - our own names
            'ON t.term = given COLLATE "C"',
            [[*terms]],
        )
        known: dict[str, int] = dict(rows)
        new = [term for term in terms if term not in known]
        known |= {term: number for number, term in enumerate(new, state.next_term)}
        if new:
            await self._session.copy_rows(
                f"{tables.terms} (id, term)", [(known[term], term) for term in new]
            )
        ids = np.fromiter((known[term] for term in terms), np.int32, len(terms))
        return ids, state.next_term + len(new)

    async def _keep_fast(self, state: CorpusState, catalog: Catalog) -> CorpusState:
        """Makes the HNSW index when there are enough vectors, and tells the planner of growth."""
        tables, dimension = self._tables(state), state.dimension
        many = state.vectors > self._exact_up_to and not state.indexed
        if many and dimension is not None and layout.indexable(dimension):
            await layout.create_hnsw(self._session, catalog, tables, dimension, state.vectors)
            state = replace(state, indexed=True)
        if state.passages > max(_SETTLED, 2 * state.analyzed):
            await layout.analyze(self._session, tables, vectors=dimension is not None)
            state = replace(state, analyzed=state.passages)
        return state

    def _tables(self, state: CorpusState) -> Tables:
        return Tables(self._schema, state.key)
