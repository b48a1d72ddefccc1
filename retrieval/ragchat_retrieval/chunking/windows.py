"""Splitting into runs of sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragchat_retrieval.chunking.build import build_passages
from ragchat_retrieval.chunking.measure import Measure, TokenCounter, check_size
from ragchat_retrieval.chunking.packing import sentence_pieces
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ragchat_retrieval.chunking.packing import Piece
    from ragchat_retrieval.values import Document, Passage


@dataclass(frozen=True, slots=True)
class SentenceSplitter:
    """Makes passages of a number of sentences, for questions whose answer is a sentence or two.

    A passage has fewer sentences where they would count more than `most` tokens. A sentence that
    counts more by itself is cut as by `TextSplitter`, in parts that fill `most`, each of which is
    taken for a sentence.

    Raises:
        InvalidSetting: `size` or `most` is below 1, or `overlap` is negative or not below `size`.
    """

    size: int = 5
    """Sentences of a passage."""

    overlap: int = 1
    """Sentences repeated from the passage before; 0 repeats none."""

    most: int = field(default=512, kw_only=True)
    """Most tokens of a passage."""

    count: TokenCounter | None = field(default=None, kw_only=True)
    """Measures a text in tokens; None counts exactly in ``o200k_base``."""

    def __post_init__(self) -> None:
        check_size(self.size, self.overlap)
        if self.most < 1:
            raise InvalidSetting("most", "must be at least 1")

    @property
    def name(self) -> str:
        """Policy and settings, such as ``sentence:5/1:512``, with a counter of the caller's."""
        return f"sentence:{self.size}/{self.overlap}:{self.most}{Measure(self.count).suffix}"

    def split(self, document: Document) -> list[Passage]:
        """Returns the passages of a document, in order; a blank document has none."""
        text, measure = document.text, Measure(self.count)
        parts = sentence_pieces(text, size=self.most, measure=measure)
        return build_passages(document, ((s, ()) for s in self._windows(text, parts, measure)))

    def _windows(self, text: str, parts: Sequence[Piece], measure: Measure) -> Iterator[Span]:
        def fits(first: int, last: int) -> bool:
            return measure.one(text[parts[first].start : parts[last].end]) <= self.most

        first = next_ = 0
        while next_ < len(parts):
            # What is repeated makes room for what is new.
            while first < next_ and not fits(first, next_):
                first += 1
            end = next_ + 1
            while end < len(parts) and end - first < self.size and fits(first, end):
                end += 1
            yield Span(parts[first].start, parts[end - 1].end)
            first, next_ = max(first + 1, end - self.overlap), end
