"""The server, asked by the chat models of LangChain and LlamaIndex as if it were OpenAI's."""

from __future__ import annotations

import asyncio

import httpx
import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI

import ragchat
from ragchat import Document
from ragchat.server import ServerSettings, create_app
from ragchat.testing import Failure, Interrupted, Reply, tool_call

ANSWER = "Tea grows in Assam [1]."
QUESTION = "Where does tea grow?"


@pytest.fixture
def url(server, serving):
    """The address of a server in front of the loopback model, in a thread of its own."""
    index = ragchat.in_memory()
    asyncio.run(index.ingest(Document("tea", ANSWER.replace(" [1]", ""))))
    with serving(create_app(index, ServerSettings(model="small"))) as address:
        yield f"{address}/v1"


@pytest.fixture
async def clients():
    """Closed at the end, which these libraries leave to the garbage collector."""
    with httpx.Client() as one:
        async with httpx.AsyncClient() as other:
            yield one, other


@tool
def rainfall(place: str) -> str:
    """Tells how much it rains in a place."""
    return f"much in {place}"


def own(clients):
    """Returns what LangChain's chat model needs beside its address."""
    one, other = clients
    return {
        "api_key": "none",
        "max_retries": 0,
        "http_client": one,
        "http_async_client": other,
    }


class LangChain:
    """Its messages add up: a stream's pieces are one answer."""

    def __init__(self, url, clients):
        self._model = ChatOpenAI(model="any", base_url=url, **own(clients))

    def call(self):
        return self._model.invoke(QUESTION).text

    async def acall(self):
        return (await self._model.ainvoke(QUESTION)).text

    def stream(self):
        return [piece.text for piece in self._model.stream(QUESTION)]

    async def astream(self):
        return [piece.text async for piece in self._model.astream(QUESTION)]

    def tools(self, *, stream):
        """Goes one round; returns the last answer."""
        model = self._model.bind_tools([rainfall])
        asked = [HumanMessage(QUESTION)]
        called = self._whole(model.stream(asked)) if stream else model.invoke(asked)
        (call,) = called.tool_calls
        given = ToolMessage(rainfall.invoke(call["args"]), tool_call_id=call["id"])
        messages = [*asked, called, given]
        return (self._whole(model.stream(messages)) if stream else model.invoke(messages)).text

    @staticmethod
    def _whole(pieces):
        first, *rest = pieces
        for piece in rest:
            first += piece
        return first


class LlamaIndex:
    """It must know the model's name to know its window."""

    def __init__(self, url, clients):
        one, other = clients
        self._model = OpenAI(
            model="gpt-4o",
            api_base=url,
            api_key="none",
            max_retries=0,
            http_client=one,
            async_http_client=other,
        )
        self._asked = [ChatMessage(role="user", content=QUESTION)]

    def call(self):
        return self._model.chat(self._asked).message.content

    async def acall(self):
        return (await self._model.achat(self._asked)).message.content

    def stream(self):
        return [piece.delta for piece in self._model.stream_chat(self._asked)]

    async def astream(self):
        return [piece.delta async for piece in await self._model.astream_chat(self._asked)]

    def tools(self, *, stream):
        """Goes one round; returns the last answer."""
        ours = FunctionTool.from_defaults(rainfall.func, name="rainfall")
        if stream:
            *_, answer = self._model.stream_chat_with_tools([ours], chat_history=self._asked)
        else:
            answer = self._model.chat_with_tools([ours], chat_history=self._asked)
        (call,) = self._model.get_tool_calls_from_response(answer)
        given = ChatMessage(
            role="tool",
            content=ours.call(**call.tool_kwargs).content,
            additional_kwargs={"tool_call_id": call.tool_id},
        )
        history = [*self._asked, answer.message, given]
        if stream:
            *_, last = self._model.stream_chat_with_tools([ours], chat_history=history)
        else:
            last = self._model.chat_with_tools([ours], chat_history=history)
        return last.message.content


@pytest.fixture(params=[LangChain, LlamaIndex], ids=lambda kind: kind.__name__)
def asker(request, url, clients):
    """The chat model of each library in turn."""
    return request.param(url, clients)


async def test_a_call_is_answered_with_evidence(asker, server):
    assert asker.call() == ANSWER
    assert await asker.acall() == ANSWER
    for request in server.requests:
        assert request.json["model"] == "small"
        assert "Tea grows in Assam." in request.json["messages"][-1]["content"]


async def test_a_stream_says_the_same(asker):
    """Annotations and the field of our own do not disturb it."""
    assert "".join(asker.stream()) == ANSWER
    assert "".join(await asker.astream()) == ANSWER


@pytest.mark.parametrize("stream", [False, True])
def test_rounds_of_tool_calls_keep_their_evidence(asker, server, stream):
    call = tool_call("rainfall", '{"place": "Assam"}')
    server.script(Reply("", tool_calls=[call]), ANSWER)
    assert asker.tools(stream=stream) == ANSWER
    one, two = (request.json["messages"] for request in server.requests)
    assert two[: len(one)] == one
    assert (two[-1]["role"], two[-1]["content"]) == ("tool", "much in Assam")


def test_an_error_is_the_official_clients(asker, server):
    server.script(Failure(400, "scripted"), Failure(400, "scripted"))
    for way in (asker.call, asker.stream):
        with pytest.raises(openai.BadRequestError, match="scripted"):
            way()


def test_an_error_in_the_midst_of_a_stream_is_raised(asker, server):
    server.script(Interrupted(ANSWER, "cut", after=2))
    with pytest.raises(openai.APIError):
        asker.stream()


def test_langchain_reads_the_usage_of_a_stream(url, clients):
    """It comes in a chunk without choices, as from the API."""
    model = ChatOpenAI(model="any", base_url=url, stream_usage=True, **own(clients))
    counted = [piece.usage_metadata for piece in model.stream(QUESTION) if piece.usage_metadata]
    assert [usage["output_tokens"] for usage in counted] == [len(ANSWER.split())]
