"""What cannot be written as it was given."""

from __future__ import annotations

from ragchat_retrieval.errors.base import RetrievalError


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
