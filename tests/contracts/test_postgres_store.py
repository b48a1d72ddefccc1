"""The PostgreSQL store passes the contract of stores, by comparing all and by its HNSW index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.stores.postgres import PostgresStore
from ragchat_retrieval.testing.store_suite import DurableStoreContract
from ragchat_retrieval.testing.store_suite_concurrency import ConcurrencyContract
from ragchat_retrieval.testing.store_suite_lanes import VectorLaneContract
from ragchat_retrieval.testing.store_suite_scope import ScopeContract
from ragchat_retrieval.testing.store_suite_swap import SwapContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Reopen = Callable[[PostgresStore], Awaitable[PostgresStore]]


class TestPostgres(SwapContract, DurableStoreContract):
    """A store that opens its own connections."""

    @pytest.fixture
    async def opened(self) -> AsyncIterator[list[PostgresStore]]:
        stores: list[PostgresStore] = []
        yield stores
        for store in stores:
            await store.aclose()

    @pytest.fixture
    async def store(
        self, postgres_url: str, postgres_schema: str, opened: list[PostgresStore]
    ) -> PostgresStore:
        opened.append(PostgresStore(postgres_url, schema=postgres_schema))
        return opened[0]

    @pytest.fixture
    def reopen(
        self, postgres_url: str, postgres_schema: str, opened: list[PostgresStore]
    ) -> Reopen:
        async def again(store: PostgresStore) -> PostgresStore:
            await store.aclose()
            opened.append(
                PostgresStore(postgres_url, corpus=store.corpus_name, schema=postgres_schema)
            )
            return opened[-1]

        return again


class TestIndexed(VectorLaneContract, ScopeContract, ConcurrencyContract):
    """Where every corpus with a vector has an HNSW index, and every search asks it first."""

    @pytest.fixture
    async def store(self, postgres_url: str, postgres_schema: str) -> AsyncIterator[PostgresStore]:
        store = PostgresStore(postgres_url, schema=postgres_schema, exact_up_to=0)
        yield store
        await store.aclose()


class TestOneConnection(ConcurrencyContract):
    """A store that has to do with one connection at a time."""

    @pytest.fixture
    async def store(self, postgres_url: str, postgres_schema: str) -> AsyncIterator[PostgresStore]:
        store = PostgresStore(postgres_url, schema=postgres_schema, connections=1)
        yield store
        await store.aclose()
