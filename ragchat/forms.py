"""The JSON forms of what a search found, and JSON text: for whatever prints or serves it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragchat_retrieval.trace import Degradation
    from ragchat_retrieval.values import Candidate, Lines, Passage, Query, Span


_BREAKS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""What JSON may hold as it is, and what readers such as `str.splitlines` break lines at."""


def unbroken(written: str) -> str:
    """Returns JSON text in which nothing but its own line feeds ends a line."""
    for character, escaped in _BREAKS.items():
        written = written.replace(character, escaped)
    return written


def range_record(pair: Span | Lines | None) -> dict[str, int] | None:
    """Returns a range as JSON values: of characters, or of lines."""
    return None if pair is None else {"start": pair.start, "end": pair.end}


def passage_record(passage: Passage) -> dict[str, Any]:
    """Returns a passage as JSON values."""
    return {
        "id": passage.id,
        "document_id": passage.document_id,
        **({} if passage.corpus is None else {"corpus": passage.corpus}),
        "title": passage.title,
        "source": passage.source,
        "headings": list(passage.headings),
        "page": passage.page,
        "lines": range_record(passage.lines),
        "span": range_record(passage.span),
        "metadata": dict(passage.metadata),
        "text": passage.text,
    }


def candidate_record(rank: int, candidate: Candidate) -> dict[str, Any]:
    """Returns a candidate as JSON values; with its explanation if the search made one."""
    record = {"rank": rank, "score": candidate.score, **passage_record(candidate.passage)}
    if candidate.explain is not None:
        record["explain"] = asdict(candidate.explain)
    return record


def query_record(query: Query) -> dict[str, Any]:
    """Returns a query as JSON values."""
    return {
        "text": query.text,
        "context": [asdict(context) for context in query.context],
        "lexical": query.lexical,
        "semantic": query.semantic,
    }


def degraded_records(degraded: Sequence[Degradation]) -> list[dict[str, str]]:
    """Returns what was left out, as JSON values."""
    return [asdict(degradation) for degradation in degraded]
