"""Diversification of a ranked list: MMR, a cap per document, near-duplicate removal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ragchat_retrieval.errors import InvalidCandidates, InvalidSetting, InvalidVector
from ragchat_retrieval.vectors import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray


_BLOCK = 256
"""Candidates whose near-duplicates are looked for in one product of matrices, which takes a tenth
of the time of a product with the vector of each."""

WHOLE = 8_192
"""Candidates all of whose similarities may be held in memory at once, 256 MiB."""

_SHARE = 8
"""From every eighth candidate on, all similarities together cost less than those of the taken."""


class Selection(NamedTuple):
    """One step of MMR."""

    position: int
    """Position in the input."""

    relevance: float
    max_similarity: float
    score: float


def mmr(
    relevance: Sequence[float], vectors: NDArray[np.float32], lam: float, limit: int | None = None
) -> list[Selection]:
    """Orders candidates by maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998).

    Each step takes the candidate with the highest ``λ · relevance − (1 − λ) · max similarity`` to
    anything taken before; ties keep the input's order. Negative similarity counts as 0. Each step
    costs one product of `vectors` with the one taken; where many are taken of up to 8,192, one
    product of matrices serves all steps. Taking all of more than that takes minutes: a search
    diversifies the best 8,192.

    Args:
        relevance: Finite scores [n], comparable with cosines (0 … 1).
        vectors: float32 [n, d], rows L2-normalised; a row of zeros is similar to nothing.
        lam: 0 is all diversity, 1 all relevance.
        limit: How many to take; None takes all.

    Raises:
        InvalidSetting: `lam` lies outside 0 … 1.
        InvalidCandidates: A relevance is not finite, or there is not one vector for each.
        InvalidVector: A vector is not finite.
    """
    if not 0.0 <= lam <= 1.0:
        raise InvalidSetting("mmr", "must lie in 0 … 1")
    n = len(relevance)
    score_of = np.asarray(relevance, dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != n:  # noqa: PLR2004 - a matrix
        raise InvalidCandidates(f"vectors of shape {vectors.shape} for {n} scores", stage="mmr")
    if not np.isfinite(score_of).all():
        raise InvalidCandidates("a relevance is not finite", stage="mmr")
    if not np.isfinite(vectors).all():
        first = int(np.argmin(np.isfinite(vectors).all(axis=1)))
        raise InvalidVector("holds NaN or infinity", position=first)
    nearest = np.zeros(n)
    open_ = np.ones(n, dtype=bool)
    chosen: list[Selection] = []
    steps = n if limit is None else min(limit, n)
    every = vectors @ vectors.T if n <= WHOLE and steps * _SHARE >= n else None
    for _ in range(steps):
        scores = np.where(open_, lam * score_of - (1.0 - lam) * nearest, -np.inf)
        best = int(np.argmax(scores))
        chosen.append(
            Selection(best, float(score_of[best]), float(nearest[best]), float(scores[best]))
        )
        open_[best] = False
        similar = vectors @ vectors[best] if every is None else every[best]
        nearest = np.maximum(nearest, similar)
    return chosen


def cap_per_group(groups: Sequence[Hashable], most: int) -> list[int]:
    """Returns the positions that stay when at most `most` members of each group may, in order.

    Raises:
        InvalidSetting: `most` is below 1.
    """
    if most < 1:
        raise InvalidSetting("per_document", "must be 1 or more")
    seen: dict[Hashable, int] = {}
    kept = []
    for position, group in enumerate(groups):
        seen[group] = seen.get(group, 0) + 1
        if seen[group] <= most:
            kept.append(position)
    return kept


def drop_near_duplicates(
    vectors: NDArray[np.float32], threshold: float, limit: int | None = None
) -> list[int]:
    """Returns the positions that stay when each must differ from all kept before it, in order.

    Args:
        vectors: float32 [n, d], rows L2-normalised; a row of zeros is like nothing.
        threshold: Cosine from which two passages count as the same.
        limit: How many to keep; None keeps all that differ.

    Raises:
        InvalidSetting: `threshold` lies outside 0 … 1.
    """
    if not 0.0 < threshold <= 1.0:
        raise InvalidSetting("near_duplicates", "must lie in 0 … 1, above 0")
    most = len(vectors) if limit is None else limit
    least = threshold - ROUNDING
    kept: list[int] = []
    stack = np.empty_like(vectors)
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK]
        like = np.logical_or.reduce(block @ stack[: len(kept)].T >= least, axis=1)
        within: NDArray[np.bool_] = block @ block.T >= least
        for place in range(len(block)):
            if len(kept) >= most:
                return kept
            if not like[place]:
                stack[len(kept)] = block[place]
                kept.append(start + place)
                like |= within[place]
    return kept
