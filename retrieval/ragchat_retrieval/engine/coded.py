"""Exact search with a quarter of the memory: eight bits a number choose, float32 decides.

Each vector is kept beside its matrix as whole numbers with a scale, and with the length of what
rounding cut off. By the Cauchy–Schwarz inequality a score from the rounded vector is off by at most
that length times the query's, so whatever can be among the best is known, and is scored again from
the vector itself. What is found is what a search over all of the vectors finds. Those may lie in
a mapped file, of which only the few that are scored again are read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ragchat_retrieval.engine.select import ranked, top
from ragchat_retrieval.engine.snapshot import Found
from ragchat_retrieval.pages import release, room
from ragchat_retrieval.quantization import quantize
from ragchat_retrieval.vectors import squared_length

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ragchat_retrieval.engine.columns import Mask
    from ragchat_retrieval.engine.matrix import Matrix
    from ragchat_retrieval.engine.snapshot import Snapshot

_CHUNK = 1024
"""Vectors rounded at a time, so that little memory is needed besides."""

_SCORED = 1024
"""Vectors scored at a time, so that what they are widened to stays in the cache."""

_GATHER_SHARE = 16
"""Below one row in this many, gathering rows is faster than scoring all."""


class _Part(NamedTuple):
    """One block of the matrix, rounded."""

    block: NDArray[np.float32]
    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    errors: NDArray[np.float32]
    """Upper bounds of the lengths of what rounding cut off."""


class Coded:
    """The vectors of one matrix, rounded to eight bits. Immutable.

    Args:
        matrix: The vectors themselves, float32.
        before: Those of an earlier state, from which blocks that are the same are taken.
    """

    def __init__(self, matrix: Matrix, before: Coded | None = None) -> None:
        self.matrix = matrix
        earlier: list[_Part] = [] if before is None else before._parts  # noqa: SLF001 - our class
        self._parts: list[_Part] = [_coded(block, earlier) for block in matrix.blocks]

    @property
    def nbytes(self) -> int:
        """What the rounded vectors take."""
        return sum(
            array.nbytes for part in self._parts for array in (part.codes, part.scales, part.errors)
        )

    def search(
        self, snapshot: Snapshot, vector: NDArray[np.float32], limit: int, mask: Mask | None
    ) -> Found:
        """Returns exactly what `Snapshot.search_vector` does.

        Args:
            snapshot: The one whose matrix this was made of.
            vector: float32 [dimension].
            limit: Most rows to return.
            mask: The rows that may be returned; None for all.
        """
        return self.search_many(snapshot, vector[np.newaxis], limit, mask)[0]

    def search_many(
        self,
        snapshot: Snapshot,
        vectors: NDArray[np.float32],
        limit: int,
        mask: Mask | None,
    ) -> list[Found]:
        """Returns `search` of each row of float32 [queries, dimension], reading codes once."""
        matrix, size = self.matrix, len(self.matrix.rows)
        at = None
        if mask is not None and len(mask) * _GATHER_SHARE < size:
            at = matrix.positions[mask.rows].astype(np.int64)
            at = at[at >= 0]
        if not 0 < limit < (size if at is None else len(at)):
            return snapshot.search_vectors(vectors, limit, mask)
        scores, errors = self._scores(vectors, at)
        if at is None:
            flags = snapshot.alive if mask is None else mask.flags
            allowed = flags if len(flags) == size else flags[matrix.rows]
            if not allowed.all():
                np.copyto(scores, -np.inf, where=~allowed)
        found = []
        for vector, middle in zip(vectors, scores, strict=True):
            length = math.sqrt(squared_length(vector))
            picked = _possible(middle, errors * np.float32(length * (1 + 1e-6)), limit)
            picked = picked if at is None else at[picked]
            rows = matrix.rows[picked].astype(np.int64)
            best = ranked(rows, matrix.scores(vector, picked), limit, snapshot.ids)
            found.append(Found(*best))
        return found

    def _scores(
        self, vectors: NDArray[np.float32], at: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns scores of rounded vectors, and how far they are off at most.

        Args:
            vectors: Queries, float32 [queries, dimension].
            at: Ascending positions; None for all.

        Returns:
            float32 [queries, positions], and float32 [positions] for a query of length 1.
        """
        matrix = self.matrix
        count = len(matrix.rows) if at is None else len(at)
        scores = np.empty((len(vectors), count), np.float32)
        errors = np.empty(count, np.float32)
        done = 0
        for part, start in zip(self._parts, matrix.starts.tolist(), strict=False):
            codes, scales, lost = part[1:]
            if at is not None:
                some = at[done : np.searchsorted(at, start + len(codes))] - start
                codes, scales, lost = codes[some], scales[some], lost[some]
            here = slice(done, done + len(codes))
            mine = scores[:, here]
            for low in range(0, len(codes), _SCORED):
                chunk = slice(low, low + _SCORED)
                mine[:, chunk] = vectors @ codes[chunk].astype(np.float32).T
            mine *= scales
            errors[here] = lost
            done = here.stop
        # The product in float32 errs too: see `Matrix`; here once, and with two roundings more.
        terms = (matrix.dimension or 0) + 4
        errors += np.float32(4.0 * terms * 2.0**-24 * matrix.largest)
        return scores, errors


def _possible(
    middle: NDArray[np.float32], error: NDArray[np.float32], limit: int
) -> NDArray[np.int64]:
    """Returns where the `limit` best can be, and all that can tie with them.

    Args:
        middle: Scores; −∞ is out of the question.
        error: How far each can be off.
        limit: How many are wanted, ≥ 1.
    """
    lowest = middle - error
    surest = lowest[top(lowest, limit, floor=-np.inf)]
    if len(surest) < limit:  # fewer than are wanted
        return np.flatnonzero(middle > -np.inf)
    cut = np.partition(surest, len(surest) - limit)[len(surest) - limit]
    return np.flatnonzero(middle + error >= cut)


def _coded(block: NDArray[np.float32], earlier: list[_Part]) -> _Part:
    size, dimension = block.shape
    whole = _Part(
        block,
        room((size, dimension), np.int8),
        np.empty(size, np.float32),
        np.empty(size, np.float32),
    )
    first = 0
    for part in earlier:
        if part.block is block:
            return part
        if _is_beginning(part.block, block):
            first = len(part.block)
            _place(whole, 0, part)
    for low in range(first, size, _CHUNK):
        _place(whole, low, _rounded(block[low : low + _CHUNK]))
    release(block)
    return whole


def _place(whole: _Part, low: int, part: _Part) -> None:
    here = slice(low, low + len(part.block))
    whole.codes[here], whole.scales[here], whole.errors[here] = part[1:]


def _is_beginning(part: NDArray[np.float32], whole: NDArray[np.float32]) -> bool:
    """Says whether one array is the beginning of another, in the same memory."""
    return (
        whole.base is not None
        and part.base is whole.base
        and part.ctypes.data == whole.ctypes.data
        and len(part) <= len(whole)
    )


def _rounded(vectors: NDArray[np.float32]) -> _Part:
    quantized = quantize(vectors)
    lost = vectors - quantized.restored()
    squares = np.einsum("ij,ij->i", lost, lost, dtype=np.float64)
    # Rounded up, and `restored` itself is rounded once.
    errors = (np.sqrt(squares) * (1 + 1e-6) + 1e-7).astype(np.float32)
    return _Part(vectors, quantized.codes, quantized.scales, errors)
