"""Finding citation markers in an answer: one pass from left to right, with bounded lookahead.

The rules, which are not those of CommonMark:

- A marker is ``[1]``, ``【1】`` or the same in full-width square brackets. Inside stand numbers and
  ranges: ``[1, 2]``, ``[1-3]``. Numbers have no leading zero; digits may be full-width; blanks may
  stand around them. Commas, semicolons and their CJK forms separate. A range is written with a
  hyphen or an en dash, does not fall, spans at most 100 numbers and ends below 1000, so that
  ``[1990-2024]`` is years and not 35 invented numbers. Anything else in brackets is text (``[^1]``,
  ``[1.0]``, ``[Doc 1]``), and so is a marker of more than 63 characters.
- ``【4:0†file】`` and the like, marks of other systems, are foreign markers.
- Nothing counts inside code. A line that begins with three or more backticks or tildes, after any
  indentation, quote marks and list bullets, opens a fence, which ends at a line of at least as many
  of the same character, or never. Any other run of backticks opens code until the same run or the
  end of the line; so does a run at the beginning of a line whose like follows on that line.
- A square marker directly followed by ``(`` or ``:``, or directly after ``!``, belongs to a link, a
  definition or an image.
- A square marker directly after an ASCII identifier, as in ``name[1]``, is a subscript, and so is
  one directly after a subscript. After anything else, such as punctuation, a year or CJK text, it
  is a citation.

What a bracket is depends on at most the 64 characters that begin with it, so a stream of any length
can be scanned as it arrives; text that cannot begin a marker is settled at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LOOKAHEAD = 64
"""Most characters, from an opening bracket on, that decide what it is."""

MAX_MARKER = LOOKAHEAD - 1
"""Most characters of a marker; the one after it can turn it into a link."""

MAX_RANGE = 100
"""Most numbers that a range spans; a longer one is a range of pages or the like."""

MAX_RANGE_END = 999
"""Largest number in a range; one that goes beyond is a range of years."""

_BLANK = "[ \u00a0\u202f\u3000]*"
_NUMBER = "(?:[0\uff10]|[1-9\uff11-\uff19][0-9\uff10-\uff19]*)"
_SEPARATOR = "[,;\uff0c\u3001\uff1b]"
_DASH = "[-\u2010\u2011\u2013]"
_ITEM = f"{_NUMBER}(?:{_BLANK}{_DASH}{_BLANK}{_NUMBER})?"
_BODY = f"{_BLANK}{_ITEM}(?:{_BLANK}{_SEPARATOR}{_BLANK}{_ITEM})*{_BLANK}"
_INNER = "[^\\[\\]\u3010\u3011\uff3b\uff3d\n]*"  # no bracket of any kind
_OTHERS = f"[0-9]{{1,9}}(?::[0-9]{{1,9}})?\u2020{_INNER}"
_LENTICULAR = f"{_INNER}\u2020{_INNER}|[0-9]{{1,9}}:[0-9]{{1,9}}"

_MARKER = re.compile(
    f"\\[(?:(?P<square>{_BODY})|{_OTHERS})\\]"
    f"|\u3010(?:(?P<lenticular>{_BODY})|{_LENTICULAR})\u3011"
    f"|\uff3b(?:(?P<wide>{_BODY})|{_OTHERS})\uff3d"
)
_PART = re.compile(f"({_NUMBER})(?:{_BLANK}{_DASH}{_BLANK}({_NUMBER}))?")

# Beginnings of what may still become a marker. Too many are harmless: they only settle later.
_NUMERIC = "[-:,;0-9 \u00a0\u202f\u3000\uff10-\uff19\uff0c\u3001\uff1b\u2010\u2011\u2013]*"
_OPEN = re.compile(f"[\\[\uff3b]{_NUMERIC}(?:\u2020{_INNER})?|\u3010{_INNER}")

_SPECIAL = re.compile("[\\[\u3010\uff3b`\n]")
_CODE_END = re.compile("[`\n]")
_DECIMALS = "0123456789"
_WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_" + _DECIMALS
_LEAST_FENCE = 3


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker as it stands in a text, not yet looked up."""

    start: int
    end: int
    """End of the half-open range of characters."""

    ranges: tuple[tuple[int, int], ...]
    """Numbers named, as inclusive ranges in the order written; empty for a foreign marker."""

    @property
    def foreign(self) -> bool:
        """Whether it is another system's marker, which names none of our passages."""
        return not self.ranges


class _Before(Enum):
    """What stands directly before a bracket, as far as it matters."""

    OTHER = auto()
    BANG = auto()
    NAME = auto()
    NUMBER = auto()
    """A word that begins with a digit."""

    SUBSCRIPT = auto()


class _Line(Enum):
    """What was read of a line so far, while it matters."""

    INDENT = auto()
    """Indentation, quote marks and list bullets: a fence may open or close here."""

    ORDINAL = auto()
    """Digits that may become a list number."""

    BULLET = auto()
    """A list bullet or number that wants a blank after it."""

    RUN = auto()
    """In a fence: a run that may close it."""

    TRAIL = auto()
    """In a fence: blanks after a run that closes it."""

    BODY = auto()


# How a line's beginning goes on; any other character begins its body.
_LINE_STARTS = {
    **{(_Line.INDENT, char): _Line.INDENT for char in " \t>"},
    **{(_Line.INDENT, char): _Line.BULLET for char in "-*+"},
    **{(_Line.BULLET, char): _Line.INDENT for char in " \t"},
    **{(line, char): _Line.ORDINAL for line in (_Line.INDENT, _Line.ORDINAL) for char in _DECIMALS},
    **{(_Line.ORDINAL, char): _Line.BULLET for char in ".)"},
}


class Scanner:
    """A state machine that is fed text and returns the markers that became certain.

    The markers are the same for every way of cutting the text. Work is linear in its length, and at
    most `MAX_MARKER` characters are kept back.
    """

    def __init__(self) -> None:
        self._settled = 0
        self._rest = ""
        self._mode: Callable[[str, int], int] = self._line_start
        self._line = _Line.INDENT
        self._before = _Before.OTHER
        self._final = False
        self._found: list[Marker] = []
        self._run = 0
        """Length so far of a run of backticks or tildes."""
        self._run_char = ""
        self._run_leads = False
        """Whether the run begins its line."""
        self._code = 0
        """Length of the run that opened inline code; 0 outside."""
        self._may_fence = False
        """Whether the inline code turns out to be a fence if its line ends."""
        self._fence = 0
        """Length of the run that opened the fence."""

    @property
    def settled(self) -> int:
        """Offset up to which everything is decided; what follows may begin a marker."""
        return self._settled

    @property
    def in_fence(self) -> bool:
        """Whether what was read so far ends inside fenced code."""
        return self._mode == self._in_fence

    def feed(self, text: str) -> list[Marker]:
        """Takes the next piece of the text and returns the markers that are now certain."""
        return self._scan(self._rest + text)

    def finish(self) -> list[Marker]:
        """Ends the text and returns the markers that its end makes certain."""
        self._final = True
        return self._scan(self._rest)

    def _scan(self, text: str) -> list[Marker]:
        at, stuck = 0, False
        while at < len(text) and not stuck:
            mode = self._mode
            end = mode(text, at)
            # A mode that reads nothing has handed over to another one, or waits for more text.
            stuck = end == at and self._mode == mode
            at = end
        self._settled += at
        self._rest = text[at:]
        found, self._found = self._found, []
        return found

    # Modes: each reads at least one character from `at` on and returns where it stopped, or sets
    # another mode and returns `at`. Only a bracket in the body of a line may wait for more text.

    def _line_start(self, text: str, at: int) -> int:
        """Reads one character of a line's beginning, where a fence may open."""
        char = text[at]
        if self._line is _Line.INDENT and char in "`~":
            return self._begin_run(char, at, leads=True)
        line = _Line.INDENT if char == "\n" else _LINE_STARTS.get((self._line, char), _Line.BODY)
        self._line = line
        if line is _Line.BODY:
            self._mode = self._body
            return at
        self._before = _before(char, self._before)
        return at + 1

    def _body(self, text: str, at: int) -> int:
        """Reads prose up to and including the next bracket, or to the next code or line."""
        special = _SPECIAL.search(text, at)
        stop = len(text) if special is None else special.start()
        if stop > at:
            self._before = _before(text[at:stop], self._before)
            return stop
        if text[at] == "\n":
            return self._end_line(at)
        if text[at] == "`":
            return self._begin_run("`", at, leads=False)
        return self._bracket(text, at)

    def _bracket(self, text: str, at: int) -> int:
        """Decides what an opening bracket is; returns `at` while that needs more text."""
        more = not self._final
        match = _MARKER.match(text, at, at + MAX_MARKER)
        if match is None:
            opening = _OPEN.match(text, at, at + MAX_MARKER)
            unclosed = opening is not None and opening.end() == len(text)
            if more and unclosed and len(text) - at < MAX_MARKER:
                return at
            self._before = _Before.OTHER
            return at + 1
        end = match.end()
        before, self._before = self._before, _Before.OTHER
        if text[at] == "[":
            if end == len(text) and more:
                self._before = before
                return at
            if before in (_Before.NAME, _Before.SUBSCRIPT):
                self._before = _Before.SUBSCRIPT
                return end
            if before is _Before.BANG or text[end : end + 1] in ("(", ":"):
                return end
        body = match["square"] or match["lenticular"] or match["wide"]
        ranges = _ranges(body) if body else ()
        if ranges is not None:
            self._found.append(Marker(self._settled + at, self._settled + end, ranges))
        return end

    def _begin_run(self, char: str, at: int, *, leads: bool) -> int:
        self._run, self._run_char, self._run_leads = 0, char, leads
        self._mode = self._in_run
        return at

    def _in_run(self, text: str, at: int) -> int:
        """Reads a run of backticks or tildes; what it means is known when it ends."""
        end = at
        while end < len(text) and text[end] == self._run_char:
            end += 1
        self._run += end - at
        if end > at:
            return end
        self._before, self._line = _Before.OTHER, _Line.BODY
        fences = self._run_leads and self._run >= _LEAST_FENCE
        if self._run_char == "~":
            self._fence = self._run
            self._mode = self._in_fence if fences else self._body
        elif self._code == self._run:
            self._code = 0
            self._mode = self._body
        else:
            if not self._code:
                self._code, self._may_fence = self._run, fences
            self._mode = self._in_code
        return at

    def _in_code(self, text: str, at: int) -> int:
        """Reads inline code to the next run of backticks or the end of the line."""
        special = _CODE_END.search(text, at)
        if special is None:
            return len(text)
        stop = special.start()
        if text[stop] == "`":
            self._begin_run("`", stop, leads=False)
            return stop
        length, self._code = self._code, 0
        if not self._may_fence:
            return self._end_line(stop)
        self._fence, self._line = length, _Line.INDENT
        self._mode = self._in_fence
        return stop + 1

    def _in_fence(self, text: str, at: int) -> int:
        """Reads a fence line by line; a line of nothing but a long enough run closes it."""
        char = text[at]
        if self._line is _Line.BODY:
            newline = text.find("\n", at)
            if newline < 0:
                return len(text)
            self._line = _Line.INDENT
            return newline + 1
        closes = self._line is _Line.TRAIL or (self._line is _Line.RUN and self._run >= self._fence)
        if char == "\n":
            if closes:
                return self._end_line(at)
            self._line = _Line.INDENT
        elif char == self._run_char and self._line in (_Line.INDENT, _Line.RUN):
            self._run = 1 if self._line is _Line.INDENT else self._run + 1
            self._line = _Line.RUN
        elif char in " \t\r" and closes:
            self._line = _Line.TRAIL
        elif char not in " \t>" or self._line is not _Line.INDENT:
            self._line = _Line.BODY
        return at + 1

    def _end_line(self, at: int) -> int:
        self._line, self._before = _Line.INDENT, _Before.OTHER
        self._mode = self._line_start
        return at + 1


def scan(text: str) -> list[Marker]:
    """Returns all markers of a whole text, in order."""
    scanner = Scanner()
    return scanner.feed(text) + scanner.finish()


def _before(piece: str, carried: _Before) -> _Before:
    """Returns what stands before the character after `piece`, given what stood before `piece`."""
    head = piece.rstrip(_WORD)
    if len(head) == len(piece):
        return _Before.BANG if piece.endswith("!") else _Before.OTHER
    if not head and carried in (_Before.NAME, _Before.NUMBER):
        return carried
    return _Before.NUMBER if piece[len(head)] in _DECIMALS else _Before.NAME


def _ranges(body: str) -> tuple[tuple[int, int], ...] | None:
    """Returns the ranges that a marker names; None if one cannot be meant."""
    ranges = []
    for part in _PART.finditer(body):
        first = int(part[1])
        last = int(part[2] or part[1])
        if not 0 <= last - first < MAX_RANGE or (part[2] and last > MAX_RANGE_END):
            return None
        ranges.append((first, last))
    return tuple(ranges)
