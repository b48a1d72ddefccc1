"""The conformance cases of filters, put into a store and asked for in every way.

A store's test parametrises over `WAYS`, or `VECTOR_WAYS` without a keyword lane, and asserts that
`wrong_cases` finds none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ragchat_retrieval.filters import Filter, Gt, Gte, Lt, Lte
from ragchat_retrieval.stores.shadow import CHUNK, LEVELS
from ragchat_retrieval.testing.filter_cases import FILTER_CASES, TERM
from ragchat_retrieval.testing.store_suite_kit import ALL, IDENTITY, axis, put, revision, vector_of
from ragchat_retrieval.values import Revision

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from ragchat_retrieval.ports import Store

Way: TypeAlias = "Callable[[Store, Filter], Awaitable[Collection[str]]]"
"""Asks a store under a filter; returns the ids of the passages that it tells of."""

PASSAGES = {case.passage.id: case.passage for case in FILTER_CASES}
IDS = list(PASSAGES)


async def put_cases(store: Store) -> None:
    """Writes the document of every case, with a vector and the term that all have."""
    revisions = [
        Revision(
            document=case.document,
            passages=(case.passage,),
            vectors=vector_of(case.id)[None],
            terms=({TERM: 1},),
        )
        for case in FILTER_CASES
    ]
    await store.replace(revisions, identity=IDENTITY, scope=ALL)


async def wrong_cases(store: Store, way: Way) -> list[str]:
    """Returns the cases whose filter selects other passages than the semantics say."""
    wrong: list[str] = []
    for case in FILTER_CASES:
        found = set(await way(store, case.filter))
        if (case.passage.id in found) is not case.expected:
            wrong.append(case.id)
        expected = {i for i, passage in PASSAGES.items() if case.filter.matches_passage(passage)}
        if found != expected:
            wrong.append(f"{case.id} among others")
    return wrong


async def keyword_filter(store: Store, given: Filter) -> Collection[str]:
    """Asks the keyword lane with a filter."""
    hits = await store.search_text({TERM: 1.0}, len(IDS), filter=given, scope=ALL)
    return [hit.passage_id for hit in hits]


async def keyword_scope(store: Store, given: Filter) -> Collection[str]:
    """Asks the keyword lane with a scope."""
    hits = await store.search_text({TERM: 1.0}, len(IDS), filter=ALL, scope=given)
    return [hit.passage_id for hit in hits]


async def vector_filter(store: Store, given: Filter) -> Collection[str]:
    """Asks the vector lane with a filter."""
    hits = await store.search_vector(axis(0), len(IDS), filter=given, scope=ALL)
    return [hit.passage_id for hit in hits]


async def vector_scope(store: Store, given: Filter) -> Collection[str]:
    """Asks the vector lane with a scope."""
    hits = await store.search_vector(axis(0), len(IDS), filter=ALL, scope=given)
    return [hit.passage_id for hit in hits]


async def score_text(store: Store, given: Filter) -> Collection[str]:
    """Asks the keyword lane for scores of all passages."""
    return await store.score_text({TERM: 1.0}, IDS, scope=given)


async def score_vector(store: Store, given: Filter) -> Collection[str]:
    """Asks the vector lane for scores of all passages."""
    return await store.score_vector(axis(0), IDS, scope=given)


async def listed(store: Store, given: Filter) -> Collection[str]:
    """Lists the ids, which the counts agree with."""
    found = await store.ids(scope=given)
    counts = await store.count(scope=given)
    assert counts.passages == counts.vectors == len(found)
    return found


async def got(store: Store, given: Filter) -> Collection[str]:
    """Reads all passages."""
    return await store.get(IDS, scope=given)


async def vectors(store: Store, given: Filter) -> Collection[str]:
    """Reads the vectors of all passages."""
    return await store.vectors(IDS, scope=given)


VECTOR_WAYS: list[Way] = [vector_filter, vector_scope, score_vector, listed, got, vectors]
"""Every way of asking a store without a keyword lane."""

WAYS: list[Way] = [keyword_filter, keyword_scope, score_text, *VECTOR_WAYS]
"""Every way of asking a store with both lanes."""


async def check_long_strings(store: Store) -> None:
    """Where shadow fields end, passages are compared on reading, also where limits cut.

    Args:
        store: An empty one that compares strings by shadow fields.
    """
    limit = 2
    stem = "x" * (CHUNK * LEVELS)
    tails = ["", "a", "b", "c", "cc"]
    given = [revision(tail or "none", "word", metadata={"k": stem + tail}) for tail in tails]
    await put(store, *given)
    for make, expected in (
        (Gt, ["c", "cc"]),
        (Gte, ["b", "c", "cc"]),
        (Lt, ["a", "none"]),
        (Lte, ["a", "b", "none"]),
    ):
        bounds = Filter(make("k", stem + "b"))
        assert await store.document_ids(scope=bounds) == expected
        for hits in (
            await store.search_text({"word": 1.0}, limit, filter=bounds, scope=ALL),
            await store.search_vector(axis(0), limit, filter=ALL, scope=bounds),
        ):
            assert len(hits) == limit
            found = await store.get([hit.passage_id for hit in hits], scope=bounds)
            assert {passage.document_id for passage in found.values()} <= set(expected)
        ids = [passage.id for one in given for passage in one.passages]
        assert len(await store.score_text({"word": 1.0}, ids, scope=bounds)) == len(expected)
