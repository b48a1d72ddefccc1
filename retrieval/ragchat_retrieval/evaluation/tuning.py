"""Choosing settings on one part of the topics and judging the choice on the other.

The lanes are read once, as deep as the deepest setting; every other setting is computed from them,
so that a grid of hundreds costs little more than one pass. Scores of a reranker are asked for once
per topic and passage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.evaluation.bootstrap import Difference, paired_bootstrap
from ragchat_retrieval.evaluation.evaluating import DEPTH, PATIENT, fused_by
from ragchat_retrieval.evaluation.grid import Grid, Setting
from ragchat_retrieval.evaluation.metrics import Metric
from ragchat_retrieval.evaluation.result import check_topics
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.fusion import LaneResult, Weighted
from ragchat_retrieval.kinds import check_index
from ragchat_retrieval.options import SearchOptions
from ragchat_retrieval.policy import Run
from ragchat_retrieval.rerank import Rerank, RerankDefaults
from ragchat_retrieval.stages import call_stage, check_listener
from ragchat_retrieval.values import Candidate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ragchat_retrieval.evaluation.collection import Topic
    from ragchat_retrieval.evaluation.evaluating import Asker
    from ragchat_retrieval.fusion import Order
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.merging import Ranking
    from ragchat_retrieval.ports import Reranker
    from ragchat_retrieval.values import Passage, Query

_AT_ONCE = 64
"""Topics whose lanes are read in one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a setting did on the topics that the choice was made on."""

    setting: Setting
    value: float
    """Mean of the metric."""

    scored: float = 0.0
    """Passages that the reranker had to score, per topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The choice, and what it is worth on topics that it has not seen."""

    metric: Metric
    default: Setting
    """What the index does without tuning; the library's weight if it does not fuse by weight."""

    best: Setting
    trials: tuple[Trial, ...] = field(repr=False)
    """Best first; among equals the one that scores fewer passages, then the nearest to the default,
    comes first."""

    tuned_on: tuple[str, ...] = field(repr=False)
    held_out: tuple[str, ...] = field(repr=False)
    default_value: float
    """Mean of the metric on the held-out topics, with the default."""

    best_value: float
    """The same with the choice."""

    gain: Difference
    """Choice minus default on the held-out topics."""

    @property
    def recommended(self) -> Setting:
        """The choice if it is clearly better on topics that it has not seen, else the default."""
        return self.best if self.gain.low > 0.0 else self.default


async def tune(
    index: HybridIndex,
    topics: Sequence[Topic],
    *,
    grid: Grid | None = None,
    metric: Metric | str = "ndcg@10",
    rerank: Rerank | Reranker | None = None,
    keyword: float | None = None,
    top_k: int = DEPTH,
    held_out: float = 0.5,
    seed: int = 0,
    ask: Asker | None = None,
    on_progress: Callable[[float], object] | None = None,
) -> Tuning:
    """Tries every setting of a grid on a part of the topics, and the best on the rest.

    Fewer candidates are taken as the beginning of more, which is exact for a store that searches
    exactly. A reranker's score is taken to depend on question and passage only; one that compares
    candidates with each other, as a chat model does, is tuned approximately. With one lane only
    (no embedder, or no vectors) the weight stays as it is; where the embedder cannot read some of
    the questions, a weight of 0 is not tried. Titles have the weights that the grid says, by
    default none.

    Args:
        index: The index.
        topics: At least two that share no conversation.
        grid: What to try; None is `Grid()`.
        metric: What to raise.
        rerank: A reranker, with its pool; its weight and margin are the default to beat.
        keyword: The keyword weight to beat, with none for titles; None is the index's own weights.
        top_k: How many candidates a search returns, for the default number of candidates and pool.
        held_out: Share of the topics to judge the choice on, between 0 and 1. Topics of one
            conversation stay together.
        seed: Equal seeds split equally.
        ask: Makes a topic's query; None takes the topic's own.
        on_progress: Hears floats 0 … 1, never falling, 1.0 last.

    Raises:
        InvalidSetting: A setting is out of range, the topics cannot be split, there is no index, or
            `on_progress` is async.
        RetrievalError: A search failed.
    """
    check_index("index", index)
    check_listener("on_progress", on_progress)
    chosen, tried = Metric.of(metric), grid or Grid()
    step = rerank if rerank is None or isinstance(rerank, Rerank) else Rerank(rerank)
    tell = on_progress or _ignore
    tell(0.0)
    default = _default(index, keyword, step, top_k)
    check_topics(topics)
    training, test = split(topics, held_out, seed=seed)
    deepest = max(*tried.candidates, default.candidates)
    titles = 0.1 if any((*tried.title, default.title)) else 0.0  # any weight has them read
    fusion = Weighted(keyword=0.5, title=titles)
    options = SearchOptions(top_k=top_k, candidates=deepest, fusion=fusion)
    lanes = await _read_lanes(index, topics, ask, options, lambda share: tell(share / 2))
    bench = _Bench(index, lanes, chosen, step, top_k)
    hybrid = sum(r.keyword is not None and r.vector is not None for r in lanes.values())
    if hybrid < len(lanes):
        weights = [weight for weight in tried.keyword if weight > 0] if hybrid else []
        tried = replace(tried, keyword=weights or [default.keyword])
    settings = tried.settings(rerank=step is not None)
    trials = []
    for position, setting in enumerate(settings, start=1):
        values = [await bench.value(topic, setting) for topic in training]
        scored = sum(count for _, count in values) / len(values)
        mean = float(np.mean([value for value, _ in values]))
        trials.append(Trial(setting=setting, value=mean, scored=scored))
        tell(0.5 + position / len(settings) / 2)
    trials.sort(key=lambda t: (-round(t.value, 9), t.scored, t.setting.distance(default)))
    best = trials[0].setting
    mine = [(await bench.value(topic, best))[0] for topic in test]
    theirs = [(await bench.value(topic, default))[0] for topic in test]
    return Tuning(
        metric=chosen,
        default=default,
        best=best,
        trials=tuple(trials),
        tuned_on=tuple(topic.id for topic in training),
        held_out=tuple(topic.id for topic in test),
        default_value=float(np.mean(theirs)),
        best_value=float(np.mean(mine)),
        gain=paired_bootstrap(mine, theirs, groups=[topic.group for topic in test], seed=seed),
    )


def split(
    topics: Sequence[Topic], held_out: float, *, seed: int = 0
) -> tuple[list[Topic], list[Topic]]:
    """Splits topics at random into those to tune on and those held out, both in their old order.

    Whole conversations are dealt out until the share is reached; neither part is left empty.

    Raises:
        InvalidSetting: The share is not between 0 and 1, or all topics are one conversation.
    """
    if not 0.0 < held_out < 1.0:
        raise InvalidSetting("held_out", "must lie between 0 and 1")
    groups = sorted({topic.group for topic in topics})
    if len(groups) < 2:  # noqa: PLR2004 - one for each part
        raise InvalidSetting("topics", "two that share no conversation are needed to tune")
    order = np.random.default_rng(seed).permutation(len(groups))
    sizes = dict.fromkeys(groups, 0)
    for topic in topics:
        sizes[topic.group] += 1
    kept: set[str] = set()
    count = 0
    for position in order[:-1]:
        if kept and count >= held_out * len(topics):
            break
        group = groups[position]
        kept.add(group)
        count += sizes[group]
    return [t for t in topics if t.group not in kept], [t for t in topics if t.group in kept]


async def _read_lanes(
    index: HybridIndex,
    topics: Sequence[Topic],
    ask: Asker | None,
    options: SearchOptions,
    tell: Callable[[float], object],
) -> dict[str, Ranking]:
    """Returns both lanes of every topic, each scoring what only the other one found."""
    searcher = await index.searcher()
    lanes: dict[str, Ranking] = {}
    for start in range(0, len(topics), _AT_ONCE):
        batch = topics[start : start + _AT_ONCE]
        queries: list[Query] = [t.query if ask is None else await call_stage(ask, t) for t in batch]
        asked = [options.bound(query) for query in queries]
        rankings = await searcher.rank(asked, options, Run(PATIENT))
        lanes |= {topic.id: ranking for topic, ranking in zip(batch, rankings, strict=True)}
        tell(min(1.0, (start + _AT_ONCE) / len(topics)))
    return lanes


class _Bench:
    """Computes what a search would have returned with other settings."""

    def __init__(
        self,
        index: HybridIndex,
        lanes: dict[str, Ranking],
        metric: Metric,
        rerank: Rerank | None,
        top_k: int,
    ) -> None:
        self._index = index
        self._lanes = lanes
        self._metric = metric
        self._rerank = rerank
        self._top_k = top_k
        self._scorer = None if rerank is None else _Remembering(rerank.scorer)
        self._passages: dict[str, Passage] = {}
        self._fusing: tuple[float, float, int] | None = None
        self._fused: dict[str, Order] = {}
        """Orders by topic, of the weights and number of candidates at hand only: all would be
        millions."""

    async def value(self, topic: Topic, setting: Setting) -> tuple[float, int]:
        """Returns the metric for a topic, and how many passages the reranker had to score."""
        ranking = self._lanes[topic.id]
        fused = self._fuse(topic.id, ranking, setting)
        if self._rerank is None or self._scorer is None:
            ids = [item.passage_id for item in fused]
            await self._read(ids)
            return self._metric(self._documents(ids), topic.grades), 0
        await self._read([item.passage_id for item in fused])
        candidates = [
            Candidate(self._passages[item.passage_id], item.score)
            for item in fused
            if item.passage_id in self._passages
        ]
        step = replace(self._rerank, scorer=self._scorer, weight=setting.rerank_weight)
        # A margin of infinity is never reached, whereas None would mean the scorer's own.
        step = replace(step, margin=float("inf") if setting.margin is None else setting.margin)
        outcome = await step(ranking.query, candidates, self._top_k)
        ids = [candidate.passage.id for candidate in outcome.candidates]
        return self._metric(self._documents(ids), topic.grades), outcome.scored

    def _fuse(self, topic: str, ranking: Ranking, setting: Setting) -> Order:
        at_hand = (setting.keyword, setting.title, setting.candidates)
        if self._fusing != at_hand:
            self._fusing = at_hand
            self._fused.clear()
        if topic not in self._fused:
            lanes = shallower(ranking.keyword, ranking.vector, setting.candidates)
            titles = ranking.title if setting.title else None
            self._fused[topic] = fused_by(setting.fusion, *lanes, titles)
        return self._fused[topic]

    async def _read(self, ids: Sequence[str]) -> None:
        wanted = [id_ for id_ in ids if id_ not in self._passages]
        if wanted:
            self._passages.update(await self._index.store.get(wanted, scope=Filter()))

    def _documents(self, ids: Sequence[str]) -> list[str]:
        known = (self._passages[id_] for id_ in ids if id_ in self._passages)
        return [passage.document_id or passage.id for passage in known]


class _Remembering:
    """A scorer that is asked once per question and passage."""

    def __init__(self, scorer: Reranker) -> None:
        self._scorer = scorer
        self._known: dict[Query, dict[str, float]] = {}
        self.rerank_defaults: RerankDefaults = getattr(scorer, "rerank_defaults", RerankDefaults())

    async def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[float]:
        known = self._known.setdefault(query, {})
        new = [c for c in candidates if c.passage.id not in known]
        if new:
            given: Sequence[float] = await call_stage(self._scorer, query, new)
            scores = list(given)
            if len(scores) != len(new):
                return scores  # the caller says what is wrong with it
            known |= {c.passage.id: score for c, score in zip(new, scores, strict=True)}
        return [known[c.passage.id] for c in candidates]


def shallower(
    keyword: LaneResult | None, vector: LaneResult | None, limit: int
) -> tuple[LaneResult | None, LaneResult | None]:
    """Returns the lanes as they would be with a lower limit, completed among themselves."""
    return _cut(keyword, vector, limit), _cut(vector, keyword, limit)


def _cut(lane: LaneResult | None, other: LaneResult | None, limit: int) -> LaneResult | None:
    if lane is None:
        return None
    hits, scores = lane.hits[:limit], lane.scores()
    inside = {hit.passage_id for hit in hits}
    theirs = [hit.passage_id for hit in ([] if other is None else other.hits[:limit])]
    rest = {id_: scores[id_] for id_ in theirs if id_ in scores and id_ not in inside}
    return LaneResult(hits, rest, lane.trust)


def _default(
    index: HybridIndex, keyword: float | None, rerank: Rerank | None, top_k: int
) -> Setting:
    own_fusion = index.fusion if isinstance(index.fusion, Weighted) else Weighted()
    beaten = own_fusion if keyword is None else Weighted(keyword=keyword)
    setting = Setting(
        keyword=beaten.keyword,
        title=beaten.title,
        candidates=SearchOptions(top_k=top_k).lane_limit,
    )
    if rerank is None:
        return setting
    own: RerankDefaults = getattr(rerank.scorer, "rerank_defaults", RerankDefaults())
    return replace(
        setting,
        rerank_weight=own.weight if rerank.weight is None else rerank.weight,
        margin=own.margin if rerank.margin is None else rerank.margin,
    )


def _ignore(share: float) -> None:
    del share
