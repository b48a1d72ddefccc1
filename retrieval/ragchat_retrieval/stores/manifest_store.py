"""A store over a revision manifest: everything but the engine.

Adapters derive from `ManifestStore` and hand it an `Engine`. Writers of one process take turns per
corpus. Writers of several processes do not see each other: different documents do not disturb each
other; of two that replace the same document the later entry stands, and `repair` sweeps the rest.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TypeVar

from ragchat_retrieval.errors import (
    StoreClosed,
    StoreReadOnly,
)
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.ports import Capabilities, Hit, Identity, StoreCounts, TermCounts
from ragchat_retrieval.stores.answers import query_vector
from ragchat_retrieval.stores.checks import (
    check_write,
    checked_name,
)
from ragchat_retrieval.stores.manifest import State, Sums
from ragchat_retrieval.stores.manifest_reading import ManifestReader
from ragchat_retrieval.stores.manifest_writing import IDS, ManifestWriter
from ragchat_retrieval.stores.shadow import (
    EVERYTHING,
    AnyOf,
    Compare,
    both,
)
from ragchat_retrieval.text import is_storable
from ragchat_retrieval.vectors import check_query_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.stores.manifest import Row
    from ragchat_retrieval.stores.manifest_engine import Engine
    from ragchat_retrieval.stores.shadow import Clause
    from ragchat_retrieval.values import Document, Passage, Revision

T = TypeVar("T")

_TURN = 0.002
"""Seconds between looks at whether it is one's turn to write."""

_FAR = 2**53
"""Beyond any ordinal, and exact in a float."""


@dataclass(slots=True, eq=False)
class Shared:
    """What the handles of one store have in common."""

    engine: Engine
    writer: str = field(default_factory=lambda: secrets.token_hex(8))
    locks: dict[str, threading.Lock] = field(default_factory=dict)
    tasks: set[asyncio.Task[object]] = field(default_factory=set)
    closed: bool = False


class ManifestStore:
    """Implements `ragchat_retrieval.ports.Store` over an engine without transactions.

    Args:
        engine: Keeps rows, entries, marks and states.
        corpus: The corpus that this handle reads and writes.
        read_only: Refuse every write.

    Raises:
        InvalidSetting: The name of the corpus is blank, or holds NUL or a lone surrogate.
    """

    name: str = "manifest"
    capabilities: Capabilities = Capabilities(atomic_batch=False)

    def __init__(self, engine: Engine, *, corpus: str, read_only: bool = False) -> None:
        self._name = checked_name(corpus)
        self._read_only = read_only
        self._shared = Shared(engine)

    @property
    def corpus_name(self) -> str:
        """The corpus this handle reads and writes."""
        return self._name

    def corpus(self, name: str) -> Self:
        """Returns a cheap handle on another corpus of the same store."""
        handle = object.__new__(type(self))
        handle._name = checked_name(name)
        handle._read_only = self._read_only
        handle._shared = self._shared
        return handle

    async def identity(self) -> Identity | None:
        """Returns what the corpus was written with; None before the first write and after reset."""
        state = await self._reader().state()
        return None if state is None else state.identity

    async def revision(self) -> int:
        """Returns a counter that every write of the corpus raises."""
        state = await self._engine().state(self._name)
        return 0 if state is None else state.revision

    # --- writing ---

    async def replace(
        self,
        revisions: Sequence[Revision],
        *,
        identity: Identity,
        scope: Filter,
        expected: Mapping[str, str] | None = None,
    ) -> None:
        """Makes these revisions the only ones of their documents, each document in one step."""
        self._engine()
        given = tuple(revisions)
        check_write(given, identity=identity, scope=scope, store=self.name)

        async def work() -> None:
            if given:
                await self._writer().replace(given, identity, scope, expected)

        await self._write(work)

    async def delete(self, document_ids: Collection[str], *, scope: Filter) -> int:
        """Removes documents and returns how many there were; unknown ids are no error."""
        ids = tuple(dict.fromkeys(document_ids))
        return await self._write(lambda: self._writer().delete(ids, scope))

    async def delete_by_source(self, source: str, *, scope: Filter) -> int:
        """Removes every document of a source and returns how many there were."""
        if not is_storable(source):
            self._engine()
            return 0
        return await self._write(
            lambda: self._writer().delete(None, Filter(Eq("source", source)) & scope)
        )

    async def reset(self) -> None:
        """Removes everything from the corpus, identity included."""
        await self._write(lambda: self._writer().forget(listed=True))

    async def drop_corpus(self) -> None:
        """Removes this corpus with everything in it."""
        await self._write(lambda: self._writer().forget(listed=False))

    async def repair(self) -> None:
        """Sweeps what crashes left behind, and counts anew. No other process may be writing."""
        await self._write(self._writer().repair)

    async def aclose(self) -> None:
        """Releases connections; closing twice is no error."""
        self._shared.closed = True
        await self._shared.engine.aclose()

    # --- reading ---

    async def ids(self, *, scope: Filter) -> list[str]:
        """Returns all passage ids in ascending order."""
        return sorted({row.passage_id for row in await self._reader().rows(EVERYTHING, scope)})

    async def document_ids(self, *, scope: Filter) -> list[str]:
        """Returns all document ids in ascending order."""
        return sorted(entry.document.id for entry in await self._reader().entries(None, scope))

    async def document(self, document_id: str, *, scope: Filter) -> Document | None:
        """Returns a document with its text, or None."""
        entries = await self._reader().entries([document_id], scope, text=True)
        return entries[0].document if entries else None

    async def hashes(
        self, document_ids: Collection[str] | None = None, *, scope: Filter
    ) -> dict[str, str]:
        """Returns the fingerprints of the known ones among these documents; None means all."""
        entries = await self._reader().entries(document_ids, scope)
        return {entry.document.id: entry.fingerprint for entry in entries}

    async def get(self, passage_ids: Sequence[str], *, scope: Filter) -> dict[str, Passage]:
        """Returns the known ones among these passages, by id."""
        rows = await self._reader().given(passage_ids, scope, passages=True)
        return {row.passage_id: row.passage for row in rows if row.passage is not None}

    async def vectors(
        self, passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, NDArray[np.float32]]:
        """Returns the vectors of the known ones that have one, float32 [dimension]."""
        rows = await self._reader().given(passage_ids, scope, vectors=True)
        return {row.passage_id: row.vector for row in rows if row.vector is not None}

    async def neighbours(
        self, document_id: str, ordinal: int, n: int, *, scope: Filter
    ) -> list[Passage]:
        """Returns the passages at ordinals ``ordinal − n … ordinal + n``, in order."""
        if n < 0 or not is_storable(document_id):
            self._engine()
            return []
        near = both(
            AnyOf("did", (document_id,)),
            Compare("ord", "gte", max(ordinal - n, -_FAR)),
            Compare("ord", "lte", min(ordinal + n, _FAR)),
        )
        rows = await self._reader().rows(near, scope, passages=True)
        found = [row.passage for row in rows if row.passage is not None]
        return sorted(found, key=lambda passage: (passage.ordinal, passage.id))

    async def count(self, *, scope: Filter) -> StoreCounts:
        """Returns how much the corpus holds."""
        reader = self._reader()
        if not scope:
            state = await reader.state()
            sums = Sums() if state is None else state.sums
            return StoreCounts(sums.documents, sums.passages, sums.vectors)
        rows = await reader.rows(EVERYTHING, scope)
        entries = await reader.entries(None, scope)
        return StoreCounts(len(entries), len(rows), sum(row.embedded for row in rows))

    async def corpora(self) -> list[str]:
        """Returns the names of all corpora that were written, in ascending order."""
        return sorted(state.corpus for state in await self._engine().states() if state.listed)

    # --- the lanes ---

    async def search_text(
        self,
        terms: Mapping[str, float],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> list[Hit]:
        """Returns the best passages by BM25 over analysed, weighted terms."""
        engine = self._engine()
        asked = {term: weight for term, weight in terms.items() if is_storable(term)}

        async def ask(state: State, *, n: int, clause: Clause, whole: bool) -> list[Row]:
            return await engine.by_words(state, asked, n, clause, passages=whole) if asked else []

        return await self._reader().lane(ask, limit, filter & scope)

    async def score_text(
        self, terms: Mapping[str, float], passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, float]:
        """Returns the BM25 scores of given passages; 0.0 without a common term."""
        engine = self._engine()
        asked = {term: weight for term, weight in terms.items() if is_storable(term)}

        async def ask(state: State, *, clause: Clause) -> list[Row]:
            return await engine.words_of(state, asked, clause)

        rows = await self._reader().given(passage_ids, scope, ask=ask)
        return {row.passage_id: row.score for row in rows}

    async def term_counts(self, terms: Collection[str]) -> TermCounts | None:
        """Returns how common terms are in the corpus; None if there is no keyword lane."""
        engine = self._engine()
        if not self.capabilities.keyword:
            return None
        asked = [term for term in dict.fromkeys(terms) if is_storable(term)]

        async def ask(state: State) -> TermCounts:
            total = state.sums.passages
            # During a write the rows of two revisions are there.
            held = {t: min(n, total) for t, n in (await engine.holding(state, asked)).items()}
            return TermCounts(total, {term: count for term, count in held.items() if count})

        return await self._reader().answer(ask, TermCounts(0, {}))

    async def search_vector(
        self,
        vector: NDArray[np.float32],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> list[Hit]:
        """Returns the best passages by cosine similarity with a normalised vector."""
        engine = self._engine()
        query = await self._query(vector)

        async def ask(state: State, *, n: int, clause: Clause, whole: bool) -> list[Row]:
            if state.dimension != len(query):
                return []
            return await engine.by_vector(state, query, n, clause, passages=whole)

        return await self._reader().lane(ask, limit, filter & scope)

    async def score_vector(
        self, vector: NDArray[np.float32], passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, float]:
        """Returns the cosine similarities of those given passages that have a vector."""
        engine = self._engine()
        query = await self._query(vector)

        async def ask(state: State, *, clause: Clause) -> list[Row]:
            if state.dimension != len(query):
                return []
            # Two revisions of a passage may be there at a time.
            return await engine.by_vector(state, query, 2 * IDS, clause, passages=False)

        rows = await self._reader().given(passage_ids, scope, ask=ask)
        return {row.passage_id: row.score for row in rows}

    # --- inside ---

    def _engine(self) -> Engine:
        if self._shared.closed:
            raise StoreClosed(store=self.name)
        return self._shared.engine

    async def _query(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        query = query_vector(vector)
        state = await self._reader().state()
        check_query_vector(query, None if state is None else state.dimension)
        return query

    def _reader(self) -> ManifestReader:
        return ManifestReader(self._engine(), corpus=self._name, store=self.name)

    def _writer(self) -> ManifestWriter:
        shared = self._shared
        return ManifestWriter(
            self._engine(), corpus=self._name, writer=shared.writer, store=self.name
        )

    async def _write(self, work: Callable[[], Coroutine[object, object, T]]) -> T:
        """Does a write when it is its turn, to the end even if the caller is cancelled."""
        self._engine()
        if self._read_only:
            raise StoreReadOnly(store=self.name)
        lock = self._shared.locks.setdefault(self._name, threading.Lock())
        while not lock.acquire(blocking=False):  # noqa: ASYNC110 - other loops share the lock
            await asyncio.sleep(_TURN)
        task = asyncio.create_task(work())
        self._shared.tasks.add(task)

        def done(task: asyncio.Task[object]) -> None:
            self._shared.tasks.discard(task)
            lock.release()

        task.add_done_callback(done)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise
