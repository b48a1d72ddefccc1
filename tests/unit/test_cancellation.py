"""Cancelled at whatever point, a turn leaves no task behind, no run, and no half of a write."""

from __future__ import annotations

import asyncio

import pytest

import ragchat
from ragchat import Document, Query, cached
from ragchat.testing import ScriptedChatModel
from ragchat_retrieval.policy import current_run
from ragchat_retrieval.testing.cancelling import cancelled_everywhere

MESSAGES = [
    {"role": "user", "content": "Where is tea grown?"},
    {"role": "assistant", "content": "In the hills."},
    {"role": "user", "content": "And rice?"},
]


async def waits(value):
    """Returns a value after a wait."""
    await asyncio.sleep(0)
    return value


class Embedder(ragchat.HashingEmbedder):
    """Waits, as an embedder that asks a server."""

    async def embed(self, texts, kind="query"):
        return await waits(await super().embed(texts, kind))


def slow(*replies):
    """Returns a model whose replies take a while."""
    script = ScriptedChatModel([lambda _, reply=reply: waits(reply) for reply in replies])
    return ragchat.ChatModel(script.create, model="small")


class Apart(ragchat.MemoryStore):
    """Has a lane of its own, so that lanes are asked one by one."""

    async def search_text(self, terms, limit, **bounds):
        return await super().search_text(terms, limit, **bounds)


async def index_of_two(store=None):
    index = ragchat.HybridIndex(store, embedder=Embedder(16))
    await index.ingest(
        Document("tea", "Tea is grown in the hills."),
        Document("rice", "Rice is grown in the plains."),
    )
    return index


async def prepared(index, *, wrap=lambda retriever: retriever, sync=False, **options):
    def scores(query, candidates):
        return [0.5] * len(candidates)

    async def slow_scores(query, candidates):
        return await waits(scores(query, candidates))

    retriever = index.retriever(
        expander=ragchat.MultiQueryExpander(slow('["rice fields", "paddies"]'), n=2),
        rerank=scores if sync else slow_scores,
        mmr=0.5,
    )
    preparer = ragchat.Preparer(
        wrap(retriever),
        query_transformer=ragchat.CompressionTransformer(slow("Where is rice grown?")),
        gate=lambda _: waits(True),
        **options,
    )
    return await preparer.prepare(model="big", messages=MESSAGES)


async def opened(kind, folder, embedder):
    if kind == "memory":
        return ragchat.HybridIndex(embedder=embedder)
    return await ragchat.open_index(str(folder / "kb.sqlite"), embedder=embedder)


async def no_run():
    assert current_run() is None


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize(
    "options",
    [{}, {"speculative": True}, {"wrap": cached}],
    ids=["plain", "speculative", "cached"],
)
@pytest.mark.parametrize(("kind", "steps"), [(ragchat.MemoryStore, 6), (Apart, 20)])
async def test_a_preparation_can_be_cancelled_at_every_step(kind, steps, options, again):
    index = await index_of_two(kind())
    cancelled = await cancelled_everywhere(lambda: prepared(index, **options), no_run, again=again)
    assert cancelled > steps


async def test_a_preparation_with_sync_stages_can_be_cancelled_at_every_step():
    index = await index_of_two(Apart())
    assert await cancelled_everywhere(lambda: prepared(index, sync=True), no_run) > 20


@pytest.mark.parametrize(("kind", "steps"), [(ragchat.MemoryStore, 1), (Apart, 10)])
async def test_a_batch_can_be_cancelled_at_every_step(kind, steps):
    index = await index_of_two(kind())
    texts = ["tea", "rice", "hills", "plains", "grown", ""]
    assert await cancelled_everywhere(lambda: index.search_batch(texts)) > steps


async def test_waiting_together_can_be_cancelled_at_every_step():
    """Whoever is cancelled among equal calls of a cached stage, the others get their answer."""

    async def stage(query):
        return await waits(await waits(query.text))

    async def together():
        wrapped = cached(stage)
        first = asyncio.create_task(wrapped(Query("a")))
        try:
            assert await wrapped(Query("a")) == "a"
        finally:
            assert await first == "a"

    # The first goes on though the second is cancelled, so it is awaited in `finally`.
    assert await cancelled_everywhere(together) > 3


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_write_that_is_cancelled_is_whole_or_not_there(kind, tmp_path):
    index = await opened(kind, tmp_path, Embedder(16))
    versions = iter(range(10_000))
    splitter = ragchat.ParagraphSplitter()

    def version(number):
        return [
            Document(name, "\n\n".join(f"tea v{number} {name} part{part}" for part in range(3)))
            for name in ("a", "b")
        ]

    async def write():
        await index.ingest(*version(next(versions)), splitter=splitter)

    async def whole():
        found = await index.search("tea", top_k=None)
        written = {candidate.passage.text.split()[1] for candidate in found}
        assert len(written) <= 1
        assert len(found) == 6 * len(written)
        counts = await index.store.count(scope=ragchat.Filter())
        assert counts.passages in {0, 6}

    async with index:
        assert await cancelled_everywhere(write, whole) > 5
        assert len(await index.search("tea", top_k=None)) == 6


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_removal_that_is_cancelled_is_whole_or_not_there(kind, tmp_path):
    index = await opened(kind, tmp_path, None)
    documents = [Document(name, f"tea {name}") for name in ("a", "b", "c")]

    async def remove():
        await index.ingest(*documents)
        await index.remove(["a", "b", "c"])

    async def whole():
        assert len(await index.search("tea")) in {0, 3}

    async with index:
        assert await cancelled_everywhere(remove, whole) > 2
        assert len(await index.search("tea")) == 0


# The harness itself


async def test_the_harness_cancels_at_each_step_once():
    reached = []

    async def work():
        for step in range(3):
            reached.append(step)
            await asyncio.sleep(0)

    assert await cancelled_everywhere(work) == 5
    assert reached == [0, 0, 1, 0, 1, 2, 0, 1, 2, 0, 1, 2]


async def test_the_harness_finds_a_task_that_is_left_behind():
    leaked, over = [], asyncio.Event()

    async def work():
        leaked.append(asyncio.create_task(over.wait()))
        await asyncio.sleep(0)
        await leaked[-1]

    with pytest.raises(AssertionError, match="left"):
        await cancelled_everywhere(lambda: asyncio.shield(work()) and spread(work))
    over.set()
    await asyncio.gather(*leaked, return_exceptions=True)


async def spread(work):
    """Starts work that outlives its caller."""
    await asyncio.shield(asyncio.ensure_future(work()))


async def test_the_harness_finds_an_error_in_place_of_a_cancellation():
    async def work():
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise LookupError from None

    with pytest.raises(AssertionError, match="LookupError"):
        await cancelled_everywhere(work)
