"""Splitting program text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from ragchat_retrieval.chunking.breaks import block_spans, line_spans
from ragchat_retrieval.chunking.build import build_passages
from ragchat_retrieval.chunking.measure import Measure, TokenCounter, check_size
from ragchat_retrieval.chunking.packing import LINES, Entry, Piece, pack, pieces
from ragchat_retrieval.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ragchat_retrieval.values import Document, Passage

_REACH = 200
"""Characters of a line that are looked at; lines of generated code may be megabytes long."""

_TITLE = 120
"""Most characters of a definition's line in ``headings``."""

_DEFINITION = re.compile(
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|override"
    r"|virtual|sealed|partial|inline|unsafe|extern|open|data|suspend|declare|local"
    r"|pub(?:\([a-z: ]{1,40}\))?)[ \t]++){0,6}+"
    r"(?:(?:def|defp|defmodule|class|func|function|fn|fun|struct|enum|interface|trait|impl|type|mod"
    r"|module|namespace|object|protocol|extension|record|sub|procedure|service|message|union"
    r"|template|macro|package)\b(?![ \t]*[=:.(),])"
    r"|macro_rules!|create[ \t]++(?:or[ \t]++replace[ \t]++)?(?:table|view|function|procedure"
    r"|trigger|index|type|schema)\b"
    r"|(?:const|let|var)[ \t]++\w++[ \t]*+=[ \t]*+(?:async[ \t]++)?"
    r"(?:function\b|\([^()]{0,100}\)[ \t]*+=>)"
    r"|func[ \t]*+\()",
    re.IGNORECASE,
)
# A function of C and its kin: a type, a name, arguments, and no semicolon after them.
_C_FUNCTION = re.compile(
    r"(?!(?:if|for|while|switch|return|else|do|case|catch|throw|new|delete|assert|await|yield|raise"
    r"|elif|with|print|not|and|or|in|is)\b)"
    r"[A-Za-z_][\w:<>,.\[\]]{0,60}[ \t*&]{1,4}[ \t*&\w:<>]{0,60}?[\w:~]{1,60}\([^;=]{0,120}$"
)
_BELONGS = re.compile(r"@|#|//|/\*|\*|--|\[|%|;;|'''|\"\"\"")
_CLOSES = re.compile(r"(?:[)\]}>;,]|end\b|fi\b|done\b|esac\b)")


_LEVELS = 2
"""How deep definitions are looked for: methods in a class, not functions in methods."""


class _Line(NamedTuple):
    start: int
    end: int
    indent: int
    content: str
    """The beginning of what stands in it."""

    after_gap: bool
    """Whether a blank line, or nothing, stands before it."""


@dataclass(frozen=True, slots=True)
class CodeSplitter:
    """Cuts program text into passages of at most `size` tokens, in any common language.

    It is cut before definitions (functions, classes, types), with the comments and decorators right
    above them; a definition that is too large before the definitions in it; then at blank lines;
    then between lines. Short neighbours are packed together. Lines keep their indentation. No
    grammar is read, only the first words of lines: code in a language that it does not know is cut
    at blank lines.

    A passage from the middle of a definition has the definition's first line in ``headings``.

    Raises:
        InvalidSetting: `size` is below 1, or `overlap` is negative or not below `size`.
    """

    size: int = 512
    """Most tokens of a passage."""

    overlap: int = 0
    """Most tokens repeated from the passage before, in whole pieces; 0 repeats none."""

    count: TokenCounter | None = field(default=None, kw_only=True)
    """Measures a text in tokens; None counts exactly in ``o200k_base``."""

    def __post_init__(self) -> None:
        check_size(self.size, self.overlap)

    @property
    def name(self) -> str:
        """Policy and settings, such as ``code:512/0``, with a counter of the caller's."""
        return f"code:{self.size}/{self.overlap}{Measure(self.count).suffix}"

    def split(self, document: Document) -> list[Passage]:
        """Returns the passages of a document, in order; a blank document has none."""
        text = document.text
        spans = self._spans(text, 0, len(text), Measure(self.count), _LEVELS)
        return build_passages(document, _titled(text, spans))

    def _spans(
        self, text: str, start: int, end: int, measure: Measure, levels: int
    ) -> Iterator[Span]:
        """Packs whole definitions together; one that is broken shares no passage with others."""
        found = list(definition_spans(text, start, end, inside=levels < _LEVELS))
        counts = measure.many([text[span.start : span.end] for span in found])
        for whole, run in groupby(zip(found, counts, strict=True), lambda d: d[1] <= self.size):
            if whole:
                yield from self._pack(text, (Piece(*d, n, Entry.START) for d, n in run), measure)
                continue
            for definition, _ in run:
                if levels > 1:
                    yield from self._spans(text, *definition, measure, levels - 1)
                else:
                    lines = pieces(text, *definition, _BLOCKS, size=self.size, measure=measure)
                    yield from self._pack(text, lines, measure)

    def _pack(self, text: str, parts: Iterable[Piece], measure: Measure) -> Iterator[Span]:
        return pack(text, parts, size=self.size, overlap=self.overlap, count=measure.one)


def definition_spans(text: str, start: int, end: int, *, inside: bool = False) -> Iterator[Span]:
    """Yields a range cut before each definition of its outermost level.

    Args:
        text: The whole text.
        start: Where to begin.
        end: Where to end.
        inside: The range is one definition; those in it are wanted.
    """
    lines = list(_lines(text, start, end))
    if not lines:
        return
    skipped = _header(lines) if inside else 0
    body = [line.indent for line in lines[skipped:] if not _CLOSES.match(line.content)]
    base = min(body, default=0)
    cuts = [0]
    for place, line in enumerate(lines):
        if place >= max(skipped, 1) and line.indent == base and _is_definition(line.content):
            cut = _with_what_belongs(lines, place, base, first=max(skipped, 1))
            if cut > cuts[-1]:
                cuts.append(cut)
    cuts.append(len(lines))
    for first, after in pairwise(cuts):
        yield Span(lines[first].start, lines[after - 1].end)


def _header(lines: Sequence[_Line]) -> int:
    """Returns how many lines a definition takes before what is in it."""
    for place, line in enumerate(lines):
        if _is_definition(line.content):
            return place + 1
        if not _BELONGS.match(line.content):
            break
    return 1


def _lines(text: str, start: int, end: int) -> Iterator[_Line]:
    last = start
    for number, span in enumerate(line_spans(text, start, end)):
        content = text[span.start : min(span.end, span.start + _REACH)]
        bare = content.lstrip(" \t")
        gap = text[last : span.start]
        blank = number == 0 or len(gap.replace("\r\n", "\n")) > 1
        yield _Line(span.start, span.end, len(content) - len(bare), bare.rstrip(), blank)
        last = span.end


def _is_definition(content: str) -> bool:
    return _DEFINITION.match(content) is not None or _C_FUNCTION.match(content) is not None


def _with_what_belongs(lines: Sequence[_Line], place: int, base: int, *, first: int) -> int:
    """Returns where a definition begins with the comments and decorators right above it."""
    while place > first and not lines[place].after_gap:
        above = lines[place - 1]
        starred = above.content.startswith("*")
        if not _BELONGS.match(above.content) or (above.indent != base and not starred):
            break
        place -= 1
    return place


def _blocks(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields what stands between blank lines, from the beginning of its first line."""
    for span in block_spans(text, start, end):
        begin = span.start
        while begin > start and text[begin - 1] in " \t":
            begin -= 1
        yield Span(begin, span.end)


_BLOCKS = ((_blocks, Entry.START), *LINES)


def _titled(text: str, spans: Iterator[Span]) -> Iterator[tuple[Span, tuple[str, ...]]]:
    """Adds the line of the outermost definition from whose middle a passage comes."""
    definitions = iter(definition_spans(text, 0, len(text)))
    current = next(definitions, None)
    found = None if current is None else _title(text, current)
    for span in spans:
        while current is not None and current.end <= span.start:
            current = next(definitions, None)
            found = None if current is None else _title(text, current)
        yield span, () if found is None or found[0] >= span.start else (found[1],)


def _title(text: str, definition: Span) -> tuple[int, str] | None:
    """Returns where a definition's own line begins, and the line; None if it is none."""
    lines = list(_lines(text, *definition))
    line = lines[_header(lines) - 1]
    if not _is_definition(line.content):
        return None
    return line.start, line.content[:_TITLE].rstrip(" \t{:")
