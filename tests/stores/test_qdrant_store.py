"""The store in Qdrant passes the contract of stores, and an index over it that of indexes."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import pytest
from qdrant_client import AsyncQdrantClient

from ragchat_retrieval.stores.qdrant import QdrantStore
from ragchat_retrieval.testing.index_suite import IndexContract
from ragchat_retrieval.testing.store_suite import DurableStoreContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Reopen = Callable[[QdrantStore], Awaitable[QdrantStore]]


class TestInMemory(DurableStoreContract, IndexContract):
    """The client's own store in memory."""

    @pytest.fixture
    def client(self) -> AsyncQdrantClient:
        return AsyncQdrantClient(":memory:")

    @pytest.fixture
    async def store(self, client: AsyncQdrantClient) -> AsyncIterator[QdrantStore]:
        store = QdrantStore(client=client)
        yield store
        await store.aclose()

    @pytest.fixture
    async def reopen(self, client: AsyncQdrantClient) -> AsyncIterator[Reopen]:
        opened: list[QdrantStore] = []

        async def again(store: QdrantStore) -> QdrantStore:
            await store.aclose()
            opened.append(QdrantStore(client=client, corpus=store.corpus_name))
            return opened[-1]

        yield again
        for store in opened:
            await store.aclose()


if "QDRANT_URL" in os.environ:

    class TestLive(DurableStoreContract, IndexContract):
        """A server, under names of its own."""

        @pytest.fixture
        async def prefix(self) -> AsyncIterator[str]:
            prefix = f"test-{uuid.uuid4().hex}"
            yield prefix
            client = AsyncQdrantClient(os.environ["QDRANT_URL"], check_compatibility=False)
            for collection in (await client.get_collections()).collections:
                if collection.name.startswith(prefix):
                    await client.delete_collection(collection.name)
            await client.close()

        @pytest.fixture
        async def store(self, prefix: str) -> AsyncIterator[QdrantStore]:
            store = QdrantStore(os.environ["QDRANT_URL"], prefix=prefix, exact=True)
            yield store
            await store.aclose()

        @pytest.fixture
        async def reopen(self, prefix: str) -> AsyncIterator[Reopen]:
            opened: list[QdrantStore] = []

            async def again(store: QdrantStore) -> QdrantStore:
                await store.aclose()
                opened.append(
                    QdrantStore(
                        os.environ["QDRANT_URL"],
                        prefix=prefix,
                        exact=True,
                        corpus=store.corpus_name,
                    )
                )
                return opened[-1]

            yield again
            for store in opened:
                await store.aclose()
