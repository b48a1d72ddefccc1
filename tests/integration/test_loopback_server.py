"""The loopback server, seen through the official clients."""

from __future__ import annotations

import asyncio
import http.client

import httpx2
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from ragchat.testing import (
    Failure,
    Gate,
    Held,
    Interrupted,
    LoopbackOpenAI,
    Raw,
    Reply,
    Reset,
    tool_call,
)

MESSAGES = [{"role": "user", "content": "café 漢字 {x} <|endoftext|>"}]


def client(server: LoopbackOpenAI, **options) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="secret-key", base_url=server.base_url, max_retries=0, **options)


def sync_client(server: LoopbackOpenAI) -> OpenAI:
    return OpenAI(api_key="secret-key", base_url=server.base_url, max_retries=0)


async def test_a_call_gets_the_scripted_text_and_usage():
    with LoopbackOpenAI("one", Reply("two", usage={"total_tokens": 7})) as server:
        async with client(server) as api:
            first = await api.chat.completions.create(model="m", messages=MESSAGES)
            second = await api.chat.completions.create(model="m", messages=MESSAGES)
            third = await api.chat.completions.create(model="m", messages=MESSAGES)
    assert first.choices[0].message.content == "one"
    assert first.choices[0].finish_reason == "stop"
    assert first.model == "m"
    assert second.usage.total_tokens == 7
    assert third.choices[0].message.content == "ok"


async def test_a_request_is_recorded_to_the_byte_and_without_its_key():
    with LoopbackOpenAI() as server:
        async with client(server) as api:
            await api.chat.completions.create(model="m", messages=MESSAGES, temperature=0.5)
        (request,) = server.requests
    assert request.method == "POST"
    assert request.path == "/v1/chat/completions"
    assert request.json == {"model": "m", "messages": MESSAGES, "temperature": 0.5}
    assert "café 漢字" in request.body.decode()
    assert request.has_key
    assert "secret-key" not in str(vars(request))
    assert not request.disconnected


async def test_a_stream_folds_to_the_text_and_sends_usage_only_when_asked():
    text = "Two  words,\nand a line. 漢字"
    with LoopbackOpenAI(default=text) as server:
        async with client(server) as api:
            plain = await api.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            chunks = [chunk async for chunk in plain]
            counted = await api.chat.completions.create(
                model="m", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
            )
            with_usage = [chunk async for chunk in counted]
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len(chunks) > 4
    assert with_usage[-1].choices == []
    assert with_usage[-1].usage.completion_tokens == 6


def test_the_blocking_client_calls_and_streams():
    with LoopbackOpenAI("one", "two three") as server, sync_client(server) as api:
        reply = api.chat.completions.create(model="m", messages=MESSAGES)
        stream = api.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert reply.choices[0].message.content == "one"
    assert text == "two three"


async def test_tool_calls_come_whole_and_in_pieces():
    reply = Reply(None, tool_calls=[tool_call("find", '{"q": "x"}')])
    with LoopbackOpenAI(default=reply) as server:
        async with client(server) as api:
            whole = await api.chat.completions.create(model="m", messages=MESSAGES)
            stream = await api.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            deltas = [chunk.choices[0].delta async for chunk in stream]
    (call,) = whole.choices[0].message.tool_calls
    assert whole.choices[0].finish_reason == "tool_calls"
    assert whole.choices[0].message.content is None
    pieces = [call for delta in deltas for call in delta.tool_calls or ()]
    assert pieces[0].function.name == call.function.name == "find"
    assert "".join(p.function.arguments for p in pieces) == call.function.arguments


async def test_keep_alive_uses_one_connection_for_requests_one_after_the_other():
    with LoopbackOpenAI(default="hello you") as server:
        async with client(server) as api:
            for stream in (False, True, False):
                reply = await api.chat.completions.create(
                    model="m", messages=MESSAGES, stream=stream
                )
                if stream:
                    assert [chunk async for chunk in reply]
        assert server.connections == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
        (599, openai.InternalServerError),
    ],
)
async def test_a_failure_arrives_as_its_status(status, error):
    behaviour = Failure(status, retry_after=3, headers={"x-request-id": "r1"}, code="oops")
    with LoopbackOpenAI(behaviour) as server:
        async with client(server) as api:
            with pytest.raises(error) as caught:
                await api.chat.completions.create(model="m", messages=MESSAGES)
    assert caught.value.status_code == status
    assert caught.value.code == "oops"
    assert caught.value.response.headers["retry-after"] == "3"
    assert caught.value.request_id == "r1"


async def test_the_clients_own_retry_reaches_the_next_behaviour():
    with LoopbackOpenAI(Failure(429, retry_after="0.001"), "after all") as server:
        async with AsyncOpenAI(api_key="k", base_url=server.base_url, max_retries=1) as api:
            reply = await api.chat.completions.create(model="m", messages=MESSAGES)
        assert len(server.requests) == 2
    assert reply.choices[0].message.content == "after all"


async def test_a_reset_connection_is_a_connection_error():
    with LoopbackOpenAI(Reset()) as server:
        async with client(server) as api:
            with pytest.raises(openai.APIConnectionError):
                await api.chat.completions.create(model="m", messages=MESSAGES)


@pytest.mark.parametrize("how", ["cut", "reset"])
async def test_a_broken_off_stream_gives_its_events_and_then_an_error(how):
    with LoopbackOpenAI(Interrupted("one two three", how, after=2)) as server:
        async with client(server) as api:
            stream = await api.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            seen = []

            async def read():
                async for chunk in stream:
                    seen.append(chunk)  # noqa: PERF401 - what came before the error matters

            with pytest.raises((openai.APIError, httpx2.HTTPError)):
                await read()
    assert len(seen) == 2 or how == "reset"


async def test_an_error_inside_a_stream_with_status_200_is_an_api_error():
    with LoopbackOpenAI(Interrupted("one two", "error", after=2)) as server:
        async with client(server) as api:
            stream = await api.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            with pytest.raises(openai.APIError, match="scripted failure"):
                [chunk async for chunk in stream]


async def test_broken_json_in_a_stream_is_a_json_error():
    with LoopbackOpenAI(Interrupted("one two", "malformed", after=2)) as server:
        async with client(server) as api:
            stream = await api.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            with pytest.raises(ValueError, match="Expecting"):
                [chunk async for chunk in stream]


async def test_a_stream_without_done_still_ends():
    with LoopbackOpenAI(Interrupted("one two", "no_done")) as server:
        async with client(server) as api:
            stream = await api.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            texts = [chunk.choices[0].delta.content async for chunk in stream]
    assert texts == ["", "one ", "two", None]


@pytest.mark.parametrize("how", ["cut", "reset", "error", "malformed", "no_done"])
async def test_a_whole_reply_can_be_interrupted_too(how):
    with LoopbackOpenAI(Interrupted("one two", how)) as server:
        async with client(server) as api:
            call = api.chat.completions.create(model="m", messages=MESSAGES)
            if how in {"error", "no_done"}:
                reply = await call
                assert (reply.choices is None) == (how == "error")
            else:
                with pytest.raises((openai.APIError, ValueError)):
                    await call


async def test_raw_bytes_and_mappings_are_sent_as_they_are():
    with LoopbackOpenAI(Raw(b'{"id": ', status=200), {"id": "x", "choices": []}) as server:
        async with client(server) as api:
            with pytest.raises((openai.APIError, ValueError)):
                await api.chat.completions.create(model="m", messages=MESSAGES)
            reply = await api.chat.completions.create(model="m", messages=MESSAGES)
    assert reply.choices == []


@pytest.mark.parametrize("wrong", [["one", "two"], [{"choices": []}], ("one", "two")])
def test_a_list_in_the_place_of_a_reply_is_refused_before_anybody_asks(wrong):
    """A `ScriptedChatModel` takes one; here replies are given one by one."""
    with pytest.raises(TypeError, match="one by one"):
        LoopbackOpenAI(wrong)
    with pytest.raises(TypeError, match="one by one"):
        LoopbackOpenAI().script("ok", wrong)
    with pytest.raises(TypeError, match="one by one"):
        LoopbackOpenAI(default=wrong)


async def test_exact_chunks_can_be_scripted():
    chunks = [{"id": "1", "choices": []}, {"id": "2", "choices": [], "odd": 5}]
    with LoopbackOpenAI(Reply(chunks=chunks)) as server:
        async with client(server) as api:
            stream = await api.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            seen = [chunk async for chunk in stream]
    assert [chunk.id for chunk in seen] == ["1", "2"]
    assert seen[1].odd == 5


@pytest.mark.parametrize(("after", "offset"), [(0, 0), (2, 0), (1, 17), (0, 3)])
async def test_a_held_stream_goes_on_when_its_gate_opens(after, offset):
    gate = Gate()
    with LoopbackOpenAI(Held("one two three", gate, after=after, offset=offset)) as server:
        async with client(server) as api:
            stream = await api.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            chunks = aiter(stream)
            seen = [await anext(chunks) for _ in range(after)]
            assert await asyncio.to_thread(gate.wait_reached)
            gate.open()
            seen += [chunk async for chunk in chunks]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in seen) == "one two three"


@pytest.mark.parametrize("offset", [0, 11])
async def test_a_held_reply_arrives_when_its_gate_opens(offset):
    gate = Gate()
    with LoopbackOpenAI(Held("one", gate, offset=offset)) as server:
        async with client(server) as api:
            call = asyncio.ensure_future(api.chat.completions.create(model="m", messages=MESSAGES))
            assert await asyncio.to_thread(gate.wait_reached)
            assert not call.done()
            gate.open()
            assert (await call).choices[0].message.content == "one"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_server_notices_that_the_client_went_away(stream):
    gate = Gate()
    with LoopbackOpenAI(Held("one two", gate, after=1)) as server:
        async with client(server) as api:
            call = asyncio.ensure_future(
                api.chat.completions.create(model="m", messages=MESSAGES, stream=stream)
            )
            assert await asyncio.to_thread(gate.wait_reached)
            if stream:
                await (await call).close()
            else:
                call.cancel()
                await asyncio.wait({call})
            (request,) = server.requests
            assert await asyncio.to_thread(request.wait_disconnected)


async def test_a_callable_behaviour_sees_the_request():
    async def echo(request):
        return request.json["messages"][-1]["content"]

    def broken(request):
        raise KeyError("x")

    with LoopbackOpenAI(echo, broken) as server:
        async with client(server) as api:
            reply = await api.chat.completions.create(model="m", messages=MESSAGES)
            with pytest.raises(openai.InternalServerError, match="KeyError"):
                await api.chat.completions.create(model="m", messages=MESSAGES)
    assert reply.choices[0].message.content == MESSAGES[0]["content"]


async def test_embeddings_are_deterministic_and_indexed():
    with LoopbackOpenAI(dimension=8) as server:
        async with client(server) as api:
            packed = await api.embeddings.create(model="e", input=["red fox", "", "fox red"])
            plain = await api.embeddings.create(model="e", input="red fox", encoding_format="float")
            server.script(Failure(503), path="/embeddings")
            with pytest.raises(openai.InternalServerError):
                await api.embeddings.create(model="e", input="x")
            with pytest.raises(openai.BadRequestError):
                await api.embeddings.create(model="e", input=[])
    assert [row.index for row in packed.data] == [0, 1, 2]
    assert packed.data[0].embedding == packed.data[2].embedding
    assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding)
    assert sum(x * x for x in plain.data[0].embedding) == pytest.approx(1)


async def test_models_are_listed_and_unknown_paths_are_404():
    with LoopbackOpenAI(models=["a", "b"]) as server:
        async with client(server) as api:
            assert [model.id async for model in api.models.list()] == ["a", "b"]
            with pytest.raises(openai.NotFoundError):
                await api.moderations.create(input="x")


async def test_many_clients_are_served_at_once():
    gate = Gate()
    with LoopbackOpenAI(default=Held("ok", gate)) as server:
        async with client(server) as api:
            calls = [
                asyncio.ensure_future(api.chat.completions.create(model="m", messages=MESSAGES))
                for _ in range(8)
            ]
            assert await asyncio.to_thread(server.wait_for_requests, 8)
            assert server.open_connections == 8
            gate.open()
            replies = await asyncio.gather(*calls)
    assert {reply.choices[0].message.content for reply in replies} == {"ok"}
    assert server.open_connections == 0


def test_leaving_the_server_ends_held_responses():
    with LoopbackOpenAI(Held("ok", Gate())) as server:
        port = int(server.base_url.split(":")[2].split("/")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/v1/chat/completions", body=b"{}")
        assert server.wait_for_requests(1)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.getresponse()
    connection.close()


def test_chunked_request_bodies_are_read_and_nonsense_is_refused():
    with LoopbackOpenAI() as server:
        port = int(server.base_url.split(":")[2].split("/")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port)
        parts = iter([b'{"messages": ', b"[]}"])
        connection.request("POST", "/v1/chat/completions", body=parts, encode_chunked=True)
        assert connection.getresponse().read()
        assert server.requests[0].body == b'{"messages": []}'
        connection.close()
        nonsense = http.client.HTTPConnection("127.0.0.1", port)
        nonsense.connect()
        nonsense.send(b"hello\r\n\r\n")
        response = nonsense.response_class(nonsense.sock)
        response.begin()
        assert response.status == 400
        response.close()
        nonsense.close()
