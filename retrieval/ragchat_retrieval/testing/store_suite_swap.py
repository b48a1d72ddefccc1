"""What stores promise that can exchange two of their corpora."""

from __future__ import annotations

import asyncio

import pytest

from ragchat_retrieval.errors import CorpusChanged, UnknownCorpus
from ragchat_retrieval.ports import Store, SwappableStore
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    OTHER_MODEL,
    axis,
    by_vector,
    by_words,
    contents,
    put,
    revision,
)


def swappable(store: Store) -> SwappableStore:
    """Returns the store as one that can swap, which it must be."""
    assert isinstance(store, SwappableStore)
    return store


class SwapContract:
    """To be mixed into a store's suite, beside `StoreContract`, whose fixture it uses."""

    async def test_two_corpora_exchange_everything(self, store: Store) -> None:
        """Content, identity and both lanes change places, and other corpora stay as they are."""
        other, third = store.corpus("other"), store.corpus("third")
        await put(store, revision("a", "one two"), revision("b", "two"))
        await put(other, revision("c", "two three"), identity=OTHER_MODEL)
        await put(third, revision("d", "two"))
        before = [await contents(handle) for handle in (store, other, third)]
        lanes = [(await by_words(h, "two"), await by_vector(h, axis(0))) for h in (store, other)]
        await swappable(store).swap_corpus("other")
        after = [await contents(handle) for handle in (other, store, third)]
        assert [a | {"revision": 0} for a in after] == [b | {"revision": 0} for b in before]
        swapped = [(await by_words(h, "two"), await by_vector(h, axis(0))) for h in (other, store)]
        assert swapped == lanes
        assert await store.corpora() == sorted([store.corpus_name, "other", "third"])

    async def test_swapping_raises_both_revisions(self, store: Store) -> None:
        """What is derived from an earlier revision of either name is not taken for current."""
        other = store.corpus("other")
        await put(store, revision("a", "one"))
        for word in ("one", "two", "three"):
            await put(other, revision("b", word))
        highest = max(await store.revision(), await other.revision())
        await swappable(store).swap_corpus("other")
        assert min(await store.revision(), await other.revision()) > highest

    async def test_a_corpus_that_was_written_meanwhile_is_not_swapped(self, store: Store) -> None:
        """With an expected revision nothing is left behind unseen."""
        await put(store, revision("a", "one"))
        await put(store.corpus("other"), revision("b", "two"))
        seen = await store.revision()
        await put(store, revision("a", "three"))
        before = await contents(store)
        with pytest.raises(CorpusChanged) as caught:
            await swappable(store).swap_corpus("other", expected=seen)
        assert caught.value.corpus == store.corpus_name
        assert caught.value.retryable
        assert await contents(store) == before
        await swappable(store).swap_corpus("other", expected=await store.revision())
        assert await store.document_ids(scope=ALL) == ["b"]

    async def test_a_corpus_that_was_never_written_is_not_swapped(self, store: Store) -> None:
        """Neither as the one nor as the other; with itself nothing happens."""
        with pytest.raises(UnknownCorpus):
            await swappable(store).swap_corpus("other")
        await put(store, revision("a", "one"))
        with pytest.raises(UnknownCorpus) as caught:
            await swappable(store).swap_corpus("other")
        assert caught.value.corpus == "other"
        with pytest.raises(UnknownCorpus):
            await swappable(store.corpus("other")).swap_corpus(store.corpus_name)
        before = await contents(store)
        await swappable(store).swap_corpus(store.corpus_name)
        assert await contents(store) == before

    async def test_both_are_written_after_a_swap(self, store: Store) -> None:
        """Writing, replacing and dropping go on under the new names; swapping again goes back."""
        other = store.corpus("other")
        await put(store, revision("a", "one two"))
        await put(other, revision("a", "two three", "two"))
        await by_words(store, "two")
        await swappable(store).swap_corpus("other")
        await put(store, revision("b", "two four"))
        await put(other, revision("c", "two five"), revision("a", "six two"))
        assert await store.document_ids(scope=ALL) == ["a", "b"]
        assert len(await by_words(store, "two")) == len(["two three", "two", "two four"])
        assert len(await by_words(other, "two")) == len(["two five", "six two"])
        await swappable(other).swap_corpus(store.corpus_name)
        assert len(await by_words(store, "two")) == len(["two five", "six two"])
        await other.drop_corpus()
        assert await store.document_ids(scope=ALL) == ["a", "c"]
        assert await store.corpora() == [store.corpus_name]

    async def test_searching_and_writing_go_on_during_swaps(self, store: Store) -> None:
        """A search sees the one corpus or the other, whole; no write is lost."""
        other = store.corpus("other")
        await put(store, revision("a", "one two", "one three"))
        await put(other, revision("b", "one four", "one five", "one six"))

        async def search() -> None:
            for _ in range(20):
                assert len(await by_words(store, "one")) in {2, 3}

        async def write() -> None:
            for number in range(10):
                await put(store, revision(f"w{number}", "seven"))

        async def swap() -> None:
            for _ in range(5):
                await swappable(store).swap_corpus("other")

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for work in (search, write, swap):
                group.create_task(work())
        written = [
            i for h in (store, other) for i in await h.document_ids(scope=ALL) if i[0] == "w"
        ]
        assert sorted(written) == [f"w{number}" for number in range(10)]
