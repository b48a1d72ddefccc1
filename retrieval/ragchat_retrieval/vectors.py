"""Vector maths: normalisation, similarity, and the sum of a query with its conversation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ragchat_retrieval.errors import InvalidVector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.values import ContextText

_DAMP_FROM = 0.1
"""Cosine up to which a damped context keeps its whole weight."""

_DAMP_OVER = 0.5
"""Range of cosine over which the weight falls to nothing."""

NORMALISED = 1e-5
"""A row whose length differs from 1 by no more than this counts as normalised."""

ROUNDING = 2 * NORMALISED
"""How far the product of two normalised rows may lie below their cosine: a vector's product with
itself is not always 1."""

_TOGETHER = 1024
"""Matrices looked at together."""


def normalise(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns rows scaled to length 1; a row of zeros stays as it is.

    Args:
        matrix: float32 [n, d].
    """
    lengths = np.linalg.norm(matrix, axis=-1, keepdims=True)
    return (matrix / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def unit_rows(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns rows scaled to length 1; rows that are, or cannot be, keep their bits.

    Args:
        matrix: float32 [n, d]; anything else comes back as it is, for others to refuse.
    """
    if matrix.ndim != 2:  # noqa: PLR2004 - a matrix
        return matrix
    lengths = np.sqrt(squared_lengths([matrix]))[:, np.newaxis]
    with np.errstate(invalid="ignore"):
        off = (lengths > 0) & np.isfinite(lengths) & (np.abs(lengths - 1.0) > NORMALISED)
    if not off.any():
        return matrix
    scaled: NDArray[np.float32] = (matrix / np.where(off, lengths, 1.0)).astype(np.float32)
    return scaled


def unit_matrices(matrices: Sequence[NDArray[np.float32]]) -> Sequence[NDArray[np.float32]]:
    """Returns `unit_rows` of each matrix; many small ones cost as much as a large one.

    Args:
        matrices: float32 [n, d] each.
    """
    alike = all(m.ndim == 2 and m.shape[1] == matrices[0].shape[1] for m in matrices)  # noqa: PLR2004 - matrices
    return matrices if alike and are_unit(matrices) else [unit_rows(m) for m in matrices]


def are_unit(matrices: Sequence[NDArray[Any]]) -> bool:
    """Says whether all rows are finite and have length 1 beyond any doubt.

    Args:
        matrices: float32 or float64 [n, d] each, of one d.
    """
    # A sum depends a little on how it is made and where its row stands, so what is near the bound
    # is left to a closer look.
    off = np.abs(np.sqrt(squared_lengths(matrices)) - 1.0)
    return bool((off < NORMALISED / 2).all())


def squared_lengths(matrices: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Returns the sum of the squares of each row, non-finite exactly if a number in it is.

    Args:
        matrices: float32 or float64 [n, d] each, of one d; many small ones cost as much as a large
            one.
    """
    parts = [np.zeros(0)]
    for low in range(0, len(matrices), _TOGETHER):
        some = matrices[low : low + _TOGETHER]
        rows = some[0] if len(some) == 1 else np.concatenate(some)
        parts.append(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return np.concatenate(parts)


def check_query_vector(vector: NDArray[np.float32], dimension: int | None) -> None:
    """Raises `InvalidVector` unless the vector is finite, non-zero and of the index's length."""
    if vector.ndim != 1 or (dimension is not None and vector.shape[0] != dimension):
        raise InvalidVector(f"has shape {vector.shape}, the index needs ({dimension},)")
    squares = squared_length(vector)
    if not math.isfinite(squares):
        raise InvalidVector("holds NaN or infinity")
    if squares == 0.0:
        raise InvalidVector("is all zeros")


def squared_length(vector: NDArray[np.float32]) -> float:
    """Returns the sum of the squares, which float64 holds: 0, or non-finite, just as the vector."""
    wide = vector.astype(np.float64)
    return float(np.dot(wide, wide))


def exact_products(matrix: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns the product of each row with a vector, exact to float64.

    Equal rows have equal products, wherever they stand: unlike BLAS, this adds up each row by
    itself, and always in the same order.

    Args:
        matrix: float32 [n, d].
        vector: float32 [d].
    """
    products: NDArray[np.float64] = np.einsum(
        "ij,j->i", matrix.astype(np.float64), vector.astype(np.float64)
    )
    return products


def damping(similarity: float) -> float:
    """Returns the factor by which a context's weight shrinks as it repeats the question, 0 … 1.

    History that is close to the question already says the same; weighting it more was measured to
    be worse than leaving it out, so the factor falls with the cosine.
    """
    return 1.0 - min(max((similarity - _DAMP_FROM) / _DAMP_OVER, 0.0), 1.0)


def blend(
    main: NDArray[np.float32],
    contexts: Sequence[ContextText],
    embedded: Sequence[NDArray[np.float32]],
) -> NDArray[np.float32]:
    """Adds weighted context vectors to a query's vector and normalises the sum.

    Args:
        main: float32 [d], normalised.
        contexts: The contexts, whose `semantic` weights and `damp` flags count.
        embedded: Their vectors, float32 [d] each, normalised.

    Returns:
        float32 [d], normalised; `main` itself without contexts, or if the sum vanishes.
    """
    if not contexts:
        return main
    total = main.astype(np.float32, copy=True)
    for context, vector in zip(contexts, embedded, strict=True):
        weight = context.semantic
        if context.damp:
            weight *= damping(float(main @ vector))
        total += np.float32(weight) * vector
    length = float(np.linalg.norm(total))
    if length == 0.0:
        return main
    scaled: NDArray[np.float32] = (total / np.float32(length)).astype(np.float32)
    return scaled
