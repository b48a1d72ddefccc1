"""Where a text may be cut: blocks, words, fragments of long words, grapheme clusters.

Every function gives trimmed, non-blank spans in order. Together they hold all characters of the
range but white space, and none begins or ends inside a grapheme cluster (Unicode's UAX 29, as the
``regex`` package implements it).
"""

from __future__ import annotations

import functools
import importlib
import re
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

# Scripts whose words are not separated by spaces. Lines may break between most of their letters.
_UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Yi}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"\p{Tibetan}"
)
_OPENING = r"\p{Ps}\p{Pi}"
# What must not begin a line: closing marks, small kana and repeat marks (JIS X 4051), Thai and Lao
# signs that follow their consonant.
_CLOSING = (
    r"\p{Pe}\p{Pf}\p{Po}\u2026\u301C\u3005\u303B\u309D\u309E\u30FC-\u30FE"
    r"\u3041\u3043\u3045\u3047\u3049\u3063\u3083\u3085\u3087\u308E"
    r"\u30A1\u30A3\u30A5\u30A7\u30A9\u30C3\u30E3\u30E5\u30E7\u30EE"
    r"\u0E2F\u0E30\u0E32\u0E45\u0E46\u0EAF\u0EB0\u0EB2\u0EC6"
)
_LEADING_VOWELS = r"\u0E40-\u0E44\u0EC0-\u0EC4"

# One letter of an unspaced script with what belongs to it, or a run of anything else up to the next
# such letter. Runs of opening marks are bounded, so that no input makes the search quadratic.
_WORD = (
    rf"[{_OPENING}]{{0,4}}+(?:[{_LEADING_VOWELS}](?=[{_UNSPACED}]))?+(?=[{_UNSPACED}])\X"
    rf"(?:(?=[{_CLOSING}])\X)*+"
    rf"|[^\s{_UNSPACED}]+?(?=[{_OPENING}]{{0,4}}+[{_UNSPACED}]|\s|$)"
)

_BLANK_LINES = re.compile(r"(?>\r\n|\r|\n)[^\S\r\n]*+(?>\r\n|\r|\n)\s*+")
_LINE = re.compile(r"[^\r\n]++")
_FRAGMENT = re.compile(r"[^,;:&|/\\?=.)}\]>_-]*+[,;:&|/\\?=.)}\]>_-]++|[^,;:&|/\\?=.)}\]>_-]++")

_LOOK_BACK = 32
"""Most characters looked back for the start of a cluster; longer ones hardly occur in text."""


def block_spans(text: str, start: int = 0, end: int | None = None) -> Iterator[Span]:
    """Yields the blocks between blank lines."""
    stop = len(text) if end is None else end
    begin = start
    for match in _BLANK_LINES.finditer(text, start, stop):
        if span := trimmed(text, begin, match.start()):
            yield span
        begin = match.end()
        # White space that carries a combining mark belongs to the block that it begins.
        while begin > match.start() and joined(text, begin):
            begin -= 1
    if span := trimmed(text, begin, stop):
        yield span


def line_spans(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields the lines, without blank ones. Indentation is kept: it means something in code."""
    for match in _LINE.finditer(text, start, end):
        if span := trimmed(text, match.start(), match.end()):
            yield Span(match.start(), span.end)


def word_spans(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields words; in scripts without spaces, single letters with their marks and punctuation."""
    held: int | None = None
    for match in _unicode().word.finditer(text, start, end):
        begin, stop = match.span()
        if held is not None:
            begin = held
        while begin > start and joined(text, begin):
            begin -= 1  # white space with a mark on it belongs to the word
        held = begin if stop < end and joined(text, stop) else None
        if held is None and not text[begin:stop].isspace():
            yield Span(begin, stop)
    if held is not None and (span := trimmed(text, held, end)):
        yield span


def fragment_spans(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields the parts of a long word, such as an address, cut after punctuation."""
    begin = start
    for match in _FRAGMENT.finditer(text, start, end):
        stop = match.end()
        if stop < end and joined(text, stop):
            continue
        if not text[begin:stop].isspace():
            yield Span(begin, stop)
        begin = stop


def grapheme_spans(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields what a reader sees as single characters."""
    for match in _unicode().grapheme.finditer(text, start, end):
        if not match[0].isspace():
            yield Span(match.start(), match.end())


def trimmed(text: str, start: int, end: int) -> Span | None:
    """Returns the range without the white space around it; None if nothing else is in it.

    White space that is part of a grapheme cluster (it carries a combining mark) stays.
    """
    body = text[start:end]
    left = body.lstrip()
    if not left:
        return None
    begin = start + len(body) - len(left)
    stop = begin + len(left.rstrip())
    while begin > start and joined(text, begin):
        begin -= 1
    while stop < end and joined(text, stop):
        stop += 1
    return Span(begin, stop)


def joined(text: str, offset: int) -> bool:
    """Says whether a cut at `offset` would fall inside a grapheme cluster."""
    if not 0 < offset < len(text):
        return False
    before, after = text[offset - 1], text[offset]
    if before.isascii() and after.isascii():
        return before == "\r" and after == "\n"
    rules = _unicode()
    if rules.apart.match(text, offset - 1):
        return False
    # An ASCII character begins a cluster of its own, so that the search may start there.
    begin = offset - 1
    lowest = max(0, offset - _LOOK_BACK)
    while begin > lowest and not text[begin].isascii():
        begin -= 1
    while begin < offset:
        begin = rules.grapheme.match(text, begin).end()
    return begin > offset


class _Unicode:
    def __init__(self) -> None:
        regex = importlib.import_module("regex")  # 15 ms, and most texts never need it
        self.word: Any = regex.compile(_WORD)
        self.grapheme: Any = regex.compile(r"\X")
        # Two characters that are never in one cluster, whatever stands around them.
        self.apart: Any = regex.compile(
            r"[\p{GCB=Other}\p{GCB=Control}\p{GCB=LF}][\p{GCB=Other}\p{GCB=Control}\p{GCB=CR}]"
        )


@functools.cache
def _unicode() -> _Unicode:
    return _Unicode()
