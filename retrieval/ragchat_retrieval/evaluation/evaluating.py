"""Running a retriever over topics, and seeing every order that its searches go through.

One search per topic gives all: its watcher sees both lanes, their fusion and the steps after it,
and other fusions are computed from the same lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.evaluation.metrics import DEFAULT_METRICS, Metric
from ragchat_retrieval.evaluation.result import Evaluation, check_topics
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.foreign import candidates_of, for_foreign
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.kinds import check_callable
from ragchat_retrieval.merging import fused_lanes
from ragchat_retrieval.policy import Policy, Run, running
from ragchat_retrieval.stages import call_stage, check_listener
from ragchat_retrieval.tasks import each
from ragchat_retrieval.values import SearchResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from ragchat_retrieval.evaluation.collection import Topic
    from ragchat_retrieval.fusion import Fusion, LaneResult, Order
    from ragchat_retrieval.merging import Ranking
    from ragchat_retrieval.ports import Retriever, Store
    from ragchat_retrieval.trace import Degradation
    from ragchat_retrieval.values import Candidate, Query

    Asker = Callable[[Topic], Query | Awaitable[Query]]

STAGES = ("keyword", "vector", "fused", "reranked", "diversified", "final")
DEPTH = 10
"""How many candidates an index is asked for where the retriever does not say."""

PATIENT = Policy.strict(deadline=None, timeout=None)
"""Measuring is in no hurry, and a stage left out would be measured as if it were there."""


async def evaluate(
    retriever: HybridIndex | Retriever,
    topics: Sequence[Topic],
    *,
    metrics: Sequence[Metric | str] = DEFAULT_METRICS,
    fusions: Mapping[str, Fusion] | None = None,
    ask: Asker | None = None,
    policy: Policy = PATIENT,
    on_progress: Callable[[float], object] | None = None,
) -> Evaluation:
    """Searches for every topic and keeps what each stage made of it.

    The rankings are of documents: a passage stands for its document (for itself if it has none).
    Lanes and fusion are ranked as deep as the lanes were read, later stages as deep as they go.
    ``final`` is there only where the result is not simply the beginning of the stage before it. A
    retriever that searches several indexes, or none of ours, has ``final`` only.

    Args:
        retriever: A retriever; an index stands for ``index.retriever(top_k=10)``.
        topics: What to ask, one or more.
        metrics: What the evaluation shows.
        fusions: Other fusions to rank the same lanes by, by name. They see what the search's own
            fusion made the lanes return, titles only if it gives them weight, and no
            `min_similarity`.
        ask: Makes a topic's query, as from a conversation; None takes the topic's own.
        policy: By default a failing stage raises, and nothing times out.
        on_progress: Hears floats 0 … 1, never falling, 1.0 last.

    Raises:
        InvalidSetting: There is no topic, two share an id, a grade is no whole number up to 60, or
            a fusion is named like a stage, the retriever cannot be called, or `on_progress` is
            async.
        RetrievalError: A search failed.
    """
    if not isinstance(retriever, HybridIndex):
        check_callable("retriever", retriever, "an index or a retriever, as index.retriever() is")
    check_listener("on_progress", on_progress)
    others = dict(fusions or {})
    for name in others:
        if name in STAGES:
            raise InvalidSetting("fusions", f"{name!r} is the name of a stage")
    check_topics(topics)
    source = retriever.retriever(top_k=DEPTH) if isinstance(retriever, HybridIndex) else retriever
    tell = on_progress or _ignore
    tell(0.0)
    known = _Owners()
    done = 0

    async def one(topic: Topic) -> _Seen:
        nonlocal done
        seen = await _search(source, topic, ask, policy)
        await seen.name_documents(known, others)
        done += 1
        tell(done / len(topics))
        return seen

    rows = await each(topics, one)
    rankings = _rankings(rows, others)
    return Evaluation(
        topics=tuple(topics),
        rankings=rankings,
        main=[name for name in rankings if name in STAGES][-1],
        metrics=tuple(map(Metric.of, metrics)),
        degraded=_counted(row.degraded for row in rows),
    )


@dataclass(slots=True, eq=False)
class _Seen:
    """What one search went through; the watcher of its run."""

    searches: list[tuple[Ranking, Store]] = field(default_factory=list)
    steps: dict[str, list[str]] = field(default_factory=dict)
    final: list[str] = field(default_factory=list)
    orders: dict[str, list[str]] = field(default_factory=dict)
    """Document ids by stage or fusion."""

    degraded: tuple[Degradation, ...] = ()

    def lanes(self, ranking: Ranking, store: Store) -> None:
        self.searches.append((ranking, store))

    def step(self, stage: str, candidates: Sequence[Candidate]) -> None:
        self.steps[stage] = _documents(candidates)

    async def name_documents(self, known: _Owners, fusions: Mapping[str, Fusion]) -> None:
        """Turns lanes and fusions into orders of documents, and lets go of the lanes."""
        if len(self.searches) == 1:
            ranking, store = self.searches[0]
            passages: dict[str, list[str]] = {}
            for name, lane in (("keyword", ranking.keyword), ("vector", ranking.vector)):
                if lane is not None:
                    passages[name] = [hit.passage_id for hit in lane.hits]
            passages["fused"] = [item.passage_id for item in ranking.fused]
            for name, fusion in fusions.items():
                fused = fused_by(fusion, ranking.keyword, ranking.vector, ranking.title)
                passages[name] = [item.passage_id for item in fused]
            owners = await known.of(store, {id_ for ids in passages.values() for id_ in ids})
            for name, ids in passages.items():
                # A passage that is gone since the lanes ran is nobody's.
                self.orders[name] = _unique(owners[id_] for id_ in ids if id_ in owners)
        self.orders |= self.steps
        self.orders["final"] = self.final
        self.searches.clear()


class _Owners:
    """Which document each passage belongs to, asked of a store once."""

    def __init__(self) -> None:
        self._stores: dict[int, tuple[Store, dict[str, str]]] = {}

    async def of(self, store: Store, passages: set[str]) -> Mapping[str, str]:
        """Returns document ids by passage id; passages that are gone are missing."""
        # The store is kept with the number, which would otherwise be given to another one.
        _, owners = self._stores.setdefault(id(store), (store, {}))
        wanted = sorted(passages - owners.keys())
        if wanted:
            found = await store.get(wanted, scope=Filter())
            owners.update({id_: p.document_id or id_ for id_, p in found.items()})
        return owners


async def _search(retriever: Retriever, topic: Topic, ask: Asker | None, policy: Policy) -> _Seen:
    query: Query = topic.query if ask is None else await call_stage(ask, topic)
    seen = _Seen()
    with running(Run(policy, watcher=seen)) as run:
        result: Sequence[Candidate] = await call_stage(retriever, for_foreign(retriever, query))
    seen.final = _documents(candidates_of(result, query))
    told = result.degraded if isinstance(result, SearchResult) else ()
    seen.degraded = tuple(dict.fromkeys((*told, *run.record.degraded)))
    return seen


def fused_by(
    fusion: Fusion,
    keyword: LaneResult | None,
    vector: LaneResult | None,
    titles: Mapping[str, float] | None = None,
) -> Order:
    """Fuses lanes as a search with this fusion would have.

    That is: a lane that it does not want is not run if the other was, and scores that only
    completion knows are unknown where it does not complete. What titles say is known only if the
    search's own fusion gives them weight.
    """
    if keyword is not None and vector is not None:
        wants_keyword, wants_vector = fusion.lanes
        completes = fusion.completes and wants_keyword and wants_vector
        keyword = _as_run(keyword, wanted=wants_keyword, completes=completes)
        vector = _as_run(vector, wanted=wants_vector, completes=completes)
    return fused_lanes(fusion, keyword, vector, titles)


def _as_run(lane: LaneResult, *, wanted: bool, completes: bool) -> LaneResult | None:
    if not wanted:
        return None
    return lane if completes else replace(lane, completed={})


def _rankings(
    rows: Sequence[_Seen], fusions: Mapping[str, Fusion]
) -> dict[str, list[tuple[str, ...]]]:
    """Returns the orders of all topics by name, those that every topic has."""
    names = [name for name in (*STAGES, *fusions) if all(name in row.orders for row in rows)]
    stages = [name for name in names if name in STAGES[:-1]]
    if stages and all(row.final == row.orders[stages[-1]][: len(row.final)] for row in rows):
        names.remove("final")
    return {name: [tuple(row.orders[name]) for row in rows] for name in names}


def _documents(candidates: Iterable[Candidate]) -> list[str]:
    return _unique(c.passage.document_id or c.passage.id for c in candidates)


def _unique(ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(ids))


def _counted(degraded: Iterable[Sequence[Degradation]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in degraded:
        for stage in {degradation.stage for degradation in row}:
            counts[stage] = counts.get(stage, 0) + 1
    return dict(sorted(counts.items()))


def _ignore(share: float) -> None:
    del share
