"""Numbering the citations of an answer anew, by first appearance."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ragchat.citations.scanner import MAX_MARKER, MAX_RANGE, MAX_RANGE_END

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ragchat.citations.citations import Citations, Mention

UNRESOLVED = "?"
"""Stands for invented numbers, so that none comes to mean another passage."""

_LEAST_RUN = 3


class Renumbered(NamedTuple):
    """An answer whose citations are numbered 1 … n by first appearance."""

    text: str
    citations: Citations
    """The cited passages only, by their new numbers."""


def renumbered_text(text: str, mentions: Sequence[Mention], numbers: Mapping[int, int]) -> str:
    """Returns the text with every marker rewritten; everything else stays as it is.

    Args:
        text: The answer.
        mentions: Its markers, in order.
        numbers: The new number of every known one.
    """
    parts, read = [], 0
    for mention in mentions:
        if not mention.foreign:
            parts += [text[read : mention.start], _marker(mention, numbers)]
            read = mention.end
    return "".join((*parts, text[read:]))


def _marker(mention: Mention, numbers: Mapping[int, int]) -> str:
    left, right = mention.marker[0], mention.marker[-1]
    bodies = list(_bodies([numbers[number] for number in mention.numbers]))
    if mention.unknown:
        bodies.append(UNRESOLVED)
    return "".join(f"{left}{body}{right}" for body in bodies)


def _bodies(numbers: Sequence[int]) -> Iterator[str]:
    """Writes numbers as lists with ranges, none too long for a marker."""
    body = ""
    for item in _items(numbers):
        longer = f"{body}, {item}" if body else item
        if body and len(longer) + 2 > MAX_MARKER:
            yield body
            longer = item
        body = longer
    if body:
        yield body


def _items(numbers: Sequence[int]) -> Iterator[str]:
    """Writes each run of at least three rising numbers as a range."""
    at = 0
    while at < len(numbers):
        end = at + 1
        while (
            end < len(numbers)
            and numbers[end] == numbers[end - 1] + 1 <= MAX_RANGE_END
            and end - at < MAX_RANGE
        ):
            end += 1
        if end - at >= _LEAST_RUN:
            yield f"{numbers[at]}-{numbers[end - 1]}"
        else:
            yield from map(str, numbers[at:end])
        at = end
