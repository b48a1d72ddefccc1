"""Retrievers and other stages made of several: one after another's failure, or all together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ragchat_retrieval.detection import is_semantic
from ragchat_retrieval.errors import InvalidSetting, StageTimeout
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.foreign import (
    candidates_of,
    degraded_of,
    for_foreign,
    may_return,
    still_held,
)
from ragchat_retrieval.fusion import RRF, fuse_candidates, fuse_rankings
from ragchat_retrieval.kinds import check_callable
from ragchat_retrieval.policy import bounded, started
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.tasks import gather
from ragchat_retrieval.values import Candidate, Query, SearchResult, passage_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from ragchat_retrieval.ports import Retriever
    from ragchat_retrieval.values import Passage

F = TypeVar("F")


def federate(
    retrievers: Sequence[Retriever], *, fusion: RRF | None = None
) -> Callable[[Query], Awaitable[SearchResult]]:
    """Returns a retriever that asks several and merges their rankings by reciprocal rank.

    All must succeed; they run concurrently, and the order never depends on which one was first. A
    passage that several found is one. Ids are unique inside a corpus only: where two give one id to
    different passages, that of the later retriever's gets a hash of its text behind it.

    Args:
        retrievers: At least one.
        fusion: The constant of the ranks; None is 60.

    Raises:
        InvalidSetting: There is none, or one cannot be called.
    """
    sources: tuple[Callable[[Query], object], ...] = tuple(retrievers)
    if not sources:
        raise InvalidSetting("retrievers", "at least one is needed")
    for source in sources:
        check_callable("retrievers", source, "callable, as index.retriever() is")
    k = (fusion or RRF()).k

    async def federated(query: Query) -> SearchResult:
        if query.top_k is not None and query.top_k <= 0:
            return SearchResult(queries=(query,))
        results = await gather(
            *(call_stage(source, for_foreign(source, query)) for source in sources)
        )
        rows = _told_apart([candidates_of(result, query) for result in results])
        merged = fuse_candidates(rows, partial(fuse_rankings, k=k))
        degraded = tuple(dict.fromkeys(d for result in results for d in degraded_of(result)))
        return SearchResult(tuple(merged[: query.top_k]), queries=(query,), degraded=degraded)

    return _retriever(federated, sources)  # each source is shown its own text


def _told_apart(rows: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
    """Returns candidates of several sources, each id standing for one passage."""
    known: dict[str, Passage] = {}

    def apart(candidate: Candidate) -> Candidate:
        mine = candidate.passage
        theirs = known.setdefault(mine.id, mine)
        # One document's passage may have been joined to other neighbours in each source.
        if mine.text == theirs.text or (mine.digest and mine.digest == theirs.digest):
            return candidate
        other_id = passage_id(mine.id, mine.ordinal, mine.text)
        return replace(candidate, passage=replace(mine, id=other_id))

    return [[apart(candidate) for candidate in row] for row in rows]


def fallback(
    first: Callable[..., Any], *others: Callable[..., Any], timeout: float | None = None
) -> Callable[..., Any]:
    """Returns a stage that tries several of one kind in order until one succeeds.

    It serves every kind of stage: retrievers, transformers of queries and of conversations,
    expanders, rerankers. Each failure before the last is a degradation of the current run and a
    warning in the log; the last one's failure raises. Retrievers that declare ``lanes`` or
    ``semantic`` are each shown their own text.

    Args:
        first: The stage that should do the work.
        *others: What stands in for it, in order.
        timeout: Seconds for each but the last, so that a slow one leaves time for those after it;
            None leaves only the limit of the stage as a whole.

    Raises:
        InvalidSetting: The timeout is not positive, or a stage cannot be called.
    """
    stages = (first, *others)
    for given in stages:
        check_callable("stage", given, "callable")
    declared = any(hasattr(stage, "lanes") or is_semantic(stage) for stage in stages)
    if timeout is not None and not timeout > 0:
        raise InvalidSetting("timeout", "must be positive, or None for no limit")

    async def ask(candidate: Callable[..., Any], args: tuple[object, ...]) -> object:
        if declared and len(args) == 1 and isinstance(query := args[0], Query):
            args = (for_foreign(candidate, query),)
        return await call_stage(candidate, *args)

    async def stage(*args: object) -> object:
        for candidate in stages[:-1]:
            name = getattr(candidate, "stage", _label(candidate))
            late = partial(StageTimeout, name, timeout or 0.0)
            try:
                return await bounded(partial(ask, candidate, args), timeout, late)
            except Exception as error:  # noqa: BLE001 - any failure means: try the next one
                started(None).skip(name, error)
        return await ask(stages[-1], args)

    return _retriever(stage, stages) if declared else stage


def _retriever(stage: F, sources: Sequence[object]) -> F:
    """Declares what holds for a retriever that asks others."""
    told: list[Any] = [getattr(source, "revision", None) for source in sources]

    async def revision() -> tuple[object, ...]:
        return tuple(await gather(*(call_stage(tell) for tell in told)))

    def admits(passage: Passage) -> bool:
        return any(may_return(source, passage, Filter()) for source in sources)

    async def current(passages: Sequence[Passage], bounds: Filter) -> Sequence[Passage]:
        rows = await gather(*(still_held(source, passages, bounds) for source in sources))
        held = {passage.id: passage for row in reversed(rows) for passage in row}
        return [held[passage.id] for passage in passages if passage.id in held]

    known = revision if all(told) else None
    vars(stage).update(lanes=True, admits=admits, current=current, revision=known)
    return stage


def _label(stage: object) -> str:
    return getattr(stage, "__name__", type(stage).__name__)
