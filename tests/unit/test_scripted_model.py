"""The scripted chat model and its streams."""

from __future__ import annotations

import asyncio

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from ragchat.citations import Citations
from ragchat.events import Sources, fold
from ragchat.reading import EventReader
from ragchat.testing import Reply, ScriptedChatModel, ScriptExhausted, tool_call

ASK = {"model": "m", "messages": [{"role": "user", "content": "hello you"}]}


async def folded(stream):
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def test_replies_come_in_order_and_then_the_script_is_exhausted():
    model = ScriptedChatModel(["one", Reply("two"), {"content": "three"}])
    texts = [(await model.create(**ASK)).choices[0].message.content for _ in range(3)]
    assert texts == ["one", "two", "three"]
    with pytest.raises(ScriptExhausted):
        await model.create(**ASK)


async def test_a_single_reply_is_given_every_time():
    model = ScriptedChatModel("same")
    assert [(await model.create(**ASK)).choices[0].message.content for _ in range(2)] == [
        "same",
        "same",
    ]


async def test_calls_are_recorded_as_they_were():
    model = ScriptedChatModel()
    messages = [{"role": "user", "content": "before"}]
    await model.create(model="m", messages=messages)
    messages[0]["content"] = "after"
    assert model.calls == [{"model": "m", "messages": [{"role": "user", "content": "before"}]}]
    assert model.prompts == ["before"]


@pytest.mark.parametrize(
    "reply",
    [
        "hello  there,\n you",
        Reply(None, tool_calls=[tool_call("f", '{"a": 1}'), tool_call("g", id="call_2")]),
        Reply(None, refusal="I will not."),
        Reply("cut", finish_reason="length", usage={"total_tokens": 3}),
    ],
)
async def test_objects_have_the_shape_of_the_sdks(reply):
    model = ScriptedChatModel(reply)
    whole = await model.create(**ASK)
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    payload = {**whole.model_dump(), "usage": usage}
    official = ChatCompletion.model_validate(payload)
    assert official.choices[0].message.content == whole.choices[0].message.content
    stream = await model.create(**ASK, stream=True)
    chunks = [chunk async for chunk in stream]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.to_dict())
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks[:-1])


async def test_streams_are_made_of_text_or_of_given_chunks():
    usage = {"id": "u", "choices": [], "usage": {"total_tokens": 1}}
    model = ScriptedChatModel(["two words", Reply("abc", pieces=["a", "bc"]), ["x", usage]])
    assert await folded(await model.create(**ASK, stream=True)) == "two words"
    stream = await model.create(**ASK, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert [c.choices[0].delta.content for c in chunks[:-1]] == ["", "a", "bc", None]
    assert chunks[-1].usage.completion_tokens == 1
    stream = await model.create(**ASK, stream=True)
    assert [chunk.id async for chunk in stream] == ["chatcmpl-scripted", "u"]


CUSTOM = {"id": "call_2", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}


@pytest.mark.parametrize(
    "reply",
    [
        Reply("two words", refusal="no"),
        Reply(pieces=["two ", "words"]),
        Reply(None, tool_calls=[tool_call("f", '{"a": 1}'), CUSTOM]),
    ],
)
def test_a_reply_says_the_same_whole_and_streamed(reply):
    whole = EventReader(Sources(presented=Citations()))
    streamed = EventReader(Sources(presented=Citations()))
    said = [*whole.feed(reply.completion({})), *whole.finish()]
    chunks = [event for chunk in reply.stream({}) for event in streamed.feed(chunk)]
    assert fold([*chunks, *streamed.finish()]).choices == fold(said).choices


async def test_a_stream_raises_and_waits_where_its_script_says():
    gate = asyncio.Event()
    model = ScriptedChatModel([["a", gate.wait, "b", RuntimeError("cut")]])
    stream = await model.create(**ASK, stream=True)
    first = await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.wait({waiting}, timeout=0)
    assert not waiting.done()
    gate.set()
    second = await waiting
    assert [c.choices[0].delta.content for c in (first, second)] == ["a", "b"]
    with pytest.raises(RuntimeError, match="cut"):
        await anext(stream)
    assert stream.taken == 2


async def test_closing_is_counted_and_may_be_awaited_or_not():
    model = ScriptedChatModel("a b c")
    stream = await model.create(**ASK, stream=True)
    await anext(stream)
    assert not stream.closed
    await stream.close()
    stream.close()
    async with stream:
        pass
    assert stream.closes == 3
    assert model.streams == [stream]
    with pytest.raises(AssertionError):
        await anext(stream)


async def test_exceptions_callables_and_other_objects_are_replies_too():
    thing = object()

    async def late(kwargs):
        return f"{kwargs['model']}!"

    model = ScriptedChatModel([ValueError("no"), late, lambda _: Reply("x"), thing, None])
    with pytest.raises(ValueError, match="no"):
        await model.create(**ASK)
    assert (await model.create(**ASK)).choices[0].message.content == "m!"
    assert (await model.create(**ASK)).choices[0].message.content == "x"
    assert await model.create(**ASK) is thing
    assert await model.create(**ASK) is None


async def test_a_whole_response_is_returned_with_its_attributes():
    model = ScriptedChatModel({"choices": [], "odd": {"deep": [1, {"a": 2}]}})
    reply = await model.create(**ASK)
    assert reply.choices == []
    assert reply.odd.deep[1].a == 2
    assert reply.model_dump() == {"choices": [], "odd": {"deep": [1, {"a": 2}]}}
    stream = await model.create(**ASK, stream=True)
    assert [chunk.choices async for chunk in stream] == [[]]


async def test_a_list_of_chunks_needs_a_streamed_call():
    with pytest.raises(TypeError):
        await ScriptedChatModel([["a"]]).create(**ASK)


def test_the_blocking_twin_calls_and_streams():
    seen = []
    model = ScriptedChatModel(["one", ["a", lambda: seen.append(1), "b"], lambda _: "three", None])
    assert model.create_sync(**ASK).choices[0].message.content == "one"
    stream = model.create_sync(**ASK, stream=True)
    assert [chunk.choices[0].delta.content for chunk in stream] == ["a", "b"]
    assert seen == [1]
    assert model.create_sync(**ASK).choices[0].message.content == "three"
    assert model.create_sync(**ASK, stream=True) is None
