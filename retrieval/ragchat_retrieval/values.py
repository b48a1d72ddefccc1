"""The values of retrieval: documents, passages, queries, candidates, results.

All are frozen, equal when their content is equal, and know nothing of storage. A score belongs to a
search (`Candidate`), never to a passage.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from ragchat_retrieval.errors import (
    DocumentNotUTF8,
    DocumentTooLarge,
    InvalidCandidates,
    InvalidDocument,
    InvalidDocumentID,
    InvalidQuery,
    InvalidSetting,
    InvalidVector,
)
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.metadata import Metadata
from ragchat_retrieval.text import clean_query
from ragchat_retrieval.trace import Degradation, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from numpy.typing import NDArray

    from ragchat_retrieval.explain import Explanation

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


@dataclass(frozen=True, slots=True)
class ContextText:
    """Conversation carried into retrieval without gluing strings together.

    It is added linearly to the query's own text, with its own weight in each lane: BM25 scores are
    summed; embeddings are summed and normalised again.
    """

    text: str
    lexical: float = field(default=0.0, kw_only=True)
    """Weight of its terms in the keyword lane, ≥ 0."""

    semantic: float = field(default=0.0, kw_only=True)
    """Weight of its embedding in the vector lane, ≥ 0."""

    damp: bool = field(default=False, kw_only=True)
    """Lets the index multiply `semantic` by 1 − clip((cos(query, text) − .1) / .5, 0, 1)."""

    def __post_init__(self) -> None:
        for name in ("lexical", "semantic"):
            weight = getattr(self, name)
            if not (math.isfinite(weight) and weight >= 0):
                raise InvalidSetting(f"ContextText.{name}", "must be a finite number, 0 or more")
        object.__setattr__(self, "text", clean_query(self.text))


@dataclass(frozen=True, slots=True)
class Query:
    """What to retrieve.

    Raises:
        InvalidQuery: The text is blank after trimming, a text is no string, or `top_k` is no whole
            number.
    """

    text: str
    context: tuple[ContextText, ...] = field(default=(), kw_only=True)
    lexical: str | None = field(default=None, kw_only=True)
    """Replaces `text` in the keyword lane (a translation)."""

    semantic: str | None = field(default=None, kw_only=True)
    """Replaces `text` in the vector lane (a hypothetical answer)."""

    variants: tuple[str, ...] = field(default=(), kw_only=True)
    """Other wordings, from a planner; a pipeline then skips its expander."""

    filter: Filter = field(default_factory=Filter, kw_only=True)
    """What the user asked to narrow to."""

    scope: Filter = field(default_factory=Filter, kw_only=True)
    """The trusted boundary (a tenant), set by the app, always ANDed."""

    top_k: int | None = field(default=None, kw_only=True)
    """Most candidates; None leaves it to the search's options."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        for given in (self.text, self.lexical or "", self.semantic or "", *self.variants):
            if not isinstance(given, str):
                raise InvalidQuery(f"a text must be a string, not {type(given).__name__}")
        text = clean_query(self.text)
        if not text:
            raise InvalidQuery("a query must not be blank")
        most: object = self.top_k
        if most is not None and (isinstance(most, bool) or not isinstance(most, Integral)):
            raise InvalidQuery("top_k must be a whole number, or None")
        put(self, "text", text)
        put(self, "filter", Filter.of(self.filter))
        put(self, "scope", Filter.of(self.scope))
        put(self, "context", tuple(c for c in self.context if c.text))
        for name in ("lexical", "semantic"):
            value = getattr(self, name)
            put(self, name, (clean_query(value) or None) if value is not None else None)
        put(self, "variants", tuple(v for v in map(clean_query, self.variants) if v))

    def with_text(self, text: str) -> Query:
        """Returns a copy with another text; texts of single lanes go with the old one."""
        return replace(self, text=text, lexical=None, semantic=None)

    def bounded_by(self, caller: Query) -> Query:
        """Returns the query with the caller's scope, filter and top_k, whatever became of them."""
        mine, theirs = ((q.scope, q.filter, q.top_k) for q in (self, caller))
        if mine == theirs:
            return self
        return replace(self, scope=caller.scope, filter=caller.filter, top_k=caller.top_k)

    def alone(self) -> Query:
        """Returns the query without variants."""
        return replace(self, variants=()) if self.variants else self


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage that a search found.

    Raises:
        InvalidCandidates: The score is not finite.
    """

    passage: Passage
    score: float
    """Higher is better; comparable only inside its own result."""

    explain: Explanation | None = field(default=None, kw_only=True)
    """Why it stands where it stands; None unless the search was asked to explain."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.score):
            raise InvalidCandidates("a candidate's score must be finite", stage="candidate")
        if type(self.score) is not float:
            object.__setattr__(self, "score", float(self.score))


@dataclass(frozen=True, slots=True)
class SearchResult(Sequence[Candidate]):
    """An immutable sequence of candidates, best first, with how it came about."""

    candidates: tuple[Candidate, ...] = ()
    queries: tuple[Query, ...] = field(default=(), kw_only=True)
    """The queries that were searched, the original first."""

    degraded: tuple[Degradation, ...] = field(default=(), kw_only=True)
    """What was left out, and why; empty where all of it ran."""

    trace: Trace = field(default_factory=Trace, kw_only=True, compare=False)
    """Which stages ran, and how long each took; no part of equality."""

    def __post_init__(self) -> None:
        for name in ("candidates", "queries", "degraded"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self.candidates[index]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Revision:
    """A document with everything a store keeps of it: the unit of an atomic replace.

    `HybridIndex` makes these; `index.replace` accepts them with `terms` left out and fills them in.

    Raises:
        InvalidVector: The vectors are no matrix of numbers.
    """

    document: Document
    passages: tuple[Passage, ...]
    """No passages means that the document is deleted."""

    vectors: NDArray[np.float32] | None = None
    """float32 [passages, dimension], rows L2-normalised; None for keyword-only."""

    terms: Sequence[Mapping[str, int]] | None = None
    """Analysed terms of each passage with their counts."""

    fingerprint: str = ""
    """Hash of text, labels, metadata and splitter: equal means nothing changed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "passages", tuple(self.passages))
        if self.vectors is not None and not _is_frozen(self.vectors):
            vectors = _matrix_of(self.vectors, self.document.id)
            vectors.setflags(write=False)
            object.__setattr__(self, "vectors", vectors)


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


def documents_of(candidates: Iterable[Candidate]) -> list[dict[str, object]]:
    """Returns what was found as OpenTelemetry lists it: ids and scores, no text."""
    return [{"id": c.passage.id, "score": c.score} for c in candidates]


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
