"""Splitting running text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragchat_retrieval.chunking.breaks import block_spans
from ragchat_retrieval.chunking.build import build_passages
from ragchat_retrieval.chunking.measure import Measure, TokenCounter, check_size
from ragchat_retrieval.chunking.packing import PROSE, pack, pieces
from ragchat_retrieval.values import Span

if TYPE_CHECKING:
    from ragchat_retrieval.values import Document, Passage


@dataclass(frozen=True, slots=True)
class TextSplitter:
    """Cuts text into passages of at most `size` tokens; the default splitter.

    Blocks between blank lines that fit stay whole, and short ones are packed together. A larger
    block is cut between sentences, a larger sentence between words (in scripts without spaces,
    between characters), and a larger word after its punctuation, else between grapheme clusters.
    Only a single cluster that counts more than `size` makes a larger passage.

    Each passage but the first begins with the last sentences of the one before, or the last words
    of a sentence that is too long, as far as they count at most `overlap` and leave room.

    Raises:
        InvalidSetting: `size` is below 1, or `overlap` is negative or not below `size`.
    """

    size: int = 512
    """Most tokens of a passage."""

    overlap: int = 64
    """Most tokens repeated from the passage before; 0 repeats none."""

    count: TokenCounter | None = field(default=None, kw_only=True)
    """Measures a text in tokens; None counts exactly in ``o200k_base``."""

    def __post_init__(self) -> None:
        check_size(self.size, self.overlap)

    @property
    def name(self) -> str:
        """Policy and settings, such as ``text:512/64``, with a counter of the caller's."""
        return f"text:{self.size}/{self.overlap}{Measure(self.count).suffix}"

    def split(self, document: Document) -> list[Passage]:
        """Returns the passages of a document, in order; a blank document has none."""
        text, measure = document.text, Measure(self.count)
        parts = pieces(text, 0, len(text), PROSE, size=self.size, measure=measure)
        spans = pack(text, parts, size=self.size, overlap=self.overlap, count=measure.one)
        return build_passages(document, ((span, ()) for span in spans))


@dataclass(frozen=True, slots=True)
class ParagraphSplitter:
    """Makes one passage of each block between blank lines, whatever its size. None are merged."""

    @property
    def name(self) -> str:
        """``paragraph``."""
        return "paragraph"

    def split(self, document: Document) -> list[Passage]:
        """Returns the passages of a document, in order; a blank document has none."""
        return build_passages(document, ((span, ()) for span in block_spans(document.text)))


@dataclass(frozen=True, slots=True)
class WholeText:
    """Makes one passage of the whole text as it is, for corpora that come split."""

    @property
    def name(self) -> str:
        """``whole``."""
        return "whole"

    def split(self, document: Document) -> list[Passage]:
        """Returns one passage, or none for a blank document."""
        if not document.text.strip():
            return []
        return build_passages(document, [(Span(0, len(document.text)), ())])
