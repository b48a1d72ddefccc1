"""The JSON forms of what commands print, and short labels for people."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ragchat.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragchat_retrieval.trace import Degradation
    from ragchat_retrieval.values import Candidate, Passage, Query


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
        "lines": passage.lines and list(passage.lines),
        "span": passage.span and list(passage.span),
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


def heading(passage: Passage) -> str:
    """Returns what a passage is about: title and path of headings."""
    parts = dict.fromkeys(filter(None, [passage.title, *passage.headings]))
    return one_line(" › ".join(parts)) or one_line(passage.document_id) or "(no title)"


def place(passage: Passage) -> str:
    """Returns where a passage stands: source, record, page and lines."""
    where = one_line((passage.source or passage.document_id or passage.id) + _record(passage))
    if passage.page is not None:
        where += f", page {passage.page}"
    if passage.lines is not None:
        start, end = passage.lines
        where += f", line {start}" if start == end else f", lines {start}–{end}"
    return where


def _record(passage: Passage) -> str:
    """Returns ``#id`` of a passage that was read from one record of a file, else nothing.

    Its lines are those of the record's text, so the file's name alone would mislead.
    """
    file = PurePath(passage.source or "").name
    _, mark, key = (passage.document_id or "").partition(f"/{file}#")
    return f"#{key}" if file and mark else ""
