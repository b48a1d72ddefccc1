"""A store in memory: the columnar engine, with the documents beside it.

For tests, small corpora and processes that build their index anew. It forgets everything when it
goes away. Writes take turns under a lock; reads work on an immutable state and wait for nobody.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.ports import Capabilities, Identity, StoreCounts
from ragchat_retrieval.stores.answers import visible
from ragchat_retrieval.stores.checks import check_write, checked_name
from ragchat_retrieval.stores.engine_lanes import EngineLanes
from ragchat_retrieval.stores.memory_corpus import (
    NAME,
    Corpus,
    Shared,
    State,
    documents_of,
    owners_of,
    passages_of,
    remove_documents,
    replace_documents,
    swap,
)
from ragchat_retrieval.stores.questions import SMALL_IDS, SMALL_TESTS, is_small_lookup
from ragchat_retrieval.vectors import check_query_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine import Snapshot
    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.ports import BothLanes
    from ragchat_retrieval.stores.engine_lanes import Read
    from ragchat_retrieval.stores.packed import PackedDocument
    from ragchat_retrieval.stores.questions import BothSearch, Question, WordSearch
    from ragchat_retrieval.values import Document, Passage, Revision

T = TypeVar("T")

_SMALL_CORPUS = 1_000
"""Rows up to which a write is small, since it may merge much of what is there."""

_SMALL_WRITE = 50
"""Passages or documents of a small write."""


class MemoryStore(EngineLanes):
    """Keeps everything in memory: BM25 over postings and exact vector search.

    Implements `ragchat_retrieval.ports.Store`, whose docstrings say what the methods promise.

    Args:
        corpus: The corpus that this handle reads and writes.
        vectors: How vectors are searched; scores are exact in any case. ``float32`` keeps them
            in memory. ``int8`` finds the same in a quarter of the memory: vectors go to a
            temporary file without a name, from which those that can be the best are read.

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
    def vector_search(self) -> str:
        """``float32`` or ``int8``: how vectors are searched."""
        return "int8" if self._shared.quantized else "float32"

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
        small = sum(len(revision.passages) for revision in given) <= _SMALL_WRITE

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
            small=len(ids) <= _SMALL_WRITE,
        )

    async def delete_by_source(self, source: str, *, scope: Filter) -> int:
        """Removes every document of a source and returns how many there were."""

        def work(corpus: Corpus) -> int:
            entries = documents_of(None, corpus.state, scope)
            return remove_documents(corpus, [e for e in entries if e.bare.source == source])

        return await self._write(work, small=self._state().snapshot.rows <= SMALL_TESTS)

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
        await self._write(Corpus.compact, small=False)

    async def aclose(self) -> None:
        """Forgets everything; closing twice is no error."""
        self._shared.closed = True
        self._shared.corpora = {}

    # --- reading ---

    async def document_ids(self, *, scope: Filter) -> list[str]:
        """Returns all document ids in ascending order."""
        entries = await self._documents(None, scope)
        return sorted(entry.id for entry in entries)

    async def document(self, document_id: str, *, scope: Filter) -> Document | None:
        """Returns a document with its text, or None."""
        entries = await self._documents([document_id], scope)
        return entries[0].document if entries else None

    async def hashes(
        self, document_ids: Collection[str] | None = None, *, scope: Filter
    ) -> dict[str, str]:
        """Returns the fingerprints of the known ones among these documents; None means all."""
        entries = await self._documents(document_ids, scope)
        return {entry.id: entry.fingerprint for entry in entries}

    async def neighbours(
        self, document_id: str, ordinal: int, n: int, *, scope: Filter
    ) -> list[Passage]:
        """Returns the passages at ordinals ``ordinal − n … ordinal + n``, in order."""
        state = self._state()
        snapshot = state.snapshot

        def work() -> list[Passage]:
            rows = snapshot.document_rows([document_id])
            mask = snapshot.mask(scope)
            rows = rows if mask is None else rows[mask.flags[rows]]
            keys = snapshot.keys(rows)
            near = [
                abs(entry.ordinal(key) - ordinal) <= n
                for entry, key in zip(owners_of(state, keys), keys.tolist(), strict=True)
            ]
            found = passages_of(state, rows[np.array(near, np.bool_)]).values()
            return sorted(found, key=lambda passage: (passage.ordinal, passage.id))

        return await _work(work, small=snapshot.mask_cost(scope) <= SMALL_TESTS)

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

    # --- inside ---

    def _state(self) -> State:
        return self._shared.state(self._name)

    async def _ask(
        self, question: Question[T], *, vectors: Sequence[NDArray[np.float32]] = ()
    ) -> T:
        """As `EngineLanes._ask`."""
        state = self._checked(vectors)
        return await _work(lambda: state.answer(question), small=question.is_small(state.snapshot))

    async def _ask_and_read(
        self, question: BothSearch | WordSearch, then: Callable[[list[BothLanes], Read], T]
    ) -> T:
        """As `EngineLanes._ask_and_read`."""
        state = self._checked(question.vectors)
        snapshot = state.snapshot

        def read(passage_ids: Sequence[str]) -> dict[str, Passage]:
            return passages_of(state, visible(snapshot, passage_ids, question.scope).rows)

        def work() -> T:
            return then(state.answer(question), read)

        def shared(loop: asyncio.AbstractEventLoop) -> T:
            question.offer(snapshot, loop)
            return work()

        if question.is_small(snapshot):
            return work()
        return await asyncio.to_thread(shared, asyncio.get_running_loop())

    async def _get(self, passage_ids: Sequence[str], scope: Filter) -> dict[str, Passage]:
        """As `EngineLanes._get`."""
        state = self._state()
        snapshot = state.snapshot

        def work() -> dict[str, Passage]:
            return passages_of(state, visible(snapshot, passage_ids, scope).rows)

        return await _work(work, small=is_small_lookup(snapshot, passage_ids, scope))

    def _checked(self, vectors: Sequence[NDArray[np.float32]]) -> State:
        """Returns the state, after a look at the vectors of a question to it."""
        state = self._state()
        for vector in vectors:
            check_query_vector(vector, state.identity.dimension if state.identity else None)
        return state

    async def _write(self, work: Callable[[Corpus], T], *, small: bool = True) -> T:
        corpus = self._shared.corpus(self._name)

        def locked() -> T:
            with corpus.lock:
                return work(corpus)

        # The loop never waits for a thread's write.
        small = small and corpus.state.snapshot.rows <= _SMALL_CORPUS
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
        few = wanted is not None and len(wanted) <= SMALL_IDS

        def work() -> list[PackedDocument]:
            rows = None if wanted is None else state.snapshot.document_rows(wanted)
            return documents_of(rows, state, scope)

        return await _work(work, small=few or _is_small(state.snapshot))


async def _work(work: Callable[[], T], *, small: bool) -> T:
    """Does small work at once and other work in a thread, so that the loop is not held up."""
    return work() if small else await asyncio.to_thread(work)


def _is_small(snapshot: Snapshot) -> bool:
    return snapshot.rows <= SMALL_TESTS
