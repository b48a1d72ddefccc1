"""An immutable state of an engine: what readers work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ragchat_retrieval.comparison import canonical_date
from ragchat_retrieval.engine.columns import Mask
from ragchat_retrieval.engine.keyword import KeywordLane
from ragchat_retrieval.engine.select import ranked, top
from ragchat_retrieval.filters import Filter, Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine.columns import Columns
    from ragchat_retrieval.engine.matrix import Matrix
    from ragchat_retrieval.engine.segment import Segment
    from ragchat_retrieval.engine.strings import Vocabulary
    from ragchat_retrieval.filters import Condition

_CACHED_MASKS = 16
_NAMED = 1024
"""Passages of the latest searches whose ids are not looked up again: who searches reads them."""

_GATHER_SHARE = 4
"""Below one row in this many, a mask's rows are gathered rather than all scores multiplied."""


class Found(NamedTuple):
    """Rows of a snapshot with their scores: score descending, ties by passage id."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Snapshot:
    """One immutable state of an engine. Safe to use from any thread; a later write makes another.

    A row is a position in this snapshot's arrays and means nothing in another snapshot; a key is
    the caller's own number for a passage and lasts. Rows passed in must be live rows of this
    snapshot.
    """

    segments: tuple[Segment, ...]
    vocabulary: Vocabulary
    columns: Columns
    matrix: Matrix
    all_keys: NDArray[np.int64]
    """Key of each row, ascending."""

    lengths: NDArray[np.int32]
    """Terms of each row, repetitions included."""

    alive: NDArray[np.bool_]
    """Which rows are there."""

    live: int
    """Passages that are there."""

    total: int
    """Terms of all live passages."""

    _masks: dict[bytes, Mask] = field(default_factory=dict, init=False, repr=False)
    _named: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    @property
    def rows(self) -> int:
        """Length of the arrays, removed rows included."""
        return len(self.alive)

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None before the first vector."""
        return self.matrix.dimension

    @cached_property
    def vectors(self) -> int:
        """Live passages with a vector."""
        return int(np.count_nonzero(self.alive[self.matrix.rows]))

    @cached_property
    def documents(self) -> int:
        """Documents that are there."""
        column = self.columns.codes("document_id")
        return 0 if column is None else int(np.count_nonzero(np.bincount(column[1][self.alive])))

    # --- passages ---

    def find(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Returns the live row of each passage id, −1 for unknown ones."""
        named = [*map(self._named.get, ids)]
        if None not in named:
            return np.array(named, np.int64)
        encoded = [id_.encode("utf-8", "surrogatepass") for id_ in ids]
        found = np.full(len(ids), -1, np.int64)
        for segment in self.segments:
            pending = np.flatnonzero(found < 0)
            at = segment.ids.first([encoded[position] for position in pending.tolist()])
            known = np.flatnonzero(at >= 0)
            pending, rows = pending[known], at[known] + segment.start
            alive = self.alive[rows]
            found[pending[alive]] = rows[alive]
            # Removed passages keep their ids until the next compaction.
            for position in pending[~alive].tolist():
                for other in segment.ids.find([encoded[position]])[0]:
                    if self.alive[segment.start + other]:
                        found[position] = segment.start + other
        return found

    def find_keys(self, keys: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the live row of each key, −1 for unknown ones."""
        wanted = np.asarray(keys, np.int64)
        if not self.rows:
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self.all_keys, wanted), self.rows - 1)
        found: NDArray[np.int64] = np.where(
            (self.all_keys[at] == wanted) & self.alive[at], at, np.int64(-1)
        )
        return found

    def document_rows(self, document_ids: Iterable[str]) -> NDArray[np.int64]:
        """Returns all live rows of these documents, ascending."""
        column = self.columns.codes("document_id")
        if column is None:
            return np.zeros(0, np.int64)
        values, codes = column
        wanted = values.codes_of(document_ids)
        if not wanted:
            return np.zeros(0, np.int64)
        if len(wanted) == 1:
            return np.flatnonzero((codes == wanted[0]) & self.alive)
        return np.flatnonzero(np.isin(codes, wanted, kind="table") & self.alive)

    def live_rows(self, mask: Mask | None = None) -> NDArray[np.int64]:
        """Returns the live rows that `mask` selects, ascending; None is all."""
        return np.flatnonzero(self.alive) if mask is None else mask.rows

    def ids(self, rows: NDArray[np.int64]) -> list[str]:
        """Returns the passage ids of rows."""
        names = self._ids(rows)
        if len(names) <= _NAMED:
            if len(self._named) > _NAMED:
                self._named.clear()
            self._named.update(zip(names, rows.tolist(), strict=True))
        return names

    def _ids(self, rows: NDArray[np.int64]) -> list[str]:
        if len(self.segments) == 1:
            return self.segments[0].ids.get(rows)
        result = [""] * len(rows)
        starts = np.array([segment.start for segment in self.segments], np.int64)
        owner = np.searchsorted(starts, rows, "right") - 1
        for number in np.unique(owner).tolist():
            at = np.flatnonzero(owner == number)
            segment = self.segments[number]
            names = segment.ids.get(rows[at] - segment.start)
            for position, name in zip(at.tolist(), names, strict=True):
                result[position] = name
        return result

    def keys(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the keys of rows."""
        return self.all_keys[rows]

    def document_ids(self, rows: NDArray[np.int64]) -> list[str]:
        """Returns the document ids of rows."""
        column = self.columns.codes("document_id")
        return [] if column is None else column[0].get(column[1][rows])

    def has_vector(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Says which rows have a vector."""
        return self.matrix.positions[rows] >= 0

    def vectors_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns a copy of the vectors of rows that all have one, float32 [rows, dimension]."""
        return self.matrix.take(self.matrix.positions[rows].astype(np.int64))

    # --- filters ---

    def mask(self, *filters: Filter) -> Mask | None:
        """Returns the live rows that all these filters select; None if all filters are empty."""
        conditions, key = _conjunction(filters)
        if not conditions:
            return None
        mask = self._masks.get(key)
        if mask is None:
            flags = self.alive.copy()
            for condition in conditions.values():
                flags &= self._flags(condition)
            mask = Mask(flags)
            while len(self._masks) >= _CACHED_MASKS:
                self._masks.pop(next(iter(self._masks), b""), None)
            self._masks[key] = mask
        return mask

    def mask_cost(self, *filters: Filter) -> int:
        """Returns about how many values `mask` would have to test; 0 if the mask is known."""
        conditions, key = _conjunction(filters)
        return 0 if key in self._masks else sum(map(self._cost, conditions.values()))

    def _cost(self, condition: Condition) -> int:
        if condition.key == "id":
            return self.rows
        column = self.columns.codes(condition.key)
        return 0 if column is None else column[0].untested(condition)

    def _flags(self, condition: Condition) -> NDArray[np.bool_]:
        if condition.key != "id":
            return self.columns.flags(condition)
        if condition.op is Op.EXISTS:
            return np.full(self.rows, bool(condition.value))
        if condition.op in {Op.EQ, Op.IN}:
            operands = [str(value) for kind, value in condition.operands if kind == "string"]
            # Ids that spell the same instant are equal to a filter, so those need a look at all.
            if not any(map(canonical_date, operands)):
                flags = np.zeros(self.rows, np.bool_)
                rows = self.find(operands)
                flags[rows[rows >= 0]] = True
                return flags
        names = [name for segment in self.segments for name in segment.ids.all()]
        return np.fromiter(map(condition.test, names), np.bool_, self.rows)

    # --- keyword lane ---

    @cached_property
    def keyword(self) -> KeywordLane:
        """The keyword lane, which can also score every row at once."""
        return KeywordLane(
            segments=self.segments,
            vocabulary=self.vocabulary,
            lengths=self.lengths,
            alive=None if self.live == self.rows else self.alive,
            live=self.live,
            total=self.total,
        )

    def search_text(
        self, terms: Mapping[str, float], limit: int, mask: Mask | None = None
    ) -> Found:
        """Returns the best rows by BM25; rows without any of the terms are left out.

        Terms of weight 0 or less are ignored, so that scores are positive.
        """
        return next(self.search_texts([terms], limit, mask))

    def search_texts(
        self, questions: Sequence[Mapping[str, float]], limit: int, mask: Mask | None = None
    ) -> Iterator[Found]:
        """Yields `search_text` of the terms of each question, which are looked up together."""
        if limit <= 0 or not self.live or (mask is not None and not len(mask)):
            yield from (self._nothing() for _ in questions)
            return
        for scores in self.keyword.scores(questions):
            yield self._best(scores, limit, mask or self._alive_mask)

    def _best(self, scores: NDArray[np.float64], limit: int, mask: Mask | None) -> Found:
        """Returns the best rows of positive score."""
        if mask is not None and len(mask) * _GATHER_SHARE < self.rows:
            few = scores[mask.rows]
            picked = top(few, limit, floor=0.0)
            return self._found(mask.rows[picked], few[picked], limit)
        if mask is not None:
            scores = scores * mask.flags
        rows = top(scores, limit, floor=0.0)
        return self._found(rows, scores[rows], limit)

    def score_text(
        self, terms: Mapping[str, float], rows: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Returns the BM25 scores of rows, equal to those of `search_text`; 0 without a term."""
        return self.keyword.scores_of(terms, rows)

    # --- vector lane ---

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, mask: Mask | None = None
    ) -> Found:
        """Returns the best rows by inner product; rows without a vector are left out."""
        return self.search_vectors(vector[np.newaxis], limit, mask)[0]

    def search_vectors(
        self, vectors: NDArray[np.float32], limit: int, mask: Mask | None = None
    ) -> list[Found]:
        """Returns `search_vector` of each row of float32 [queries, dimension], in one product."""
        if limit <= 0 or not len(self.matrix.rows) or (mask is not None and not len(mask)):
            return [self._nothing() for _ in vectors]
        found = self.matrix.search(vectors, limit, mask or self._alive_mask)
        return [self._found(rows, scores, limit) for rows, scores in found]

    def score_vector(
        self, vector: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Returns the inner products of rows, as in `search_vector`; NaN without a vector."""
        positions = self.matrix.positions[rows].astype(np.int64)
        known = positions >= 0
        scores = np.full(len(rows), np.nan)
        scores[known] = self.matrix.scores(vector, positions[known])
        return scores

    @cached_property
    def _alive_mask(self) -> Mask | None:
        return None if self.live == self.rows else Mask(self.alive)

    def _found(self, rows: NDArray[np.int64], scores: NDArray[np.float64], limit: int) -> Found:
        return Found(*ranked(rows, scores, limit, self._ids))

    @staticmethod
    def _nothing() -> Found:
        return Found(np.zeros(0, np.int64), np.zeros(0))


def _conjunction(filters: tuple[Filter, ...]) -> tuple[dict[bytes, Condition], bytes]:
    conditions = {c.canonical_bytes(): c for each in filters for c in each}
    return conditions, b"\n".join(sorted(conditions))


__all__ = ["Found", "Mask", "Snapshot"]
