"""The embedded store passes the contract of stores: in a file, in memory, and on odd paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.testing.store_suite import DurableStoreContract, StoreContract
from ragchat_retrieval.testing.store_suite_swap import SwapContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Reopen = Callable[[SQLiteStore], Awaitable[SQLiteStore]]


class TestFile(SwapContract, DurableStoreContract):
    """A file whose path is no friend of URIs."""

    @pytest.fixture
    async def opened(self) -> AsyncIterator[list[SQLiteStore]]:
        stores: list[SQLiteStore] = []
        yield stores
        for store in stores:
            await store.aclose()

    @pytest.fixture
    async def store(self, tmp_path: Path, opened: list[SQLiteStore]) -> SQLiteStore:
        folder = tmp_path / "a folder? 100%#1"
        folder.mkdir()
        opened.append(SQLiteStore(folder / "kb é?mode=ro.sqlite"))
        return opened[0]

    @pytest.fixture
    def reopen(self, opened: list[SQLiteStore]) -> Reopen:
        async def again(store: SQLiteStore) -> SQLiteStore:
            await store.aclose()
            opened.append(SQLiteStore(store.path, corpus=store.corpus_name))
            return opened[-1]

        return again


class TestWithoutSavedArrays(TestFile):
    """The same where the arrays beside the file are removed each time."""

    @pytest.fixture
    def reopen(self, opened: list[SQLiteStore]) -> Reopen:
        async def again(store: SQLiteStore) -> SQLiteStore:
            await store.aclose()
            for path in _folder(store).iterdir():
                path.unlink()
            opened.append(SQLiteStore(store.path, corpus=store.corpus_name))
            return opened[-1]

        return again


class TestMemory(SwapContract, StoreContract):
    """A private database in memory."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[SQLiteStore]:
        store = SQLiteStore(":memory:")
        yield store
        await store.aclose()


def _folder(store: SQLiteStore) -> Path:
    from pathlib import Path

    return Path(f"{store.path}.index")
