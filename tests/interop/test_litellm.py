"""LiteLLM's ``acompletion`` is a chat model like any other: called, streamed, and as a helper."""

from __future__ import annotations

import litellm
import pytest

import ragchat
from ragchat import Document

# LiteLLM's own models are built when it is first called.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydantic")


@pytest.fixture(autouse=True)
async def closing():
    """LiteLLM keeps its clients for the next call, as an application wants it."""
    yield
    for client in litellm.in_memory_llm_clients_cache.cache_dict.values():
        await client.close()
    litellm.in_memory_llm_clients_cache.flush_cache()


@pytest.fixture
async def prepared(server):
    index = ragchat.quickstart()
    await index.ingest(Document("tea", "Tea grows in Assam."))
    return await ragchat.Preparer(index.retriever()).prepare(
        model="openai/scripted",
        api_base=server.base_url,
        api_key="loopback",
        messages=[{"role": "user", "content": "Where does tea grow?"}],
    )


async def test_it_answers_a_prepared_request(prepared, server):
    (answer,) = prepared.answers(await prepared.call(litellm.acompletion)).choices
    assert (answer.content, answer.finish_reason) == ("Tea grows in Assam [1].", "stop")
    assert [passage.document_id for passage in answer.cited.values()] == ["tea"]
    assert "Tea grows in Assam." in server.requests[-1].json["messages"][-1]["content"]


async def test_it_streams_the_same_answer(prepared):
    called = prepared.answers(await prepared.call(litellm.acompletion))
    async with prepared.events(litellm.acompletion) as events:
        streamed = ragchat.fold([event async for event in events])
    assert streamed.choices == called.choices


async def test_it_helps_a_stage(server):
    model = ragchat.ChatModel(
        litellm.acompletion, model="openai/scripted", api_base=server.base_url, api_key="loopback"
    )
    server.script('{"queries": ["tea regions", "tea farming"]}')
    expander = ragchat.MultiQueryExpander(model, n=2)
    assert [q.text for q in await expander(ragchat.Query("tea"))] == ["tea regions", "tea farming"]
