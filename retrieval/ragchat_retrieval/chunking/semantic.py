"""Splitting where the meaning changes."""

from __future__ import annotations

import asyncio
from bisect import bisect, insort
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.chunking.build import build_passages
from ragchat_retrieval.chunking.measure import Measure, TokenCounter, check_size
from ragchat_retrieval.chunking.packing import pack, sentence_pieces
from ragchat_retrieval.embedders.checks import embed_checked, naming
from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.chunking.packing import Piece
    from ragchat_retrieval.ports import Embedder
    from ragchat_retrieval.values import Document, Passage, Span

_WINDOW = 3
"""Sentences compared on either side of a gap."""

_BATCH = 256
"""Sentences a call of the embedder."""


@dataclass(frozen=True, slots=True)
class SemanticSplitter:
    """Cuts a text where what comes next is least like what was before, between sentences.

    Each sentence is embedded. At every gap, the three sentences before are compared with the three
    after; a gap whose similarity lies deep below that of the gaps around it is a change of subject
    (TextTiling, Hearst 1997, with embeddings for word counts). A cut is made at the gaps whose
    depth exceeds the mean by `threshold` standard deviations, deepest first, as long as at least
    `least` tokens remain on both sides. What is then larger than `size` is cut as by
    `TextSplitter`.

    It has to wait for the embedder: an index awaits `asplit`. Every sentence costs an embedding, so
    put it into a `CachedSplitter` where texts are split again and again.

    Raises:
        InvalidSetting: `size` is below 1, `least` is negative or not below `size`, or `threshold`
            is not finite.
    """

    embedder: Embedder
    size: int = field(default=512, kw_only=True)
    """Most tokens of a passage."""

    least: int = field(default=64, kw_only=True)
    """Fewest tokens of a passage that ends or begins with a change of subject."""

    threshold: float = field(default=1.0, kw_only=True)
    """Standard deviations above the mean depth from which a gap is a cut; less cuts more.

    The default was chosen on ten texts of six SciFact abstracts each. On thirty texts that played
    no part in it, joined alike, it finds the joints with an F1 of .91 (other SciFact abstracts),
    .80 (MTRAG ClapNQ), .68 (Cranfield) and .32 (MTRAG Govt); `TextSplitter(288, 0)` has .13 at
    most. With the local model.
    """

    count: TokenCounter | None = field(default=None, kw_only=True)
    """Measures a text in tokens; None counts exactly in ``o200k_base``."""

    def __post_init__(self) -> None:
        check_size(self.size, 0)
        if not 0 <= self.least < self.size:
            raise InvalidSetting("least", "must be at least 0 and below size")
        if not np.isfinite(self.threshold):
            raise InvalidSetting("threshold", "must be finite")

    @property
    def name(self) -> str:
        """Policy, settings and embedding model, such as ``semantic:512/64:1:hashing-256``."""
        settings = f"{self.size}/{self.least}:{self.threshold:g}"
        return f"semantic:{settings}:{self.embedder.model}{Measure(self.count).suffix}"

    async def asplit(self, document: Document) -> list[Passage]:
        """Returns the passages of a document, in order; a blank document has none.

        Raises:
            EmbeddingError: The embedder failed.
        """
        measure = Measure(self.count)
        parts = await asyncio.to_thread(
            sentence_pieces, document.text, size=self.size, measure=measure
        )
        texts = [document.text[part.start : part.end] for part in parts]
        with naming([document.id] * _BATCH):
            rows = [
                await embed_checked(self.embedder, texts[start : start + _BATCH], "passage")
                for start in range(0, len(texts), _BATCH)
            ]
        vectors = np.concatenate(rows) if rows else np.zeros((0, 1), dtype=np.float32)
        return await asyncio.to_thread(self._passages, document, parts, vectors, measure)

    def split(self, document: Document) -> list[Passage]:
        """As `asplit`, waiting in this thread, which must not run an event loop.

        An embedder that keeps connections keeps them for a loop of this call alone; with such a
        one, `asplit` is the better way.

        Raises:
            InvalidSetting: This thread runs an event loop.
            EmbeddingError: The embedder failed.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.asplit(document))
        raise InvalidSetting("SemanticSplitter", "await asplit where an event loop runs")

    def _passages(
        self,
        document: Document,
        parts: Sequence[Piece],
        vectors: NDArray[np.float32],
        measure: Measure,
    ) -> list[Passage]:
        cuts = chosen_cuts(
            gap_depths(vectors),
            [part.tokens for part in parts],
            threshold=self.threshold,
            least=self.least,
        )

        def spans() -> Iterator[tuple[Span, tuple[str, ...]]]:
            edges = [0, *cuts, len(parts)]
            for first, after in pairwise(edges):
                segment = parts[first:after]
                for span in pack(
                    document.text, segment, size=self.size, overlap=0, count=measure.one
                ):
                    yield span, ()

        return build_passages(document, spans())


def gap_depths(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns how far the similarity at each gap lies below the peaks on its two sides. Pure.

    Args:
        vectors: float32 [n, d], of the sentences in order.

    Returns:
        float64 [n − 1], ≥ 0; the gap at position i lies before sentence i + 1.
    """
    gaps = max(len(vectors) - 1, 0)
    similar = np.zeros(gaps)
    for gap in range(gaps):
        before = vectors[max(0, gap + 1 - _WINDOW) : gap + 1].sum(axis=0, dtype=np.float64)
        after = vectors[gap + 1 : gap + 1 + _WINDOW].sum(axis=0, dtype=np.float64)
        length = float(np.linalg.norm(before) * np.linalg.norm(after))
        similar[gap] = float(before @ after) / length if length > 0 else 0.0
    return _peaks(similar) + _peaks(similar[::-1])[::-1] - 2 * similar


def _peaks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns for each value the height at which those up to it, read backwards, stop to rise."""
    peaks = values.copy()
    for place in range(1, len(values)):
        if values[place - 1] >= values[place]:
            peaks[place] = peaks[place - 1]
    return peaks


def chosen_cuts(
    depths: NDArray[np.float64], tokens: Sequence[int], *, threshold: float, least: int
) -> list[int]:
    """Returns before which sentences to cut, in order. Pure.

    Args:
        depths: [n − 1], as `gap_depths` gives them.
        tokens: [n], sizes of the sentences.
        threshold: Standard deviations above the mean depth.
        least: Fewest tokens between two cuts, and at both ends.
    """
    if not len(depths):
        return []
    floor = float(depths.mean() + threshold * depths.std())
    before = [0, *accumulate(tokens)]
    cuts = [0, len(tokens)]
    for gap in np.argsort(-depths, kind="stable").tolist():
        if depths[gap] <= floor:
            break
        place = gap + 1
        after = bisect(cuts, place)
        beside = cuts[after - 1], cuts[after]
        if all(abs(before[place] - before[cut]) >= max(least, 1) for cut in beside):
            insort(cuts, place)
    return cuts[1:-1]
