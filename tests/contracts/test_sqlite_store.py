"""The embedded store passes the contract of stores: in a file, in memory, and on odd paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.engine import Hnsw, graph
from ragchat_retrieval.stores.sqlite import SQLiteStore, graphs, nearest
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


class TestInt8(TestFile):
    """Vectors are compared in eight bits first, and nothing else changes."""

    @pytest.fixture
    async def store(self, tmp_path: Path, opened: list[SQLiteStore]) -> SQLiteStore:
        opened.append(SQLiteStore(tmp_path / "kb.sqlite", vectors="int8"))
        return opened[0]

    @pytest.fixture
    def reopen(self, opened: list[SQLiteStore]) -> Reopen:
        async def again(store: SQLiteStore) -> SQLiteStore:
            await store.aclose()
            opened.append(SQLiteStore(store.path, corpus=store.corpus_name, vectors="int8"))
            return opened[-1]

        return again


class TestHnsw(TestFile):
    """A graph of near neighbours is made of every state, at once, and asked for every search."""

    @pytest.fixture(autouse=True)
    def _always_a_graph(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ready = nearest.Graphed._ready

        def current(self: nearest.Graphed, at: nearest.Standing) -> graph.Graph | None:
            ready(self, at)
            self.settle()
            return ready(self, at)

        monkeypatch.setattr(nearest.Graphed, "_ready", current)
        monkeypatch.setattr(graph, "_COMPARED", float("inf"))
        monkeypatch.setattr(graphs, "_FEW", 0)
        monkeypatch.setattr(graphs, "_MANY", 1_000_000)

    @pytest.fixture
    async def store(self, tmp_path: Path, opened: list[SQLiteStore]) -> SQLiteStore:
        opened.append(SQLiteStore(tmp_path / "kb.sqlite", vectors=Hnsw(exact_up_to=0)))
        return opened[0]

    @pytest.fixture
    def reopen(self, opened: list[SQLiteStore]) -> Reopen:
        async def again(store: SQLiteStore) -> SQLiteStore:
            await store.aclose()
            options = Hnsw(exact_up_to=0)
            opened.append(SQLiteStore(store.path, corpus=store.corpus_name, vectors=options))
            return opened[-1]

        return again


class TestHnswLagging(TestHnsw):
    """The graph of the first state is kept, and all that comes later stands beside it."""

    @pytest.fixture(autouse=True)
    def _never_a_better_one(self, _always_a_graph: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(graphs, "_FEW", 1_000_000)


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
