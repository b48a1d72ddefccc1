"""What a corpus in memory is, and how it changes."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from ragchat_retrieval.engine import Batch, Coded, Engine, Snapshot
from ragchat_retrieval.errors import (
    CorpusChanged,
    PassageIDConflict,
    ScopeViolation,
    StoreClosed,
    UnknownCorpus,
)
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.stores.archive import Archive, Archivist
from ragchat_retrieval.stores.checks import agreed_identity, check_expected
from ragchat_retrieval.stores.questions import Nearby
from ragchat_retrieval.terms import joined

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import Identity
    from ragchat_retrieval.stores.packed import PackedDocument
    from ragchat_retrieval.stores.questions import Question
    from ragchat_retrieval.values import Passage, Revision

NAME: Final = "memory"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What a corpus is at one moment."""

    snapshot: Snapshot
    archive: Archive
    identity: Identity | None = None
    revision: int = 0
    written: bool = False
    coded: Coded | None = None
    """The vectors in eight bits, if they are searched so and there was room."""

    def answer(self, question: Question[T]) -> T:
        """Answers a question about these arrays."""
        if self.coded is None or not isinstance(question, Nearby):
            return question.answer(self.snapshot)
        answer: T = question.answer_rounded(self.snapshot, self.coded)
        return answer


@dataclass(slots=True, eq=False)
class Corpus:
    """A corpus. Who writes holds the lock; who reads takes `state` once."""

    quantized: bool = False
    """Whether vectors are kept in eight bits, and as they are in a temporary file."""

    engine: Engine = field(init=False)
    archivist: Archivist = field(init=False)
    lock: threading.Lock = field(default_factory=threading.Lock)
    state: State = field(init=False)
    next_key: int = 0

    def __post_init__(self) -> None:
        self._start(revision=0, written=False)

    def publish(self, snapshot: Snapshot, archive: Archive, identity: Identity | None) -> None:
        """Makes a new state the current one."""
        now = State(snapshot, archive, identity, self.state.revision + 1, written=True)
        self.state = replace(now, coded=self._coded(snapshot))
        if archive.is_wasteful:
            with suppress(MemoryError):  # the write is done; the next one tries again
                self.state = replace(self.state, archive=self._put_together(self.state))

    def compact(self) -> None:
        """Gives back what removed documents take."""
        snapshot = self.engine.compact()
        self.state = replace(self.state, snapshot=snapshot, coded=self._coded(snapshot))
        self.state = replace(self.state, archive=self._put_together(self.state))

    def forget(self, *, written: bool) -> None:
        """Removes everything; the revision goes on, so that nothing derived passes for current."""
        self._start(revision=self.state.revision + 1, written=written)

    def _start(self, *, revision: int, written: bool) -> None:
        self.engine, self.archivist = Engine(spilled=self.quantized), Archivist()
        empty = self.archivist.empty
        self.state = State(self.engine.snapshot, empty, revision=revision, written=written)

    def _coded(self, snapshot: Snapshot) -> Coded | None:
        if self.quantized:
            with suppress(MemoryError):  # then all are compared as they are
                return Coded(snapshot.matrix, self.state.coded)
        return None

    def _put_together(self, state: State) -> Archive:
        keys = state.snapshot.keys(state.snapshot.live_rows())
        numbers = np.unique(state.archive.numbers(keys))
        self.archivist, archive = Archivist.compacted(state.archive, numbers)
        return archive


@dataclass(slots=True, eq=False)
class Shared:
    """What the handles of one store have in common."""

    quantized: bool = False
    corpora: dict[str, Corpus] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False

    def corpus(self, name: str) -> Corpus:
        """Returns a corpus, making it if it is new."""
        if self.closed:
            raise StoreClosed(store=NAME)
        with self.lock:
            return self.corpora.setdefault(name, Corpus(self.quantized))

    def state(self, name: str) -> State:
        """Returns the state of a corpus; asking for one that was never written makes none."""
        if self.closed:
            raise StoreClosed(store=NAME)
        corpus = self.corpora.get(name)
        return _NOTHING if corpus is None else corpus.state


_NOTHING = State(Engine().snapshot, Archivist().empty)


def passages_of(state: State, rows: NDArray[np.int64]) -> dict[str, Passage]:
    """Rebuilds the passages of rows, by id."""
    snapshot = state.snapshot
    keys = snapshot.keys(rows)
    columns = (snapshot.ids(rows), keys.tolist(), owners_of(state, keys))
    return {id_: entry.passage(key, id_) for id_, key, entry in zip(*columns, strict=True)}


def owners_of(state: State, keys: NDArray[np.int64]) -> list[PackedDocument]:
    """Returns the document of each of these passages, by engine keys."""
    return state.archive.documents(state.archive.numbers(keys))


def documents_of(
    rows: NDArray[np.int64] | None, state: State, scope: Filter
) -> list[PackedDocument]:
    """Returns the documents, each once, that these rows belong to and that the scope shows."""
    snapshot, archive = state.snapshot, state.archive
    numbers = archive.numbers(snapshot.keys(snapshot.live_rows() if rows is None else rows))
    entries = archive.documents(np.unique(numbers))
    return [entry for entry in entries if not scope or scope.matches_document(entry.bare)]


def replace_documents(
    corpus: Corpus,
    revisions: Sequence[Revision],
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
    state = corpus.state
    snapshot = state.snapshot
    agreed = agreed_identity(state.identity, identity, revisions, store=NAME)
    removed = snapshot.document_rows([revision.document.id for revision in revisions])
    old = documents_of(removed, state, Filter())
    for entry in old:
        if scope and not scope.matches_document(entry.bare):
            raise ScopeViolation(document_id=entry.id)
    if expected:
        entries = documents_of(snapshot.document_rows(expected), state, Filter())
        check_expected(expected, {e.id: e.fingerprint for e in entries}, store=NAME)
    written = [revision for revision in revisions if revision.passages]
    batch = _batch(corpus.next_key, written)
    owned = snapshot.find(batch.ids)
    taken = np.flatnonzero((owned >= 0) & ~np.isin(owned, removed))
    if len(taken):
        raise PassageIDConflict(batch.ids[int(taken[0])], store=NAME)
    archive = corpus.archivist.appended(state.archive, written, corpus.next_key)
    after = corpus.engine.apply(add=batch, remove=removed)
    corpus.next_key += len(batch)
    corpus.publish(after, archive.without(old), agreed)


def swap(
    mine: Corpus, theirs: Corpus, names: tuple[str, str], *, expected: int | None = None
) -> None:
    """Exchanges the contents of two corpora whose locks are held.

    Raises:
        UnknownCorpus: One of them was never written.
        CorpusChanged: The first is at another revision than the expected one.
    """
    for corpus, name in zip((mine, theirs), names, strict=True):
        if not corpus.state.written:
            raise UnknownCorpus(name, store=NAME)
    if expected is not None and mine.state.revision != expected:
        raise CorpusChanged(names[0], store=NAME)
    revision = 1 + max(mine.state.revision, theirs.state.revision)
    mine.engine, theirs.engine = theirs.engine, mine.engine
    mine.archivist, theirs.archivist = theirs.archivist, mine.archivist
    mine.next_key, theirs.next_key = theirs.next_key, mine.next_key
    states = replace(theirs.state, revision=revision), replace(mine.state, revision=revision)
    mine.state, theirs.state = states


def remove_documents(corpus: Corpus, entries: Collection[PackedDocument]) -> int:
    """Removes documents and returns how many these are."""
    if entries:
        keys = [key for e in entries for key in range(e.first_key, e.first_key + e.size)]
        state = corpus.state
        after = corpus.engine.apply(remove_keys=keys)
        corpus.publish(after, state.archive.without(entries), state.identity)
    return len(entries)


def _batch(first_key: int, revisions: Sequence[Revision]) -> Batch:
    passages: list[Passage] = []
    vectors: list[NDArray[np.float32]] = []
    has_vector: list[bool] = []
    dimension = next((r.vectors.shape[1] for r in revisions if r.vectors is not None), None)
    for revision in revisions:
        size = len(revision.passages)
        passages += revision.passages
        has_vector += [revision.vectors is not None] * size
        if revision.vectors is not None:
            vectors.append(revision.vectors)
        elif dimension is not None:
            vectors.append(np.zeros((size, dimension), np.float32))
    return Batch.of_passages(
        np.arange(first_key, first_key + len(passages)),
        passages,
        joined(revision.terms or () for revision in revisions),
        vectors=np.concatenate(vectors) if vectors else None,
        has_vector=np.array(has_vector, np.bool_),
    )
