"""The memory store keeps the contract of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.engine import writer
from ragchat_retrieval.stores import memory
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


class TestMemoryStoreInThreads(TestMemoryStore):
    """As with much content, when nothing is done on the event loop's own thread."""

    @pytest.fixture(autouse=True)
    def _nothing_inline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in vars(memory) if name.startswith("_INLINE_")]:
            monkeypatch.setattr(memory, name, -1)


class TestMemoryStoreCompacting(TestMemoryStore):
    """When every removal moves all rows."""

    @pytest.fixture(autouse=True)
    def _always_compact(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "_FEW_ROWS", 0)
        monkeypatch.setattr(writer, "_MOST_DEAD", 0.0)
