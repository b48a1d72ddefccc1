"""What the memory store does beside keeping the contract of stores."""

from __future__ import annotations

import asyncio
import threading
from unittest.mock import patch

import numpy as np
import pytest

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.ports import LaneQuery
from ragchat_retrieval.stores import questions
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    by_words,
    passage_ids,
    put,
    revision,
    terms_of,
    vector_of,
)


@pytest.mark.parametrize("name", ["", " \t"])
def test_a_corpus_needs_a_name(name: str) -> None:
    with pytest.raises(InvalidSetting):
        MemoryStore(corpus=name)
    with pytest.raises(InvalidSetting):
        MemoryStore().corpus(name)


async def test_a_store_may_be_named_on_creation() -> None:
    """The handle on a named corpus is the one that other handles reach by that name."""
    store = MemoryStore(corpus="kb")
    await put(store, revision("a", "one"))
    assert await store.corpus("other").corpus("kb").document_ids(scope=ALL) == ["a"]


async def test_two_stores_share_nothing() -> None:
    await put(MemoryStore(), revision("a", "one"))
    assert await MemoryStore().corpora() == []


async def test_the_loop_goes_on_while_another_thread_writes() -> None:
    """A write waits for its turn in a worker thread; reads do not wait at all."""
    store = MemoryStore()
    await put(store, revision("a", "one"))
    corpus = store._shared.corpus("default")
    with corpus.lock:
        writing = asyncio.create_task(put(store, revision("b", "one two")))
        async with asyncio.timeout(60):
            for _ in range(20):
                await asyncio.sleep(0)
                assert len(await by_words(store, "one")) == 1
        assert not writing.done()
    await writing
    assert len(await by_words(store, "one")) == 2


async def test_large_work_leaves_the_loops_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches over much, filters not seen before, and writes onto much run in a worker thread."""
    monkeypatch.setattr(questions, "SMALL_TESTS", 0)
    monkeypatch.setattr(questions, "_SMALL_FLOATS", 0)
    store = MemoryStore()
    given = revision("a", "one", metadata={"k": 1})
    await put(store, given)
    threads: list[threading.Thread] = []
    snapshot = store._state().snapshot
    kind = type(snapshot)
    for name in ("search_text", "search_vectors"):
        plain = getattr(kind, name)

        def spy(self: object, *args: object, plain=plain) -> object:
            threads.append(threading.current_thread())
            return plain(self, *args)

        monkeypatch.setattr(kind, name, spy)
    new = Filter.of({"k": 1})
    await by_words(store, "one")
    await by_words(store, "one", filter=new)
    await by_words(store, "one", filter=new)
    await store.search_vector(np.eye(8, dtype=np.float32)[0], 1, filter=ALL, scope=ALL)
    main = threading.main_thread()
    # Without a filter, or with one whose mask is known, words are searched at once.
    assert [thread is main for thread in threads] == [True, False, True, False]


async def test_vectors_that_are_compared_together_count_for_less_than_each_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A few share the way of the matrix from memory; many leave the loop's thread all the same."""
    store = MemoryStore()
    await put(store, revision("a", "one"))
    snapshot = store._state().snapshot
    once = snapshot.rows * 8
    monkeypatch.setattr(questions, "_SMALL_FLOATS", 3 * once)
    vectors = [vector_of("one")] * 100
    small = [
        questions.VectorSearch(vectors[:many], 1, ALL, ALL).is_small(snapshot)
        for many in (1, 4, 100)
    ]
    assert small == [True, True, False]


async def test_hits_that_both_lanes_find_are_fewer_at_once_than_those_of_words_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them is looked up in the other lane too, and of several questions they add up."""
    store = MemoryStore()
    await put(store, revision("a", *map(str, range(8))))
    snapshot = store._state().snapshot
    monkeypatch.setattr(questions, "_SMALL_HITS", 4)
    monkeypatch.setattr(questions, "SMALL_IDS", 2)

    def small(limit: int, asked: int = 1) -> tuple[bool, bool]:
        alone = questions.TextSearch({"1": 1.0}, limit, ALL, ALL)
        beside = questions.WordRows([{"1": 1.0}] * asked, [], limit, ALL, ALL, complete=True)
        return alone.is_small(snapshot), beside.is_small(snapshot)

    assert [small(2), small(4), small(5)] == [(True, True), (True, False), (False, False)]
    assert small(1, asked=2) == (True, True)
    assert small(1, asked=3) == (True, False)


async def test_removed_documents_are_let_go() -> None:
    """Repairing gives back what removed documents held."""
    store = MemoryStore()
    await put(store, *(revision(f"d{n}", f"text {n}") for n in range(50)))
    await store.delete([f"d{n}" for n in range(49)], scope=ALL)
    before = await store.revision()
    await store.repair()
    assert store._state().snapshot.rows == 1
    assert await store.ids(scope=ALL) == passage_ids(revision("d49", "text 49"))
    assert await store.revision() == before
    await put(store, revision("more", "text"))
    assert len(await by_words(store, "text")) == 2


@pytest.mark.parametrize("complete", [True, False])
async def test_lanes_too_large_to_be_asked_at_once_say_the_same(*, complete: bool) -> None:
    """How much work a question is decides where it is done, and nothing else."""
    store = MemoryStore()
    await put(store, *(revision(f"d{n}", f"{'word ' * (n % 5)}text {n}") for n in range(40)))
    asked = [LaneQuery(terms_of(f"word {n}"), vector_of(f"text {n}")) for n in range(3)]

    async def told() -> list[object]:
        rows = await store.search_both(asked, 5, filter=ALL, scope=ALL, complete=complete)
        return [[([*lane.hits], lane.completed) for lane in row] for row in rows]

    at_once = await told()
    with patch.object(questions, "_SMALL_FLOATS", 0):
        assert await told() == at_once
    with patch.object(questions, "_SMALL_ROWS", 0):
        assert await told() == at_once
