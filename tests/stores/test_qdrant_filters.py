"""Every conformance case of filters holds in every way of asking the store in Qdrant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.filters import Filter, Gt, Gte, Lt, Lte
from ragchat_retrieval.stores.qdrant import QdrantStore
from ragchat_retrieval.stores.shadow import CHUNK, LEVELS
from ragchat_retrieval.testing.filter_cases import FILTER_CASES, TERM
from ragchat_retrieval.testing.store_suite_kit import ALL, IDENTITY, axis, put, revision, vector_of
from ragchat_retrieval.values import Revision

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from ragchat_retrieval.ports import Store

PASSAGES = {case.passage.id: case.passage for case in FILTER_CASES}
IDS = list(PASSAGES)


async def keyword_filter(store: Store, given: Filter) -> Collection[str]:
    hits = await store.search_text({TERM: 1.0}, len(IDS), filter=given, scope=ALL)
    return [hit.passage_id for hit in hits]


async def keyword_scope(store: Store, given: Filter) -> Collection[str]:
    hits = await store.search_text({TERM: 1.0}, len(IDS), filter=ALL, scope=given)
    return [hit.passage_id for hit in hits]


async def vector_filter(store: Store, given: Filter) -> Collection[str]:
    hits = await store.search_vector(axis(0), len(IDS), filter=given, scope=ALL)
    return [hit.passage_id for hit in hits]


async def vector_scope(store: Store, given: Filter) -> Collection[str]:
    hits = await store.search_vector(axis(0), len(IDS), filter=ALL, scope=given)
    return [hit.passage_id for hit in hits]


async def score_text(store: Store, given: Filter) -> Collection[str]:
    return await store.score_text({TERM: 1.0}, IDS, scope=given)


async def score_vector(store: Store, given: Filter) -> Collection[str]:
    return await store.score_vector(axis(0), IDS, scope=given)


async def listed(store: Store, given: Filter) -> Collection[str]:
    found = await store.ids(scope=given)
    counts = await store.count(scope=given)
    assert counts.passages == counts.vectors == len(found)
    return found


async def got(store: Store, given: Filter) -> Collection[str]:
    return await store.get(IDS, scope=given)


async def vectors(store: Store, given: Filter) -> Collection[str]:
    return await store.vectors(IDS, scope=given)


WAYS = [
    keyword_filter,
    keyword_scope,
    vector_filter,
    vector_scope,
    score_text,
    score_vector,
    listed,
    got,
    vectors,
]


@pytest.fixture
async def store() -> AsyncIterator[QdrantStore]:
    """A store with the document of every case."""
    opened = QdrantStore(":memory:")
    revisions = [
        Revision(
            document=case.document,
            passages=(case.passage,),
            vectors=vector_of(case.id)[None],
            terms=({TERM: 1},),
        )
        for case in FILTER_CASES
    ]
    await opened.replace(revisions, identity=IDENTITY, scope=ALL)
    yield opened
    await opened.aclose()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_every_case_selects_in_qdrant_as_the_semantics_say(
    store: Store, way: Callable[[Store, Filter], Awaitable[Collection[str]]]
) -> None:
    """A filter selects the same passages in both lanes, as filter and scope, and in every list."""
    wrong: list[str] = []
    for case in FILTER_CASES:
        found = set(await way(store, case.filter))
        expected = {i for i, passage in PASSAGES.items() if case.filter.matches_passage(passage)}
        if found != expected or (case.passage.id in found) is not case.expected:
            wrong.append(case.id)
    assert wrong == []
    assert set(await way(store, Filter())) == set(IDS)


async def test_strings_longer_than_what_is_written_are_compared_whole() -> None:
    """Where shadow fields end, passages are compared on reading, also where limits cut."""
    store = QdrantStore(":memory:")
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
            await store.search_text({"word": 1.0}, 2, filter=bounds, scope=ALL),
            await store.search_vector(axis(0), 2, filter=ALL, scope=bounds),
        ):
            assert len(hits) == 2
            found = await store.get([hit.passage_id for hit in hits], scope=bounds)
            assert {passage.document_id for passage in found.values()} <= set(expected)
        ids = [passage.id for one in given for passage in one.passages]
        assert len(await store.score_text({"word": 1.0}, ids, scope=bounds)) == len(expected)
    await store.aclose()
