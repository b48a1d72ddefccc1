"""How sure a difference between two rankings is: the paired bootstrap. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000
CONFIDENCE = 0.95

_CELLS = 1 << 22
"""Draws held in memory at a time, 32 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The mean difference of two rankings over the same topics, with its confidence interval."""

    mean: float
    low: float
    high: float
    topics: int
    confidence: float = CONFIDENCE

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0.0 or self.high < 0.0


def paired_bootstrap(
    scores: ArrayLike,
    baseline: ArrayLike,
    *,
    groups: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Difference:
    """Returns ``mean(scores − baseline)`` with its percentile bootstrap interval.

    Topics are drawn with replacement, both rankings together, since what makes a topic hard makes
    it hard for both (Sakai, SIGIR 2006). Turns of one conversation are no independent draws: with
    `groups`, whole groups are drawn.

    Args:
        scores: Values of a metric [n], one per topic.
        baseline: Values of the other ranking for the same topics [n].
        groups: The group of each topic [n]; None makes every topic its own.
        resamples: How many samples are drawn, 1 or more.
        confidence: Share of samples inside the interval, between 0 and 1.
        seed: Equal seeds give equal intervals.

    Raises:
        InvalidSetting: There is no topic, lengths differ, or a setting is out of range.
    """
    difference = np.asarray(scores, dtype=np.float64) - _same_length(scores, baseline)
    count = len(difference)
    if count == 0:
        raise InvalidSetting("scores", "at least one topic is needed")
    if resamples < 1:
        raise InvalidSetting("resamples", "must be 1 or more")
    if not 0.0 < confidence < 1.0:
        raise InvalidSetting("confidence", "must lie between 0 and 1")
    sums, sizes = _grouped(difference, groups)
    means = _resampled(sums, sizes, resamples, np.random.default_rng(seed))
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Difference(
        mean=float(difference.mean()),
        low=float(low),
        high=float(high),
        topics=count,
        confidence=confidence,
    )


def _same_length(scores: ArrayLike, baseline: ArrayLike) -> NDArray[np.float64]:
    mine, theirs = np.asarray(scores), np.asarray(baseline, dtype=np.float64)
    if mine.ndim != 1 or mine.shape != theirs.shape:
        raise InvalidSetting("baseline", "must have one value per topic, as scores has")
    return theirs


def _grouped(
    difference: NDArray[np.float64], groups: Sequence[str] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the sum of differences and the number of topics of each group."""
    if groups is None:
        return difference, np.ones(len(difference))
    if len(groups) != len(difference):
        raise InvalidSetting("groups", "must have one group per topic")
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    rows = np.array([numbers[group] for group in groups])
    sums = np.bincount(rows, weights=difference).astype(np.float64)
    return sums, np.bincount(rows).astype(np.float64)


def _resampled(
    sums: NDArray[np.float64],
    sizes: NDArray[np.float64],
    resamples: int,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    groups = len(sums)
    step = max(1, _CELLS // groups)
    means = np.empty(resamples)
    for start in range(0, resamples, step):
        drawn = random.integers(0, groups, size=(min(step, resamples - start), groups))
        means[start : start + step] = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    return means
