"""`CitationStream`: the text of an answer as it arrives, with the citations that became certain."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias
from urllib.parse import quote

from ragchat.citations.annotate import url_of
from ragchat.citations.scanner import Scanner
from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat.citations.citations import Citations, Mention
    from ragchat.citations.scanner import Marker
    from ragchat_retrieval.values import Passage

CitationMode: TypeAlias = Literal["keep", "strip", "link"]
"""What becomes of the markers in a text; see `CitationStream`."""

LinkMaker: TypeAlias = "Callable[[int, Passage], str]"
"""Writes what stands in the text for one number and its passage."""

_BLANKS = " \u00a0\u202f"
_BEFORE_A_LINK = "!\\"  # it would become an image, or no link at all
_CLOSING = frozenset({"Po", "Pe", "Pf", "Pc"})  # categories of marks that take no blank before them
_UNSAFE_IN_MARKDOWN = re.compile(r"[()<>\[\]\\`\"|\s]")


@dataclass(frozen=True, slots=True)
class Placed:
    """A mention, and where the emitted text shows it."""

    mention: Mention
    """What the model wrote; its offsets are those of the model's own text."""

    start: int
    """First code point of what stands for it in the emitted text."""

    end: int
    """The one after its last; equal to `start` where the marker was taken out."""


class Emitted(NamedTuple):
    """What one step of a `CitationStream` brought."""

    text: str
    """The next part of the emitted text."""

    citations: tuple[Placed, ...]
    """Markers that became certain, in order. Each lies wholly in text emitted so far."""


def markdown_link(number: int, passage: Passage) -> str:
    """Returns ``[1](url)``, the default link: the url that `Citations.annotate` gives.

    Characters that could end a link in Markdown are percent-encoded. Scanned again, the link is no
    citation, so that linking twice changes nothing.
    """
    url = _UNSAFE_IN_MARKDOWN.sub(lambda match: quote(match[0], safe=""), url_of(passage))
    return f"[{number}]({url})"


class CitationStream:
    """A state machine that is fed an answer piece by piece and returns text and citations.

    Text and citations are the same for every way of cutting the answer; the mentions are those of
    `Citations.find`. Work is linear, and at most 64 characters are held back. The modes:

    - ``keep`` emits everything as it comes; a citation follows as soon as it is certain.
    - ``strip`` takes every marker out, invented and foreign ones too, with the blank before it
      unless a word or a bracket follows directly; at the beginning of a line, with the blank after.
    - ``link`` writes a link in place of every known number. Invented numbers and foreign markers
      stay as they are written. After ``!`` or a backslash the link is set off by a blank.

    Args:
        citations: The passages that the prompt presented.
        mode: What becomes of the markers.
        link: Writes the link of one number, in mode ``link``.

    Raises:
        InvalidSetting: There is no such mode.
    """

    def __init__(
        self,
        citations: Citations,
        *,
        mode: CitationMode = "keep",
        link: LinkMaker = markdown_link,
    ) -> None:
        self._citations = citations
        self._mode = checked_mode(mode)
        self._link = link
        self._scanner = Scanner()
        self._waiting = ""
        """The model's text that is not settled."""
        self._settled = 0
        """Offset of `_waiting` in the model's text."""
        self._gap = _Gap()
        self._parts: list[str] = []
        self._length = 0
        """Code points emitted so far."""
        self._last = ""
        """The last of them."""

    def feed(self, delta: str) -> Emitted:
        """Takes the next piece of the answer."""
        if self._mode == "keep":
            self._put(delta)
        return self._take(delta, self._scanner.feed(delta))

    def finish(self) -> Emitted:
        """Ends the answer; returns what was held back and what its end makes certain."""
        last = self._take("", self._scanner.finish())
        rest = self._gap.finish()
        return Emitted(last.text + rest, last.citations)

    def _take(self, delta: str, markers: list[Marker]) -> Emitted:
        text, base, read = self._waiting + delta, self._settled, 0
        placed = []
        for marker in markers:
            start, end = marker.start - base, marker.end - base
            mention = self._citations.mention(marker, text[start:end])
            self._prose(text[read:start])
            placed.append(self._placed(mention))
            read = end
        self._settled = self._scanner.settled
        self._prose(text[read : self._settled - base])
        self._waiting = text[self._settled - base :]
        emitted, self._parts = "".join(self._parts), []
        return Emitted(emitted, tuple(placed))

    def _prose(self, text: str) -> None:
        if self._mode == "strip":
            self._put(self._gap.prose(text))
        elif self._mode == "link":
            self._put(text)

    def _placed(self, mention: Mention) -> Placed:
        if self._mode == "keep":
            return Placed(mention, mention.start, mention.end)
        if self._mode == "strip":
            self._gap.open()
            return Placed(mention, self._length, self._length)
        if mention.numbers and self._last and self._last in _BEFORE_A_LINK:
            self._put(" ")
        start = self._length
        self._put(self._linked(mention))
        return Placed(mention, start, self._length)

    def _linked(self, mention: Mention) -> str:
        if not mention.numbers:
            return mention.marker
        links = [self._link(number, self._citations[number]) for number in mention.numbers]
        left, right = mention.marker[0], mention.marker[-1]
        return "".join((*links, *(f"{left}{number}{right}" for number in mention.unknown)))

    def _put(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._length += len(text)
            self._last = text[-1]


def checked_mode(mode: CitationMode) -> CitationMode:
    """Returns the mode, if there is such a one.

    Raises:
        InvalidSetting: There is no such mode.
    """
    if mode not in ("keep", "strip", "link"):
        raise InvalidSetting("citations", 'must be "keep", "strip" or "link"')
    return mode


class _Gap:
    """Closes the gap where a marker was taken out; holds back at most one blank."""

    def __init__(self) -> None:
        self._blank = ""
        """A blank that goes if a marker and no word follows."""
        self._opened = False
        """Whether a marker was taken out since the last text."""
        self._line_starts = True

    def open(self) -> None:
        """Notes that a marker is taken out here."""
        self._opened = True

    def prose(self, text: str) -> str:
        """Returns the text that follows, with what was held back."""
        if not text:
            return ""
        joined = self._blank + text
        if self._opened and self._blank and _closes(text[0]):
            joined = text
        elif self._opened and self._line_starts and not self._blank and text[0] in _BLANKS:
            joined = text[1:]
        self._opened = False
        held = joined[-1:] if joined[-1:] in _BLANKS else ""
        self._blank = held
        body = joined.removesuffix(held) if held else joined
        if body:
            self._line_starts = body.endswith("\n")
        return body

    def finish(self) -> str:
        """Returns what was held back, unless a marker was the last."""
        rest, self._blank = "" if self._opened else self._blank, ""
        return rest


def _closes(char: str) -> bool:
    """Says whether no blank stands before a character, in prose or inside of emphasis."""
    return char.isspace() or char == "~" or unicodedata.category(char) in _CLOSING


def rewrite(text: str, citations: Citations, mode: CitationMode, link: LinkMaker) -> Emitted:
    """Rewrites a whole answer at once; see `CitationStream`."""
    stream = CitationStream(citations, mode=mode, link=link)
    first, last = stream.feed(text), stream.finish()
    return Emitted(first.text + last.text, first.citations + last.citations)
