"""Segments: immutable runs of passages with their ids and inverted terms.

A write appends one segment. Neighbours of similar size are merged, so that there are few (about the
logarithm of the number of passages) and each posting is copied as few times.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ragchat_retrieval.engine.batch import Postings
from ragchat_retrieval.engine.inverting import Inverted
from ragchat_retrieval.engine.strings import StringTable
from ragchat_retrieval.pages import room, settled
from ragchat_retrieval.terms import tabulated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine.batch import Batch
    from ragchat_retrieval.engine.strings import Vocabulary

_TOGETHER = 2**16
"""Postings merged at a time, so that what this takes in memory is small."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The rows from `start` to `stop`. The postings of a term are ascending in row."""

    start: int
    stop: int
    ids: StringTable
    """Passage ids; position 0 is row `start`."""

    terms: NDArray[np.int32]
    """Ids of the terms that occur, ascending."""

    offsets: NDArray[np.int64]
    """Where the postings of each of `terms` begin; one more than there are terms."""

    rows: NDArray[np.int32]
    """Rows of the engine."""

    counts: NDArray[np.unsignedinteger[Any]]
    """How often the term occurs in the row; the smallest unsigned type that holds them."""

    @classmethod
    def of(
        cls, batch: Batch, start: int, vocabulary: Vocabulary
    ) -> tuple[Segment, NDArray[np.int32]]:
        """Makes a segment of a batch, whose inverted terms it takes over.

        Returns:
            The segment, and the lengths of its passages, in terms.
        """
        terms = batch.terms
        inverted = (
            terms if isinstance(terms, Inverted) else Inverted.of(_postings(terms, vocabulary))
        )
        rows = inverted.positions
        if start:
            rows += np.int32(start)
        ids = StringTable.of(batch.ids)
        return cls(
            start,
            start + len(batch),
            ids,
            inverted.terms,
            inverted.offsets,
            rows,
            inverted.counts,
        ), inverted.lengths

    @classmethod
    def merged(cls, segments: Sequence[Segment]) -> Segment:
        """Merges neighbours, in ascending order of their rows."""
        size = sum(len(segment.rows) for segment in segments)
        rows = room((size,), np.int32)
        counts = room((size,), np.result_type(*(segment.counts for segment in segments)))
        terms, lengths = [], []
        done = 0
        for bounds in _parts(segments):
            pairs = list(zip(segments, bounds, strict=True))
            flat = np.concatenate(
                [np.repeat(s.terms[a:b], np.diff(s.offsets[a : b + 1])) for s, (a, b) in pairs]
            )
            # Stable: within a term, earlier segments and so lower rows stay first.
            order = np.argsort(flat, kind="stable")
            there = slice(done, done := done + len(flat))
            spans = [(s, slice(s.offsets[a], s.offsets[b])) for s, (a, b) in pairs]
            rows[there] = np.concatenate([s.rows[span] for s, span in spans])[order]
            counts[there] = np.concatenate([s.counts[span] for s, span in spans])[order]
            present, offsets = _runs(flat[order])
            terms.append(present)
            lengths.append(np.diff(offsets))
        return cls(
            segments[0].start,
            segments[-1].stop,
            StringTable.joined([segment.ids for segment in segments]),
            settled(np.concatenate(terms)),
            settled(np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)),
            rows,
            counts,
        )

    def compacted(self, renumbered: NDArray[np.int32], start: int) -> Segment:
        """Returns a segment without removed rows.

        Args:
            renumbered: The new row of each row of the engine, −1 for removed ones.
            start: The first new row of this segment.
        """
        rows = renumbered[self.rows]
        kept = rows >= 0
        flat = np.repeat(self.terms, np.diff(self.offsets))[kept]
        terms, offsets = _runs(flat)
        mine = renumbered[self.start : self.stop]
        positions = np.flatnonzero(mine >= 0)
        return Segment(
            start,
            start + len(positions),
            self.ids.take(positions),
            terms,
            offsets,
            rows[kept],
            self.counts[kept],
        )

    def slices(self, term_ids: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Returns the bounds of each term's postings in `rows`; empty for absent terms."""
        if not len(self.terms):
            return [(0, 0)] * len(term_ids)
        # Of the same type, or the search would first convert all of the terms.
        at = self.terms.searchsorted(term_ids.astype(self.terms.dtype))
        known = self.terms.take(at, mode="clip") == term_ids
        starts = (self.offsets.take(at) * known).tolist()
        ends = (self.offsets.take(at + 1, mode="clip") * known).tolist()
        return list(zip(starts, ends, strict=True))

    def __len__(self) -> int:
        return self.stop - self.start


def tidied(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Merges the last segments until each is more than twice as large as the next one."""
    result = list(segments)
    first = len(result) - 1
    size = len(result[-1]) if result else 0
    while first > 0 and len(result[first - 1]) <= 2 * size:
        first -= 1
        size += len(result[first])
    if first < len(result) - 1:
        result[first:] = [Segment.merged(result[first:])]
    return tuple(result)


def _postings(terms: Sequence[Mapping[str, int]] | Postings, vocabulary: Vocabulary) -> Postings:
    if isinstance(terms, Postings):
        return terms
    table = tabulated(terms)
    ids = vocabulary.assign(table.names)
    return Postings(table.lengths, ids[table.numbers], table.counts)


def _parts(segments: Sequence[Segment]) -> Iterator[list[tuple[int, int]]]:
    """Yields what is merged at a time: a half-open range of the terms of each segment.

    Those of the longest segment hold about as many postings each.
    """
    longest = max(segments, key=lambda segment: len(segment.rows))
    wanted = np.arange(_TOGETHER, len(longest.rows), _TOGETHER)
    bounds = np.unique(longest.terms[longest.offsets[:-1].searchsorted(wanted, "right") - 1])
    cuts = [[0, *s.terms.searchsorted(bounds).tolist(), len(s.terms)] for s in segments]
    yield from map(list, zip(*map(pairwise, cuts), strict=True))


def _runs(ascending: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Returns the distinct values of an ascending array, and where each begins, with the end."""
    if not len(ascending):
        return ascending, np.zeros(1, np.int64)
    starts = np.flatnonzero(np.diff(ascending, prepend=ascending[0] - 1))
    return ascending[starts], np.append(starts, len(ascending))
