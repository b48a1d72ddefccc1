"""What models and their servers do wrong."""

from __future__ import annotations

from ragchat_retrieval.errors.base import RetrievalError


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
