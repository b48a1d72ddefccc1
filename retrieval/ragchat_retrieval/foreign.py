"""Dealing with retrievers and stages that others wrote: what they are shown, what they may return.

Nothing here knows of an index, so that whoever takes functions as stages can use it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ragchat_retrieval.detection import is_semantic
from ragchat_retrieval.errors import InvalidCandidates, InvalidQuery, ScopeViolation
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.values import Candidate, Query, SearchResult

if TYPE_CHECKING:
    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.trace import Degradation
    from ragchat_retrieval.values import Passage

AnyRetriever: TypeAlias = Callable[[Query], Awaitable[Sequence[Candidate]] | Sequence[Candidate]]
"""Finds candidates for a query, best first; async or sync."""


def for_foreign(retriever: object, query: Query) -> Query:
    """Returns the query as a retriever that reads only `Query.text` should see it.

    One that declares ``semantic = True`` searches by meaning and gets the semantic text, any other
    the lexical one. A retriever of ours (``lanes = True``) gets the query as it is. A function of
    the user's around one of ours declares nothing, so that each lane's text stays beside the text.
    """
    if getattr(retriever, "lanes", False):
        return query
    text = query.semantic if is_semantic(retriever) else query.lexical
    if text is None:
        return query
    lexical, semantic = query.lexical or query.text, query.semantic or query.text
    return replace(query, text=text, lexical=lexical, semantic=semantic)


def candidates_of(result: object, query: Query) -> list[Candidate]:
    """Checks what a retriever returned.

    Raises:
        InvalidCandidates: It is no sequence of candidates.
        ScopeViolation: A passage lies outside the query's filter or scope.
    """
    if not isinstance(result, Sequence) or isinstance(result, str | bytes):
        raise InvalidCandidates("must return a sequence of candidates", stage="retrieve")
    bounds = query.filter & query.scope
    for position, candidate in enumerate(result):
        if not isinstance(candidate, Candidate):
            raise InvalidCandidates(f"item {position} is no Candidate", stage="retrieve")
        if bounds and not bounds.matches_passage(candidate.passage):
            raise ScopeViolation(candidate.passage.id)
    return list(result)


def degraded_of(result: object) -> tuple[Degradation, ...]:
    """Returns what a retriever says was left out; a bare sequence of candidates says nothing."""
    return result.degraded if isinstance(result, SearchResult) else ()


def may_return(retriever: object, passage: Passage, bounds: Filter) -> bool:
    """Says whether a retriever that keeps to its bounds could return a passage.

    Args:
        retriever: One of ours says what its own options admit; of any other that is not known.
        passage: From anywhere, such as an earlier turn.
        bounds: Filter and scope of the request.
    """
    if not bounds.matches_passage(passage):
        return False
    admits: Callable[[Passage], bool] | None = getattr(retriever, "admits", None)
    return admits is None or admits(passage)


async def still_held(
    retriever: object, passages: Sequence[Passage], bounds: Filter
) -> Sequence[Passage]:
    """Returns what a retriever that keeps to its bounds could return of earlier passages today.

    One of ours over an index leaves out those that were deleted or now lie outside of the bounds,
    and returns the others as they are now. Of any other retriever that is not known.

    Args:
        retriever: Any retriever.
        passages: From earlier turns.
        bounds: Filter and scope of the request.
    """
    allowed = [passage for passage in passages if may_return(retriever, passage, bounds)]
    current: Callable[..., Awaitable[Sequence[Passage]]] | None
    current = getattr(retriever, "current", None)
    return allowed if current is None or not allowed else await current(allowed, bounds)


def facts_of(retriever: object, query: Query) -> dict[str, object]:
    """Returns what an observer is told of a retrieval: what is asked, where, for how many."""
    top_k = getattr(retriever, "top_k", None) if query.top_k is None else query.top_k
    source = getattr(retriever, "data_source", None)
    return {"data_source": source, "top_k": top_k, "query": query.text}


async def retrieved(retriever: AnyRetriever, query: Query, **options: object) -> SearchResult:
    """Asks any retriever, sync or async, and checks what it returned.

    Args:
        retriever: Returns a `SearchResult` or any sequence of candidates.
        query: What it is asked, as `for_foreign` shows it; the result has at most its `top_k`.
        **options: What else a retriever of ours is given.

    Raises:
        InvalidCandidates: It returned no sequence of candidates.
        ScopeViolation: A passage lies outside the query's filter or scope.
        BaseException: What the retriever raised.
    """
    asked = for_foreign(retriever, query)
    result: Sequence[Candidate] = await call_stage(retriever, asked, **options)
    valid = tuple(candidates_of(result, query))
    if query.top_k is not None:
        valid = valid[: max(0, query.top_k)]
    if not isinstance(result, SearchResult):
        return SearchResult(valid, queries=(asked,))
    return replace(result, candidates=valid, queries=result.queries or (asked,))


def query_of(result: object, caller: Query, *, stage: str) -> Query:
    """Checks what a transformer returned, and puts it back into the caller's bounds.

    Args:
        result: What it returned.
        caller: The query with the scope, filter and top_k that stand.
        stage: Names the stage in the error.

    Raises:
        InvalidQuery: It is no query.
    """
    if not isinstance(result, Query):
        raise InvalidQuery(f"{stage}: must return a Query, not {type(result).__name__}")
    return result.bounded_by(caller)


def queries_of(result: object, caller: Query, *, stage: str) -> list[Query]:
    """Checks what an expander returned, and puts each query back into the caller's bounds.

    Raises:
        InvalidQuery: It is no sequence of queries.
    """
    if not isinstance(result, Sequence) or isinstance(result, str | bytes):
        raise InvalidQuery(f"{stage}: must return a sequence of queries")
    return [query_of(query, caller, stage=stage) for query in result]
