"""BM25 over segments of postings; `ragchat_retrieval.lexical.bm25` says what it computes.

The contributions of a query's terms are added in the order of the terms' spelling, whatever ids
they have and however the postings are cut into segments. So the same passages have the same scores
to the last bit, after any history of writes and in every store built on this engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.lexical import K1, B, idf

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine.segment import Segment
    from ragchat_retrieval.engine.strings import Vocabulary


@dataclass(frozen=True, eq=False)
class KeywordLane:
    """The keyword side of a snapshot."""

    segments: tuple[Segment, ...]
    vocabulary: Vocabulary
    lengths: NDArray[np.int32]
    """Terms of each row, repetitions included."""

    alive: NDArray[np.bool_] | None
    """Which rows are there; None if all are."""

    live: int
    """How many rows are there."""

    total: int
    """Terms of all live rows."""

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """``k1 · (1 − b + b · length / average length)`` of each row."""
        if self.total == 0:
            return np.zeros(len(self.lengths))
        relative = self.lengths / np.float64(self.total / self.live)
        norms: NDArray[np.float64] = K1 * (1.0 - B + B * relative)
        return norms

    def scores(self, terms: Mapping[str, float]) -> NDArray[np.float64]:
        """Returns the score of every row, removed ones included; 0 for rows without a term."""
        rows: list[NDArray[np.int32]] = []
        parts: list[NDArray[np.float64]] = []
        for factor, postings in self._weighted(terms):
            for segment, start, end in postings:
                found = segment.rows[start:end]
                rows.append(found)
                parts.append(self._part(factor, segment.counts[start:end], self.norms.take(found)))
        if not rows:
            return np.zeros(len(self.lengths))
        weights = np.concatenate(parts)
        return np.bincount(np.concatenate(rows), weights, len(self.lengths)).astype(
            np.float64, copy=False
        )

    def scores_of(self, terms: Mapping[str, float], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the same scores for some rows only."""
        order = np.argsort(rows)
        # Of the postings' own type, or each search would first convert all of a term's postings.
        ascending = rows[order].astype(np.int32)
        norms = self.norms.take(ascending)
        sums = np.zeros(len(rows))
        bounds = {
            segment.start: np.searchsorted(ascending, (segment.start, segment.stop)).tolist()
            for segment in self.segments
        }
        for factor, postings in self._weighted(terms):
            for segment, start, end in postings:
                low, high = bounds[segment.start]
                wanted, found = ascending[low:high], segment.rows[start:end]
                at = np.searchsorted(found, wanted)
                at[at == len(found)] = 0
                hits = np.flatnonzero(found[at] == wanted)
                counts = segment.counts[start:end][at[hits]]
                sums[low + hits] += self._part(factor, counts, norms[low + hits])
        result = np.empty(len(rows))
        result[order] = sums
        return result

    def holding(self, terms: Collection[str]) -> dict[str, int]:
        """Returns how many live rows hold each term; a term that none holds is left out."""
        counts = {term: self._holding(found) for term, found in self._postings(list(terms))}
        return {term: count for term, count in counts.items() if count}

    def _weighted(
        self, terms: Mapping[str, float]
    ) -> Iterator[tuple[float, list[tuple[Segment, int, int]]]]:
        """Yields weight times idf and the postings of each term that occurs, by spelling."""
        wanted = sorted(term for term, weight in terms.items() if weight > 0)
        for term, postings in self._postings(wanted):
            holding = self._holding(postings)
            if holding:
                yield terms[term] * idf(self.live, holding), postings

    def _postings(
        self, wanted: Sequence[str]
    ) -> Iterator[tuple[str, list[tuple[Segment, int, int]]]]:
        """Yields terms, in the order given, with where their postings are."""
        ids = self.vocabulary.lookup(wanted)
        slices = [segment.slices(ids) for segment in self.segments]
        for position, term in enumerate(wanted):
            yield (
                term,
                [
                    (segment, *bounds[position])
                    for segment, bounds in zip(self.segments, slices, strict=True)
                    if bounds[position][1]
                ],
            )

    def _holding(self, postings: list[tuple[Segment, int, int]]) -> int:
        """Returns how many live rows hold a term."""
        if self.alive is None:
            return sum(end - start for _, start, end in postings)
        alive = self.alive
        return sum(
            int(np.count_nonzero(alive.take(segment.rows[start:end])))
            for segment, start, end in postings
        )

    @staticmethod
    def _part(
        factor: float, counts: NDArray[np.unsignedinteger], norms: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        part = counts.astype(np.float64)
        norms += part
        part /= norms
        part *= factor
        return part
