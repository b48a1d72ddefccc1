"""From spans to passages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragchat_retrieval.chunking.lines import LineIndex
from ragchat_retrieval.values import Passage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ragchat_retrieval.values import Document, Span


def build_passages(
    document: Document,
    spans: Iterable[tuple[Span, tuple[str, ...]]],
    *,
    lines: LineIndex | None = None,
) -> list[Passage]:
    """Returns the passages of a document, with its labels, metadata and digest.

    Args:
        document: The document.
        spans: For each passage its range of the text and its heading path, in order.
        lines: The lines of the text, where the caller has them already.
    """
    index = lines or LineIndex(document.text)
    digest = document.digest
    return [
        Passage(
            document.text[span.start : span.end],
            document_id=document.id,
            title=document.title,
            source=document.source,
            metadata=document.metadata,
            headings=headings,
            lines=index.of(span.start, span.end),
            span=span,
            ordinal=ordinal,
            digest=digest,
        )
        for ordinal, (span, headings) in enumerate(spans)
    ]
