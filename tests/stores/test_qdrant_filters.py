"""Every conformance case of filters holds in every way of asking the store in Qdrant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.filters import Filter
from ragchat_retrieval.stores.qdrant import QdrantStore
from ragchat_retrieval.testing.filter_suite import (
    IDS,
    WAYS,
    check_long_strings,
    put_cases,
    wrong_cases,
)

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
    await check_long_strings(store)
    await store.aclose()
