"""Prepared requests through the official clients, against a server on loopback."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import logging
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
import pytest
from openai import APIStatusError, AsyncOpenAI, DefaultAsyncHttpx2Client, OpenAI

from ragchat import sync
from ragchat.errors import EmptyResponse
from ragchat.expansion import MultiQueryExpander
from ragchat.models import ChatModel
from ragchat.prepare import Preparer
from ragchat.reranking import LLMReranker
from ragchat.testing import Failure, Gate, Held, Interrupted, LoopbackOpenAI, Reply, tool_call
from ragchat.transforms import CompressionTransformer
from ragchat_retrieval.opening import quickstart
from ragchat_retrieval.policy import Policy
from ragchat_retrieval.values import Candidate, Document, Passage

GUARD = 30
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
MESSAGES = [
    {"role": "developer", "content": "Sei höflich. 漢字 {x} <|endoftext|>"},
    {"role": "user", "content": [{"type": "text", "text": "weather?"}, IMAGE], "name": "ann"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [tool_call("weather", '{"city": "Rome"}')],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "12 C"},
    {"role": "assistant", "content": "It is 12 C.", "x_unknown": {"deep": [1, 2.5, None]}},
    {"role": "user", "content": [IMAGE, {"type": "text", "text": "How many days of paid leave?"}]},
]


async def retrieve(query) -> list[Candidate]:
    passage = Passage("Employees get 25 days of paid leave.", id="leave", source="leave.md")
    return [Candidate(passage, 1.0)]


PREPARER = Preparer(retrieve)


@asynccontextmanager
async def client(server: LoopbackOpenAI, **options):
    settings = {"api_key": "k", "base_url": server.base_url, "max_retries": 0, **options}
    async with AsyncOpenAI(**settings) as api:
        yield api


@asynccontextmanager
async def pool_of_one(server: LoopbackOpenAI):
    """A client that can hold one connection, and waits shortly for it to become free."""
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    timeout = httpx2.Timeout(GUARD, pool=5)
    async with (
        DefaultAsyncHttpx2Client(limits=limits, timeout=timeout) as http,
        client(server, http_client=http) as api,
    ):
        yield api


def before_the_last(body: bytes) -> bytes:
    """All messages of a request's body but the last, as they were sent."""
    last = json.dumps(
        json.loads(body)["messages"][-1], ensure_ascii=False, separators=(",", ":")
    ).encode()
    return body[body.index(b'"messages":[') : body.index(last)]


def said(chunks) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


async def test_call_and_stream_send_all_earlier_messages_byte_for_byte():
    messages = copy.deepcopy(MESSAGES)
    with LoopbackOpenAI(default="25 days [1].") as server:
        async with client(server) as api:
            create = api.chat.completions.create
            await create(model="m", messages=messages, temperature=0)
            prepared = await PREPARER.prepare(model="m", messages=messages, temperature=0)
            reply = await prepared.call(create)
            async with prepared.stream(create) as stream:
                chunks = [chunk async for chunk in stream]
        plain, called, streamed = server.requests
    assert messages == MESSAGES
    assert reply.choices[0].message.content == said(chunks) == "25 days [1]."
    assert before_the_last(called.body) == before_the_last(plain.body)
    assert before_the_last(streamed.body) == before_the_last(plain.body)
    for request in (called, streamed):
        image, text = request.json["messages"][-1]["content"]
        assert image == IMAGE
        assert "Employees get 25 days of paid leave." in text["text"]
        assert text["text"].endswith("How many days of paid leave?")
    assert called.json == {**prepared.request}
    assert streamed.json == {**prepared.request, "stream": True}
    assert prepared.retrieval.citations.cited(said(chunks))[1].source == "leave.md"


def test_the_sync_client_through_the_blocking_face_does_the_same():
    messages = copy.deepcopy(MESSAGES)
    preparer = sync.Preparer(retrieve)
    with (
        LoopbackOpenAI(default="25 days [1].") as server,
        OpenAI(api_key="k", base_url=server.base_url, max_retries=0) as api,
    ):
        create = api.chat.completions.create
        create(model="m", messages=messages)
        prepared = preparer.prepare(model="m", messages=messages)
        reply = prepared.call(create)
        with prepared.stream(create) as stream:
            text = said(stream)
        plain, called, _ = server.requests
    assert messages == MESSAGES
    assert reply.choices[0].message.content == text == "25 days [1]."
    assert before_the_last(called.body) == before_the_last(plain.body)


async def test_the_sync_client_works_from_async_code():
    with (
        LoopbackOpenAI(default="hello") as server,
        OpenAI(api_key="k", base_url=server.base_url, max_retries=0) as api,
    ):
        prepared = await PREPARER.prepare(model="m", messages=MESSAGES)
        reply = await prepared.call(api.chat.completions.create)
        async with prepared.stream(api.chat.completions.create) as stream:
            chunks = [chunk async for chunk in stream]
    assert reply.choices[0].message.content == said(chunks) == "hello"


def test_the_async_client_works_from_the_blocking_face():
    with LoopbackOpenAI(default="hello") as server:
        api = AsyncOpenAI(api_key="k", base_url=server.base_url, max_retries=0)
        prepared = sync.Preparer(retrieve).prepare(model="m", messages=MESSAGES)
        with prepared.stream(api.chat.completions.create) as stream:
            assert said(stream) == "hello"
        reply = prepared.call(api.chat.completions.create)
        sync.run(api.close())
    assert reply.choices[0].message.content == "hello"


async def test_tool_rounds_are_appended_after_the_evidence():
    call = tool_call("f", '{"a": 1}')
    with LoopbackOpenAI(Reply(None, tool_calls=[call]), "done") as server:
        async with client(server) as api:
            prepared = await PREPARER.prepare(model="m", messages=MESSAGES)
            reply = await prepared.call(api.chat.completions.create)
            message = reply.choices[0].message
            rounds = [message, {"role": "tool", "tool_call_id": call["id"], "content": "7"}]
            await prepared.with_messages(rounds).call(api.chat.completions.create)
        first, second = (request.json["messages"] for request in server.requests)
    assert second[: len(first)] == first
    assert second[-2]["tool_calls"] == [call]
    assert second[-1]["content"] == "7"


async def test_helper_calls_never_reach_the_users_stream():
    """They are not streamed, carry no tools, and share nothing but the client."""
    script = (
        '{"query": "days of paid leave"}',
        '{"queries": ["leave days", "paid holidays"]}',
        '{"scores": [{"index": 0, "score": 0.9}]}',
    )
    index = quickstart()
    await index.ingest(Document("leave", "Employees get 25 days of paid leave.", source="leave.md"))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    with LoopbackOpenAI(*script, "25 days [1].") as server:
        async with client(server) as api:
            create = api.chat.completions.create
            small = ChatModel(create, model="small")
            preparer = Preparer(
                index.retriever(
                    top_k=1, expander=MultiQueryExpander(small, n=2), rerank=LLMReranker(small)
                ),
                query_transformer=CompressionTransformer(small),
            )
            prepared = await preparer.prepare(model="m", messages=MESSAGES, tools=tools)
            async with prepared.stream(create) as stream:
                text = said([chunk async for chunk in stream])
        compress, expand, rank, answer = (request.json for request in server.requests)
    assert text == "25 days [1]."
    assert prepared.retrieval.degraded == ()
    assert [q.text for q in prepared.retrieval.queries] == [
        "days of paid leave",
        "leave days",
        "paid holidays",
    ]
    for helper in (compress, expand, rank):
        assert set(helper) == {"model", "messages"}
    assert answer["tools"] == tools
    assert answer["stream"] is True


async def test_a_reranking_model_that_answers_500_is_skipped_with_one_warning(caplog):
    """The order of the search stands; under a strict policy the client's error arrives."""
    index = quickstart()
    await index.ingest(
        Document("leave", "Employees get 25 days of paid leave."),
        Document("desk", "Desks are booked some days ahead."),
    )
    question = "How many days of paid leave?"
    plain = await index.search(question, top_k=2)
    with LoopbackOpenAI(default=Failure(500)) as server:
        async with client(server) as api:
            small = ChatModel(api.chat.completions.create, model="small")
            preparer = Preparer(index.retriever(top_k=2, rerank=LLMReranker(small)))
            with caplog.at_level(logging.WARNING, "ragchat"):
                prepared = await preparer.prepare(messages=[{"role": "user", "content": question}])
            warnings = list(caplog.records)
            with pytest.raises(APIStatusError) as caught:
                await replace(preparer, policy=Policy.strict()).prepare(messages=MESSAGES)
        assert len(server.requests) == 2
    assert prepared.retrieval.candidates == plain.candidates
    assert [skip.stage for skip in prepared.retrieval.degraded] == ["rerank"]
    assert len(warnings) == 1
    assert caught.value.status_code == 500


async def test_errors_of_the_answer_call_arrive_as_the_clients_own_and_are_not_retried():
    with LoopbackOpenAI(Failure(429), Failure(500)) as server:
        async with client(server) as api:
            prepared = await PREPARER.prepare(model="m", messages=MESSAGES)
            with pytest.raises(APIStatusError) as called:
                await prepared.call(api.chat.completions.create)
            with pytest.raises(APIStatusError) as streamed:
                await anext(prepared.stream(api.chat.completions.create))
        assert len(server.requests) == 2
    assert (called.value.status_code, streamed.value.status_code) == (429, 500)


@pytest.mark.parametrize("how", ["cut", "error", "malformed"])
async def test_a_stream_that_breaks_frees_its_connection(how):
    with LoopbackOpenAI(Interrupted("one two three", how, after=2), default="ok") as server:
        async with pool_of_one(server) as api:
            prepared = await PREPARER.prepare(model="m", messages=MESSAGES)
            stream = prepared.stream(api.chat.completions.create)
            assert [await anext(stream), await anext(stream)] != []
            with pytest.raises(Exception):  # noqa: B017, PT011 - the client's own, of several kinds
                await anext(stream)
            reply = await prepared.call(api.chat.completions.create)
    assert reply.choices[0].message.content == "ok"


# A pool of one connection: whatever happens to a stream, the next call gets the connection.


async def test_leaving_the_block_after_the_first_chunk_frees_the_connection():
    gate = Gate()
    with LoopbackOpenAI(Held("one two three", gate, after=2), default="ok") as server:
        async with pool_of_one(server) as api, asyncio.timeout(GUARD):
            prepared = await PREPARER.prepare(model="m", messages=MESSAGES)
            async with prepared.stream(api.chat.completions.create) as stream:
                await anext(stream)
            reply = await prepared.call(api.chat.completions.create)
            assert await asyncio.to_thread(server.requests[0].wait_disconnected)
    assert reply.choices[0].message.content == "ok"


@pytest.mark.parametrize("cancels", [1, 2])
@pytest.mark.parametrize("steps_between", [0, 1, 2, 3])
async def test_cancelling_the_consumer_frees_the_connection(cancels, steps_between):
    gate = Gate()
    with LoopbackOpenAI(Held("one two three", gate, after=2), default="ok") as server:
        async with pool_of_one(server) as api, asyncio.timeout(GUARD):
            prepared = await PREPARER.prepare(model="m", messages=MESSAGES)

            async def consume():
                async with prepared.stream(api.chat.completions.create) as stream:
                    async for _ in stream:
                        pass

            task = asyncio.create_task(consume())
            assert await asyncio.to_thread(gate.wait_reached)
            for _ in range(cancels):
                task.cancel()
                for _ in range(steps_between):
                    await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            reply = await prepared.call(api.chat.completions.create)
            assert await asyncio.to_thread(server.requests[0].wait_disconnected)
    assert reply.choices[0].message.content == "ok"


async def test_cancelling_before_the_first_byte_frees_the_connection():
    gate = Gate()

    async def held(request):
        await gate.passed()
        return "late"

    with LoopbackOpenAI(held, default="ok") as server:
        async with pool_of_one(server) as api, asyncio.timeout(GUARD):
            prepared = await PREPARER.prepare(model="m", messages=MESSAGES)
            task = asyncio.create_task(anext(prepared.stream(api.chat.completions.create)))
            assert await asyncio.to_thread(gate.wait_reached)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            reply = await prepared.call(api.chat.completions.create)
            gate.open()
    assert reply.choices[0].message.content == "ok"


async def test_an_error_of_the_consumer_frees_the_connection():
    gate = Gate()
    with LoopbackOpenAI(Held("one two three", gate, after=2), default="ok") as server:
        async with pool_of_one(server) as api, asyncio.timeout(GUARD):
            prepared = await PREPARER.prepare(model="m", messages=MESSAGES)

            async def consume():
                async with prepared.stream(api.chat.completions.create) as stream:
                    async for _ in stream:
                        raise KeyError("mine")

            with pytest.raises(KeyError, match="mine"):
                await consume()
            reply = await prepared.call(api.chat.completions.create)
    assert reply.choices[0].message.content == "ok"


async def test_a_stream_that_is_never_iterated_sends_nothing():
    with LoopbackOpenAI(default="ok") as server:
        async with pool_of_one(server) as api:
            prepared = await PREPARER.prepare(model="m", messages=MESSAGES)
            stream = prepared.stream(api.chat.completions.create)
            async with stream:
                pass
            assert server.requests == ()
            reply = await prepared.call(api.chat.completions.create)
    assert reply.choices[0].message.content == "ok"


async def test_a_dropped_stream_frees_the_connection():
    gate = Gate()
    with LoopbackOpenAI(Held("one two three", gate, after=2), default="ok") as server:
        async with pool_of_one(server) as api, asyncio.timeout(GUARD):
            prepared = await PREPARER.prepare(model="m", messages=MESSAGES)
            async for _ in prepared.stream(api.chat.completions.create):
                break
            gc.collect()
            reply = await prepared.call(api.chat.completions.create)
    assert reply.choices[0].message.content == "ok"


def test_a_sync_stream_left_early_frees_the_connection():
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    gate = Gate()
    with (
        LoopbackOpenAI(Held("one two three", gate, after=2), default="ok") as server,
        httpx2.Client(limits=limits, timeout=httpx2.Timeout(GUARD, pool=5)) as http,
        OpenAI(api_key="k", base_url=server.base_url, max_retries=0, http_client=http) as api,
    ):
        prepared = sync.Preparer(retrieve).prepare(model="m", messages=MESSAGES)
        with prepared.stream(api.chat.completions.create) as stream:
            next(stream)
        reply = prepared.call(api.chat.completions.create)
    assert reply.choices[0].message.content == "ok"


@pytest.mark.parametrize("face", ["async", "sync", "blocking"])
async def test_what_is_no_stream_frees_its_connection_and_is_named(face):
    """A raw response holds a stream and is none: it is refused by its kind, and closed."""
    gate = Gate()
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    with (
        LoopbackOpenAI(Held("one two three", gate, after=2), default="ok") as server,
        httpx2.Client(limits=limits, timeout=httpx2.Timeout(GUARD, pool=5)) as http,
        OpenAI(api_key="k", base_url=server.base_url, max_retries=0, http_client=http) as blocking,
    ):
        async with pool_of_one(server) as api, asyncio.timeout(GUARD):
            prepared = await PREPARER.prepare(model="m", messages=MESSAGES)
            completions = (api if face == "async" else blocking).chat.completions
            create = completions.with_raw_response.create
            if face == "blocking":
                with pytest.raises(EmptyResponse, match="LegacyAPIResponse"):
                    next(sync.PreparedRequest(prepared).stream(create))
            else:
                with pytest.raises(EmptyResponse, match="LegacyAPIResponse"):
                    await anext(prepared.stream(create))
            reply = await prepared.call(completions.create)
    assert reply.choices[0].message.content == "ok"
