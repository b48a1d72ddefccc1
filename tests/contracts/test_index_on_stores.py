"""What a user of the index sees is the same over every store that needs no heavy client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.postgres import PostgresStore
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.testing.index_suite import IndexContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ragchat_retrieval.ports import Store


class TestMemory(IndexContract):
    """The store in memory."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = MemoryStore()
        yield store
        await store.aclose()


class TestSQLite(IndexContract):
    """One file."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = SQLiteStore(tmp_path / "kb.sqlite")
        yield store
        await store.aclose()


class TestPostgres(IndexContract):
    """A server."""

    @pytest.fixture
    async def store(self, postgres_url: str, postgres_schema: str) -> AsyncIterator[Store]:
        store = PostgresStore(postgres_url, schema=postgres_schema)
        yield store
        await store.aclose()
