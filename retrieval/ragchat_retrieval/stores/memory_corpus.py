"""What a corpus in memory is, and how it changes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from ragchat_retrieval.engine import Batch, Engine, Snapshot
from ragchat_retrieval.errors import (
    CorpusChanged,
    PassageIDConflict,
    ScopeViolation,
    StoreClosed,
    UnknownCorpus,
)
from ragchat_retrieval.stores.checks import agreed_identity, check_expected
from ragchat_retrieval.stores.packed import PackedDocument, Sharing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.ports import Identity
    from ragchat_retrieval.values import Passage, Revision

NAME: Final = "memory"


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What a corpus is at one moment."""

    snapshot: Snapshot
    identity: Identity | None = None
    revision: int = 0
    written: bool = False


@dataclass(slots=True, eq=False)
class Corpus:
    """A corpus. Who writes holds the lock; who reads takes `state` once."""

    quantized: bool = False
    """Whether vectors are kept as int8."""

    engine: Engine = field(init=False)
    lock: threading.Lock = field(default_factory=threading.Lock)
    state: State = field(init=False)
    next_key: int = 0

    def __post_init__(self) -> None:
        self.engine = Engine(quantized=self.quantized)
        self.state = State(self.engine.snapshot)

    def publish(self, snapshot: Snapshot, identity: Identity | None) -> None:
        """Makes a new state the current one."""
        self.state = State(snapshot, identity, self.state.revision + 1, written=True)

    def forget(self, *, written: bool) -> None:
        """Removes everything; the revision goes on, so that nothing derived passes for current."""
        self.engine = Engine(quantized=self.quantized)
        revision = self.state.revision + 1
        self.state = State(self.engine.snapshot, None, revision, written)


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


_NOTHING = State(Engine().snapshot)


def packed(snapshot: Snapshot, rows: NDArray[np.int64]) -> list[PackedDocument]:
    """Returns the document of each row."""
    return cast("list[PackedDocument]", snapshot.payload(rows))


def passages_of(snapshot: Snapshot, rows: NDArray[np.int64]) -> dict[str, Passage]:
    """Rebuilds the passages of rows, by id."""
    columns = (snapshot.ids(rows), snapshot.keys(rows).tolist(), packed(snapshot, rows))
    return {id_: entry.passage(key, id_) for id_, key, entry in zip(*columns, strict=True)}


def documents_of(
    rows: NDArray[np.int64] | None, state: State, scope: Filter
) -> list[PackedDocument]:
    """Returns the documents, each once, that these rows belong to and that the scope shows."""
    snapshot = state.snapshot
    payload = packed(snapshot, snapshot.live_rows() if rows is None else rows)
    distinct: Iterable[PackedDocument] = {id(entry): entry for entry in payload}.values()
    return [entry for entry in distinct if not scope or scope.matches_document(entry.document)]


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
    if scope:
        for entry in packed(snapshot, removed):
            if not scope.matches_document(entry.document):
                raise ScopeViolation(document_id=entry.document.id)
    if expected:
        entries = packed(snapshot, snapshot.document_rows(expected))
        check_expected(expected, {e.document.id: e.fingerprint for e in entries}, store=NAME)
    batch = _batch(corpus.next_key, revisions)
    owned = snapshot.find(batch.ids)
    taken = np.flatnonzero((owned >= 0) & ~np.isin(owned, removed))
    if len(taken):
        raise PassageIDConflict(batch.ids[int(taken[0])], store=NAME)
    after = corpus.engine.apply(add=batch, remove=removed)
    corpus.next_key += len(batch)
    corpus.publish(after, agreed)


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
    mine.next_key, theirs.next_key = theirs.next_key, mine.next_key
    states = replace(theirs.state, revision=revision), replace(mine.state, revision=revision)
    mine.state, theirs.state = states


def remove_documents(corpus: Corpus, entries: Collection[PackedDocument]) -> int:
    """Removes documents and returns how many these are."""
    if entries:
        keys = [key for e in entries for key in range(e.first_key, e.first_key + e.size)]
        corpus.publish(corpus.engine.apply(remove_keys=keys), corpus.state.identity)
    return len(entries)


def _batch(first_key: int, revisions: Sequence[Revision]) -> Batch:
    payload: list[PackedDocument] = []
    passages: list[Passage] = []
    terms: list[Mapping[str, int]] = []
    vectors: list[NDArray[np.float32]] = []
    has_vector: list[bool] = []
    sharing = Sharing()
    dimension = next((r.vectors.shape[1] for r in revisions if r.vectors is not None), None)
    for revision in revisions:
        size = len(revision.passages)
        packed = PackedDocument.of(revision, first_key + len(passages), sharing)
        payload += [packed] * size
        passages += revision.passages
        terms += revision.terms or ()
        has_vector += [revision.vectors is not None] * size
        if revision.vectors is not None:
            vectors.append(revision.vectors)
        elif dimension is not None:
            vectors.append(np.zeros((size, dimension), np.float32))
    return Batch.of_passages(
        np.arange(first_key, first_key + len(passages)),
        passages,
        terms,
        vectors=np.concatenate(vectors) if vectors else None,
        has_vector=np.array(has_vector, np.bool_),
        payload=payload,
    )
