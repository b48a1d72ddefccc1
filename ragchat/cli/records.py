"""Short labels of what commands print, for people."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from ragchat.cli.output import one_line

if TYPE_CHECKING:
    from ragchat_retrieval.values import Passage


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
