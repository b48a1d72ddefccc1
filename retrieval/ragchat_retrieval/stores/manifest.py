"""The revision manifest: whole revisions on engines that have no transactions.

A passage is kept as a **row** that carries the revision it belongs to, and each document has one
**entry**, which holds the document and names its current revision. To replace a document, new rows
are written first and are visible, then the entry is overwritten in one operation, and old rows go
last. A row counts only if its document's entry names its revision, so that at every moment a
document is whole in one revision; what a crash leaves behind is never seen.

A **mark** stands while a write is under way. One that is left over tells the next write, or
`repair`, what to sweep. The **state** of a corpus holds its identity, revision and sums.

This module is the data, `manifest_engine` the port that an engine implements, and `manifest_store`
the store.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from ragchat_retrieval.metadata import decode, encode
from ragchat_retrieval.ports import Identity
from ragchat_retrieval.values import Document, Lines, Passage, Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.values import Revision

LEASE = 60.0
"""Seconds after which another writer's mark counts as left over; writers renew theirs."""


class Gone(Exception):
    """What a state names is there no more: the corpus was reset or moved since it was read."""


class Places(NamedTuple):
    """Names of where an engine keeps a corpus."""

    rows: str
    entries: str


class Sums(NamedTuple):
    """How much there is of documents, passages, vectors and terms."""

    documents: int = 0
    passages: int = 0
    vectors: int = 0
    length: int = 0
    """Terms of all passages together."""

    def plus(self, other: Sums, sign: int = 1) -> Sums:
        """Returns the sums of both, or the difference for a sign of −1."""
        return Sums(*(mine + sign * theirs for mine, theirs in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a corpus is."""

    corpus: str
    written: bool = False
    """False after a reset without a later write."""

    listed: bool = True
    """False after the corpus was dropped; the record stays, so that the revision goes on rising."""

    revision: int = 0
    """Microseconds since 1970 at the last write, or one more than before."""

    generation: int = 0
    """Names the places of rows and entries; a reset takes others."""

    identity: Identity | None = None
    typical: float = 1.0
    """Terms of a passage on average at the first write, for engines that store scores."""

    sums: Sums = field(default_factory=Sums)

    @property
    def dimension(self) -> int | None:
        """Length of the vectors, if there can be any."""
        return None if self.identity is None else self.identity.dimension

    def places(self, prefix: str) -> Places:
        """Returns names for the places of rows and entries, fit for engines that are strict."""
        corpus = blake2b(self.corpus.encode(), digest_size=8).hexdigest()
        place = f"{prefix}.{corpus}.{self.generation}"
        return Places(f"{place}.passages.{self.dimension or 0}", f"{place}.documents")

    def to_json(self) -> str:
        """Returns the state as text."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> State:
        """Reads a state."""
        given: dict[str, Any] = json.loads(text)
        identity = given["identity"]
        given["identity"] = None if identity is None else Identity(**identity)
        given["sums"] = Sums(*given["sums"])
        return cls(**given)

    def next_revision(self) -> int:
        """Returns a revision that is higher than the last; processes rarely draw the same one."""
        return max(self.revision + 1, time.time_ns() // 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A write under way."""

    corpus: str
    stamp: int
    """The revision it writes."""

    writer: str
    """The store object that writes; nobody else finishes its writes."""

    renewed: float
    """Seconds since 1970 when the writer last showed that it is at work."""

    documents: tuple[str, ...]

    def to_json(self) -> str:
        """Returns the mark as text."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Mark:
        """Reads a mark."""
        given: dict[str, Any] = json.loads(text)
        given["documents"] = tuple(given["documents"])
        return cls(**given)

    def is_left_over(self, writer: str, now: float) -> bool:
        """Says whether no one is at work on it: for a writer that does nothing else, its own."""
        return self.writer == writer or self.renewed + LEASE < now


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The manifest entry of a document."""

    document: Document
    """With an empty text where it was not asked for."""

    stamp: int
    """The current revision."""

    fingerprint: str
    sums: Sums

    @classmethod
    def of(cls, revision: Revision, stamp: int) -> Entry:
        """Returns the entry of a revision that was checked."""
        size = len(revision.passages)
        length = sum(sum(counts.values()) for counts in revision.terms or ())
        sums = Sums(1, size, 0 if revision.vectors is None else size, length)
        return cls(
            document=revision.document, stamp=stamp, fingerprint=revision.fingerprint, sums=sums
        )

    def labels(self) -> str:
        """Returns everything but the text, as text."""
        document = self.document
        return json.dumps(
            {
                "id": document.id,
                "title": document.title,
                "source": document.source,
                "metadata": encode(document.metadata),
                "fingerprint": self.fingerprint,
                "sums": self.sums,
            },
            ensure_ascii=False,
        )

    @classmethod
    def read(cls, labels: str, stamp: int, text: str = "") -> Entry:
        """Puts an entry together again."""
        given: dict[str, Any] = json.loads(labels)
        document = Document(
            given["id"],
            text,
            title=given["title"],
            source=given["source"],
            metadata=decode(given["metadata"]),
        )
        return cls(
            document=document,
            stamp=stamp,
            fingerprint=given["fingerprint"],
            sums=Sums(*given["sums"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """A passage under one revision; what was not asked for is None."""

    passage_id: str
    document_id: str
    stamp: int
    ordinal: int = 0
    embedded: bool = False
    """Whether it has a vector."""

    score: float = 0.0
    passage: Passage | None = None
    vector: NDArray[np.float32] | None = None
    terms: Mapping[str, int] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """How many terms the passage has."""
        return sum(self.terms.values())


def rows_of(revision: Revision, stamp: int) -> list[Row]:
    """Returns the rows of a revision that was checked."""
    vectors = revision.vectors
    return [
        Row(
            passage_id=passage.id,
            document_id=passage.document_id,
            stamp=stamp,
            ordinal=passage.ordinal,
            embedded=vectors is not None,
            passage=passage,
            vector=None if vectors is None else vectors[position],
            terms=terms,
        )
        for position, (passage, terms) in enumerate(
            zip(revision.passages, revision.terms or (), strict=True)
        )
    ]


def passage_text(passage: Passage) -> str:
    """Returns a passage as JSON text without loss."""
    return json.dumps(
        {
            "text": passage.text,
            "id": passage.id,
            "document_id": passage.document_id,
            "title": passage.title,
            "source": passage.source,
            "metadata": encode(passage.metadata),
            "headings": passage.headings,
            "page": passage.page,
            "lines": passage.lines,
            "span": passage.span,
            "ordinal": passage.ordinal,
            "digest": passage.digest,
        },
        ensure_ascii=False,
    )


def read_passage(text: str) -> Passage:
    """Returns the passage that `passage_text` made a text of."""
    given: dict[str, Any] = json.loads(text)
    lines, span = given.pop("lines"), given.pop("span")
    return Passage(
        given.pop("text"),
        metadata=decode(given.pop("metadata")),
        headings=tuple(given.pop("headings")),
        lines=None if lines is None else Lines(*lines),
        span=None if span is None else Span(*span),
        **given,
    )


def changed(state: State, stamp: int, came: Sequence[Entry], went: Sequence[Entry]) -> State:
    """Returns the state after a write that replaced some entries by others."""
    sums = state.sums
    for entry in came:
        sums = sums.plus(entry.sums)
    for entry in went:
        sums = sums.plus(entry.sums, -1)
    return replace(
        state, written=True, listed=True, revision=max(stamp, state.revision + 1), sums=sums
    )
