"""The store in OpenSearch passes the contracts of stores and indexes, against a real node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.testing.index_suite import IndexContract
from ragchat_retrieval.testing.store_suite import DurableStoreContract

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ragchat_retrieval.stores.opensearch import OpenSearchStore

    Open = Callable[..., OpenSearchStore]
    Reopen = Callable[[OpenSearchStore], Awaitable[OpenSearchStore]]


class TestNode(DurableStoreContract, IndexContract):
    """One node, with the graph of vectors wherever the store trusts it."""

    @pytest.fixture
    def store(self, open_opensearch: Open) -> OpenSearchStore:
        return open_opensearch()

    @pytest.fixture
    def reopen(self, open_opensearch: Open) -> Reopen:
        async def again(store: OpenSearchStore) -> OpenSearchStore:
            await store.aclose()
            return open_opensearch(corpus=store.corpus_name)

        return again
