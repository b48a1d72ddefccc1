"""Splitting texts whose tables are what is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from ragchat_retrieval.chunking.breaks import line_spans
from ragchat_retrieval.chunking.build import build_passages
from ragchat_retrieval.chunking.headings import section_spans
from ragchat_retrieval.chunking.lines import LineIndex
from ragchat_retrieval.chunking.markdown import Section, sections
from ragchat_retrieval.chunking.measure import Measure, TokenCounter, check_size
from ragchat_retrieval.chunking.packing import LINES, Entry, pack, pieces
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.values import LONGEST_LABEL, Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragchat_retrieval.values import Document, Passage


@dataclass(frozen=True, slots=True)
class TableSplitter:
    """Keeps each table apart from the text around it, so that its rows are found as rows.

    In Markdown, a table is a passage of its own, or several of whole rows where it counts more than
    `size` tokens; the text between tables is cut as by `HeadingSplitter`. A delimited file (CSV,
    TSV) is one table of which each passage has as many rows as fit; a quoted field may span lines.

    A passage that does not begin with its table's header has the header's line as the last element
    of ``headings``: it is read with the passage, while the text stays a plain slice.

    Raises:
        InvalidSetting: `size` is below 1, `overlap` is negative or not below `size`, or `form` is
            another word.
    """

    size: int = 512
    """Most tokens of a passage's text; headings come on top."""

    overlap: int = 0
    """Most tokens of text repeated from the passage before; rows are never repeated."""

    count: TokenCounter | None = field(default=None, kw_only=True)
    """Measures a text in tokens; None counts exactly in ``o200k_base``."""

    form: Literal["markdown", "delimited"] = field(default="markdown", kw_only=True)

    def __post_init__(self) -> None:
        check_size(self.size, self.overlap)
        if self.form not in {"markdown", "delimited"}:
            raise InvalidSetting("form", 'must be "markdown" or "delimited"')

    @property
    def name(self) -> str:
        """Policy and settings, such as ``table:512/0``, with a counter of the caller's."""
        kind = "table" if self.form == "markdown" else "rows"
        return f"{kind}:{self.size}/{self.overlap}{Measure(self.count).suffix}"

    def split(self, document: Document) -> list[Passage]:
        """Returns the passages of a document, in order; a blank document has none."""
        lines = LineIndex(document.text)
        if self.form == "delimited":
            return build_passages(document, self._rows(document.text), lines=lines)
        return build_passages(document, self._markdown(document.text, lines), lines=lines)

    def _markdown(self, text: str, lines: LineIndex) -> Iterator[tuple[Span, tuple[str, ...]]]:
        for section in sections(text, lines):
            for key, run in groupby(section.nodes, key=lambda node: node.kind == "table"):
                # A table stands alone even beside another one.
                nodes = list(run)
                for group in [[node] for node in nodes] if key else [nodes]:
                    yield from section_spans(
                        text,
                        Section(section.headings, tuple(group)),
                        size=self.size,
                        overlap=0 if key else self.overlap,
                        measure=Measure(self.count),
                    )

    def _rows(self, text: str) -> Iterator[tuple[Span, tuple[str, ...]]]:
        measure = Measure(self.count)
        levels = ((row_spans, Entry.START), *LINES)
        parts = pieces(text, 0, len(text), levels, size=self.size, measure=measure)
        header: str | None = None
        for span in pack(text, parts, size=self.size, overlap=0, count=measure.one):
            yield span, () if header is None else (header,)
            if header is None:
                first = next(iter(row_spans(text, *span)))
                header = " ".join(text[first.start : first.end].split())[:LONGEST_LABEL]


def row_spans(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields the rows of delimited text: lines, together as long as a quote is open."""
    begin: int | None = None
    last, quotes = start, 0
    for line in line_spans(text, start, end):
        if begin is None:
            begin, quotes = line.start, 0
        quotes += text.count('"', *line)
        last = line.end
        if quotes % 2 == 0:
            yield Span(begin, last)
            begin = None
    if begin is not None:
        yield Span(begin, last)
