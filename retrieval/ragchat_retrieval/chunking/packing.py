"""Packing pieces of text into passages that fill a size in tokens.

Token counts are not additive: two pieces together may count more or less than their sum. So the sum
only proposes, and every passage is measured as one string before it is accepted.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from itertools import groupby, islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ragchat_retrieval.chunking.breaks import (
    block_spans,
    fragment_spans,
    grapheme_spans,
    line_spans,
    word_spans,
)
from ragchat_retrieval.chunking.sentences import iterate_sentences
from ragchat_retrieval.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ragchat_retrieval.chunking.measure import Measure, TokenCounter

    Cut = Callable[[str, int, int], Iterable[Span]]

T = TypeVar("T")

_BATCH = 1024
"""Pieces measured in one call: bounds memory on texts of many megabytes."""


class Entry(IntEnum):
    """Where the overlap of the next passage may begin inside a piece."""

    INSIDE = 0
    """At its sentences, or its words: running text."""

    START = 1
    """At its start alone: a word, a list, a table, code."""

    NEVER = 2
    """Nowhere: it begins within a word."""


class Piece(NamedTuple):
    """A range of text that stays whole."""

    start: int
    end: int
    tokens: int
    """Its count when measured alone."""

    entry: Entry


_WORDS: tuple[tuple[Cut, Entry], ...] = (
    (word_spans, Entry.START),
    (fragment_spans, Entry.NEVER),
    (grapheme_spans, Entry.NEVER),
)
PROSE: tuple[tuple[Cut, Entry], ...] = (
    (block_spans, Entry.INSIDE),
    (iterate_sentences, Entry.INSIDE),
    *_WORDS,
)
"""Running text: blocks, sentences, words, fragments of long words, grapheme clusters."""

SENTENCES: tuple[tuple[Cut, Entry], ...] = ((iterate_sentences, Entry.INSIDE), *_WORDS)
"""As `PROSE`, but no sentence is joined to its block."""

LINES: tuple[tuple[Cut, Entry], ...] = ((line_spans, Entry.START), *_WORDS)
"""Code and tables: lines, then as running text."""


def pieces(
    text: str,
    start: int,
    end: int,
    levels: Sequence[tuple[Cut, Entry]],
    *,
    size: int,
    measure: Measure,
) -> Iterator[Piece]:
    """Yields a range as the largest pieces that fit `size`, level by level.

    A piece of the last level may be larger than `size`: it cannot be broken.
    """
    (cut, entry), *finer = levels
    for spans in _batches(cut(text, start, end)):
        counts = measure.many([text[span.start : span.end] for span in spans])
        for span, tokens in zip(spans, counts, strict=True):
            if tokens <= size or not finer:
                yield Piece(span.start, span.end, tokens, entry)
            else:
                yield from pieces(text, *span, finer, size=size, measure=measure)


def sentence_pieces(text: str, *, size: int, measure: Measure) -> list[Piece]:
    """Returns the sentences of a text; what is larger than `size` in parts that fill it."""
    whole: list[Piece] = []
    cut = pieces(text, 0, len(text), SENTENCES, size=size, measure=measure)
    for broken, run in groupby(cut, key=lambda piece: piece.entry is not Entry.INSIDE):
        if not broken:
            whole += run
            continue
        # Single words and letters say too little by themselves.
        for start, end in pack(text, run, size=size, overlap=0, count=measure.one):
            whole.append(Piece(start, end, measure.one(text[start:end]), Entry.START))
    return whole


def pack(
    text: str, parts: Iterable[Piece], *, size: int, overlap: int, count: TokenCounter
) -> Iterator[Span]:
    """Yields the spans of passages: each as many pieces as fit, in order.

    Starts and ends strictly increase. A passage counts at most `size`, unless it is one piece that
    counts more by itself. It begins with as much of the passage before it as counts at most
    `overlap` and leaves room for its own first piece.

    Args:
        text: The whole text.
        parts: Pieces in order.
        size: Most tokens of a passage.
        overlap: Most tokens taken over from the passage before.
        count: Measures a finished passage.
    """
    queue = _Queue(parts)
    start, taken = -1, list[Piece]()
    while (first := queue.next()) is not None:
        begin = first.start
        if overlap and taken:
            begin = _overlap_start(
                text, taken, first, after=start, size=size, overlap=overlap, count=count
            )
        start, taken = begin, _fill(text, begin, [first], queue, size=size, count=count)
        yield Span(start, taken[-1].end)


def _fill(
    text: str, begin: int, taken: list[Piece], queue: _Queue, *, size: int, count: TokenCounter
) -> list[Piece]:
    """Returns the first piece with as many after it as fit when measured together."""
    used = count(text[begin : taken[-1].end])
    # How far the sum of single counts is off: joined, letters of Chinese count less and lines more.
    ratio = 1.0
    while proposal := queue.take((size - used) * ratio):
        measured = count(text[begin : proposal[-1].end])
        ratio = _ratio(proposal, measured - used)
        while measured > size and len(proposal) > 1:
            kept = _within(proposal[:-1], (size - used) * ratio)
            queue.give_back(proposal[kept:])
            del proposal[kept:]
            measured = count(text[begin : proposal[-1].end])
            ratio = _ratio(proposal, measured - used)
        if measured > size:
            queue.give_back(proposal)
            break
        taken += proposal
        used = measured
    return taken


def _ratio(proposal: Sequence[Piece], measured: int) -> float:
    return max(1, sum(piece.tokens for piece in proposal)) / max(1, measured)


def _within(proposal: Sequence[Piece], room: float) -> int:
    """Returns how many of the pieces sum up to at most `room`, one at least."""
    kept = 0
    for piece in proposal:
        room -= piece.tokens
        if room < 0:
            break
        kept += 1
    return max(1, kept)


def _overlap_start(
    text: str,
    before: Sequence[Piece],
    first: Piece,
    *,
    after: int,
    size: int,
    overlap: int,
    count: TokenCounter,
) -> int:
    """Returns where a passage begins that takes over the end of the pieces before it."""
    end = before[-1].end

    def fits(offset: int) -> bool:
        return count(text[offset:end]) <= overlap and count(text[offset : first.end]) <= size

    for entries in (_piece_entries(text, before, overlap), _word_entries(text, before[-1])):
        found = _earliest([offset for offset in entries if offset > after], fits)
        if found is not None:
            return found
    return first.start


def _piece_entries(text: str, parts: Sequence[Piece], overlap: int) -> list[int]:
    """Returns the starts of sentences and whole pieces near the end, in order."""
    entries: list[int] = []
    tokens = 0
    for piece in reversed(parts):
        if piece.entry is Entry.INSIDE:
            starts = [span.start for span in iterate_sentences(text, piece.start, piece.end)]
            entries += reversed(starts)
        elif piece.entry is Entry.START:
            entries.append(piece.start)
        tokens += piece.tokens
        if tokens > overlap:
            break
    return entries[::-1]


def _word_entries(text: str, last: Piece) -> list[int]:
    """Returns the starts of the words of the last sentence, if the piece may be entered there."""
    if last.entry is not Entry.INSIDE:
        return []
    *_, sentence = iterate_sentences(text, last.start, last.end)
    return [span.start for span in word_spans(text, *sentence)]


def _earliest(offsets: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """Returns the first offset that fits, if those after it fit as well; None if none does."""
    low, high = 0, len(offsets)
    while low < high:
        middle = (low + high) // 2
        if fits(offsets[middle]):
            high = middle
        else:
            low = middle + 1
    return offsets[low] if low < len(offsets) else None


class _Queue:
    """Pieces in order, with the possibility to give some back."""

    def __init__(self, parts: Iterable[Piece]) -> None:
        self._returned: deque[Piece] = deque()
        self._rest = iter(parts)

    def take(self, room: float) -> list[Piece]:
        """Returns the next pieces whose counts sum up to at most `room`; one at least, if any."""
        taken: list[Piece] = []
        while (piece := self.next()) is not None:
            if taken and piece.tokens > room:
                self._returned.appendleft(piece)
                break
            taken.append(piece)
            room -= piece.tokens
        return taken

    def give_back(self, parts: Sequence[Piece]) -> None:
        """Takes pieces back that were the last ones taken."""
        self._returned.extendleft(reversed(parts))

    def next(self) -> Piece | None:
        """Returns the next piece; None at the end."""
        return self._returned.popleft() if self._returned else next(self._rest, None)


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, _BATCH)):
        yield batch
