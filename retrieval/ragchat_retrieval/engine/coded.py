"""Exact search with a quarter of the memory: eight bits a number choose, float32 decides.

Each vector is kept beside its matrix as whole numbers with a scale, and with the length of what
rounding cut off. By the Cauchy–Schwarz inequality a score from the rounded vector is off by at most
that length times the query's, so whatever can be among the best is known, and is scored again from
the vector itself. What is found is what a search over all of the vectors finds. Those may lie in
a mapped file, of which only the few that are scored again are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ragchat_retrieval.engine.files import release
from ragchat_retrieval.engine.select import ranked, top
from ragchat_retrieval.engine.snapshot import Found
from ragchat_retrieval.quantization import quantize

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
"""Below one row in this many, the vectors themselves are gathered."""


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
        matrix = self.matrix
        size = len(matrix.rows)
        flags = snapshot.alive if mask is None else mask.flags
        few = mask is not None and len(mask) * _GATHER_SHARE < size
        if few or not 0 < limit < size:
            return snapshot.search_vector(vector, limit, mask)
        middle, error = self._scores(vector)
        allowed = flags if len(flags) == size else flags[matrix.rows]
        if not allowed.all():
            np.copyto(middle, -np.inf, where=~allowed)
        lowest = middle - error
        surest = lowest[top(lowest, limit, floor=-np.inf)]
        if len(surest) < limit:  # fewer are allowed than wanted
            return snapshot.search_vector(vector, limit, mask)
        cut = np.partition(surest, len(surest) - limit)[len(surest) - limit]
        middle += error
        picked = np.flatnonzero(middle >= cut)
        rows = matrix.rows[picked].astype(np.int64)
        return Found(*ranked(rows, matrix.scores(vector, picked), limit, snapshot.ids))

    def _scores(
        self, vector: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns the score of each rounded vector, and how far it is off at most."""
        matrix = self.matrix
        scores = np.empty(len(matrix.rows), np.float32)
        errors = np.empty(len(matrix.rows), np.float32)
        for part, start in zip(self._parts, matrix.starts.tolist(), strict=False):
            for low in range(0, len(part.codes), _SCORED):
                chunk = slice(low, low + _SCORED)
                codes = part.codes[chunk].astype(np.float32)
                np.dot(codes, vector, out=scores[start + low : start + low + len(codes)])
            here = slice(start, start + len(part.codes))
            scores[here] *= part.scales
            errors[here] = part.errors
        # The product in float32 errs too: see `Matrix`; here once, and with two roundings more.
        length = float(np.linalg.norm(vector.astype(np.float64)))
        terms = (matrix.dimension or 0) + 4
        errors += np.float32(4.0 * terms * 2.0**-24 * matrix.largest)
        errors *= np.float32(length * (1 + 1e-6))
        return scores, errors


def _coded(block: NDArray[np.float32], earlier: list[_Part]) -> _Part:
    size, dimension = block.shape
    whole = _Part(
        block,
        np.empty((size, dimension), np.int8),
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
