"""Groups of vectors that point the same way. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.vectors import ROUNDING

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROWS_AT_ONCE = 1024


def cluster(
    vectors: NDArray[np.float32], threshold: float = 0.92, *, least: int = 1
) -> list[tuple[int, ...]]:
    """Returns the connected components of vectors whose cosine is at least a threshold.

    Two vectors are in one group if a chain leads from one to the other in which each is that
    similar to the next; the two ends may be less so. Every pair is compared: the time grows with
    the square of n, the memory with n.

    Args:
        vectors: float32 [n, d], rows L2-normalised; a row of zeros is like nothing.
        threshold: Cosine from which two are linked, above 0 and at most 1; .92 suits near
            duplicates of text.
        least: Least members of a group that is returned; 2 leaves out those that stand alone.

    Returns:
        Positions in ascending order, largest group first, ties by first member.

    Raises:
        InvalidSetting: `threshold` or `least` lies outside its range, or `vectors` is no matrix or
            holds NaN or infinity.
    """
    if not 0.0 < threshold <= 1.0:
        raise InvalidSetting("threshold", "must lie in 0 … 1, above 0")
    if least < 1:
        raise InvalidSetting("least", "must be 1 or more")
    rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2:  # noqa: PLR2004 - a matrix
        raise InvalidSetting("vectors", "must be a matrix, one row a vector")
    if not np.isfinite(rows).all():
        raise InvalidSetting("vectors", "must be finite")
    labels = np.arange(len(rows))
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        # Later rows alone: a pair is looked at once.
        linked = rows[start : start + _ROWS_AT_ONCE] @ rows[start:].T >= threshold - ROUNDING
        for row in np.flatnonzero(linked.sum(axis=1) > 1):
            touched = np.unique(labels[start + np.flatnonzero(linked[row])])
            own = labels[start + row]
            joined = np.unique(np.append(touched, own))
            if len(joined) > 1:
                labels[np.isin(labels, joined)] = joined[0]
    return _groups(labels, least)


def _groups(labels: NDArray[np.int_], least: int) -> list[tuple[int, ...]]:
    members: dict[int, list[int]] = {}
    for position, label in enumerate(labels.tolist()):
        members.setdefault(label, []).append(position)
    groups = [tuple(group) for group in members.values() if len(group) >= least]
    return sorted(groups, key=lambda group: (-len(group), group[0]))
