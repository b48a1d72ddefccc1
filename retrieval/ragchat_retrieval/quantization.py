"""Vectors in a quarter of the memory: eight bits a number and one scale a vector. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEVELS = 127


class Quantized(NamedTuple):
    """Vectors as whole numbers."""

    codes: NDArray[np.int8]
    """int8 [n, d], −127 … 127."""

    scales: NDArray[np.float32]
    """float32 [n], ≥ 0: what a code of 1 stands for in each vector."""

    def restored(self) -> NDArray[np.float32]:
        """Returns the vectors, float32 [n, d]; no number is off by more than half its scale."""
        return self.codes.astype(np.float32) * self.scales[:, np.newaxis]

    def similarities(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the inner product of each vector with a query that is not quantized.

        Args:
            query: float32 [d].

        Returns:
            float32 [n].
        """
        products: NDArray[np.float32] = self.codes.astype(np.float32) @ query
        return products * self.scales


def quantize(vectors: NDArray[np.float32]) -> Quantized:
    """Rounds vectors to eight bits, symmetrically about zero, each by its largest number.

    Args:
        vectors: float32 [n, d], finite; a row of zeros stays one.

    Raises:
        InvalidSetting: It is no matrix, or holds NaN or infinity.
    """
    rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2:  # noqa: PLR2004 - a matrix
        raise InvalidSetting("vectors", "must be a matrix, one row a vector")
    if not np.isfinite(rows).all():
        raise InvalidSetting("vectors", "must be finite")
    peaks = np.abs(rows).max(axis=1, initial=0.0)
    scales = (peaks / _LEVELS).astype(np.float32)
    steps = np.where(scales > 0, scales, 1)[:, np.newaxis]
    codes = np.clip(np.rint(rows / steps), -_LEVELS, _LEVELS).astype(np.int8)
    return Quantized(codes, scales)
