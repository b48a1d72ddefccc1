"""Every conformance case of filters holds in every way of asking the store in Qdrant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.filters import Filter, Gt, Gte, Lt, Lte
from ragchat_retrieval.stores.qdrant import QdrantStore
from ragchat_retrieval.stores.shadow import CHUNK, LEVELS
from ragchat_retrieval.testing.filter_suite import IDS, WAYS, put_cases, wrong_cases
from ragchat_retrieval.testing.store_suite_kit import ALL, axis, put, revision

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ragchat_retrieval.ports import Store
    from ragchat_retrieval.testing.filter_suite import Way


@pytest.fixture
async def store() -> AsyncIterator[QdrantStore]:
    """A store with the document of every case."""
    opened = QdrantStore(":memory:")
    await put_cases(opened)
    yield opened
    await opened.aclose()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_every_case_selects_in_qdrant_as_the_semantics_say(store: Store, way: Way) -> None:
    """A filter selects the same passages in both lanes, as filter and scope, and in every list."""
    assert await wrong_cases(store, way) == []
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
