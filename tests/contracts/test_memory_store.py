"""The memory store keeps the contract of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.testing.store_suite import StoreContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class TestMemoryStore(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[MemoryStore]:
        """Gives an empty store."""
        store = MemoryStore()
        yield store
        await store.aclose()
