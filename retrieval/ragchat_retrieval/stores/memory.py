"""A store in memory: the columnar engine, with the documents beside it.

For tests, small corpora and processes that build their index anew. It forgets everything when it
goes away. Writes take turns under a lock; reads work on an immutable state and wait for nobody.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.ports import Capabilities, Hit, Identity, StoreCounts, TermCounts
from ragchat_retrieval.stores.answers import hits, query_vector, visible_rows
from ragchat_retrieval.stores.checks import check_write, checked_name
from ragchat_retrieval.stores.memory_corpus import (
    NAME,
    Corpus,
    Shared,
    State,
    documents_of,
    packed,
    passages_of,
    remove_documents,
    replace_documents,
    swap,
)
from ragchat_retrieval.vectors import check_query_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine import Snapshot
    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.stores.packed import PackedDocument
    from ragchat_retrieval.values import Document, Passage, Revision

T = TypeVar("T")

# Up to about a millisecond of work is done at once; more goes to a worker thread, which costs a
# tenth of that.
_INLINE_ROWS = 200_000
_INLINE_HITS = 2_000
_INLINE_FLOATS = 2_000_000
_INLINE_TESTS = 2_000
_INLINE_WRITES = 1_000
_INLINE_TERMS = 64
_INLINE_PASSAGES = 50
_INLINE_IDS = 500


class MemoryStore:
    """Keeps everything in memory: BM25 over postings and exact vector search.

    Implements `ragchat_retrieval.ports.Store`, whose docstrings say what the methods promise.

    Args:
        corpus: The corpus that this handle reads and writes.
        vectors: How vectors are kept. ``int8`` takes a quarter of the memory of ``float32`` and
            rounds each number to one of 255 steps up to the vector's largest: cosines are off
            by about a thousandth. The search is as exact, over the vectors as they are kept.

    Raises:
        InvalidSetting: The name of the corpus is blank, or holds NUL or a lone surrogate; or
            `vectors` is another word.
    """

    name: str = NAME
    capabilities: Capabilities = Capabilities()

    def __init__(
        self, *, corpus: str = "default", vectors: Literal["float32", "int8"] = "float32"
    ) -> None:
        if vectors not in ("float32", "int8"):
            raise InvalidSetting("vectors", "must be float32 or int8")
        self._name = checked_name(corpus)
        self._shared = Shared(quantized=vectors == "int8")

    @property
    def corpus_name(self) -> str:
        """The corpus this handle reads and writes."""
        return self._name

    def corpus(self, name: str) -> MemoryStore:
        """Returns a cheap handle on another corpus of the same store."""
        handle = MemoryStore(corpus=name)
        handle._shared = self._shared
        return handle

    async def identity(self) -> Identity | None:
        """Returns what the corpus was written with; None before the first write and after reset."""
        return self._state().identity

    async def revision(self) -> int:
        """Returns a counter that every write of the corpus raises."""
        return self._state().revision

    # --- writing ---

    async def replace(
        self,
        revisions: Sequence[Revision],
        *,
        identity: Identity,
        scope: Filter,
        expected: Mapping[str, str] | None = None,
    ) -> None:
        """Makes these revisions the only ones of their documents, in one atomic step."""
        given = tuple(revisions)
        small = sum(len(revision.passages) for revision in given) <= _INLINE_PASSAGES

        def work(corpus: Corpus) -> None:
            check_write(given, identity=identity, scope=scope, store=NAME)
            if given:
                replace_documents(corpus, given, identity, scope, expected)

        await self._write(work, small=small)

    async def delete(self, document_ids: Collection[str], *, scope: Filter) -> int:
        """Removes documents and returns how many there were; unknown ids are no error."""
        ids = tuple(document_ids)
        return await self._write(
            lambda corpus: remove_documents(
                corpus, documents_of(corpus.state.snapshot.document_rows(ids), corpus.state, scope)
            ),
            small=len(ids) <= _INLINE_PASSAGES,
        )

    async def delete_by_source(self, source: str, *, scope: Filter) -> int:
        """Removes every document of a source and returns how many there were."""

        def work(corpus: Corpus) -> int:
            entries = documents_of(None, corpus.state, scope)
            return remove_documents(corpus, [e for e in entries if e.document.source == source])

        return await self._write(work, small=self._state().snapshot.rows <= _INLINE_TESTS)

    async def reset(self) -> None:
        """Removes everything from the corpus, identity included."""
        await self._write(lambda corpus: corpus.forget(written=corpus.state.written))

    async def drop_corpus(self) -> None:
        """Removes this corpus with everything in it."""
        await self._write(lambda corpus: corpus.forget(written=False))

    async def swap_corpus(self, other: str, *, expected: int | None = None) -> None:
        """Exchanges this corpus and another; see `ports.SwappableStore`."""
        mine, theirs = self._shared.corpus(self._name), self._shared.corpus(checked_name(other))
        names = (self._name, other)

        def work() -> None:
            # In the order of the names, so that two swaps never wait for each other.
            first, second = (mine, theirs) if self._name < other else (theirs, mine)
            with first.lock, second.lock:
                swap(mine, theirs, names, expected=expected)

        if mine is not theirs:
            await asyncio.to_thread(work)

    async def repair(self) -> None:
        """Gives back the memory of removed passages; nothing else can need repair."""

        def work(corpus: Corpus) -> None:
            corpus.state = replace(corpus.state, snapshot=corpus.engine.compact())

        await self._write(work, small=False)

    async def aclose(self) -> None:
        """Forgets everything; closing twice is no error."""
        self._shared.closed = True
        self._shared.corpora = {}

    # --- reading ---

    async def ids(self, *, scope: Filter) -> list[str]:
        """Returns all passage ids in ascending order."""
        snapshot = self._state().snapshot
        return await _work(
            lambda: sorted(snapshot.ids(snapshot.live_rows(snapshot.mask(scope)))),
            small=snapshot.rows <= _INLINE_TESTS,
        )

    async def document_ids(self, *, scope: Filter) -> list[str]:
        """Returns all document ids in ascending order."""
        entries = await self._documents(None, scope)
        return sorted(entry.document.id for entry in entries)

    async def document(self, document_id: str, *, scope: Filter) -> Document | None:
        """Returns a document with its text, or None."""
        entries = await self._documents([document_id], scope)
        return entries[0].document if entries else None

    async def fingerprints(
        self, document_ids: Collection[str] | None = None, *, scope: Filter
    ) -> dict[str, str]:
        """Returns the fingerprints of the known ones among these documents; None means all."""
        entries = await self._documents(document_ids, scope)
        return {entry.document.id: entry.fingerprint for entry in entries}

    async def get(self, passage_ids: Sequence[str], *, scope: Filter) -> dict[str, Passage]:
        """Returns the known ones among these passages, by id."""
        snapshot = self._state().snapshot

        def work() -> dict[str, Passage]:
            return passages_of(snapshot, visible_rows(snapshot, passage_ids, scope))

        return await _work(work, small=_few(snapshot, passage_ids, scope))

    async def vectors(
        self, passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, NDArray[np.float32]]:
        """Returns the vectors of the known ones that have one, float32 [dimension]."""
        snapshot = self._state().snapshot

        def work() -> dict[str, NDArray[np.float32]]:
            rows = visible_rows(snapshot, passage_ids, scope)
            rows = rows[snapshot.has_vector(rows)]
            vectors = snapshot.vectors_of(rows)
            return dict(zip(snapshot.ids(rows), map(np.copy, vectors), strict=True))

        return await _work(work, small=_few(snapshot, passage_ids, scope))

    async def neighbours(
        self, document_id: str, ordinal: int, n: int, *, scope: Filter
    ) -> list[Passage]:
        """Returns the passages at ordinals ``ordinal − n … ordinal + n``, in order."""
        snapshot = self._state().snapshot

        def work() -> list[Passage]:
            rows = snapshot.document_rows([document_id])
            mask = snapshot.mask(scope)
            rows = rows if mask is None else rows[mask.flags[rows]]
            near = [
                abs(entry.ordinal(key) - ordinal) <= n
                for entry, key in zip(
                    packed(snapshot, rows), snapshot.keys(rows).tolist(), strict=True
                )
            ]
            found = passages_of(snapshot, rows[np.array(near, np.bool_)]).values()
            return sorted(found, key=lambda passage: (passage.ordinal, passage.id))

        return await _work(work, small=snapshot.mask_cost(scope) <= _INLINE_TESTS)

    async def count(self, *, scope: Filter) -> StoreCounts:
        """Returns how much the corpus holds."""
        state = self._state()
        snapshot = state.snapshot
        if not scope:
            return StoreCounts(snapshot.documents, snapshot.live, snapshot.vectors)

        def work() -> StoreCounts:
            rows = snapshot.live_rows(snapshot.mask(scope))
            vectors = int(np.count_nonzero(snapshot.has_vector(rows)))
            return StoreCounts(len(documents_of(None, state, scope)), len(rows), vectors)

        return await _work(work, small=_is_small(snapshot))

    async def corpora(self) -> list[str]:
        """Returns the names of all corpora that were written, in ascending order."""
        self._state()
        with self._shared.lock:
            corpora = self._shared.corpora.items()
            return sorted(name for name, corpus in corpora if corpus.state.written)

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
        snapshot = self._state().snapshot

        def work() -> list[Hit]:
            return hits(snapshot, snapshot.search_text(terms, limit, snapshot.mask(filter, scope)))

        return await _work(
            work,
            small=len(terms) <= _INLINE_TERMS
            and snapshot.rows <= _INLINE_ROWS
            and min(limit, snapshot.rows) <= _INLINE_HITS
            and snapshot.mask_cost(filter, scope) <= _INLINE_TESTS,
        )

    async def score_text(
        self, terms: Mapping[str, float], passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, float]:
        """Returns the BM25 scores of given passages; 0.0 without a common term."""
        snapshot = self._state().snapshot

        def work() -> dict[str, float]:
            rows = visible_rows(snapshot, passage_ids, scope)
            scores = snapshot.score_text(terms, rows)
            return dict(zip(snapshot.ids(rows), scores.tolist(), strict=True))

        few = len(terms) <= _INLINE_TERMS and _few(snapshot, passage_ids, scope)
        return await _work(work, small=few)

    async def term_counts(self, terms: Collection[str]) -> TermCounts:
        """Returns how common terms are in the corpus."""
        snapshot = self._state().snapshot
        return await _work(
            lambda: TermCounts(snapshot.live, snapshot.keyword.holding(terms)),
            small=len(terms) <= _INLINE_TERMS and snapshot.rows <= _INLINE_ROWS,
        )

    async def search_vector(
        self,
        vector: NDArray[np.float32],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> list[Hit]:
        """Returns the best passages by cosine similarity with a normalised vector."""
        state = self._state()
        snapshot, query = state.snapshot, _query(vector, state)
        if snapshot.dimension is None:
            return []

        def work() -> list[Hit]:
            mask = snapshot.mask(filter, scope)
            return hits(snapshot, snapshot.search_vector(query, limit, mask))

        fast = snapshot.rows * snapshot.dimension <= _INLINE_FLOATS
        cheap = snapshot.mask_cost(filter, scope) <= _INLINE_TESTS
        return await _work(work, small=fast and cheap)

    async def score_vector(
        self, vector: NDArray[np.float32], passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, float]:
        """Returns the cosine similarities of those given passages that have a vector."""
        state = self._state()
        snapshot, query = state.snapshot, _query(vector, state)

        def work() -> dict[str, float]:
            rows = visible_rows(snapshot, passage_ids, scope)
            rows = rows[snapshot.has_vector(rows)]
            if not len(rows):
                return {}
            scores = snapshot.score_vector(query, rows)
            return dict(zip(snapshot.ids(rows), scores.tolist(), strict=True))

        return await _work(work, small=_few(snapshot, passage_ids, scope))

    # --- inside ---

    def _state(self) -> State:
        return self._shared.state(self._name)

    async def _write(self, work: Callable[[Corpus], T], *, small: bool = True) -> T:
        corpus = self._shared.corpus(self._name)

        def locked() -> T:
            with corpus.lock:
                return work(corpus)

        # A write may merge much of what is there. And the loop never waits for a thread's write.
        small = small and corpus.state.snapshot.rows <= _INLINE_WRITES
        if small and corpus.lock.acquire(blocking=False):
            try:
                return work(corpus)
            finally:
                corpus.lock.release()
        return await asyncio.to_thread(locked)

    async def _documents(
        self, document_ids: Collection[str] | None, scope: Filter
    ) -> list[PackedDocument]:
        state = self._state()
        wanted = None if document_ids is None else tuple(document_ids)
        few = wanted is not None and len(wanted) <= _INLINE_IDS

        def work() -> list[PackedDocument]:
            rows = None if wanted is None else state.snapshot.document_rows(wanted)
            return documents_of(rows, state, scope)

        return await _work(work, small=few or _is_small(state.snapshot))


async def _work(work: Callable[[], T], *, small: bool) -> T:
    """Does small work at once and other work in a thread, so that the loop is not held up."""
    return work() if small else await asyncio.to_thread(work)


def _is_small(snapshot: Snapshot) -> bool:
    return snapshot.rows <= _INLINE_TESTS


def _few(snapshot: Snapshot, passage_ids: Sequence[str], scope: Filter) -> bool:
    return len(passage_ids) <= _INLINE_IDS and snapshot.mask_cost(scope) <= _INLINE_TESTS


def _query(vector: NDArray[np.float32], state: State) -> NDArray[np.float32]:
    query = query_vector(vector)
    check_query_vector(query, state.identity.dimension if state.identity else None)
    return query
