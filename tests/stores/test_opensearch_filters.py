"""Every conformance case of filters holds in every way of asking the store in OpenSearch."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.filters import Filter, Gt, In
from ragchat_retrieval.stores.opensearch import OpenSearchStore
from ragchat_retrieval.stores.opensearch.documents import _digits
from ragchat_retrieval.testing.filter_suite import (
    IDS,
    WAYS,
    check_long_strings,
    put_cases,
    wrong_cases,
)
from ragchat_retrieval.testing.store_suite_kit import put, revision

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat_retrieval.testing.filter_suite import Way

    Open = Callable[..., OpenSearchStore]


@pytest.fixture(scope="module")
def cases(opensearch_url: str) -> str:
    """The prefix of a store with the document of every case."""
    prefix = f"cases-{uuid.uuid4().hex}"

    async def write() -> None:
        store = OpenSearchStore(opensearch_url, prefix=prefix)
        await put_cases(store)
        await store.aclose()

    asyncio.run(write())
    return prefix


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_every_case_selects_in_opensearch_as_the_semantics_say(
    opensearch_url: str, cases: str, way: Way
) -> None:
    """A filter selects the same passages in both lanes, as filter and scope, and in every list."""
    store = OpenSearchStore(opensearch_url, prefix=cases)
    assert await wrong_cases(store, way) == []
    assert set(await way(store, Filter())) == set(IDS)
    await store.aclose()


async def test_strings_longer_than_what_is_written_are_compared_whole(
    open_opensearch: Open,
) -> None:
    """Where shadow fields end, passages are compared on reading, also where limits cut."""
    await check_long_strings(open_opensearch())


async def test_any_number_of_metadata_keys_fits(open_opensearch: Open) -> None:
    """Documents may have thousands of keys together; an index's mapping does not grow by them."""
    store = open_opensearch()
    given = [
        revision(f"d{n}", "word", metadata={f"key-{n}-{m}": "long text " * 30 for m in range(50)})
        for n in range(40)
    ]
    await put(store, *given)
    bounds = Filter(Gt("key-7-49", "long"))
    assert await store.document_ids(scope=bounds) == ["d7"]


async def test_a_list_of_values_may_be_very_long(open_opensearch: Open) -> None:
    """More values than OpenSearch takes in one query select as fewer do."""
    store = open_opensearch()
    await put(store, *(revision(f"d{n}", "word", metadata={"k": n}) for n in range(3)))
    bounds = Filter(In("k", [*range(1, 70_000)]))
    assert await store.document_ids(scope=bounds) == ["d1", "d2"]


def test_digits_are_ordered_as_their_numbers() -> None:
    """Of any two numbers the smaller has the smaller digits; both zeros have the same."""
    numbers = [-1e308, -(2.0**53), -1.5, -1.0, -5e-324, 0.0, 5e-324, 0.5, 1.0, 2.0**48, 1e308]
    digits = [_digits(number) for number in numbers]
    assert digits == sorted(set(digits))
    assert _digits(-0.0) == _digits(0.0)
