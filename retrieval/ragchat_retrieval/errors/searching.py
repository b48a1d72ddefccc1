"""What cannot be searched for, or must not be found."""

from __future__ import annotations

from ragchat_retrieval.errors.base import RetrievalError


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


class InvalidCandidates(RetrievalError, ValueError):
    """A retriever or a stage returned something that is no sequence of valid candidates.

    Attributes:
        stage: The stage that returned it.
    """

    def __init__(self, problem: str, *, stage: str) -> None:
        super().__init__(f"{stage}: {problem}")
        self.stage = stage


class ScopeViolation(RetrievalError):
    """A passage or document lies outside filter or scope; a result is withheld, a write refused.

    Attributes:
        passage_id: The passage's id, where a passage is at fault.
        document_id: The document's id, where a document is.
    """

    def __init__(self, passage_id: str | None = None, *, document_id: str | None = None) -> None:
        what = f"passage {passage_id!r}"
        if passage_id is None:
            what = f"document {document_id!r}, or what is stored under its id,"
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
