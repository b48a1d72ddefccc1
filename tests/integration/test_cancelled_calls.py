"""Cancelled at whatever point, a turn over HTTP gives its connections back and leaves no task."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import httpx2
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpx2Client

import ragchat
from ragchat.testing import LoopbackOpenAI
from ragchat_retrieval.testing.cancelling import cancelled_everywhere
from ragchat_retrieval.testing.rerank_server import RerankServer

GUARD = 30
MESSAGES = [
    {"role": "user", "content": "Where is tea grown?"},
    {"role": "assistant", "content": "In the hills."},
    {"role": "user", "content": "And rice?"},
]


@pytest.fixture
def server():
    with LoopbackOpenAI(default="rice fields") as running:
        yield running


@asynccontextmanager
async def pool_of_one(server):
    """A client with a single connection: one that is not given back makes the next call fail."""
    limits = httpx2.Limits(max_connections=1)
    timeout = httpx2.Timeout(GUARD, pool=5)
    http = DefaultAsyncHttpx2Client(limits=limits, timeout=timeout)
    async with AsyncOpenAI(
        api_key="k", base_url=server.base_url, max_retries=0, http_client=http
    ) as client:
        yield client


async def all_closed(server):
    """Waits until the server has seen every connection close."""
    async with asyncio.timeout(GUARD):
        while server.open_connections:  # noqa: ASYNC110 - the server lives in another thread
            await asyncio.sleep(0)


async def test_a_preparation_gives_its_connections_back(server):
    """The helper model and the embedder share the one connection."""
    async with pool_of_one(server) as client:
        small = ragchat.ChatModel(client.chat.completions.create, model="small")
        embedder = ragchat.OpenAIEmbedder("e", client=client, dimension=16)
        index = ragchat.HybridIndex(embedder=embedder)
        await index.ingest(ragchat.Document("rice", "Rice is grown in the plains."))
        preparer = ragchat.Preparer(
            index.retriever(expander=ragchat.MultiQueryExpander(small, n=1)),
            query_transformer=ragchat.CompressionTransformer(small),
        )

        async def connection_is_free():
            await client.models.list()

        cancelled = await cancelled_everywhere(
            lambda: preparer.prepare(model="big", messages=MESSAGES), connection_is_free
        )
        assert cancelled > 10
    await all_closed(server)


async def test_a_stream_gives_its_connection_back(server):
    async with pool_of_one(server) as client:
        preparer = ragchat.Preparer(ragchat.quickstart().retriever())
        prepared = await preparer.prepare(model="big", messages=MESSAGES)

        async def answer():
            async with prepared.stream(client.chat.completions.create) as chunks:
                async for _ in chunks:
                    pass

        async def connection_is_free():
            await client.models.list()

        for again in (False, True):
            assert await cancelled_everywhere(answer, connection_is_free, again=again) > 10
    await all_closed(server)


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
async def test_clients_of_our_own_close_with_their_owner(server, again):
    documents = [ragchat.Candidate(ragchat.Passage(f"tea {n}"), 1.0) for n in range(3)]

    with RerankServer() as reranking:

        async def work():
            async with (
                ragchat.OpenAIEmbedder("e", url=server.base_url, dimension=16) as embedder,
                ragchat.HttpReranker(reranking.url, shape="tei", margin=None) as scorer,
            ):
                await embedder.embed(["tea"])
                await scorer(ragchat.Query("tea"), documents)

        assert await cancelled_everywhere(work, again=again) > 10
    await all_closed(server)
