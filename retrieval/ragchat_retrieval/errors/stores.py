"""What stores refuse, and how they fail."""

from __future__ import annotations

from typing import ClassVar

from ragchat_retrieval.errors.base import RetrievalError


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
