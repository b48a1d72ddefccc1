"""Rendering candidates as plain context blocks, for prompts that need no citations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ragchat_retrieval.values import Candidate, Passage

_FIELD = re.compile(r"\{(source|title|start|end|page|headings|id)\}")


def format_context(
    candidates: Sequence[Candidate],
    *,
    header: str | None = None,
    max_tokens: int | None = None,
    count: Callable[[str], int] | None = None,
) -> str:
    """Joins passages to blocks under a token limit.

    The result is a contiguous prefix of whole blocks: the first one that does not fit ends it.
    Headers and separators count. Nothing is escaped and no instruction is added; for numbered
    evidence with citations use `ragchat.ContextualAugmenter`.

    Args:
        candidates: Best first.
        header: A line above each passage with the fields ``{source}``, ``{title}``, ``{start}``,
            ``{end}`` (lines), ``{page}``, ``{headings}`` and ``{id}``. A comma-separated part whose
            field the passage does not have is left out, so that
            ``[Source: {source}, Lines: {start}-{end}]`` becomes ``[Source: a.md]`` without lines.
        max_tokens: The limit, measured over the joined text; None is no limit, 0 or less gives "".
        count: Counts tokens; None counts o200k_base. Not called without a limit.

    Raises:
        InvalidSetting: `count` returned a negative number.
    """
    if max_tokens is not None and max_tokens <= 0:
        return ""
    text = ""
    for candidate in candidates:
        block = _block(candidate.passage, header)
        longer = f"{text}\n\n{block}" if text else block
        if max_tokens is not None and _measure(longer, count) > max_tokens:
            break
        text = longer
    return text


def _measure(text: str, count: Callable[[str], int] | None) -> int:
    if count is None:
        from ragchat_retrieval.tokens import count_tokens  # noqa: PLC0415 - loads a vocabulary

        return count_tokens(text)
    tokens = count(text)
    if tokens < 0:
        raise InvalidSetting("count", "returned a negative number of tokens")
    return tokens


def _block(passage: Passage, header: str | None) -> str:
    if header is None:
        return passage.text
    values = {
        "source": passage.source,
        "title": passage.title,
        "start": passage.lines and str(passage.lines.start),
        "end": passage.lines and str(passage.lines.end),
        "page": passage.page and str(passage.page),
        "headings": " > ".join(passage.headings),
        "id": passage.id,
    }
    opening, body, closing = _brackets(header)
    parts = [part for part in body.split(", ") if all(values[f] for f in _FIELD.findall(part))]
    if not parts:
        return passage.text
    line = _FIELD.sub(lambda match: _one_line(values[match[1]] or ""), ", ".join(parts))
    return f"{opening}{line}{closing}\n{passage.text}"


def _brackets(header: str) -> tuple[str, str, str]:
    if header.startswith("[") and header.endswith("]"):
        return "[", header[1:-1], "]"
    return "", header, ""


def _one_line(value: str) -> str:
    return " ".join(value.split())
