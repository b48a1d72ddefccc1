"""Fusion of the keyword and the vector lane into one order. Pure.

`Weighted` is the default. Measured over public collections it was never below the better of its
two lanes, while reciprocal rank fusion was far below it on some (``benchmarks/RESULTS.md``). What
makes the difference is score completion: every candidate of either lane is scored exactly by both,
so that a passage which one lane cut off is not counted as irrelevant to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol, overload, runtime_checkable

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.ports import Hit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ragchat_retrieval.values import Candidate

RRF_K = 60.0
"""The constant of Cormack, Clarke and Büttcher, SIGIR 2009."""

_USUAL = 500
"""Ranks whose shares are kept: most that a lane is asked for by default."""

_EXACT = 1e-9
"""Weights that add up to 1 but for rounding leave nothing."""


class Hits(Sequence[Hit]):
    """Hits as two columns, best first; one is made a `Hit` only for who looks at it.

    Args:
        ids: Passage ids, each once.
        scores: The raw lane score of each.
    """

    __slots__ = ("ids", "scores")

    def __init__(self, ids: Sequence[str], scores: Sequence[float]) -> None:
        self.ids = ids
        self.scores = scores

    @classmethod
    def of(cls, hits: Sequence[Hit]) -> Hits:
        """Returns any hits as columns; a repeated id counts where it stands first."""
        if isinstance(hits, Hits):
            return hits
        first: dict[str, float] = {}
        for id_, score in hits:
            first.setdefault(id_, score)
        return cls(list(first), list(first.values()))

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> Hits: ...
    def __getitem__(self, index: int | slice) -> Hit | Hits:
        """Returns a hit, or the hits of a slice."""
        if isinstance(index, slice):
            return Hits(self.ids[index], self.scores[index])
        return Hit(self.ids[index], self.scores[index])

    def __iter__(self) -> Iterator[Hit]:
        """Goes through the hits."""
        return map(Hit, self.ids, self.scores)

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class LaneResult:
    """What one lane returned, and what it says of the other lane's finds."""

    hits: Sequence[Hit]
    """Best first, as the store returned them."""

    completed: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Scores by passage id for candidates that only the other lane returned."""

    trust: float = 1.0
    """What share of its weight the lane is worth for this question, 0 … 1."""

    def completed_by(self, scores: Mapping[str, float]) -> LaneResult:
        """Returns the same hits with scores of what other lanes returned; the hits' own stand."""
        own = set(Hits.of(self.hits).ids)
        rest = {id_: s for id_, s in scores.items() if id_ not in own}
        return LaneResult(self.hits, rest, self.trust)

    def scores(self) -> dict[str, float]:
        """Returns all known scores by passage id."""
        hits = Hits.of(self.hits)
        return {**self.completed, **dict(zip(hits.ids, hits.scores, strict=True))}

    def ranks(self) -> dict[str, int]:
        """Returns one-based ranks by passage id."""
        return dict(zip(Hits.of(self.hits).ids, count(1), strict=False))


class Fused(NamedTuple):
    """A passage id with its fused score and each lane's part of it."""

    passage_id: str
    score: float
    keyword: float = 0.0
    vector: float = 0.0
    title: float = 0.0

    def rescored(self, score: float) -> Fused:
        """Returns the same passage with another score."""
        return Fused(self.passage_id, score, self.keyword, self.vector, self.title)


class Order(Sequence[Fused]):
    """A fused order, best first; what each lane gave is looked up only for who looks at it.

    Args:
        ids: Passage ids, each once.
        fused: Looks a passage up by its id.
        scores: Fused scores by id, of these passages and maybe others.
    """

    __slots__ = ("fused", "ids", "scores")

    def __init__(
        self, ids: Sequence[str], fused: Callable[[str], Fused], scores: Mapping[str, float]
    ) -> None:
        self.ids = ids
        self.fused = fused
        self.scores = scores

    @classmethod
    def of(cls, fused: Sequence[Fused]) -> Order:
        """Returns any fused sequence as an order; a repeated id counts where it stands first."""
        if isinstance(fused, Order):
            return fused
        known = {item.passage_id: item for item in reversed(fused)}
        scores = {id_: item.score for id_, item in known.items()}
        return cls(list(dict.fromkeys(i.passage_id for i in fused)), known.__getitem__, scores)

    @overload
    def __getitem__(self, index: int) -> Fused: ...
    @overload
    def __getitem__(self, index: slice) -> Order: ...
    def __getitem__(self, index: int | slice) -> Fused | Order:
        """Returns a passage, or the order of a slice."""
        if isinstance(index, slice):
            return Order(self.ids[index], self.fused, self.scores)
        return self.fused(self.ids[index])

    def __iter__(self) -> Iterator[Fused]:
        """Goes through the passages."""
        return map(self.fused, self.ids)

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self.ids)


@runtime_checkable
class Fusion(Protocol):
    """A rule that merges the lanes."""

    @property
    def completes(self) -> bool:
        """Whether each lane must score what only the other one returned."""
        ...

    @property
    def lanes(self) -> tuple[bool, bool]:
        """Whether the keyword and the vector lane are wanted at all."""
        ...

    def fuse(self, keyword: LaneResult | None, vector: LaneResult | None) -> Sequence[Fused]:
        """Merges the lanes that ran (None: it did not), best first, ties by passage id."""
        ...


@dataclass(frozen=True, slots=True)
class Weighted:
    """Weighted sum of each lane's scores relative to its best.

    A score contributes ``max(0, score) / best``, and 0 if the lane's best is not positive. The
    vector lane has the weight that `keyword` and `title` leave; where it is not wholly to be
    trusted (`LaneResult.trust`), the keyword lane takes what it loses. A lane of weight 0 is not
    run, and a lone lane has the weight of both.

    Raises:
        InvalidSetting: A weight lies outside 0 … 1, both together are more than 1, or all the
            weight is the title's.
    """

    keyword: float = 0.3
    """Weight of the keyword lane: 0 is none, 1 all keywords."""

    title: float = field(default=0.0, kw_only=True)
    """Weight of the share of the question that stands in a passage's title or file name, 0 … 1
    (`ragchat_retrieval.titles`). It moves what the lanes found and finds nothing by itself."""

    complete: bool = field(default=True, kw_only=True)
    """False leaves a missing score at 0, the classic blend."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.keyword <= 1.0:  # also refuses NaN
            raise InvalidSetting("Weighted.keyword", "must lie in 0 … 1")
        if not 0.0 <= self.title < 1.0:
            raise InvalidSetting("Weighted.title", "must be 0 or more, and less than 1")
        if self.keyword + self.title > 1.0 + _EXACT:
            raise InvalidSetting("Weighted.title", "must leave room for the weight of keyword")

    @property
    def vector(self) -> float:
        """Weight of the vector lane: what the other two leave."""
        rest = 1.0 - self.keyword - self.title
        return rest if rest > _EXACT else 0.0

    @property
    def completes(self) -> bool:
        """Whether missing scores are asked for."""
        return self.complete

    @property
    def lanes(self) -> tuple[bool, bool]:
        """Whether the keyword and the vector lane have any weight."""
        return self.keyword > 0.0, self.vector > 0.0

    def fuse(
        self,
        keyword: LaneResult | None,
        vector: LaneResult | None,
        titles: Mapping[str, float] | None = None,
    ) -> Order:
        """Merges the lanes; fused scores lie in 0 … 1.

        Args:
            keyword: The keyword lane; None if it did not run.
            vector: The vector lane; likewise.
            titles: Shares of the question in titles, 0 … 1, by passage id. None if they are not
                known: the lanes then have the title's weight too.
        """
        lanes = weight = 1.0 if titles is None else 1.0 - self.title
        if keyword is not None and vector is not None:
            share = self.keyword / (1.0 - self.title)
            weight = (share + (1.0 - share) * (1.0 - vector.trust)) * lanes
        lexical = _relative(keyword, weight)
        semantic = _relative(vector, weight if keyword is None else max(0.0, lanes - weight))
        named = {id_: self.title * share for id_, share in (titles or {}).items()}
        return _ordered(lexical, semantic, named)


@dataclass(frozen=True, slots=True)
class RRF:
    """Reciprocal rank fusion: the sum over lanes of ``1 / (k + rank)``, ranks from 1.

    A lane that did not return a passage contributes nothing; scores play no part. A `k` that is not
    positive and finite means 60.
    """

    k: float = RRF_K

    def __post_init__(self) -> None:
        if not (math.isfinite(self.k) and self.k > 0):
            object.__setattr__(self, "k", RRF_K)

    @property
    def completes(self) -> bool:
        """Ranks need no completion."""
        return False

    @property
    def lanes(self) -> tuple[bool, bool]:
        """Both lanes count."""
        return True, True

    def fuse(self, keyword: LaneResult | None, vector: LaneResult | None) -> Order:
        """Merges the lanes by rank."""
        rankings = [() if lane is None else Hits.of(lane.hits).ids for lane in (keyword, vector)]
        scores = _reciprocal(rankings, [1.0, 1.0], self.k)

        @cache
        def parts() -> list[dict[str, float]]:
            return [_reciprocal([ranking], [1.0], self.k) for ranking in rankings]

        def fused(id_: str) -> Fused:
            return Fused(id_, scores[id_], *(part.get(id_, 0.0) for part in parts()))

        return Order(_best_first(scores), fused, scores)


def fuse_rankings(
    rankings: Sequence[Sequence[str]], *, weights: Sequence[float] | None = None, k: float = RRF_K
) -> dict[str, float]:
    """Fuses any number of rankings by weighted reciprocal rank.

    Args:
        rankings: Ids, best first; a repeated id counts where it stands first.
        weights: One factor per ranking; None is 1 for each.
        k: The constant, as in `RRF`.

    Returns:
        Fused scores by id, best first, ties by id.
    """
    distinct = [list(dict.fromkeys(ranking)) for ranking in rankings]
    factors = [float(weight) for weight in weights or [1.0] * len(rankings)]
    scores = _reciprocal(distinct, factors, RRF(k).k)
    return {id_: scores[id_] for id_ in _best_first(scores)}


def fuse_wordings(rankings: Sequence[Sequence[str]]) -> dict[str, float]:
    """Fuses the rankings of a question and its other wordings; returns as `fuse_rankings`.

    Reciprocal ranks, because scores of different queries are not comparable; the question itself,
    which comes first, counts double.
    """
    return fuse_rankings(rankings, weights=_of_wordings(rankings))


def fuse_orders(orders: Sequence[Order]) -> Order:
    """Merges the orders of a question, which comes first, and its other wordings.

    What a passage got from the lanes is told by the first order that holds it.
    """

    @cache
    def owners() -> Mapping[str, Order]:
        return {id_: order for order in reversed(orders) for id_ in order.ids}

    scores = _reciprocal([order.ids for order in orders], _of_wordings(orders), RRF_K)

    def fused(id_: str) -> Fused:
        return owners()[id_].fused(id_).rescored(scores[id_])

    return Order(_best_first(scores), fused, scores)


def fuse_candidates(
    rows: Sequence[Sequence[Candidate]],
    rule: Callable[[Sequence[Sequence[str]]], Mapping[str, float]] = fuse_wordings,
) -> list[Candidate]:
    """Merges lists of candidates; a passage is taken from the first list that holds it.

    Args:
        rows: Candidates, best first.
        rule: Gives the fused scores by id, best first.
    """
    known = {c.passage.id: c for row in reversed(rows) for c in reversed(row)}
    scores = rule([[c.passage.id for c in row] for row in rows])
    return [replace(known[id_], score=score) for id_, score in scores.items()]


def _of_wordings(rankings: Sequence[object]) -> list[float]:
    """Returns the weights of a question's wordings."""
    return [2.0] + [1.0] * (len(rankings) - 1)


def _reciprocal(
    rankings: Sequence[Sequence[str]], weights: Sequence[float], k: float
) -> dict[str, float]:
    """Adds up ``weight / (k + rank)`` by id, over rankings that hold an id once each."""
    scores: dict[str, float] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        for id_, share in zip(ranking, _shares(len(ranking), k, weight), strict=False):
            scores[id_] = scores[id_] + share if id_ in scores else share
    return scores


def _shares(count: int, k: float, weight: float) -> Sequence[float]:
    """Returns ``weight / (k + rank)`` of so many ranks, or of more."""
    if count <= _USUAL:
        return _usual_shares(k, weight)
    return [weight / (k + rank) for rank in range(1, count + 1)]


@lru_cache(maxsize=16)
def _usual_shares(k: float, weight: float) -> Sequence[float]:
    return [weight / (k + rank) for rank in range(1, _USUAL + 1)]


def _relative(lane: LaneResult | None, weight: float) -> dict[str, float]:
    scores = {} if lane is None else lane.scores()
    best = max(scores.values(), default=0.0)
    if best <= 0.0:
        return dict.fromkeys(scores, 0.0)
    # The share first: weight × a subnormal score would round to nothing, the best one's too.
    return {id_: weight * (score / best) if score > 0.0 else 0.0 for id_, score in scores.items()}


def _ordered(
    lexical: Mapping[str, float], semantic: Mapping[str, float], named: Mapping[str, float]
) -> Order:
    """Adds up what was found by either lane, best first, ties by passage id."""
    scores = {**lexical, **semantic}
    for id_ in lexical.keys() & semantic.keys():
        scores[id_] = lexical[id_] + semantic[id_]
    for id_ in named.keys() & scores.keys():
        scores[id_] += named[id_]

    def fused(id_: str) -> Fused:
        keyword, vector, title = lexical.get(id_, 0.0), semantic.get(id_, 0.0), named.get(id_, 0.0)
        return Fused(id_, scores[id_], keyword, vector, title)

    return Order(_best_first(scores), fused, scores)


def _best_first(scores: Mapping[str, float]) -> list[str]:
    """Returns ids by descending score, ties by id."""
    # Two sorts of plain values are much faster than one of pairs.
    return sorted(sorted(scores), key=scores.__getitem__, reverse=True)
