"""The ports: what the core asks of stores, embedders, splitters and rerankers.

A port is a protocol. Adapters implement it and run the contract suite that ships in
`ragchat_retrieval.testing`; the core never imports an adapter's dependency. What a store may offer
besides is in `offers` and found here, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from ragchat_retrieval.errors import InvalidIndexIdentity
from ragchat_retrieval.offers import (
    BothLanes,
    CountsTerms,
    LaneQuery,
    SearchesAndReads,
    SearchesBoth,
    SearchesVectors,
    SwappableStore,
    TellsWritten,
    TermCounts,
    Written,
    stands_for,
    term_counts,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.values import Candidate, Document, Passage, Query, Revision

EmbeddingKind = Literal["query", "passage"]


class Hit(NamedTuple):
    """A passage id with a raw lane score."""

    passage_id: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a corpus was written with: two identities that differ may not share a corpus."""

    analyzer: str
    """Name of the lexical analysis."""

    model: str | None = None
    """Name of the embedding model; None for a keyword-only corpus."""

    dimension: int | None = None

    def __post_init__(self) -> None:
        if not self.analyzer.strip() or (self.model is not None and not self.model.strip()):
            raise InvalidIndexIdentity

    def __str__(self) -> str:
        model = "keyword-only" if self.model is None else f"{self.model}/{self.dimension}"
        return f"({model}, {self.analyzer})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a store can do."""

    filterable: bool = True
    """Filters run inside each lane, before its limit."""

    keyword: bool = True
    semantic: bool = True
    atomic_batch: bool = True
    """A whole `replace` is one atomic step; else the promise holds per document."""

    reset: bool = True


class StoreCounts(NamedTuple):
    """How much a corpus holds."""

    documents: int
    passages: int
    vectors: int


@runtime_checkable
class Store(Protocol):
    """Persistence and the two search lanes of one corpus.

    Safe for concurrent tasks and for calls from several event loops. Constructors check
    configuration and do no I/O. Every method that reads, counts or removes takes `scope`: a
    document outside it does not exist for the caller. Limits and order are deterministic: score
    descending, ties by passage id. An empty corpus gives empty results. Arrays and mappings that
    were given or returned are the caller's own again, who may change them.
    """

    @property
    def name(self) -> str:
        """The store's kind, such as ``sqlite``; labels errors and traces."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        ...

    @property
    def corpus_name(self) -> str:
        """The corpus this handle reads and writes."""
        ...

    def corpus(self, name: str) -> Store:
        """Returns a cheap handle on another corpus of the same store."""
        ...

    async def identity(self) -> Identity | None:
        """Returns what the corpus was written with; None before the first write and after reset."""
        ...

    async def revision(self) -> int:
        """Returns a counter that every write of the corpus raises."""
        ...

    async def replace(
        self,
        revisions: Sequence[Revision],
        *,
        identity: Identity,
        scope: Filter,
        expected: Mapping[str, str] | None = None,
    ) -> None:
        """Makes these revisions the only ones of their documents, in one atomic step.

        Old passages of the documents go and new ones come, or nothing changes. A revision without
        passages deletes its document. The first write latches `identity`. A corpus latched without
        a model takes the given one when every revision of the write carries vectors; passages
        written before stay without a vector until they are replaced.

        Args:
            revisions: With `terms` filled in.
            identity: What the caller works with.
            scope: New documents must match it, and documents outside it may not be replaced.
            expected: Fingerprints by document id that must be the stored ones at the moment of the
                write, so that what was derived from a revision never replaces a later one.

        Raises:
            DuplicateDocumentID: One document occurs twice.
            DocumentChanged: A document is stored under another fingerprint than the expected one,
                or not at all.
            PassageIDConflict: A passage id belongs to a document that is not replaced here.
            IdentityMismatch: The corpus was written with something else.
            InvalidVector: A vector is non-finite, zero or wrongly sized.
            InvalidText: NUL or a lone surrogate in a text field.
            InvalidDocument: A passage is blank under blank labels, belongs to another document or
                is not what its span holds; page, lines, span or ordinal are no whole numbers that
                every store keeps; or terms are no texts with counts of 1 or more.
            ScopeViolation: A document lies outside `scope`.
        """
        ...

    async def delete(self, document_ids: Collection[str], *, scope: Filter) -> int:
        """Removes documents and returns how many there were; unknown ids are no error."""
        ...

    async def delete_by_source(self, source: str, *, scope: Filter) -> int:
        """Removes every document of a source and returns how many there were."""
        ...

    async def reset(self) -> None:
        """Removes everything from the corpus, identity included."""
        ...

    async def ids(self, *, scope: Filter) -> Sequence[str]:
        """Returns all passage ids in ascending order."""
        ...

    async def document_ids(self, *, scope: Filter) -> Sequence[str]:
        """Returns all document ids in ascending order."""
        ...

    async def document(self, document_id: str, *, scope: Filter) -> Document | None:
        """Returns a document with its text, or None."""
        ...

    async def get(self, passage_ids: Sequence[str], *, scope: Filter) -> Mapping[str, Passage]:
        """Returns the known ones among these passages, by id."""
        ...

    async def vectors(
        self, passage_ids: Sequence[str], *, scope: Filter
    ) -> Mapping[str, NDArray[np.float32]]:
        """Returns the vectors of the known ones that have one, float32 [dimension]."""
        ...

    async def neighbours(
        self, document_id: str, ordinal: int, n: int, *, scope: Filter
    ) -> Sequence[Passage]:
        """Returns the passages at ordinals ``ordinal − n … ordinal + n``, in order."""
        ...

    async def hashes(
        self, document_ids: Collection[str] | None = None, *, scope: Filter
    ) -> Mapping[str, str]:
        """Returns the `Revision.fingerprint` of each known document; None means all."""
        ...

    async def search_text(
        self,
        terms: Mapping[str, float],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> Sequence[Hit]:
        """Returns the best passages by BM25 over analysed, weighted terms.

        A passage without any of the terms is no result, and scores are positive.
        """
        ...

    async def score_text(
        self, terms: Mapping[str, float], passage_ids: Sequence[str], *, scope: Filter
    ) -> Mapping[str, float]:
        """Returns the BM25 scores of given passages; 0.0 without a common term."""
        ...

    async def search_vector(
        self,
        vector: NDArray[np.float32],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> Sequence[Hit]:
        """Returns the best passages by cosine similarity with a normalised vector.

        Raises:
            InvalidVector: It is non-finite, zero, wrongly sized, or no array of numbers.
        """
        ...

    async def score_vector(
        self, vector: NDArray[np.float32], passage_ids: Sequence[str], *, scope: Filter
    ) -> Mapping[str, float]:
        """Returns the cosine similarities of those given passages that have a vector.

        Raises:
            InvalidVector: As `search_vector`.
        """
        ...

    async def corpora(self) -> Sequence[str]:
        """Returns the names of all corpora that were written, in ascending order."""
        ...

    async def drop_corpus(self) -> None:
        """Removes this corpus with everything in it."""
        ...

    async def repair(self) -> None:
        """Sweeps leftovers of a crash and rebuilds what is derived."""
        ...

    async def count(self, *, scope: Filter) -> StoreCounts:
        """Returns how much the corpus holds."""
        ...

    async def aclose(self) -> None:
        """Releases files and connections; closing twice is no error."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors.

    It may also tell the window of its model by ``max_tokens`` and ``count_tokens(text)``, and by
    ``legibility(text)`` how well the model reads a text, 0 … 1 (by script, language, words).
    """

    @property
    def model(self) -> str:
        """Name of the model; part of a corpus's identity."""
        ...

    @property
    def dimension(self) -> int:
        """Length of its vectors."""
        ...

    async def embed(
        self, texts: Sequence[str], kind: EmbeddingKind = "query"
    ) -> NDArray[np.float32]:
        """Returns float32 [len(texts), dimension], rows L2-normalised.

        A blank text is never sent and keeps its slot, as a row of zeros.

        Raises:
            EmbeddingError: The model failed or answered with something unusable.
        """
        ...


@runtime_checkable
class Splitter(Protocol):
    """Cuts a document into passages. Pure; may be called from any thread."""

    @property
    def name(self) -> str:
        """Policy and settings in one string, as ``text:512/64``: another one means re-split."""
        ...

    def split(self, document: Document) -> Sequence[Passage]:
        """Returns the passages in order, ordinals from 0.

        For each, ``document.text[span.start:span.end] == passage.text``; none is blank.
        """
        ...


@runtime_checkable
class AsyncSplitter(Splitter, Protocol):
    """A splitter that has to wait for something, such as an embedder.

    An index awaits `asplit` on its own loop, where connections live and cancellation works, and
    never calls its `split`, which blocks.
    """

    async def asplit(self, document: Document) -> Sequence[Passage]:
        """As `split`."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """Finds candidates for a query. A bare async or sync function of this shape will do."""

    def __call__(self, query: Query, /) -> Awaitable[Sequence[Candidate]] | Sequence[Candidate]:
        """Returns candidates, best first; a `SearchResult` or any sequence of candidates."""
        ...


@runtime_checkable
class Expander(Protocol):
    """Words a query in other ways. A bare async or sync function of this shape will do."""

    def __call__(self, query: Query, /) -> Awaitable[Sequence[Query]] | Sequence[Query]:
        """Returns the other wordings, searched beside the query itself."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Scores candidates against a query. A bare async or sync function of this shape will do."""

    def __call__(
        self, query: Query, candidates: Sequence[Candidate], /
    ) -> Awaitable[Sequence[float]] | Sequence[float]:
        """Returns one finite score in [0, 1] per candidate, aligned with the input."""
        ...


__all__ = [
    "AsyncSplitter",
    "BothLanes",
    "Capabilities",
    "CountsTerms",
    "Embedder",
    "EmbeddingKind",
    "Expander",
    "Hit",
    "Identity",
    "LaneQuery",
    "Reranker",
    "Retriever",
    "SearchesAndReads",
    "SearchesBoth",
    "SearchesVectors",
    "Splitter",
    "Store",
    "StoreCounts",
    "SwappableStore",
    "TellsWritten",
    "TermCounts",
    "Written",
    "stands_for",
    "term_counts",
    "written",
]
