"""Where sentences end: a small rule for many scripts, in linear time.

A sentence ends

- at ``.`` ``!`` ``?`` ``…`` and their kin, with the quotes or brackets that close after them, when
  white space or the end of the text follows;
- at the full stops of scripts that need no space after them (CJK, Devanagari's danda, Burmese,
  Khmer, Tibetan, Ethiopic);
- at a blank line, and before and after a line that is an item of a list, a heading or a table row.

A single full stop does not end a sentence after an abbreviation, an initial, or a number that the
sentence begins with (``1. Install``). A decimal has no space after its point. Where an abbreviation
may also close a sentence (``etc.``), a following small letter says that it does not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ragchat_retrieval.chunking.abbreviations import ALWAYS, BEFORE_NUMBERS, MAY_CLOSE
from ragchat_retrieval.chunking.breaks import joined, trimmed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragchat_retrieval.values import Span

CLOSERS = "\"'\u2019\u201d\u00bb\u203a)\\]}\u300d\u300f\u3011\uff09\u3015\u3009\u300b\uff3d"
"""Quotes and brackets that close after a stop; escaped for a character class of a pattern."""

_OPENERS = "\"'\u2018\u201c\u201e\u00ab\u2039(\\[{"

# Stops after which no space is needed: ideographic and full-width, danda, Ethiopic, Burmese, Khmer,
# Tibetan.
_DIRECT = "\u3002\uff01\uff1f\uff61\u0964\u0965\u1362\u104b\u17d4\u17d5\u0f0d\u0f0e"
# Stops that need a space after them, with the ellipsis, the Arabic question mark and full stop, and
# the double marks.
_SPACED = ".!?\u2026\u061f\u06d4\u203c\u2047\u2048\u2049"

STOPS = _DIRECT + _SPACED
"""Every mark that can end a sentence; escaped for a character class of a pattern."""

_CANDIDATE = re.compile(
    rf"(?P<stop>[{STOPS}]++)[{CLOSERS}]*+"
    r"|(?P<line>(?>\r\n|\r|\n)[^\S\r\n]*+)"
)
_DIRECT_STOP = re.compile(rf"[{_DIRECT}]")
_OWN_LINE = re.compile(r"(?:[-*+\u2022]|\d{1,9}[.)]|\#{1,6})[ \t]|\||[\r\n]")
_LONE_LINE = re.compile(r"\#{1,6}[ \t]|\|")
_SPACE = re.compile(r"\s*+")
_FOLLOWING = re.compile(rf"\s*+[{_OPENERS}]*+(?P<char>\S?)(?P<next>.?)")

_LONGEST_ABBREVIATION = 12
_BEFORE_WORD = _OPENERS.replace("\\", "") + "-/\u2013\u2014"
_LETTER_STOP = re.compile(r"\w\.")
_DOTTED = re.compile(r"\w(?:\.\w)+")


def sentence_spans(text: str, start: int = 0, end: int | None = None) -> list[Span]:
    """Returns the sentences of a range: trimmed, in order, none blank.

    Together they hold every character of the range but white space, and none begins or ends inside
    a grapheme cluster.

    Args:
        text: The whole text.
        start: Where to begin.
        end: Where to end; None is the end of the text.
    """
    return list(iterate_sentences(text, start, len(text) if end is None else end))


def iterate_sentences(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields what `sentence_spans` returns, one at a time, so that memory stays bounded."""
    begin = _skip_space(text, start, end)
    for match in _CANDIDATE.finditer(text, start, end):
        if match.start() < begin:
            continue  # a line end in white space that is skipped already
        if match["line"] is not None:
            if not _breaks_line(text, begin, match.end(), end):
                continue
            cut = match.start()
        else:
            cut = match.end()
            if not _ends(text, match, begin, end):
                continue
        if span := trimmed(text, begin, cut):
            yield span
        begin = _skip_space(text, cut, end)
    if span := trimmed(text, begin, end):
        yield span


def _breaks_line(text: str, begin: int, following: int, end: int) -> bool:
    """Says whether a line end also ends the sentence that began at `begin`."""
    if following >= end or _OWN_LINE.match(text, following, end):
        return True
    return _LONE_LINE.match(text, begin, end) is not None


def _skip_space(text: str, offset: int, end: int) -> int:
    """Returns where the text goes on; white space that carries a combining mark is part of it."""
    found = _SPACE.match(text, offset, end)
    begin = offset if found is None else found.end()
    while begin > offset and joined(text, begin):
        begin -= 1
    return begin


def _ends(text: str, match: re.Match[str], begin: int, end: int) -> bool:
    """Says whether a stop with its closing marks ends the sentence that began at `begin`."""
    cut = match.end()
    if cut < end and joined(text, cut):
        return False
    stop = match["stop"]
    if _DIRECT_STOP.search(stop):
        return True
    if cut < end and not text[cut].isspace():
        return False
    following = _FOLLOWING.match(text, cut, end)
    char, after = ("", "") if following is None else (following["char"], following["next"])
    if stop != ".":
        # '"Why?" he asked' goes on; 'Why? he asked' may not, but "wait... what" does.
        quoted = cut > match.end("stop")
        return not (char.islower() and (quoted or stop[-1] in ".\u2026"))
    return _full_stop_ends(text, match.start(), begin, char, after)


def _full_stop_ends(text: str, stop: int, begin: int, char: str, after: str) -> bool:
    """Says whether a single full stop at `stop` ends the sentence, by the word before it."""
    before = text[max(begin, stop - _LONGEST_ABBREVIATION) : stop].split()
    word = before[-1].lstrip(_BEFORE_WORD) if before else ""
    if word.isdecimal():
        return bool(text[begin : stop - len(word)].strip())
    folded = word.casefold()
    if folded in MAY_CLOSE:
        return not char.islower()
    if folded in ALWAYS or (folded in BEFORE_NUMBERS and char.isdecimal()):
        return False
    if len(word) == 1 and word.isalpha():
        # A capital letter is an initial. A small one is part of "z. B." if it has such a neighbour.
        if word.isupper():
            return word == "I"
        spaced = _LETTER_STOP.fullmatch(before[-2]) if len(before) > 1 else None
        return spaced is None and not (char.isalpha() and after == ".")
    return _DOTTED.fullmatch(word) is None
