"""The best of many scores, without sorting or partitioning all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_GROUPS = 1024


def top(
    scores: NDArray[np.floating[Any]], limit: int, *, floor: float, slack: float = 0.0
) -> NDArray[np.int64]:
    """Returns where the `limit` best scores stand, all ties at the cut included, in no order.

    Scores are laid in groups. As many group maxima as the limit are at least as large as the
    smallest of these maxima, so that the smallest is a lower bound of the cut; what lies above it
    is few.

    Args:
        scores: Without NaN.
        limit: How many are wanted, ≥ 1.
        floor: Only scores above it count.
        slack: Scores up to this much below the cut are returned too.
    """
    picked = _above(scores, _cut(_maxima(scores, limit), limit, slack), floor)
    if len(picked) > limit:
        kept = scores[picked]
        picked = picked[kept >= _cut(kept, limit, slack)]
    return picked


def _maxima(scores: NDArray[np.floating[Any]], limit: int) -> NDArray[np.floating[Any]]:
    groups = max(_GROUPS, 4 * limit)
    height = len(scores) // groups
    if height < 2:  # noqa: PLR2004 - a group of one is its own maximum
        return scores
    whole = height * groups
    # Groups run down the columns: a maximum over rows is one vectorised pass.
    maxima: NDArray[np.floating[Any]] = scores[:whole].reshape(height, groups).max(axis=0)
    return maxima


def _cut(scores: NDArray[np.floating[Any]], limit: int, slack: float) -> float:
    if len(scores) <= limit:
        return -np.inf
    return float(np.partition(scores, len(scores) - limit)[len(scores) - limit]) - slack


def _above(scores: NDArray[np.floating[Any]], cut: float, floor: float) -> NDArray[np.int64]:
    return (scores >= cut if cut > floor else scores > floor).nonzero()[0]


def ranked(
    rows: NDArray[np.int64],
    scores: NDArray[np.float64],
    limit: int,
    names: Callable[[NDArray[np.int64]], list[str]],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Orders rows by descending score, ties by name, and cuts.

    Args:
        rows: Rows.
        scores: Their scores.
        limit: Most rows to return.
        names: Gives the names of rows; asked only where scores are equal.
    """
    falling = -scores
    order = falling.argsort(kind="stable")
    if len(order) > limit:
        falling = falling[order]
        order = order[: falling.searchsorted(falling[limit - 1], "right")]
    rows, scores = rows[order], scores[order]
    equal = (scores[1:] == scores[:-1]).nonzero()[0]
    if len(equal):
        flags = np.zeros(len(rows), np.bool_)
        flags[equal] = flags[equal + 1] = True
        tied = flags.nonzero()[0]
        labels = names(rows[tied])
        by_name = tied[sorted(range(len(tied)), key=labels.__getitem__)]
        # In the same places, since their scores are in order already.
        rows[tied] = rows[by_name[(-scores[by_name]).argsort(kind="stable")]]
    return rows[:limit], scores[:limit]
