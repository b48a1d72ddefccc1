"""Searching for a provisional query while the final one is still being made.

A model takes a second or more to rewrite a question, and a search takes milliseconds. So the search
of a query that needs no model runs meanwhile, and joins the search of the final query as one more
wording of the question. Nothing waits for it: what is not there by then is dropped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ragchat_retrieval.errors import ScopeViolation
from ragchat_retrieval.foreign import retrieved
from ragchat_retrieval.fusion import fuse_candidates
from ragchat_retrieval.merging import Ranking
from ragchat_retrieval.tasks import gather
from ragchat_retrieval.values import SearchResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Self

    from ragchat_retrieval.foreign import AnyRetriever
    from ragchat_retrieval.policy import Run
    from ragchat_retrieval.trace import Degradation
    from ragchat_retrieval.values import Candidate, Query

R = TypeVar("R", bound="Ranking | Sequence[Candidate]")
"""What one query found, best first: ids in an index, or a retriever's candidates."""

STAGE = "speculate"
"""What trace and degradations call the search of a provisional query."""


class Anticipated(NamedTuple):
    """What a pipeline has ranked for a query that may not be the final one."""

    query: Query
    """The query inside the bounds of the pipeline's options."""

    ranking: Any
    """What the pipeline ranks with: ids of its index, or candidates of its retriever."""

    degraded: tuple[Degradation, ...] = ()
    """What was left out in ranking."""


class Speculation:
    """The search of a provisional query, under way inside ``async with`` and no longer.

    Of a `RetrievalPipeline` only the lanes run ahead: its transformers, expander and reranker run
    once, on the final query. Any other retriever is asked as a whole, and a second time if the
    final query is another one.

    Args:
        retriever: What will be asked with the final query.
        query: The provisional one.
        run: Policy, deadline and trace.
    """

    def __init__(self, retriever: AnyRetriever, query: Query, run: Run) -> None:
        self._retriever = retriever
        self._query = query
        self._run = run
        self._anticipate = getattr(retriever, "anticipate", None)
        self._task: asyncio.Task[Any]

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run.whole(STAGE, self._ahead))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def found(self, final: Query) -> SearchResult:
        """Retrieves for the final query, with what the provisional one has found by then.

        A final query that equals the provisional one takes over its search. Otherwise both
        rankings merge as the wordings of one question do, the final query's first; where both hold
        the same passages, the final query's order and scores stand.

        Raises:
            ScopeViolation: Either search found something outside the query's filter or scope.
            BaseException: What the retriever raised for the final query.
        """
        if self._anticipate is not None:
            return await retrieved(self._retriever, final, early=self)
        if final == self._query:
            whole: SearchResult = await self.result()
            return whole
        found = await retrieved(self._retriever, final)
        early: SearchResult | None = self.so_far()
        if early is None:
            return found
        rows = _disagreeing([found.candidates, early.candidates], final.top_k)
        merged = found.candidates if len(rows) == 1 else fuse_candidates(rows)
        return SearchResult(
            tuple(merged[: final.top_k]),
            queries=tuple(dict.fromkeys((*found.queries, *early.queries))),
            degraded=tuple(dict.fromkeys((*found.degraded, *early.degraded))),
            trace=found.trace,
        )

    def answers(self, query: Query) -> bool:
        """Says whether the provisional query searches for the same words, whatever its bounds."""
        return _words(query) == _words(self._query)

    async def result(self) -> Any:  # noqa: ANN401 - a `SearchResult`, or what the pipeline gives
        """Waits for what was found.

        Raises:
            BaseException: What the search raised.
        """
        return await self._task

    def so_far(self) -> Any | None:  # noqa: ANN401 - as `result`
        """Returns what was found; None if that is not known yet, or the search failed.

        Raises:
            ScopeViolation: It found something outside the query's filter or scope.
        """
        if not self._task.done():
            self._run.record.note("the search of the provisional query was dropped")
            return None
        error = self._task.exception()
        if isinstance(error, ScopeViolation):
            raise error
        if isinstance(error, Exception):
            self._run.skip(STAGE, error)
            return None
        return self._task.result()

    async def _ahead(self) -> Any:  # noqa: ANN401 - as `result`
        if self._anticipate is not None:
            return await self._anticipate(self._query)
        return await retrieved(self._retriever, self._query)


async def searched(
    queries: Sequence[Query],
    search: Callable[[Sequence[Query]], Awaitable[Sequence[R]]],
    early: Speculation | None,
    run: Run,
) -> tuple[tuple[Query, ...], Sequence[R]]:
    """Searches the wordings of a question, with what a provisional one has found already.

    Args:
        queries: The question first.
        search: Gives one ranking per query.
        early: What a pipeline's `anticipate` has begun; None if nothing was.
        run: Where the degradations of the early search count too.

    Returns:
        The queries that were searched, and the rankings to merge.
    """
    if early is None:
        return tuple(queries), await search(queries)
    if early.answers(queries[0]):
        provisional, rest = await gather(early.result(), search(queries[1:]))
        rankings = [provisional.ranking, *rest]
    else:
        rankings = list(await search(queries))
        provisional = early.so_far()
        if provisional is None:
            return tuple(queries), rankings
        queries = [*queries, provisional.query]
        rankings = list(_disagreeing([*rankings, provisional.ranking], queries[0].top_k))
    for degradation in provisional.degraded:
        run.record.degrade(degradation.stage, degradation.reason)
    return tuple(queries), rankings


def _disagreeing(rankings: Sequence[R], top_k: int | None) -> Sequence[R]:
    """Returns the rankings to merge: of two that begin with the same passages, the first alone."""
    heads = {frozenset(_ids(ranking)[:top_k]) for ranking in rankings}
    return rankings[:1] if len(rankings) == 2 and len(heads) == 1 else rankings  # noqa: PLR2004 - a pair


def _ids(ranking: Ranking | Sequence[Candidate]) -> Sequence[str]:
    if isinstance(ranking, Ranking):
        return ranking.ids
    return [candidate.passage.id for candidate in ranking]


def _words(query: Query) -> tuple[object, ...]:
    return query.text, query.context, query.lexical, query.semantic
