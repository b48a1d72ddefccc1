"""Exact vector search over a matrix kept in blocks, in memory or in a temporary file.

Scores of one vector may come out of a matrix product a little different depending on where it
stands, since kernels treat edges apart. The product therefore only selects; the few rows that can
be among the best by its error bound are scored again in float64, always in the same order of
additions. Equal vectors have equal scores in every store built on this engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.engine.growing import Growing
from ragchat_retrieval.engine.places import Memory, TemporaryFile
from ragchat_retrieval.engine.select import top
from ragchat_retrieval.pages import release
from ragchat_retrieval.vectors import exact_products, squared_length

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ragchat_retrieval.engine.columns import Mask
    from ragchat_retrieval.engine.places import Place

BLOCK = 8192
"""Most rows of a block that grows, about 12 MiB at 384 dimensions."""

_SMALL_BLOCK = 64
_MANY_BLOCKS = 8
"""Beyond so many more than twice those that are needed, blocks are put together."""

_GATHER = 1024
"""Rows gathered or scored at a time, so that copies stay in the cache."""

_SWEPT = 512
"""Rows that several queries are multiplied with in turn, 768 KiB at 384 dimensions."""

_GATHER_SHARE = 16
"""Below one row in this many, gathering rows is faster than scoring all."""


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Immutable vectors. A position is where a vector stands; a row is the engine's."""

    dimension: int | None
    """None before the first vector."""

    positions: NDArray[np.int32]
    """Position of each row's vector, −1 for rows without one."""

    rows: NDArray[np.int32]
    """Row of each position, ascending."""

    blocks: tuple[NDArray[np.float32], ...] = ()
    """[size, dimension], one after another."""

    largest: float = 0.0
    """Upper bound of the norms of the vectors."""

    spilled: bool = False
    """Whether blocks lie in temporary files."""

    files: tuple[TemporaryFile, ...] = ()
    """Those of `blocks`, if they do."""

    starts: NDArray[np.int64] = field(init=False)
    """First position of each block, and the end of the last."""

    def __post_init__(self) -> None:
        starts = np.cumsum([0, *map(len, self.blocks)], dtype=np.int64)
        object.__setattr__(self, "starts", starts)

    def search(
        self, vectors: NDArray[np.float32], limit: int, mask: Mask | None
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Returns, for each query, rows that hold the `limit` best and all ties, with exact scores.

        Args:
            vectors: float32 [queries, dimension].
            limit: How many are wanted, ≥ 1.
            mask: The rows that may be returned; None for all.
        """
        at: NDArray[np.int64] | None = None
        if mask is not None and len(mask) * _GATHER_SHARE < len(self.rows):
            at = self.positions[mask.rows].astype(np.int64)
            at = at[at >= 0]
            approximate = self._products_at(vectors, at)
        else:
            approximate = self._products(vectors)
            if mask is not None:
                aligned = len(mask.flags) == len(self.rows)
                allowed = mask.flags if aligned else mask.flags[self.rows]
                np.copyto(approximate, -np.inf, where=~allowed)
        found = []
        for vector, scores in zip(vectors, approximate, strict=True):
            picked = top(scores, limit, floor=-np.inf, slack=self._slack(vector))
            picked = picked if at is None else at[picked]
            found.append((self.rows[picked].astype(np.int64), self.scores(vector, picked)))
        return found

    def scores(
        self, vector: NDArray[np.float32], positions: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Returns the inner products of given positions, exact to float64."""
        result = np.empty(len(positions))
        for low in range(0, len(positions), _GATHER):
            part = slice(low, low + _GATHER)
            result[part] = exact_products(self.take(positions[part]), vector)
        return result

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns a copy of the vectors at positions, float32 [positions, dimension]."""
        if len(self.blocks) == 1:
            return self._read(0, positions)
        result = np.empty((len(positions), self.dimension or 0), np.float32)
        owner = np.searchsorted(self.starts, positions, "right") - 1
        for number in np.unique(owner).tolist():
            mine = owner == number
            result[mine] = self._read(number, positions[mine] - self.starts[number])
        return result

    def _read(self, number: int, at: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.files[number].read(at) if self.spilled else self.blocks[number][at]

    def _products(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        result = np.empty((len(vectors), len(self.rows)), np.float32)
        for block, start in zip(self.blocks, self.starts.tolist(), strict=False):
            part = result[:, start : start + len(block)]
            # Rows that one query has brought into the cache serve the next, so that memory is
            # read once; with one query all is one part.
            step = _SWEPT if len(vectors) > 1 else max(1, len(block))
            for low in range(0, len(block), step):
                some = slice(low, low + step)
                for vector, scores in zip(vectors, part, strict=True):
                    np.dot(block[some], vector, out=scores[some])
            if self.spilled:
                release(block)
        return result

    def _products_at(
        self, vectors: NDArray[np.float32], at: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        result = np.empty((len(vectors), len(at)), np.float32)
        for low in range(0, len(at), _GATHER):
            part = slice(low, low + _GATHER)
            result[:, part] = vectors @ self.take(at[part]).T
        return result

    def _slack(self, vector: NDArray[np.float32]) -> float:
        """Returns how far two approximate scores can be out of order.

        A float32 dot product of d terms errs by at most d · 2⁻²⁴ times the product of the norms
        (Higham, Accuracy and Stability of Numerical Algorithms, 3.1); doubled for its second-order
        terms, and doubled again because two scores are compared.
        """
        size = math.sqrt(squared_length(vector)) * self.largest
        return 4.0 * (self.dimension or 0) * 2.0**-24 * size


class MatrixWriter:
    """Appends to a matrix; what was returned before stays as it is.

    Args:
        matrix: What to start from.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._positions = Growing[np.int32](matrix.positions)
        self._rows = Growing[np.int32](matrix.rows)
        self._spilled = matrix.spilled
        self._spare: Place | None = None
        self._made: list[TemporaryFile] = []

    def appended(
        self,
        matrix: Matrix,
        count: int,
        vectors: NDArray[np.float32] | None,
        has_vector: NDArray[np.bool_] | None,
    ) -> Matrix:
        """Returns the matrix with `count` more rows.

        Args:
            matrix: What the last call returned, or what this writer started from.
            count: Rows of the engine that are appended.
            vectors: float32 [count, dimension], or None for rows without vectors.
            has_vector: Which of `vectors` count; None for all.
        """
        first = len(matrix.positions)
        if vectors is not None and has_vector is not None and not has_vector.all():
            with_vector = np.flatnonzero(has_vector)
            vectors = vectors[with_vector]
        else:
            with_vector = np.arange(count if vectors is not None else 0)
        positions = np.full(count, -1, np.int32)
        positions[with_vector] = len(matrix.rows) + np.arange(len(with_vector))
        known = self._rows.extended(len(matrix.rows), first + with_vector)
        placed = self._positions.extended(first, positions)
        if vectors is None or not len(vectors):
            return replace(matrix, positions=placed, rows=known)
        vectors = np.asarray(vectors, np.float32)
        squares = np.einsum("ij,ij->i", vectors, vectors)
        largest = max(matrix.largest, float(np.sqrt(squares.max())) * (1 + 1e-6))
        self._made = []
        blocks = self._stored(matrix.blocks, vectors)
        files = (*matrix.files, *self._made)
        return Matrix(vectors.shape[1], placed, known, blocks, largest, matrix.spilled, files)

    def _stored(
        self, blocks: tuple[NDArray[np.float32], ...], vectors: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], ...]:
        if len(vectors) >= BLOCK:
            self._spare = None
            return (*blocks, self._settled(vectors))
        last = blocks[-1] if blocks else vectors[:0]
        spare = self._spare
        if spare is None or last.base is not spare.rows or not spare.is_ours:
            used, blocks = 0, (*blocks, vectors[:0])
        else:
            used = len(last)
        if used + len(vectors) > BLOCK:
            fitting = BLOCK - used
            filled = self._stored(blocks, vectors[:fitting]) if fitting else blocks
            self._spare = None
            return self._stored(filled, vectors[fitting:])
        needed = used + len(vectors)
        if spare is None or used == 0 or needed > len(spare.rows):
            # What a file has room for takes none before it is written.
            size = BLOCK if self._spilled else min(BLOCK, max(2 * needed, _SMALL_BLOCK))
            spare = self._place(size, vectors.shape[1])
            spare.put(0, last[:used])
        spare.put(used, vectors)
        self._spare = spare
        return (*blocks[:-1], spare.rows[:needed])

    def _settled(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        if not self._spilled:
            return np.ascontiguousarray(vectors)
        place = self._place(*vectors.shape)
        place.put(0, vectors)
        return place.rows

    def _place(self, size: int, dimension: int) -> Place:
        if not self._spilled:
            return Memory(size, dimension)
        file = TemporaryFile(size, dimension)
        self._made.append(file)
        return file

    @staticmethod
    def compacted(matrix: Matrix, kept: NDArray[np.int64]) -> Matrix:
        """Returns a matrix of only these rows, ascending, renumbered."""
        few = len(matrix.blocks) <= _MANY_BLOCKS + 2 * len(matrix.rows) // BLOCK
        if len(kept) == len(matrix.positions) and few:
            return matrix
        places = matrix.positions[kept].astype(np.int64)
        with_vector = np.flatnonzero(places >= 0)
        positions = np.full(len(kept), -1, np.int32)
        positions[with_vector] = np.arange(len(with_vector))
        places = places[with_vector]
        writer = MatrixWriter(replace(matrix, blocks=(), files=()))
        blocks = []
        for low in range(0, len(places), BLOCK):
            part = places[low : low + BLOCK]
            place = writer._place(len(part), matrix.dimension or 0)
            for first in range(0, len(part), _GATHER):
                place.put(first, matrix.take(part[first : first + _GATHER]))
            blocks.append(place.rows)
        rows = with_vector.astype(np.int32)
        files = tuple(writer._made)
        return replace(matrix, positions=positions, rows=rows, blocks=tuple(blocks), files=files)


def empty_matrix(*, spilled: bool = False) -> Matrix:
    """Returns a matrix without vectors, which will keep them in memory or in temporary files."""
    return Matrix(None, np.zeros(0, np.int32), np.zeros(0, np.int32), spilled=spilled)
