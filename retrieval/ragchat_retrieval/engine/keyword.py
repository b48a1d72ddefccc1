"""BM25 over segments of postings; `ragchat_retrieval.lexical.bm25` says what it computes.

The contributions of a query's terms are added in the order of the terms' spelling, whatever ids
they have and however the postings are cut into segments. So the same passages have the same scores
to the last bit, after any history of writes and in every store built on this engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.lexical import K1, B, idf

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine.segment import Segment
    from ragchat_retrieval.engine.strings import Vocabulary

    _Places = list[tuple[Segment, int, int]]
    _Weighted = list[tuple[float, _Places]]

_REMEMBERED = 4
"""Searches whose scores are kept: as many as a batch has in the lane at a time."""


class _Recent:
    """The scores of the last few searches, by their terms. Safe to use from any thread."""

    def __init__(self) -> None:
        self._known: tuple[tuple[Mapping[str, float], NDArray[np.float64]], ...] = ()

    def add(self, terms: Mapping[str, float], scores: NDArray[np.float64]) -> None:
        """Keeps scores, which nobody changes from now on."""
        self._known = ((dict(terms), scores), *self._known[: _REMEMBERED - 1])

    def get(self, terms: Mapping[str, float]) -> NDArray[np.float64] | None:
        """Returns the scores of a search with the same terms; None if it was not among the last."""
        return next((scores for known, scores in self._known if known == terms), None)


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

    _recent: _Recent = field(default_factory=_Recent, init=False, repr=False)

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """``k1 · (1 − b + b · length / average length)`` of each row."""
        if self.total == 0:
            return np.zeros(len(self.lengths))
        relative = self.lengths / np.float64(self.total / self.live)
        norms: NDArray[np.float64] = K1 * (1.0 - B + B * relative)
        return norms

    def scores(self, questions: Sequence[Mapping[str, float]]) -> Iterator[NDArray[np.float64]]:
        """Yields, for each question, the score of every row, removed ones included.

        It is 0 for rows without a term. The array is kept a while, since who searches also asks for
        the scores of what another lane found. It is not to be written to.
        """
        for terms, weighted in zip(questions, self._weighted(questions), strict=True):
            scores = self._summed(weighted)
            self._recent.add(terms, scores)
            yield scores

    def _summed(self, found: _Weighted) -> NDArray[np.float64]:
        """Returns the score of every row for the terms of a question."""
        weighted = [(factor, *place) for factor, postings in found for place in postings]
        if not weighted:
            return np.zeros(len(self.lengths))
        # The terms together, since most have few postings, and each step has a fixed cost; and rows
        # of the type that counting and taking need, so that nothing is copied again.
        sizes = [end - start for _, _, start, end in weighted]
        rows = np.empty(sum(sizes), np.intp)
        np.concatenate([segment.rows[start:end] for _, segment, start, end in weighted], out=rows)
        counts = np.concatenate([segment.counts[start:end] for _, segment, start, end in weighted])
        factors = np.repeat([factor for factor, *_ in weighted], sizes)
        parts = _parts(factors, counts, self.norms.take(rows))
        return np.bincount(rows, parts, len(self.lengths)).astype(np.float64, copy=False)

    def scores_of(self, terms: Mapping[str, float], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the same scores for some rows only."""
        if (known := self._recent.get(terms)) is not None:
            return known[rows]
        order = np.argsort(rows)
        # Of the postings' own type, or each search would first convert all of a term's postings.
        ascending = rows[order].astype(np.int32)
        norms = self.norms.take(ascending)
        sums = np.zeros(len(rows))
        bounds = {
            segment.start: np.searchsorted(ascending, (segment.start, segment.stop)).tolist()
            for segment in self.segments
        }
        (weighted,) = self._weighted([terms])
        for factor, postings in weighted:
            for segment, start, end in postings:
                low, high = bounds[segment.start]
                wanted, found = ascending[low:high], segment.rows[start:end]
                at = found.searchsorted(wanted)
                hits = (found.take(at, mode="clip") == wanted).nonzero()[0]
                if len(hits):
                    counts = segment.counts[start:end].take(at[hits])
                    hits += low
                    sums[hits] += _parts(factor, counts, norms[hits])
        result = np.empty(len(rows))
        result[order] = sums
        return result

    def holding(self, terms: Collection[str]) -> dict[str, int]:
        """Returns how many live rows hold each term; a term that none holds is left out."""
        counts = {term: self._holding(found) for term, found in self._postings(list(terms))}
        return {term: count for term, count in counts.items() if count}

    def _weighted(self, questions: Sequence[Mapping[str, float]]) -> list[_Weighted]:
        """Returns weight times idf and the postings of each term that occurs, by spelling.

        The terms of all questions are looked up together.
        """
        wanted = {term for terms in questions for term, weight in terms.items() if weight > 0}
        known = {
            term: (idf(self.live, holding), postings)
            for term, postings in self._postings(list(wanted))
            if (holding := self._holding(postings))
        }
        return [
            [
                (weight * known[term][0], known[term][1])
                for term, weight in sorted(terms.items())
                if weight > 0 and term in known
            ]
            for terms in questions
        ]

    def _postings(self, wanted: Sequence[str]) -> Iterator[tuple[str, _Places]]:
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

    def _holding(self, postings: _Places) -> int:
        """Returns how many live rows hold a term."""
        if self.alive is None:
            return sum(end - start for _, start, end in postings)
        alive = self.alive
        return sum(
            int(np.count_nonzero(alive.take(segment.rows[start:end])))
            for segment, start, end in postings
        )


def _parts(
    factors: float | NDArray[np.float64],
    counts: NDArray[np.unsignedinteger],
    norms: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Returns the contributions of terms to the scores of rows; `norms` are lost."""
    parts = counts.astype(np.float64)
    norms += parts
    parts /= norms
    parts *= factors
    return parts
