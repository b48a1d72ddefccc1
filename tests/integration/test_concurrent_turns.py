"""Whole turns at once: sync parts leave the event loop free, and what can run together does."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from ragchat.augment import ContextualAugmenter
from ragchat.prepare import Preparer
from ragchat_retrieval.errors import EmbeddingError
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.opening import in_memory
from ragchat_retrieval.pipeline import RetrievalPipeline
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.values import Candidate, Document, Passage, Query

GUARD = 30
MESSAGES = [{"role": "user", "content": "Where is tea grown?"}]


class Waiting:
    """Makes functions that wait, in their thread, for a loop that answers only if it is free."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.called: set[str] = set()

    def stage(self, name, result):
        async def tick() -> None:
            await asyncio.sleep(0)

        def run(*args):
            assert threading.current_thread() is not threading.main_thread()
            asyncio.run_coroutine_threadsafe(tick(), self.loop).result(timeout=GUARD)
            self.called.add(name)
            return result(*args)

        return run


class SyncEmbedder:
    """An embedder whose method is no coroutine function."""

    model = "sync-2"
    dimension = 2

    def __init__(self, waiting: Waiting) -> None:
        self.embed = waiting.stage("embed", self._rows)

    def _rows(self, texts, kind):
        return np.tile(np.array([[1, 0]], np.float32), (len(texts), 1))


async def test_every_part_of_a_turn_may_be_a_plain_function_and_the_loop_stays_free():
    waiting = Waiting()
    stage = waiting.stage
    index = HybridIndex(embedder=SyncEmbedder(waiting))
    await index.ingest(Document("tea", "Tea is grown in the hills."))
    preparer = Preparer(
        index.retriever(
            transformers=[stage("transformer", lambda query: query)],
            expander=stage("expand", lambda q: [q.with_text(f"{q.text} {n}") for n in range(3)]),
            rerank=stage("rerank", lambda query, candidates: [1.0] * len(candidates)),
        ),
        gate=stage("gate", lambda turn: True),
        query_transformer=stage("transform", lambda turn: turn.query),
        augmenter=ContextualAugmenter(max_context_tokens=999, count_tokens=stage("count", len)),
    )
    async with asyncio.timeout(GUARD):
        turns = await asyncio.gather(*(preparer.prepare(messages=MESSAGES) for _ in range(20)))
    assert all(len(turn.retrieval.citations) == 1 for turn in turns)
    assert not any(turn.retrieval.degraded for turn in turns)
    assert waiting.called == {
        *("embed", "transformer", "expand", "rerank", "gate", "transform", "count")
    }


async def test_the_keyword_lane_does_not_wait_for_the_embedding():
    keyword_began, embedding_began = asyncio.Event(), asyncio.Event()

    class Store(MemoryStore):
        async def search_text(self, *args, **options):
            keyword_began.set()
            await embedding_began.wait()
            return await super().search_text(*args, **options)

    index = HybridIndex(Store(), embedder=in_memory(8).embedder)
    await index.ingest(Document("tea", "tea"))
    embed = index.embedder.embed

    async def slow(texts, kind="passage"):
        embedding_began.set()
        await keyword_began.wait()
        return await embed(texts, kind)

    index.embedder.embed = slow
    async with asyncio.timeout(GUARD):
        assert len(await index.search("tea")) == 1


async def test_the_wordings_of_a_question_are_searched_at_once():
    """Up to four at a time over a foreign retriever; each waits here for all others."""
    arrived = asyncio.Barrier(4)

    async def retrieve(query: Query) -> list[Candidate]:
        await arrived.wait()
        return [Candidate(Passage(query.text), 1.0)]

    pipeline = RetrievalPipeline(
        retrieve, expander=lambda q: [q.with_text(f"wording {n}") for n in range(3)]
    )
    async with asyncio.timeout(GUARD):
        assert len(await pipeline("original")) == 4


async def test_if_one_lane_fails_the_other_is_cancelled_and_awaited():
    ended = asyncio.Event()

    class Store(MemoryStore):
        async def search_text(self, *args, **options):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.set()

    index = HybridIndex(Store(), embedder=in_memory(8).embedder)
    await index.ingest(Document("tea", "tea"))

    async def broken(texts, kind="passage"):
        await asyncio.sleep(0)
        raise ConnectionError

    index.embedder.embed = broken
    async with asyncio.timeout(GUARD):
        with pytest.raises(EmbeddingError):
            await index.search("tea")
    assert ended.is_set()
