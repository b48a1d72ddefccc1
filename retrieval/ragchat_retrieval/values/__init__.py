"""The values of retrieval: documents, passages, queries, candidates, results.

All are frozen, equal when their content is equal, and know nothing of storage. A score belongs to a
search (`Candidate`), never to a passage.
"""

from __future__ import annotations

from ragchat_retrieval.values.documents import (
    LONGEST_LABEL,
    MAX_DOCUMENT_BYTES,
    Document,
    Lines,
    Passage,
    Revision,
    Span,
    indexed_text,
    passage_id,
    trusted_passage,
)
from ragchat_retrieval.values.queries import (
    Candidate,
    ContextText,
    Query,
    SearchResult,
    documents_of,
)

__all__ = [
    "LONGEST_LABEL",
    "MAX_DOCUMENT_BYTES",
    "Candidate",
    "ContextText",
    "Document",
    "Lines",
    "Passage",
    "Query",
    "Revision",
    "SearchResult",
    "Span",
    "documents_of",
    "indexed_text",
    "passage_id",
    "trusted_passage",
]
