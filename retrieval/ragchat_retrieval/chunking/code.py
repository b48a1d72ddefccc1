"""Splitting program text."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ragchat_retrieval.chunking.breaks import block_spans, line_spans
from ragchat_retrieval.chunking.build import build_passages
from ragchat_retrieval.chunking.measure import Measure, TokenCounter, check_size
from ragchat_retrieval.chunking.packing import LINES, Entry, pack, pieces
from ragchat_retrieval.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ragchat_retrieval.values import Document, Passage

_REACH = 200
"""Characters of a line that are looked at; lines of generated code may be megabytes long."""

_TITLE = 120
"""Most characters of a definition's line in ``headings``."""

_DEFINITION = re.compile(
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|override"
    r"|virtual|sealed|partial|inline|unsafe|extern|open|data|suspend|const|declare|local"
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
        text, measure = document.text, Measure(self.count)
        levels = (
            (definition_spans, Entry.START),
            (definition_spans, Entry.START),
            (_blocks, Entry.START),
            *LINES,
        )
        parts = pieces(text, 0, len(text), levels, size=self.size, measure=measure)
        spans = pack(text, parts, size=self.size, overlap=self.overlap, count=measure.one)
        return build_passages(document, _titled(text, spans))


def definition_spans(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields a range cut before each definition of its outermost level.

    The range's own first line does not count: if it begins a definition, those inside it do.
    """
    lines = list(_lines(text, start, end))
    inner = [line.indent for line in lines[1:] if not _CLOSES.match(line.content)]
    base = min(inner, default=0)
    cuts = [0]
    for place, line in enumerate(lines[1:], start=1):
        if line.indent == base and _is_definition(line.content):
            cut = _with_what_belongs(lines, place, base)
            if cut > cuts[-1]:
                cuts.append(cut)
    if lines:
        cuts.append(len(lines))
        for first, after in itertools.pairwise(cuts):
            yield Span(lines[first].start, lines[after - 1].end)


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


def _with_what_belongs(lines: Sequence[_Line], place: int, base: int) -> int:
    """Returns where a definition begins with the comments and decorators right above it."""
    while place > 1 and not lines[place].after_gap:
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


def _titled(text: str, spans: Iterator[Span]) -> Iterator[tuple[Span, tuple[str, ...]]]:
    """Adds the line of the outermost definition from whose middle a passage comes."""
    definitions = iter(definition_spans(text, 0, len(text)))
    current = next(definitions, None)
    for span in spans:
        while current is not None and current.end <= span.start:
            current = next(definitions, None)
        title: tuple[str, ...] = ()
        if current is not None and current.start < span.start:
            title = _title(text, current)
        yield span, title


def _title(text: str, definition: Span) -> tuple[str, ...]:
    for line in _lines(text, *definition):
        if _is_definition(line.content):
            return (line.content[:_TITLE].rstrip(" \t{:"),)
        if not _BELONGS.match(line.content):
            break
    return ()
