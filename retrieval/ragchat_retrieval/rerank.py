"""Reranking: a scorer's verdict on the best candidates, checked whole before anything moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidSetting, MalformedRanking
from ragchat_retrieval.explain import RerankExplanation
from ragchat_retrieval.kinds import check_callable
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.values import Candidate, Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragchat_retrieval.explain import Explanation
    from ragchat_retrieval.ports import Reranker


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankDefaults:
    """What a scorer knows to work best with it; it offers them as ``rerank_defaults``."""

    weight: float = 1.0
    margin: float | None = None
    least_pool: int | None = None
    """The pool is max(top_k, least_pool); None is every candidate."""


_PLAIN = RerankDefaults()

_COMPARED = 2
"""The margin is that between the best two."""


@dataclass(frozen=True, slots=True)
class Rerank:
    """When and how far to trust a reranker.

    Raises:
        InvalidSetting: A value lies outside its range, or the scorer cannot be called.
    """

    scorer: Reranker
    """``(Query, Sequence[Candidate]) -> Sequence[float]``, sync or async."""

    weight: float | None = field(default=None, kw_only=True)
    """Share of the reranker's score in the blend, 0 … 1; None takes the scorer's default."""

    margin: float | None = field(default=None, kw_only=True)
    """Skip when (best − second) / best of the first stage is at least this; None never skips."""

    pool: int | None = field(default=None, kw_only=True)
    """How many candidates are scored; the others follow in their old order. None is all."""

    def __post_init__(self) -> None:
        check_callable("Rerank.scorer", self.scorer, "callable with a query and candidates")
        if self.weight is not None and not 0.0 <= self.weight <= 1.0:
            raise InvalidSetting("Rerank.weight", "must lie in 0 … 1")
        if self.margin is not None and not self.margin >= 0.0:
            raise InvalidSetting("Rerank.margin", "must be 0 or more")
        if self.pool is not None and self.pool < 1:
            raise InvalidSetting("Rerank.pool", "must be 1 or more")

    async def __call__(
        self, query: Query, candidates: Sequence[Candidate], top_k: int | None = None
    ) -> Reranked:
        """Scores the pool and reorders.

        Args:
            query: The question.
            candidates: Best first.
            top_k: How many the caller will keep, for the size of the pool. Nothing is cut here.

        Returns:
            All candidates in their new order, and which of them the scorer saw.

        Raises:
            MalformedRanking: The scores are not exactly one finite number in 0 … 1 each.
        """
        defaults, pool = self._defaults, self._pool_of(top_k)
        margin = defaults.margin if self.margin is None else self.margin
        if not candidates or (margin is not None and _decided(candidates, margin)):
            return Reranked(tuple(candidates), 0)
        # A scorer that sorted or cut its input would give its scores to other candidates.
        head = tuple(candidates[:pool])
        tail = candidates[len(head) :]
        scores = check_scores(await call_stage(self.scorer, query, head), len(head))
        weight = defaults.weight if self.weight is None else self.weight
        return _reordered(head, tail, scores, weight)

    def depth_of(self, top_k: int) -> int | None:
        """Returns how many of the best candidates bear on the first top_k; None is all."""
        pool = self._pool_of(top_k)
        return None if pool is None else max(pool, top_k, _COMPARED)

    @property
    def _defaults(self) -> RerankDefaults:
        defaults: RerankDefaults = getattr(self.scorer, "rerank_defaults", _PLAIN)
        return defaults

    def _pool_of(self, top_k: int | None) -> int | None:
        least = self._defaults.least_pool
        if self.pool is None and least is not None:
            return max(top_k or 0, least)
        return self.pool


@dataclass(frozen=True, slots=True)
class Reranked:
    """The outcome of a rerank."""

    candidates: tuple[Candidate, ...]
    scored: int
    """How many of the first ones the scorer saw; 0 when it was sure without."""

    scores: tuple[float, ...] = ()
    """The scorer's own scores of those, in the new order."""


async def rerank(
    query: Query | str,
    candidates: Sequence[Candidate],
    scorer: Rerank | Reranker,
    top_k: int | None = None,
) -> tuple[Candidate, ...]:
    """Reranks candidates without an index.

    Args:
        query: The question.
        candidates: Best first, from anywhere.
        scorer: A `Rerank`, or a bare scorer (weight 1, no margin, all candidates).
        top_k: How many to keep; None keeps all. Every candidate is scored before the cut.

    Raises:
        MalformedRanking: The scores are not exactly one finite number in 0 … 1 each.
    """
    step = scorer if isinstance(scorer, Rerank) else Rerank(scorer)
    asked = query if isinstance(query, Query) else Query(query)
    outcome = await step(asked, candidates, top_k)
    return outcome.candidates[: None if top_k is None else max(top_k, 0)]


def check_scores(scores: Sequence[float], expected: int) -> list[float]:
    """Returns the scores as floats if they are exactly one finite number in 0 … 1 per candidate.

    Raises:
        MalformedRanking: Otherwise, naming the first fault.
    """
    # A mapping or a set can be iterated as well, but tells no score by its candidate.
    if isinstance(scores, Mapping | AbstractSet) or not isinstance(scores, Iterable):
        raise MalformedRanking("a reranker must return a sequence of scores")
    try:
        given = list(scores)
    except TypeError:  # an array without dimensions
        raise MalformedRanking("a reranker must return a sequence of scores") from None
    if len(given) != expected:
        raise MalformedRanking(f"{len(given)} scores for {expected} candidates")
    for position, score in enumerate(given):
        if isinstance(score, bool) or not isinstance(score, (float, Real)):
            raise MalformedRanking(f"the score of candidate {position} is no number")
        if not 0.0 <= score <= 1.0:  # nor is NaN inside
            raise MalformedRanking(f"the score of candidate {position} lies outside 0 … 1")
    return [float(score) for score in given]


def _decided(candidates: Sequence[Candidate], margin: float) -> bool:
    best = candidates[0].score
    second = candidates[1].score if len(candidates) > 1 else 0.0
    return best > 0.0 and (best - second) / best >= margin


def _reordered(
    head: Sequence[Candidate], tail: Sequence[Candidate], scores: Sequence[float], weight: float
) -> Reranked:
    best = max((candidate.score for candidate in head), default=0.0)
    blended = [
        weight * score + (1.0 - weight) * (max(0.0, candidate.score) / best if best > 0 else 0.0)
        for candidate, score in zip(head, scores, strict=True)
    ]
    # Stable, reversed or not: ties keep their order.
    order = sorted(range(len(head)), key=blended.__getitem__, reverse=True)
    new = [
        Candidate(
            head[i].passage,
            blended[i],
            explain=_explained(head[i].explain, rank_in=i + 1, score=scores[i], rank_out=rank),
        )
        for rank, i in enumerate(order, start=1)
    ]
    # What was not scored comes after, so its score may not exceed that of anything before it.
    floor = min(blended)
    new += [Candidate(c.passage, min(c.score, floor), explain=c.explain) for c in tail]
    return Reranked(tuple(new), len(head), tuple(scores[i] for i in order))


def _explained(
    explain: Explanation | None, *, rank_in: int, score: float, rank_out: int
) -> Explanation | None:
    if explain is None:
        return None
    step = RerankExplanation(rank_in=rank_in, score=score, rank_out=rank_out)
    return replace(explain, rerank=step)
