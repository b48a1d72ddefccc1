"""The memory store keeps the contract of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ragchat_retrieval.engine import writer
from ragchat_retrieval.stores import memory
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.testing.store_suite import StoreContract
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    by_vector,
    passage_ids,
    put,
    revision,
    vector_of,
)
from ragchat_retrieval.testing.store_suite_swap import SwapContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from numpy.typing import NDArray


class TestMemoryStore(SwapContract, StoreContract):
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


class TestMemoryStoreInt8(TestMemoryStore):
    """When vectors are kept in a quarter of the memory: all holds but their last digits."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[MemoryStore]:
        """Gives an empty store."""
        store = MemoryStore(vectors="int8")
        yield store
        await store.aclose()

    async def test_scores_are_cosine_similarities(self, store: MemoryStore) -> None:
        """Scores are near the cosines, and exact for the vectors that the store gives back."""
        given = [revision(f"d{n}", f"text {n}") for n in range(30)]
        await put(store, *given)
        query = vector_of("the question")
        found = dict(await by_vector(store, query, 100))
        kept = await store.vectors(passage_ids(*given), scope=ALL)
        for one in given:
            passage = one.passages[0]
            exact = float(kept[passage.id].astype(np.float64) @ query.astype(np.float64))
            assert found[passage.id] == pytest.approx(exact, abs=1e-12)
            assert exact == pytest.approx(float(vector_of(passage.text) @ query), abs=0.01)

    async def test_some_documents_of_a_write_may_lack_vectors(self, store: MemoryStore) -> None:
        """Documents without vectors stand beside others, in any order."""
        given = [revision(f"d{n}", f"word {n}", embedded=n % 2 == 0) for n in range(6)]
        await put(store, *given)
        await put(store, *given[::-1])
        found = await store.vectors(passage_ids(*given), scope=ALL)
        assert found.keys() == set(passage_ids(*given[::2]))
        for one in given[::2]:
            assert near(found[one.passages[0].id], one.vectors[0])

    async def test_vectors_come_back_as_given(self, store: MemoryStore) -> None:
        """No number is off by more than half a step, and every answer is the same."""
        given = revision("a", "one", "two")
        await put(store, given)
        found = await store.vectors(passage_ids(given), scope=ALL)
        again = await store.vectors(passage_ids(given)[::-1], scope=ALL)
        for passage, vector in zip(given.passages, given.vectors, strict=True):
            assert found[passage.id].dtype == np.float32
            assert near(found[passage.id], vector)
            assert np.array_equal(found[passage.id], again[passage.id])


def near(kept: NDArray[np.float32], given: NDArray[np.float32]) -> bool:
    step = float(np.abs(given).max()) / 127
    return bool((np.abs(kept - given) <= step * 0.501).all())
