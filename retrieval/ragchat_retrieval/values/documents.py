"""What is written: documents, their passages, and revisions of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence  # noqa: TC003 - types of fields can be looked up
from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ragchat_retrieval.errors import (
    DocumentNotUTF8,
    DocumentTooLarge,
    InvalidDocument,
    InvalidDocumentID,
    InvalidSetting,
    InvalidVector,
)
from ragchat_retrieval.metadata import Metadata

if TYPE_CHECKING:
    from typing import BinaryIO

    from numpy.typing import NDArray

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
"""Default limit of `Document.from_reader`, 16 MiB."""


class Span(NamedTuple):
    """A half-open range of character offsets into a document's text."""

    start: int
    end: int


class Lines(NamedTuple):
    """A range of lines of a document, 1-based and inclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Document:
    """One complete revision of a source.

    Raises:
        InvalidDocumentID: The id is blank or no string.
        InvalidDocument: Text, title or source is no string.
        InvalidMetadata: A metadata key or value cannot be kept faithfully by every store.
    """

    id: str
    """Yours to choose; what is written later under the same id takes its place."""

    text: str
    title: str | None = field(default=None, kw_only=True)
    """Searched with every passage, and shown to the model beside it."""

    source: str | None = field(default=None, kw_only=True)
    """Where it came from, as a person would name it: a path or a URL."""

    metadata: Mapping[str, Any] = field(default_factory=dict, kw_only=True, hash=False)
    """Read-only; see `ragchat_retrieval.metadata` for what values may be."""

    _digest: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise InvalidDocumentID(f"must be a string, not {type(self.id).__name__}")
        if not self.id.strip():
            raise InvalidDocumentID
        for name in ("text", "title", "source"):
            _check_string(getattr(self, name), name, self.id)
        object.__setattr__(self, "metadata", Metadata(self.metadata, document_id=self.id))

    @property
    def digest(self) -> str:
        """SHA-256 of the text, in hex."""
        if not self._digest:  # a long text takes a while, and several ask on its way into a store
            data = self.text.encode("utf-8", "surrogatepass")
            object.__setattr__(self, "_digest", hashlib.sha256(data).hexdigest())
        return self._digest

    @classmethod
    def from_reader(
        cls,
        stream: BinaryIO,
        *,
        id: str,
        title: str | None = None,
        source: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int = MAX_DOCUMENT_BYTES,
    ) -> Document:
        """Reads a whole UTF-8 stream as one document; a byte order mark is removed.

        Args:
            stream: A binary stream, read until it ends or has given ``limit + 1`` bytes.
            id: The document's id.
            title: Its title.
            source: A label such as the file's name; it chooses no parser.
            metadata: Its metadata.
            limit: Most bytes accepted, 0 or more.

        Raises:
            InvalidSetting: The limit is negative.
            DocumentTooLarge: The stream holds more than `limit` bytes.
            DocumentNotUTF8: The bytes are not UTF-8.
        """
        if limit < 0:
            raise InvalidSetting("limit", "must be 0 or more")
        data = bytearray()
        # An unbuffered stream may give less than it is asked for.
        while part := stream.read(limit + 1 - len(data)):
            data += part
            if len(data) > limit:
                raise DocumentTooLarge(limit, document_id=id)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DocumentNotUTF8(error.start, document_id=id) from None
        text = text.removeprefix("\ufeff")
        return cls(id, text, title=title, source=source, metadata=metadata or {})


def _check_string(given: object, name: str, document_id: object) -> None:
    if isinstance(given, str) or (given is None and name in _OPTIONAL):
        return
    problem = f"must be a string, not {type(given).__name__}"
    owner = document_id if isinstance(document_id, str) else None
    raise InvalidDocument(problem, document_id=owner, field=name)


_OPTIONAL = frozenset({"title", "source", "corpus"})


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk of a document. ``document.text[span.start:span.end] == passage.text``.

    Raises:
        InvalidDocument: What must be a string is none, or headings are no sequence of strings.
        InvalidMetadata: As for a document.
    """

    text: str
    id: str = field(default="", kw_only=True)
    """Stable over runs: document id, ordinal and content; filled in when left empty."""

    document_id: str = field(default="", kw_only=True)
    title: str | None = field(default=None, kw_only=True)
    """Its document's, as are `source` and `metadata`."""

    source: str | None = field(default=None, kw_only=True)
    metadata: Mapping[str, Any] = field(default_factory=dict, kw_only=True, hash=False)
    headings: tuple[str, ...] = field(default=(), kw_only=True)
    """Path of headings above the passage, outermost first."""

    page: int | None = field(default=None, kw_only=True)
    """1-based page, for paged documents."""

    lines: Lines | None = field(default=None, kw_only=True)
    """Its first and its last line in its document, from 1; None where nobody told."""

    span: Span | None = field(default=None, kw_only=True)
    """Its code points in its document, from 0, end exclusive; None where nobody told."""

    ordinal: int = field(default=0, kw_only=True)
    """Position among its document's passages, from 0."""

    digest: str = field(default="", kw_only=True)
    """SHA-256 of its document's text, in hex."""

    corpus: str | None = field(default=None, kw_only=True)
    """The corpus it was found in, where several are read together; its ids then begin with the name
    and a slash. None otherwise, and in what is written."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("text", "id", "document_id", "title", "source", "digest", "corpus"):
            _check_string(getattr(self, name), name, self.document_id)
        given: object = self.headings
        if isinstance(given, str | None):
            problem = f"must be a sequence of strings, not {type(given).__name__}"
            raise InvalidDocument(problem, document_id=self.document_id, field="headings")
        # Most passages come with fields of these very types.
        if type(self.headings) is not tuple:
            put(self, "headings", tuple(self.headings))
        for heading in self.headings:
            _check_string(heading, "headings", self.document_id)
        if type(self.metadata) is not Metadata:
            put(self, "metadata", Metadata(self.metadata, document_id=self.document_id or None))
        if self.lines is not None and type(self.lines) is not Lines:
            put(self, "lines", Lines(*self.lines))
        if self.span is not None and type(self.span) is not Span:
            put(self, "span", Span(*self.span))
        if not self.id:
            put(self, "id", passage_id(self.document_id, self.ordinal, self.text))


# The same slots as those of a passage, and so the same object in memory, but not frozen.
_Unfrozen: Any = make_dataclass(
    "_Unfrozen", [(each.name, Any) for each in fields(Passage)], slots=True
)


def trusted_passage(  # noqa: PLR0917 - naming them takes as long as the rest
    text: str,
    id: str,
    document_id: str,
    title: str | None,
    source: str | None,
    metadata: Mapping[str, Any],
    headings: tuple[str, ...],
    page: int | None,
    lines: Lines | None,
    span: Span | None,
    ordinal: int,
    digest: str,
) -> Passage:
    """Returns ``Passage(text, id=id, …)``, without looking at the fields: several times faster.

    For stores, which read many passages a search: what they kept was checked before it was written.
    The id is not empty, metadata are `Metadata`, and the other fields have these very types.
    """
    made = _Unfrozen(
        text,
        id,
        document_id,
        title,
        source,
        metadata,
        headings,
        page,
        lines,
        span,
        ordinal,
        digest,
        None,
    )
    # A frozen class pays for each field that it sets; becoming one is a single step.
    made.__class__ = Passage
    passage: Passage = made
    return passage


def passage_id(document_id: str, ordinal: int, text: str) -> str:
    """Returns the stable id of a passage: document id, ordinal and a hash of its content."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{document_id}#{ordinal}-{digest[:16]}" if document_id else digest[:32]


@dataclass(frozen=True, slots=True, eq=False)
class Revision:
    """A document with everything a store keeps of it: the unit of an atomic replace.

    `HybridIndex` makes these; `index.replace` accepts them with `terms` left out and fills them in.
    A passage that names no document becomes one of this document: it takes its place for an ordinal
    and the document's title, source, metadata and digest, as far as it has none.

    Raises:
        InvalidVector: The vectors are no matrix of numbers.
    """

    document: Document
    passages: tuple[Passage, ...]
    """No passages means that the document is deleted."""

    vectors: NDArray[np.float32] | None = None
    """float32 [passages, dimension], rows L2-normalised; None for keyword-only."""

    terms: Sequence[Mapping[str, int]] | None = field(default=None, kw_only=True)
    """Analysed terms of each passage with their counts."""

    fingerprint: str = field(default="", kw_only=True)
    """Hash of text, labels, metadata and splitter: equal means nothing changed."""

    def __post_init__(self) -> None:
        passages = tuple(self.passages)
        if not all(passage.document_id for passage in passages):
            placed = enumerate(passages)
            passages = tuple(p if p.document_id else _of(self.document, p, n) for n, p in placed)
        object.__setattr__(self, "passages", passages)
        if self.vectors is not None and not _is_frozen(self.vectors):
            vectors = _matrix_of(self.vectors, self.document.id)
            vectors.setflags(write=False)
            object.__setattr__(self, "vectors", vectors)


def _of(document: Document, passage: Passage, place: int) -> Passage:
    """Returns a passage that names no document as one of this document."""
    derived = passage.id == passage_id("", passage.ordinal, passage.text)
    return replace(
        passage,
        id="" if derived else passage.id,
        document_id=document.id,
        title=document.title if passage.title is None else passage.title,
        source=document.source if passage.source is None else passage.source,
        metadata=passage.metadata or document.metadata,
        ordinal=passage.ordinal or place,
        digest=passage.digest or document.digest,
    )


def _matrix_of(given: object, document_id: str) -> NDArray[np.float32]:
    try:
        matrix = np.array(given, dtype=np.float32, order="C")
    except (TypeError, ValueError):
        matrix = np.zeros((), dtype=np.float32)
    if not matrix.ndim:
        raise InvalidVector("is no row of a matrix of numbers", document_id=document_id)
    return matrix


def _is_frozen(vectors: object) -> bool:
    """Says whether vectors are such as a revision keeps, that is, those of another revision."""
    return (
        isinstance(vectors, np.ndarray)
        and vectors.dtype == np.float32
        and vectors.flags.c_contiguous
        and vectors.flags.owndata
        and not vectors.flags.writeable
    )


LONGEST_LABEL = 512
"""Most characters of a title or heading that stand with every passage below it."""


def indexed_text(passage: Passage) -> str:
    """Returns the text that both lanes index: title and heading path, then the passage's own text.

    A title that the text already begins with is not repeated, and of a longer title or heading the
    first 512 characters count: it is read again with every passage.
    """
    if not (passage.title or passage.headings):
        return passage.text
    above = [passage.title or "", *passage.headings]
    head = [line for line in dict.fromkeys(part.strip()[:LONGEST_LABEL] for part in above) if line]
    body = passage.text
    rest = body.lstrip()
    # "Go" is not the beginning of "Gophers".
    if head and rest.startswith(head[0]) and not rest[len(head[0]) :][:1].isalnum():
        head = head[1:]
    return "\n".join([*head, body])
