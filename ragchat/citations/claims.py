"""The claims of an answer: its sentences, each with the markers that cite for it. Pure, linear.

- Sentences are those of `ragchat_retrieval.chunking.sentences`, for many scripts. Fenced code is
  left out, as the scanner of markers leaves it out; inline code stays part of its sentence.
- A marker belongs to the sentence that it stands in. One behind the stop (``… a year. [1] Then``)
  belongs to the sentence before it, unless that ends with one of its own; then it begins the next
  one. A line of nothing but markers, or a lone number of a list, belongs to what
  stands before it.
- A sentence with a marker is always a claim. One without is a claim if it states something: it has
  at least two different terms, and it is no heading, table row, question or lead-in (ending with a
  colon), no courtesy, and nothing that an assistant says of itself ("I …") or of what the documents
  do not hold. Courtesies are recognised in a few languages, the last two in English.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragchat.citations.scanner import Scanner
from ragchat.sentences import HEADING, readable
from ragchat_retrieval.chunking.sentences import CLOSERS, STOPS, iterate_sentences
from ragchat_retrieval.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ragchat.citations.citations import Mention
    from ragchat_retrieval.lexical import Analyzer

_LEAST_TERMS = 2

_AFTER_STOP = re.compile(rf"[{STOPS}][{CLOSERS}]*[^\S\r\n]*\Z")
_LOOK_BACK = 16
_FILLER = "x"
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BLANKS = re.compile(r"[^\S\r\n]*")
_CLOSES = re.compile(rf"[{STOPS},;\uff0c\uff1b]")
_WORD = re.compile(r"[^\W_]")
_NOTHING = re.compile(r"[\W_]*(?:\d{1,3}[.)])?[\W_]*")
_NO_STATEMENT = re.compile(r"[?\u061f\uff1f:\uff1a][\"'*_\u2019\u201d\u00bb)\]\u300d\uff09]*\s*\Z")
_COURTESY = re.compile(
    r"""\A\W*(?:hello(?:\s+there)?|hi(?:\s+there)?|hey|dear\s+\w+|good\s+(?:morning|day|afternoon|evening)
    |thanks?(?:\s+you)?(?:\s+(?:so|very)\s+much)?(?:\s+for\s+(?:asking|your\s+\w+))?
    |you(?:'|\u2019)?re\s+welcome|sure|certainly|of\s+course|absolutely|great\s+question
    |(?:happy|glad)\s+to\s+help|sorry|please
    |hallo|guten\s+(?:tag|morgen|abend)|danke(?:\s+\w+)?|gern\w*|nat\u00fcrlich
    |bonjour|bonsoir|merci(?:\s+\w+)?|bien\s+s\u00fbr|hola|buenos\s+d\u00edas|(?:muchas\s+)?gracias
    |ol\u00e1|obrigad[oa]|ciao|buongiorno|grazie(?:\s+\w+)?|\u4f60\u597d|\u60a8\u597d|\u8c22\u8c22[\u4f60\u60a8]?
    |\u3053\u3093\u306b\u3061\u306f|\u3042\u308a\u304c\u3068\u3046(?:\u3054\u3056\u3044\u307e\u3059)?
    |\uc548\ub155\ud558\uc138\uc694|\uac10\uc0ac\ud569\ub2c8\ub2e4)(?![^\W_])\W*""",
    re.IGNORECASE | re.VERBOSE,
)
_OF_ITSELF = re.compile(
    r"""\A\W*(?:i(?:'|\u2019)?(?:m|ve|ll|d)?|let\s+me|feel\s+free)\s
    |\A\W*(?:nothing|none)\s+(?:in|of)\s+the\s+(?:\w+\s+)?(?:documents?|sources?|passages?|evidence|context)\b
    |\A\W*the\s+(?:\w+\s+)?(?:documents?|sources?|passages?|evidence|context)\s+(?:\w+\s+)?
      (?:do|does)\s*(?:n(?:'|\u2019)t|\s+not)\b""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of an answer."""

    text: str
    """On one line, without its markers; blank if the answer has nothing but markers there."""

    span: Span
    """Where it stands in the answer, its markers included."""

    mentions: tuple[Mention, ...] = ()
    """Its markers, in order; none if nothing is cited for it."""


def claims_of(text: str, mentions: Sequence[Mention], analyzer: Analyzer) -> list[Claim]:
    """Returns the claims of an answer, in order.

    Args:
        text: The answer.
        mentions: Its markers, as `Citations.find` returns them.
        analyzer: Analysis of words; that of the index.
    """
    claims = []
    for start, end, cited in _pieces(text, mentions):
        said = unmarked(text, start, end, cited)
        if cited or _states(said, analyzer):
            begin = min([start, *(mention.start for mention in cited)])
            stop = max([end, *(mention.end for mention in cited)])
            claims.append(Claim(readable(said), Span(begin, stop), tuple(cited)))
    return claims


def unmarked(text: str, start: int, end: int, mentions: Sequence[Mention]) -> str:
    """Returns a range of a text without the markers in it, as it stands otherwise."""
    parts: list[str] = []
    for mention in mentions:
        if start <= mention.start < end:
            before, start = text[start : mention.start], mention.end
            parts.append(before)
            if _CLOSES.match(text, start):  # no gap stays before a stop or a comma
                while parts and not parts[-1].strip():
                    parts.pop()
                parts[-1:] = [part.rstrip() for part in parts[-1:]]
    return "".join([*parts, text[start:end]])


def _pieces(text: str, mentions: Sequence[Mention]) -> list[tuple[int, int, list[Mention]]]:
    """Returns the sentences of an answer with the markers that belong to each."""
    pieces: list[tuple[int, int, list[Mention]]] = []
    at = 0
    for start, end in _sentences(text, mentions):
        before = at
        while at < len(mentions) and mentions[at].start < start:
            at += 1
        first = at
        while at < len(mentions) and mentions[at].start < end:
            at += 1
        between, within = [*mentions[before:first]], [*mentions[first:at]]
        if between and pieces and not _closed(text, *pieces[-1][1:]):
            pieces[-1][2].extend(between)
            between = []
        if pieces and _NOTHING.fullmatch(unmarked(text, start, end, within)):
            pieces[-1][2].extend((*between, *within))
        else:
            pieces.append((start, end, [*between, *within]))
    if rest := mentions[at:]:
        if not pieces:
            pieces.append((rest[0].start, rest[-1].end, []))
        pieces[-1][2].extend(rest)
    return pieces


def _closed(text: str, end: int, mentions: Sequence[Mention]) -> bool:
    """Says whether a sentence ends with a marker, before its stop or behind it."""
    return bool(mentions) and _WORD.search(text, mentions[-1].end, end) is None


def _sentences(text: str, mentions: Sequence[Mention]) -> Iterator[Span]:
    """Yields the sentences outside fences; none begins or ends inside a marker."""
    masked = _masked(text, mentions)
    starts = [mention.start for mention in mentions]
    for low, high in _stretches(text):
        for start, end in iterate_sentences(masked, low, high):
            # A combining character behind a blanked marker makes its last blank a letter.
            last = bisect_right(starts, start) - 1
            begin = max(start, mentions[last].end) if last >= 0 else start
            if begin < end:
                yield Span(begin, end)


def _masked(text: str, mentions: Sequence[Mention]) -> str:
    """Blanks the markers behind a stop or alone on a line, which would hide where sentences end.

    Any other marker becomes a word as long as itself, so that nothing inside it ends a sentence.
    """
    parts: list[str] = []
    at, blanked = 0, -1
    for mention, alone in zip(mentions, _alone(text, mentions), strict=True):
        before = text[max(at, mention.start - _LOOK_BACK) : mention.start]
        follows = blanked >= 0 and _BLANKS.fullmatch(text, blanked, mention.start) is not None
        behind = alone or follows or _AFTER_STOP.search(before) is not None
        blanked = mention.end if behind else -1
        filler = " " if behind else _FILLER
        parts += text[at : mention.start], filler * (mention.end - mention.start)
        at = mention.end
    return "".join([*parts, text[at:]])


def _alone(text: str, mentions: Sequence[Mention]) -> list[bool]:
    """Says of each marker whether its line holds nothing but markers."""
    alone: list[bool] = []
    for line in _LINE.finditer(text):
        first = len(alone)
        last = first
        while last < len(mentions) and mentions[last].start < line.end():
            last += 1
        rest = unmarked(text, line.start(), line.end(), mentions[first:last])
        alone += [not rest.strip()] * (last - first)
    return alone


def _stretches(text: str) -> Iterator[tuple[int, int]]:
    """Yields the ranges of whole lines that hold no fenced code."""
    scanner = Scanner()
    begin = 0
    for line in _LINE.finditer(text):
        fenced = scanner.in_fence
        scanner.feed(line[0])
        if fenced or scanner.in_fence:
            if begin < line.start():
                yield begin, line.start()
            begin = line.end()
    if begin < len(text):
        yield begin, len(text)


def _states(said: str, analyzer: Analyzer) -> bool:
    """Says whether a sentence without a marker claims something."""
    begin = said.lstrip()
    if HEADING.match(begin) or begin.startswith("|"):
        return False
    plain = readable(said)
    if _NO_STATEMENT.search(plain) or _OF_ITSELF.match(plain):
        return False
    rest = _COURTESY.sub("", plain, count=1)
    return len(set(analyzer.terms(rest))) >= _LEAST_TERMS
