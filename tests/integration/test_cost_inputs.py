"""What models took before the answer is in the trace, as providers say it: what a price needs."""

from __future__ import annotations

import pytest
from openai import AsyncOpenAI

import ragchat
from ragchat.testing import Failure, LoopbackOpenAI, Reply
from ragchat_retrieval.retry import Retries
from ragchat_retrieval.testing.rerank_server import RerankServer

AT_ONCE = Retries(first=0.0)
MESSAGES = [
    {"role": "user", "content": "Where is tea grown?"},
    {"role": "assistant", "content": "In the hills."},
    {"role": "user", "content": "And rice?"},
]


@pytest.fixture
def server():
    with LoopbackOpenAI() as running:
        yield running


def used(prompt, completion):
    """Returns a provider's usage."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def bill(trace):
    """Returns the calls of a trace with the stages that made them."""
    stages = {timing.number: timing.stage for timing in trace.stages}
    return sorted(
        (
            stages.get(call.stage),
            call.operation,
            call.model,
            call.items,
            call.requests,
            call.input_tokens,
            call.output_tokens,
            call.outcome,
        )
        for call in trace.calls
    )


async def test_every_helper_call_is_there_with_the_usage_of_its_reply(server):
    server.script(
        Reply("Where is rice grown?", usage=used(40, 6)),
        Reply('["rice fields"]', usage=used(30, 4)),
    )
    async with (
        AsyncOpenAI(base_url=server.base_url, api_key="k") as client,
        ragchat.OpenAIEmbedder("e", url=server.base_url, dimension=16) as embedder,
    ):
        index = ragchat.HybridIndex(embedder=embedder)
        await index.ingest(
            ragchat.Document("tea", "Tea is grown in the hills."),
            ragchat.Document("rice", "Rice is grown in the plains."),
        )
        small = ragchat.ChatModel(client.chat.completions.create, model="small")
        with RerankServer() as reranking:
            async with ragchat.HttpReranker(reranking.url, "r", shape="tei", margin=None) as scorer:
                preparer = ragchat.Preparer(
                    index.retriever(
                        expander=ragchat.MultiQueryExpander(small, n=1), rerank=scorer, top_k=2
                    ),
                    query_transformer=ragchat.CompressionTransformer(small),
                )
                prepared = await preparer.prepare(model="big", messages=MESSAGES)
    assert prepared.retrieval.degraded == ()
    assert bill(prepared.retrieval.trace) == [
        ("expand", "chat", "small", 1, 1, 30, 4, "ok"),
        ("rerank", "rerank", "r", 2, 1, None, None, "ok"),
        ("transform", "chat", "small", 1, 1, 40, 6, "ok"),
        ("vector", "embeddings", "e", 2, 1, 6, None, "ok"),
    ]


async def test_tries_are_counted_and_a_failed_call_is_on_the_bill(server):
    server.script(Failure(503), Failure(503), Failure(400))
    async with AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
        small = ragchat.ChatModel(client.chat.completions.create, model="small", retries=AT_ONCE)
        index = ragchat.HybridIndex()
        await index.ingest(ragchat.Document("rice", "Rice is grown in the plains."))
        preparer = ragchat.Preparer(
            index.retriever(), query_transformer=ragchat.CompressionTransformer(small)
        )
        prepared = await preparer.prepare(model="big", messages=MESSAGES)
    assert bill(prepared.retrieval.trace) == [
        ("transform", "chat", "small", 1, 3, None, None, "failed")
    ]


async def test_a_reply_that_cannot_be_used_costs_what_it_cost(server):
    server.script(Reply("Where is", finish_reason="length", usage=used(40, 2)))
    async with AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
        small = ragchat.ChatModel(client.chat.completions.create, model="small")
        index = ragchat.HybridIndex()
        await index.ingest(ragchat.Document("rice", "Rice is grown in the plains."))
        preparer = ragchat.Preparer(
            index.retriever(), query_transformer=ragchat.CompressionTransformer(small)
        )
        prepared = await preparer.prepare(model="big", messages=MESSAGES)
    assert [d.stage for d in prepared.retrieval.degraded] == ["transform"]
    assert bill(prepared.retrieval.trace) == [("transform", "chat", "small", 1, 1, 40, 2, "failed")]


async def test_a_cached_vector_costs_nothing(server):
    async with ragchat.OpenAIEmbedder("e", url=server.base_url, dimension=16) as embedder:
        cached = ragchat.CachedEmbedder(embedder)
        async with cached:
            index = ragchat.HybridIndex(embedder=cached)
            await index.ingest(ragchat.Document("tea", "Tea is grown in the hills."))
            first = await index.search("where is tea")
            second = await index.search("where is tea")
    assert bill(first.trace) == [("vector", "embeddings", "e", 1, 1, 3, None, "ok")]
    assert bill(second.trace) == []
