"""The contract of stores as a test suite: an adapter overrides one fixture.

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self):
            store = MyStore(...)
            yield store
            await store.aclose()

A store that keeps its content derives from `DurableStoreContract` and says how to open it again.
One without a keyword lane derives from `VectorStoreContract`. The tests are coroutines and need
pytest-asyncio in auto mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.errors import IdentityMismatch, StoreClosed
from ragchat_retrieval.ports import Store
from ragchat_retrieval.testing.store_suite_concurrency import ConcurrencyContract
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    IDENTITY,
    OTHER_MODEL,
    axis,
    by_vector,
    by_words,
    contents,
    put,
    revision,
)
from ragchat_retrieval.testing.store_suite_lanes import KeywordLaneContract, VectorLaneContract
from ragchat_retrieval.testing.store_suite_reads import (
    ApartContract,
    ClosingContract,
    ReadContract,
)
from ragchat_retrieval.testing.store_suite_scope import ScopeContract
from ragchat_retrieval.testing.store_suite_writes import IdentityContract, WriteContract

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Reopen = Callable[[Store], Awaitable[Store]]


class _Fixture:
    @pytest.fixture
    def store(self) -> Store:
        """Gives the store under test, empty and fresh for each test."""
        pytest.fail("override the fixture store")


class VectorStoreContract(
    WriteContract,
    IdentityContract,
    ReadContract,
    ApartContract,
    ClosingContract,
    ScopeContract,
    VectorLaneContract,
    ConcurrencyContract,
    _Fixture,
):
    """What every store with a vector lane promises."""

    async def test_it_is_a_store(self, store: Store) -> None:
        """The object has every method of the port."""
        assert isinstance(store, Store)

    async def test_repairing_changes_nothing_that_is_told(self, store: Store) -> None:
        """A sound store says the same after a repair."""
        await put(store, revision("a", "one two", metadata={"k": 1}), revision("b", "two"))
        await store.delete(["b"], scope=ALL)
        before = await contents(store)
        hits = await by_words(store, "two"), await by_vector(store, axis(0))
        await store.repair()
        after = await contents(store)
        assert after | {"revision": 0} == before | {"revision": 0}
        assert (await by_words(store, "two"), await by_vector(store, axis(0))) == hits


class StoreContract(VectorStoreContract, KeywordLaneContract):
    """What every store with both lanes promises."""


class DurableStoreContract(StoreContract):
    """What a store promises besides that keeps its content when it is closed."""

    @pytest.fixture
    def reopen(self) -> Reopen:
        """Gives a function that closes a store and opens the same content with a new object."""
        pytest.fail("override the fixture reopen")

    async def test_content_outlives_the_store(self, store: Store, reopen: Reopen) -> None:
        """Opened again, a store says and finds the same, exactly, without being told settings."""
        await put(
            store,
            revision("a", "one two", "two three", metadata={"k": [1, None]}, title="T", source="s"),
            revision("b", "three four", fingerprint="f"),
        )
        await put(store, revision("b", "four five two"))
        await put(store.corpus("other"), revision("a", "elsewhere"))
        before = await contents(store)
        hits = await by_words(store, "two four"), await by_vector(store, axis(0))
        again = await reopen(store)
        assert await contents(again) == before
        assert (await by_words(again, "two four"), await by_vector(again, axis(0))) == hits
        assert await again.corpora() == sorted([store.corpus_name, "other"])
        assert len(await by_words(again.corpus("other"), "elsewhere")) == 1

    async def test_writing_goes_on_after_reopening(self, store: Store, reopen: Reopen) -> None:
        """A store opened again is written, replaced and emptied like the first."""
        await put(store, revision("a", "one two", "two"), revision("b", "three"))
        again = await reopen(store)
        await put(again, revision("a", "two new"), revision("c", "two more"))
        assert len(await by_words(again, "two")) == len("ac")
        again = await reopen(again)
        assert len(await by_words(again, "two")) == len("ac")
        await again.delete(["a", "b", "c"], scope=ALL)
        again = await reopen(again)
        assert await again.count(scope=ALL) == (0, 0, 0)
        assert not await by_words(again, "two")

    async def test_the_identity_is_checked_after_reopening(
        self, store: Store, reopen: Reopen
    ) -> None:
        """Another model of the same dimension is refused, and welcome after a reset."""
        await put(store, revision("a", "one"))
        again = await reopen(store)
        assert await again.identity() == IDENTITY
        with pytest.raises(IdentityMismatch):
            await put(again, revision("b", "two"), identity=OTHER_MODEL)
        await again.reset()
        again = await reopen(again)
        assert await again.identity() is None
        await put(again, revision("b", "two"), identity=OTHER_MODEL)
        assert await again.identity() == OTHER_MODEL

    async def test_the_closed_store_stays_closed(self, store: Store, reopen: Reopen) -> None:
        """Opening again makes another store and does not revive the first."""
        await put(store, revision("a", "one"))
        await reopen(store)
        with pytest.raises(StoreClosed):
            await store.count(scope=ALL)
