"""Splitting Markdown along its headings."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from ragchat_retrieval.chunking.breaks import line_spans
from ragchat_retrieval.chunking.build import build_passages
from ragchat_retrieval.chunking.lines import LineIndex
from ragchat_retrieval.chunking.markdown import sections
from ragchat_retrieval.chunking.measure import Measure, TokenCounter, check_size
from ragchat_retrieval.chunking.packing import LINES, PROSE, Entry, Piece, pack, pieces
from ragchat_retrieval.values import LONGEST_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ragchat_retrieval.chunking.markdown import Node, Section
    from ragchat_retrieval.values import Document, Passage, Span


@dataclass(frozen=True, slots=True)
class HeadingSplitter:
    """Cuts Markdown into passages of at most `size` tokens, none of them across a heading.

    Short blocks under one heading are packed together. Lists, tables, code and quotations stay
    whole as long as they fit `size`. A larger list is cut between its items, a larger table between
    its rows, larger code at its line ends, larger text as by `TextSplitter`.

    The path of headings is in ``headings`` and not in the text: a passage's text is a plain slice
    of the document, and the index reads the path with it. For the same reason a piece of a table
    that does not begin with the table's header has the beginning of the header's line as the last
    element of ``headings``. A heading with nothing below it is a passage of its own. Front matter
    is left out.

    Raises:
        InvalidSetting: `size` is below 1, or `overlap` is negative or not below `size`.
    """

    size: int = 512
    """Most tokens of a passage's text; headings come on top."""

    overlap: int = 0
    """Most tokens repeated from the passage before under the same heading; 0 repeats none."""

    count: TokenCounter | None = field(default=None, kw_only=True)
    """Measures a text in tokens; None counts exactly in ``o200k_base``."""

    def __post_init__(self) -> None:
        check_size(self.size, self.overlap)

    @property
    def name(self) -> str:
        """Policy and settings, such as ``heading:512/0``, with a counter of the caller's."""
        return f"heading:{self.size}/{self.overlap}{Measure(self.count).suffix}"

    def split(self, document: Document) -> list[Passage]:
        """Returns the passages of a document, in order; a blank document has none."""
        lines = LineIndex(document.text)
        spans = (
            passage
            for section in sections(document.text, lines)
            for passage in section_spans(
                document.text,
                section,
                size=self.size,
                overlap=self.overlap,
                measure=Measure(self.count),
            )
        )
        return build_passages(document, spans, lines=lines)


def section_spans(
    text: str, section: Section, *, size: int, overlap: int, measure: Measure
) -> Iterator[tuple[Span, tuple[str, ...]]]:
    """Yields the ranges of the passages of a section, each with its heading path.

    Args:
        text: The whole text.
        section: What stands under one heading.
        size: Most tokens of a passage.
        overlap: Most tokens repeated from the passage before.
        measure: Counts them.
    """
    parts = _divide(text, section.nodes, size, measure, None)
    # A table that is cut shares no passage with its neighbours: they have other headings.
    for table, group in groupby(parts, key=lambda part: part[1]):
        whole = (piece for piece, _ in group)
        for span in pack(text, whole, size=size, overlap=overlap, count=measure.one):
            headings = section.headings
            if table is not None and span.start > table.span.start:
                headings = (*headings, _header(text, table))
            yield span, headings


def _divide(
    text: str, nodes: Sequence[Node], size: int, measure: Measure, table: Node | None
) -> Iterator[tuple[Piece, Node | None]]:
    """Yields the largest pieces that fit, each with the table that was cut for it, if any."""
    counts = measure.many([text[node.span.start : node.span.end] for node in nodes])
    for node, tokens in zip(nodes, counts, strict=True):
        prose = node.kind == "paragraph"
        if tokens <= size:
            entry = Entry.INSIDE if prose else Entry.START
            yield Piece(node.span.start, node.span.end, tokens, entry), table
        elif node.children:
            cut = node if node.kind == "table" else table
            yield from _divide(text, node.children, size, measure, cut)
        else:
            levels = PROSE if prose else LINES
            for piece in pieces(text, *node.span, levels, size=size, measure=measure):
                yield piece, table


def _header(text: str, table: Node) -> str:
    """Returns the line with the names of a table's columns, or the beginning of a long one."""
    first = next(line_spans(text, *table.span))
    return text[first.start : first.end].strip()[:LONGEST_LABEL]
