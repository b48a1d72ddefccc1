"""The error tree of the core.

    RagchatError
    ├── RetrievalError                  everything the core raises
    │   ├── InvalidSetting              a constructor or option got a value it cannot work with
    │   ├── MissingExtra                an optional dependency is not installed; names the extra
    │   ├── InvalidDocument             a document cannot be stored as given
    │   │   ├── InvalidDocumentID       its id is blank
    │   │   ├── InvalidText             NUL or a lone surrogate in a text field
    │   │   ├── InvalidMetadata         a key or value that no store could keep faithfully
    │   │   ├── DocumentTooLarge        more bytes than the limit
    │   │   └── DocumentNotUTF8         bytes that are not UTF-8
    │   ├── InvalidQuery                a blank query, or a malformed query value
    │   ├── InvalidFilter               an operand or operator outside the semantics of filters
    │   │   └── InvalidFilterKey        a key outside the key pattern
    │   ├── InvalidVector               non-finite, zero or wrongly sized
    │   ├── EmbeddingError              an embedder answered with something unusable
    │   ├── TokenizerUnavailable        this machine has no exact tokenizer for an encoding
    │   ├── InvalidCandidates           a retriever or stage returned no valid candidates
    │   ├── RerankError                 a rerank server failed or could not be understood
    │   ├── MalformedRanking            a reranker's scores break its contract
    │   ├── ScopeViolation              a passage or document lies outside filter or scope
    │   ├── FilterUnsupported           a retriever that cannot keep to a filter or scope got one
    │   ├── InvalidCollection           a test collection's files cannot be read as one
    │   ├── InvalidRun                  rankings to evaluate do not fit the topics
    │   ├── MigrationError              a corpus was not, or not rightly, copied into another
    │   │   ├── MigrationTargetInUse    the other corpus holds documents that the first has not
    │   │   └── MigrationMismatch       what was copied is not what there is
    │   │       └── MigrationSourceChanging  it was written faster than it was copied
    │   ├── DeadlineExceeded            the request's time is used up
    │   ├── StageTimeout                one stage used up its own time
    │   └── StoreError                  the store refused or failed
    │       ├── DuplicateDocumentID     one id twice in one write
    │       ├── PassageIDConflict       a passage id that another document owns
    │       ├── DocumentChanged         a document is not the revision that the write expected
    │       ├── CorpusChanged           a corpus is not at the revision that a swap expected
    │       ├── UnknownCorpus           a corpus to be swapped was never written
    │       ├── SwapUnsupported         this store cannot exchange corpora
    │       ├── InvalidIndexIdentity    a blank identity
    │       ├── IdentityMismatch        embedder, dimension or analyser differ from what is stored
    │       ├── ResetUnsupported        this store cannot be reset
    │       ├── StoreReadOnly           a write to a store opened for reading
    │       ├── StoreClosed             used after `aclose()`
    │       ├── StoreUnavailable        busy, unreachable or damaged; says whether a retry may help
    │       └── NotAStore               the file exists and is something else
    └── ChatError                       see `ragchat.errors`

Every error carries its data as attributes. None carries content of documents, prompts or replies,
and none carries keys.
"""

from __future__ import annotations

from typing import Any, ClassVar


class RagchatError(Exception):
    """Root of everything this library raises on purpose.

    Attributes:
        retryable: Whether the same call may succeed later without a change.
    """

    retryable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Passes to another process whole; by default it would be made anew of its message."""
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[RagchatError], args: tuple[Any, ...]) -> RagchatError:
    error = kind.__new__(kind)
    error.args = args
    return error


class RetrievalError(RagchatError):
    """Root of the errors of the retrieval core."""


class InvalidSetting(RetrievalError, ValueError):
    """A constructor argument or a search option has a value that cannot work.

    Attributes:
        name: The argument's name.
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name


class MissingExtra(RetrievalError, ImportError):
    """An optional dependency is missing.

    Attributes:
        extra: The extra that brings it, as in ``pip install "ragchat-toolkit[extra]"``.
    """

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f'{what} needs an extra: pip install "ragchat-toolkit[{extra}]"')
        self.extra = extra


class InvalidDocument(RetrievalError, ValueError):
    """A document cannot be stored as given.

    Attributes:
        document_id: The document's id, where it is known.
        field: The field at fault, such as ``text`` or ``metadata.team``.
    """

    def __init__(
        self, problem: str, *, document_id: str | None = None, field: str = "text"
    ) -> None:
        where = "document" if document_id is None else f"document {document_id!r}"
        super().__init__(f"{where}, {field}: {problem}")
        self.document_id = document_id
        self.field = field


class InvalidDocumentID(InvalidDocument):
    """A document id is blank."""

    def __init__(self, problem: str = "a document id must not be blank") -> None:
        super().__init__(problem, field="id")


class InvalidText(InvalidDocument):
    """A text field holds NUL or a lone surrogate, which no store keeps faithfully."""


class InvalidMetadata(InvalidDocument):
    """A metadata key or value lies outside what every store can keep and filter."""


class DocumentTooLarge(InvalidDocument):
    """A document has more bytes than the limit.

    Attributes:
        limit: The limit in bytes.
    """

    def __init__(self, limit: int, *, document_id: str | None = None) -> None:
        super().__init__(f"more than {limit} bytes", document_id=document_id)
        self.limit = limit


class DocumentNotUTF8(InvalidDocument):
    """A document's bytes are not UTF-8.

    Attributes:
        offset: Position of the first bad byte.
    """

    def __init__(self, offset: int, *, document_id: str | None = None) -> None:
        super().__init__(f"not UTF-8 at byte {offset}", document_id=document_id)
        self.offset = offset


class InvalidQuery(RetrievalError, ValueError):
    """A query is blank or otherwise malformed."""


class InvalidFilter(RetrievalError, ValueError):
    """A filter's operator or operand lies outside the semantics of filters.

    Attributes:
        key: The condition's key, where there is one.
    """

    def __init__(self, problem: str, *, key: str | None = None) -> None:
        super().__init__(problem if key is None else f"filter on {key!r}: {problem}")
        self.key = key


class InvalidFilterKey(InvalidFilter):
    """A filter key does not match ``[A-Za-z0-9_-]{1,128}``."""


class InvalidVector(RetrievalError, ValueError):
    """A vector is non-finite, zero, or of another length than the index's.

    Attributes:
        document_id: The document it belongs to; None for a query's vector.
        position: Its row among vectors without documents, from 0; None elsewhere.
    """

    def __init__(
        self, problem: str, *, document_id: str | None = None, position: int | None = None
    ) -> None:
        where = "query vector" if document_id is None else f"a vector of document {document_id!r}"
        super().__init__(f"{where if position is None else f'vector {position}'}: {problem}")
        self.document_id = document_id
        self.position = position


class EmbeddingError(RetrievalError):
    """An embedder failed or answered with the wrong count, size or values.

    Attributes:
        model: The embedder's model name.
        status: The HTTP status, where there was one.
        position: Position in the call of the first text at fault, from 0, where one is at fault.
        document_id: The document whose text that is, where documents were embedded.
    """

    document_id: str | None = None

    def __init__(
        self,
        problem: str,
        *,
        model: str,
        status: int | None = None,
        position: int | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(f"embedding model {model!r}: {problem}")
        self.model = model
        self.status = status
        self.position = position
        self.retryable = retryable

    def __str__(self) -> str:
        told = super().__str__()
        return told if self.document_id is None else f"document {self.document_id!r}, {told}"


class TokenizerUnavailable(RetrievalError):
    """No exact tokenizer for an encoding is on this machine; nothing is guessed instead.

    Attributes:
        encoding: The encoding's name.
    """

    def __init__(self, encoding: str, remedy: str) -> None:
        super().__init__(f"no exact tokenizer for encoding {encoding!r}: {remedy}")
        self.encoding = encoding


class InvalidCandidates(RetrievalError, ValueError):
    """A retriever or a stage returned something that is no sequence of valid candidates.

    Attributes:
        stage: The stage that returned it.
    """

    def __init__(self, problem: str, *, stage: str) -> None:
        super().__init__(f"{stage}: {problem}")
        self.stage = stage


class RerankError(RetrievalError):
    """A rerank server failed, or answered with something that cannot be read.

    Attributes:
        model: The model's name, or the server's where it has but one model.
        status: The HTTP status, where there was one.
    """

    def __init__(
        self, problem: str, *, model: str, status: int | None = None, retryable: bool = False
    ) -> None:
        super().__init__(f"rerank model {model!r}: {problem}")
        self.model = model
        self.status = status
        self.retryable = retryable


class MalformedRanking(RetrievalError, ValueError):
    """A reranker's answer is not exactly one finite score in [0, 1] per candidate.

    Names the fault (an index, a count), never the answer's content.
    """


class ScopeViolation(RetrievalError):
    """A passage or document lies outside filter or scope; a result is withheld, a write refused.

    Attributes:
        passage_id: The passage's id, where a passage is at fault.
        document_id: The document's id, where a document is.
    """

    def __init__(self, passage_id: str | None = None, *, document_id: str | None = None) -> None:
        what = f"document {document_id!r}" if passage_id is None else f"passage {passage_id!r}"
        super().__init__(f"{what} lies outside filter or scope")
        self.passage_id = passage_id
        self.document_id = document_id


class FilterUnsupported(RetrievalError):
    """A query has a filter or a scope, and a retriever has no way to keep to it.

    Attributes:
        retriever: The retriever's kind.
    """

    def __init__(self, retriever: str) -> None:
        super().__init__(f"{retriever} cannot keep to a filter or scope; narrow= would say how")
        self.retriever = retriever


class InvalidCollection(RetrievalError, ValueError):
    """A test collection's files are missing or cannot be read.

    Attributes:
        path: The file or folder.
        line: 1-based line of the file, where one is at fault.
    """

    def __init__(self, path: str, problem: str, *, line: int | None = None) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {problem}")
        self.path = path
        self.line = line


class InvalidRun(RetrievalError, ValueError):
    """A run does not rank exactly the topics that are judged.

    Attributes:
        missing: How many topics it leaves out.
        unknown: How many of its topics are not judged.
    """

    def __init__(self, missing: int, unknown: int) -> None:
        super().__init__(f"the run leaves out {missing} topics and has {unknown} unknown ones")
        self.missing = missing
        self.unknown = unknown


class MigrationError(RetrievalError):
    """A corpus was not copied into another, or not rightly."""


class MigrationTargetInUse(MigrationError):
    """The corpus to copy into holds documents that the other one has not.

    Attributes:
        documents: How many.
    """

    def __init__(self, documents: int) -> None:
        super().__init__(
            f"the new corpus holds documents that the old one has not ({documents:,}); "
            "prune=True (--prune) removes them"
        )
        self.documents = documents


class MigrationMismatch(MigrationError):
    """Verification found that the new corpus does not say what the old one says.

    Attributes:
        problems: What differs, a sentence each, with ids and without content.
    """

    explanation: ClassVar[str] = "the new corpus differs"

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__(f"{self.explanation}: {'; '.join(problems)}")
        self.problems = problems


class MigrationSourceChanging(MigrationMismatch):
    """The old corpus was written anew before each verification of the copy was done.

    Nothing is known to be wrong with what was copied, and it stays.
    """

    retryable = True
    explanation = (
        "the old corpus is written faster than its changes are copied; "
        "stop its writers, or run it again when they write less; so far the new one differs"
    )


class DeadlineExceeded(RetrievalError, TimeoutError):
    """The request's deadline passed.

    Attributes:
        stage: The stage that was running or about to run.
        deadline: The whole deadline in seconds.
    """

    def __init__(self, stage: str, deadline: float) -> None:
        super().__init__(f"deadline of {deadline:g} s exceeded in stage {stage!r}")
        self.stage = stage
        self.deadline = deadline


class StageTimeout(RetrievalError, TimeoutError):
    """A stage exceeded its own timeout.

    Attributes:
        stage: The stage.
        timeout: Its limit in seconds.
    """

    retryable = True

    def __init__(self, stage: str, timeout: float) -> None:
        super().__init__(f"stage {stage!r} exceeded its timeout of {timeout:g} s")
        self.stage = stage
        self.timeout = timeout


class StoreError(RetrievalError):
    """A store refused or failed.

    Attributes:
        store: The store's kind, such as ``sqlite``.
    """

    default: ClassVar[str] = "store error"

    def __init__(self, problem: str | None = None, *, store: str = "store") -> None:
        super().__init__(f"{store}: {problem or self.default}")
        self.store = store


class DuplicateDocumentID(StoreError, ValueError):
    """One document id occurs twice in one write.

    Attributes:
        document_id: The id.
    """

    def __init__(self, document_id: str, *, store: str = "store") -> None:
        super().__init__(f"document {document_id!r} occurs twice in one write", store=store)
        self.document_id = document_id


class PassageIDConflict(StoreError, ValueError):
    """A passage id is already owned by another document, or occurs twice in one write.

    Attributes:
        passage_id: The id.
    """

    def __init__(self, passage_id: str, *, store: str = "store") -> None:
        super().__init__(f"passage id {passage_id!r} is taken by another passage", store=store)
        self.passage_id = passage_id


class DocumentChanged(StoreError):
    """A document is no longer the revision that a conditional write was made from.

    Attributes:
        document_id: The document's id.
    """

    retryable = True

    def __init__(self, document_id: str, *, store: str = "store") -> None:
        super().__init__(f"document {document_id!r} was changed or removed meanwhile", store=store)
        self.document_id = document_id


class CorpusChanged(StoreError):
    """A corpus was written since the revision that a swap expected; nothing was swapped.

    Attributes:
        corpus: The corpus's name.
    """

    retryable = True

    def __init__(self, corpus: str, *, store: str = "store") -> None:
        super().__init__(f"corpus {corpus!r} was written meanwhile", store=store)
        self.corpus = corpus


class UnknownCorpus(StoreError, LookupError):
    """A corpus that is to be swapped was never written.

    Attributes:
        corpus: The corpus's name.
    """

    def __init__(self, corpus: str, *, store: str = "store") -> None:
        super().__init__(f"there is no corpus {corpus!r}", store=store)
        self.corpus = corpus


class SwapUnsupported(StoreError):
    """This store cannot exchange the names of two corpora, or the two are not in one store."""

    default = "the two corpora cannot be swapped; point the application to the new one instead"


class InvalidIndexIdentity(StoreError, ValueError):
    """An index identity is blank."""

    default = "an index identity must not be blank"


class IdentityMismatch(StoreError):
    """The corpus was written with another embedding model, dimension or analyser.

    Attributes:
        stored: What the corpus was written with.
        given: What the caller works with.
    """

    def __init__(self, stored: str, given: str, *, store: str = "store", remedy: str = "") -> None:
        advice = remedy or (
            "open the index with the stored settings, copy it to the new ones (ragchat migrate, "
            "migrate_index), or reset it and ingest again"
        )
        super().__init__(f"corpus has identity {stored}, not {given}; {advice}", store=store)
        self.stored = stored
        self.given = given


class ResetUnsupported(StoreError):
    """This store cannot be reset."""

    default = "reset is not supported"


class StoreReadOnly(StoreError):
    """A write reached a store that was opened for reading."""

    default = "opened read-only"


class StoreClosed(StoreError):
    """The store was used after it was closed."""

    default = "already closed"


class StoreUnavailable(StoreError):
    """The store is busy, unreachable or damaged.

    Attributes:
        retryable: Whether trying again later may help (busy, unreachable).
    """

    default = "unavailable"

    def __init__(
        self, problem: str | None = None, *, store: str = "store", retryable: bool = False
    ) -> None:
        super().__init__(problem, store=store)
        self.retryable = retryable


class NotAStore(StoreError):
    """The path or URL names something that is not an index of ours."""

    default = "not an index of ragchat"
