from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat.citations import Citations
from ragchat.errors import EmptyResponse
from ragchat.prepared import PreparedRequest, Retrieval
from ragchat.request import ChatRequest
from ragchat.testing import Reply, ScriptedChatModel
from ragchat_retrieval import stages
from ragchat_retrieval.errors import InvalidSetting

GUARD = 20
"""Seconds after which a test that hangs fails."""


def prepared(**params) -> PreparedRequest:
    messages = [{"role": "user", "content": "q"}]
    request = ChatRequest.snapshot(messages=messages, **params)
    return PreparedRequest(request, "q", Retrieval(citations=Citations()))


async def read(create, *, stop: Exception | None = None, into: list | None = None) -> list:
    """Reads a stream within its block; `stop` is raised by the consumer after the first chunk."""
    got = [] if into is None else into
    async with prepared().stream(create) as stream:
        async for chunk in stream:
            got.append(chunk)
            if stop is not None:
                raise stop
    return got


class Upstream:
    """An async stream that counts how often it was opened and closed."""

    def __init__(self, *chunks, forever: bool = False, error: BaseException | None = None):
        self.chunks, self.forever, self.error = list(chunks), forever, error
        self.opened = self.closes = 0
        self.waiting, self.closed = asyncio.Event(), asyncio.Event()
        self.tasks: set[asyncio.Task] = set()
        self.close_steps = 0

    async def create(self, **params):
        assert params["stream"] is True
        self.tasks.add(asyncio.current_task())
        self.opened += 1
        return self

    def __aiter__(self):
        return self

    async def __anext__(self):
        self.tasks.add(asyncio.current_task())
        if self.chunks:
            return self.chunks.pop(0)
        if self.error is not None:
            raise self.error
        if self.forever:
            self.waiting.set()
            await asyncio.Event().wait()
        raise StopAsyncIteration

    async def close(self):
        self.tasks.add(asyncio.current_task())
        for _ in range(5):
            await asyncio.sleep(0)
            self.close_steps += 1
        self.closes += 1
        self.closed.set()


async def test_the_chunks_of_the_provider_pass_unchanged_and_in_order():
    chunks = [
        SimpleNamespace(choices=[], usage=None),
        SimpleNamespace(choices=[SimpleNamespace(delta=None, index=1)], x_unknown=1),
        None,
        {"choices": [], "usage": {"total_tokens": 3}},
    ]
    upstream = Upstream(*chunks)
    async with prepared().stream(upstream.create) as stream:
        got = [chunk async for chunk in stream]
    assert all(a is b for a, b in zip(got, chunks, strict=True))
    assert upstream.closes == 1


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [{"choices": [], "usage": {"total_tokens": 1}}],
        [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}],
        [{"choices": [{"index": 0, "delta": {"content": ""}}]}],
        [
            {"choices": [{"index": 1, "delta": {"content": "b"}}]},
            {"choices": [{"index": 0, "delta": {"content": "a"}}]},
        ],
    ],
)
async def test_streams_of_unusual_shape_pass_and_an_empty_one_ends_empty(chunks):
    model = ScriptedChatModel([list(chunks)])
    got = [chunk.model_dump() async for chunk in prepared().stream(model.create)]
    assert [chunk["choices"] for chunk in got] == [
        [
            {**c, "delta": {**got[i]["choices"][j]["delta"], **c["delta"]}}
            for j, c in enumerate(chunk["choices"])
        ]
        for i, chunk in enumerate(chunks)
    ]
    assert model.streams[0].closes == 1


async def test_nothing_is_sent_before_the_first_chunk_is_asked_for():
    upstream = Upstream("a")
    stream = prepared().stream(upstream.create)
    async with stream:
        assert upstream.opened == 0
    await stream.aclose()
    del stream
    gc.collect()
    assert (upstream.opened, upstream.closes) == (0, 0)


@pytest.mark.parametrize("client", [SimpleNamespace(chat=1), None, "gpt-5"])
async def test_a_client_in_place_of_its_create_is_refused_by_name(client):
    hint = r"client\.chat\.completions\.create"
    with pytest.raises(InvalidSetting, match=hint):
        await prepared().call(client)
    with pytest.raises(InvalidSetting, match=hint):
        prepared().stream(client)
    with pytest.raises(InvalidSetting, match=hint):
        prepared().events(client)


async def test_a_closed_stream_ends_at_once():
    upstream = Upstream("a", "b")
    stream = prepared().stream(upstream.create)
    assert await anext(stream) == "a"
    await stream.aclose()
    await stream.aclose()
    assert [chunk async for chunk in stream] == []
    assert (upstream.opened, upstream.closes) == (1, 1)


async def test_leaving_the_block_early_closes_the_upstream_once():
    upstream = Upstream("a", forever=True)
    async with prepared().stream(upstream.create) as stream:
        async for _ in stream:
            break
    assert (upstream.opened, upstream.closes) == (1, 1)


async def test_an_error_of_the_consumer_closes_the_upstream_and_arrives():
    upstream = Upstream("a", forever=True)
    with pytest.raises(KeyError, match="mine"):
        await read(upstream.create, stop=KeyError("mine"))
    assert upstream.closes == 1


@pytest.mark.parametrize("chunks", [(), ("a",)])
async def test_an_error_of_the_provider_arrives_unwrapped_and_closes_the_upstream(chunks):
    error = OSError("cut")
    upstream = Upstream(*chunks, error=error)
    got = []
    with pytest.raises(OSError, match="cut") as caught:
        await read(upstream.create, into=got)
    assert caught.value is error
    assert (tuple(got), upstream.closes) == (chunks, 1)


async def test_an_error_of_the_call_itself_arrives_unwrapped():
    error = ValueError("bad request")

    async def create(**params):
        raise error

    with pytest.raises(ValueError, match="bad request") as caught:
        await anext(prepared().stream(create))
    assert caught.value is error


@pytest.mark.parametrize("within", [True, False])
async def test_cancelling_the_consumer_closes_the_upstream_and_is_raised_again(within):
    upstream = Upstream("a", forever=True)

    async def consume():
        stream = prepared().stream(upstream.create)
        if within:
            async with stream:
                async for _ in stream:
                    pass
        async for _ in stream:
            pass

    task = asyncio.create_task(consume())
    async with asyncio.timeout(GUARD):
        await upstream.waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert upstream.closes == 1


@pytest.mark.parametrize("steps", range(6))
async def test_cancelling_twice_cannot_interrupt_the_closing(steps):
    upstream = Upstream("a", forever=True)

    async def consume():
        async with prepared().stream(upstream.create) as stream:
            async for _ in stream:
                pass

    task = asyncio.create_task(consume())
    async with asyncio.timeout(GUARD):
        await upstream.waiting.wait()
        task.cancel()
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.closed.wait()
    assert (upstream.closes, upstream.close_steps) == (1, 5)


async def test_an_async_generator_cleans_up_whole_although_its_consumer_is_cancelled_twice():
    waiting, done, cleaned = asyncio.Event(), asyncio.Event(), []

    async def create(**params):
        try:
            yield "a"
            waiting.set()
            await asyncio.Event().wait()
        finally:
            for step in range(3):
                await asyncio.sleep(0)
                cleaned.append(step)
            done.set()

    async def consume():
        async for _ in prepared().stream(create):
            pass

    task = asyncio.create_task(consume())
    async with asyncio.timeout(GUARD):
        await waiting.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await done.wait()
    assert cleaned == [0, 1, 2]


async def test_cancelling_during_the_call_cancels_the_call():
    reached, cancelled = asyncio.Event(), []

    async def create(**params):
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    task = asyncio.create_task(anext(prepared().stream(create)))
    async with asyncio.timeout(GUARD):
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert cancelled == [True]


async def test_cancelling_while_an_exhausted_upstream_is_closing_does_not_interrupt_it():
    closing, go = asyncio.Event(), asyncio.Event()

    class Slow(Upstream):
        async def close(self):
            closing.set()
            await go.wait()
            self.closes += 1

    upstream = Slow("a")

    async def consume():
        return [chunk async for chunk in prepared().stream(upstream.create)]

    task = asyncio.create_task(consume())
    async with asyncio.timeout(GUARD):
        await closing.wait()
        task.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert upstream.closes == 1


async def test_a_stream_that_is_dropped_is_closed_in_the_background():
    upstream = Upstream("a", "b", forever=True)
    async for _ in prepared().stream(upstream.create):
        break
    gc.collect()
    async with asyncio.timeout(GUARD):
        await upstream.closed.wait()
    assert upstream.closes == 1


def test_a_stream_left_open_is_closed_when_the_loop_ends():
    upstream = None
    stream = None

    async def main():
        nonlocal upstream, stream
        upstream = Upstream("a", forever=True)
        stream = prepared().stream(upstream.create)
        await anext(stream)

    asyncio.run(main())
    assert upstream.closes == 1
    del stream
    gc.collect()


@pytest.mark.parametrize("kind", ["stream", "events"])
def test_the_rest_of_an_answer_is_not_lost_silently_with_the_loop_that_began_it(kind):
    """As where each chunk is asked for by an ``asyncio.run`` of its own."""
    upstream = Upstream(*({"choices": [{"delta": {"content": text}}]} for text in "abc"))
    stream = getattr(prepared(), kind)(upstream.create)

    async def read_on(count: int) -> list:
        return [await anext(stream) for _ in range(count)]

    asyncio.run(read_on(2))
    with pytest.raises(RuntimeError, match="event loop"):
        asyncio.run(read_on(1))
    assert upstream.closes == 1


async def test_a_stream_is_closed_from_another_loop_and_nothing_hangs():
    upstream = Upstream("a", forever=True)
    stream = prepared().stream(upstream.create)
    assert await anext(stream) == "a"

    def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="event loop"):
            asyncio.run(asyncio.wait_for(anext(stream), GUARD))
        asyncio.run(asyncio.wait_for(stream.aclose(), GUARD))

    async with asyncio.timeout(2 * GUARD):
        await asyncio.to_thread(elsewhere)
        await upstream.closed.wait()
    assert upstream.closes == 1


async def test_closing_from_another_task_ends_the_iteration():
    upstream = Upstream("a", forever=True)
    stream = prepared().stream(upstream.create)

    async def consume():
        return [chunk async for chunk in stream]

    task = asyncio.create_task(consume())
    async with asyncio.timeout(GUARD):
        await upstream.waiting.wait()
        await stream.aclose()
        assert await task == ["a"]
    assert upstream.closes == 1


async def test_closing_before_the_stream_was_even_opened_ends_the_iteration():
    """The reader must not wait for a task that was stopped before its first step."""
    upstream = Upstream("a")
    async with asyncio.timeout(GUARD):
        stream = prepared().stream(upstream.create)
        reader = asyncio.create_task(anext(stream, "ended"))
        closer = asyncio.create_task(stream.aclose())
        assert await asyncio.gather(reader, closer) == ["ended", None]
    assert upstream.opened == upstream.closes


async def test_two_tasks_cannot_ask_for_a_chunk_at_once():
    upstream = Upstream("a", forever=True)
    stream = prepared().stream(upstream.create)
    assert await anext(stream) == "a"
    waiting = asyncio.create_task(anext(stream))
    async with asyncio.timeout(GUARD):
        await upstream.waiting.wait()
        with pytest.raises(RuntimeError, match="another task"):
            await anext(stream)
        assert not waiting.done()
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_one_task_opens_reads_and_closes_the_upstream_in_the_callers_context():
    variable = contextvars.ContextVar("variable", default="unset")
    seen = []

    class Contextual(Upstream):
        async def create(self, **params):
            seen.append(variable.get())
            return await super().create(**params)

    upstream = Contextual("a", "b")
    variable.set("mine")
    async with prepared().stream(upstream.create) as stream:
        await anext(stream)
    assert len(upstream.tasks) == 1
    assert seen == ["mine"]


async def test_an_upstream_that_fails_to_close_says_so_unless_another_error_is_on_its_way():
    class Broken(Upstream):
        async def close(self):
            self.closes += 1
            raise OSError("close")

    with pytest.raises(OSError, match="close"):
        _ = [chunk async for chunk in prepared().stream(Broken("a").create)]
    with pytest.raises(KeyError, match="mine"):
        await read(Broken("a", forever=True).create, stop=KeyError("mine"))

    async def leave_early():
        async with prepared().stream(Broken("a", forever=True).create) as stream:
            await anext(stream)

    with pytest.raises(OSError, match="close"):
        await leave_early()
    stream = prepared().stream(Broken("a", forever=True).create)
    await anext(stream)
    with pytest.raises(OSError, match="close"):
        await stream.aclose()
    await stream.aclose()
    with pytest.raises(ValueError, match="provider"):
        _ = [c async for c in prepared().stream(Broken(error=ValueError("provider")).create)]


@pytest.mark.parametrize("close_name", ["aclose", "close", "__aexit__", None])
async def test_an_upstream_is_closed_by_whichever_method_it_has(close_name):
    closed = []

    class Plain:
        def __aiter__(self):
            return self

        async def __anext__(self):
            return "a"

    async def close(*_args):
        closed.append(close_name)

    if close_name is not None:
        setattr(Plain, close_name, close)

    async def create(**params):
        return Plain()

    async with prepared().stream(create) as stream:
        assert await anext(stream) == "a"
    assert closed == ([] if close_name is None else [close_name])


async def test_an_iterator_apart_from_its_stream_is_closed_too():
    closed = []

    class Apart:
        async def __aiter__(self):
            try:
                yield "a"
                await asyncio.Event().wait()
            finally:
                closed.append("iterator")

        async def close(self):
            closed.append("stream")

    async def create(**params):
        return Apart()

    async with prepared().stream(create) as stream:
        await anext(stream)
    assert closed == ["iterator", "stream"]


@pytest.mark.parametrize("response", [None, "text", {"choices": []}, 3])
async def test_a_call_that_returns_no_stream_is_an_empty_response(response):
    async def create(**params):
        return response

    with pytest.raises(EmptyResponse):
        await anext(prepared().stream(create))
    with pytest.raises(EmptyResponse):
        await anext(prepared().stream(lambda **params: response))


async def test_a_whole_completion_is_no_stream():
    from openai.types.chat import ChatCompletion

    completion = ChatCompletion.model_validate(Reply("a").completion({"model": "m"}))
    with pytest.raises(EmptyResponse):
        await anext(prepared().stream(lambda **params: completion))


# Sync clients


class SyncUpstream:
    def __init__(self, *chunks, hold: threading.Event | None = None):
        self.chunks, self.hold = iter(chunks), hold
        self.reached, self.closed = threading.Event(), threading.Event()
        self.closes = 0
        self.threads: set[threading.Thread] = set()

    def create(self, **params):
        assert params["stream"] is True
        self.threads.add(threading.current_thread())
        return self

    def __iter__(self):
        return self

    def __next__(self):
        self.threads.add(threading.current_thread())
        for chunk in self.chunks:
            return chunk
        if self.hold is not None:
            self.reached.set()
            assert self.hold.wait(GUARD)
        raise StopIteration

    def close(self):
        self.closes += 1
        self.closed.set()


async def test_a_sync_stream_is_read_and_closed_in_worker_threads():
    upstream = SyncUpstream("a", "b")
    async with prepared().stream(upstream.create) as stream:
        assert [chunk async for chunk in stream] == ["a", "b"]
    assert upstream.closes == 1
    assert threading.main_thread() not in upstream.threads


async def test_leaving_a_sync_stream_early_closes_it_once():
    upstream = SyncUpstream("a", "b")
    async with prepared().stream(upstream.create) as stream:
        await anext(stream)
    assert upstream.closes == 1


async def test_a_cancelled_consumer_does_not_wait_for_a_blocked_sync_stream():
    """The thread that is inside the client closes it when it comes out."""
    hold = threading.Event()
    upstream = SyncUpstream("a", hold=hold)

    async def consume():
        async with prepared().stream(upstream.create) as stream:
            async for _ in stream:
                pass

    task = asyncio.create_task(consume())
    async with asyncio.timeout(GUARD):
        await asyncio.to_thread(upstream.reached.wait, GUARD)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert upstream.closes == 0
    hold.set()
    assert await asyncio.to_thread(upstream.closed.wait, GUARD)
    assert upstream.closes == 1


async def test_a_sync_call_that_returns_after_its_consumer_was_cancelled_is_closed():
    reached, hold = threading.Event(), threading.Event()
    upstream = SyncUpstream("a")

    def create(**params):
        reached.set()
        assert hold.wait(GUARD)
        return upstream

    task = asyncio.create_task(anext(prepared().stream(create)))
    async with asyncio.timeout(GUARD):
        await asyncio.to_thread(reached.wait, GUARD)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    hold.set()
    assert await asyncio.to_thread(upstream.closed.wait, GUARD)
    assert upstream.closes == 1


async def test_a_sync_call_that_has_returned_unnoticed_is_closed_on_cancellation(monkeypatch):
    """Its thread is out already when the consumer is cancelled, and its result not yet in."""
    loop, reached, hold = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    upstream = SyncUpstream("a")

    def create(**params):
        loop.call_soon_threadsafe(reached.set)
        assert hold.wait(GUARD)
        return upstream

    monkeypatch.setattr(stages, "_MOST", 1)
    pool = stages._threads()
    task = asyncio.create_task(anext(prepared().stream(create)))
    async with asyncio.timeout(GUARD):
        await reached.wait()
        hold.set()
        pool.submit(int).result(GUARD)  # the only thread is free again, and the loop knows nothing
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert upstream.closes == 1


async def test_sync_streams_that_wait_leave_the_threads_of_the_loop_to_everything_else():
    """Stores and models do not wait behind the chunks of a slow model."""
    hold = threading.Event()
    upstream = SyncUpstream("a", hold=hold)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with prepared().stream(upstream.create) as stream, asyncio.timeout(GUARD):
        await anext(stream)
        waiting = asyncio.create_task(anext(stream, None))
        while not upstream.reached.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0)
        assert await asyncio.to_thread(int) == 0
        hold.set()
        assert await waiting is None


async def test_a_plain_function_may_return_the_coroutine_of_an_async_call():
    upstream = Upstream("a")
    stream = prepared().stream(lambda **params: upstream.create(**params, extra=1))
    assert [chunk async for chunk in stream] == ["a"]
    assert upstream.closes == 1


def _called(create, **params):
    return create(**params)


@pytest.mark.parametrize("plain", [False, True])
async def test_an_async_call_may_return_a_sync_stream(plain):
    upstream = SyncUpstream("a", "b")

    async def create(**params):
        return upstream

    async with prepared().stream(partial(_called, create) if plain else create) as stream:
        await anext(stream)
    assert upstream.closes == 1


async def test_an_error_of_a_sync_stream_arrives_unwrapped():
    def create(**params):
        yield "a"
        raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        _ = [chunk async for chunk in prepared().stream(create)]


# Parameters


async def test_a_sync_client_that_raises_stop_iteration_does_not_hang():
    def create(**params):
        raise StopIteration

    async with asyncio.timeout(GUARD):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await anext(prepared().stream(create))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await prepared().call(create)


async def test_parameters_of_any_name_reach_the_call():
    def create(**params):
        return params

    extra = {"stage": 1, "self": 2, "create": 3, "work": 4, "func": 5}
    sent = await prepared(**extra).call(create)
    assert {name: sent[name] for name in extra} == extra


async def test_call_and_stream_set_or_remove_the_stream_parameter_themselves():
    model = ScriptedChatModel("ok")
    request = prepared(model="m", stream=True, stream_options={"include_usage": True}, seed=1)
    await request.call(model.create)
    _ = [chunk async for chunk in request.stream(model.create)]
    plain = prepared(model="m")
    _ = [chunk async for chunk in plain.stream(model.create)]
    await plain.call(model.create)
    for call in model.calls:
        call.pop("messages")
    assert model.calls == [
        {"model": "m", "seed": 1},
        {"model": "m", "seed": 1, "stream": True, "stream_options": {"include_usage": True}},
        {"model": "m", "stream": True},
        {"model": "m"},
    ]


async def test_call_returns_the_providers_object_as_it_came():
    """Also one that a content filter emptied; None alone is an error."""
    filtered = SimpleNamespace(
        choices=[SimpleNamespace(finish_reason="content_filter", message=None)]
    )
    for response in (filtered, SimpleNamespace(choices=[]), "", 0):
        assert await prepared().call(lambda response=response, **_: response) is response
    with pytest.raises(EmptyResponse):
        await prepared().call(lambda **_: None)


async def test_a_prepared_request_can_be_sent_many_times_and_at_once():
    model = ScriptedChatModel(lambda params: params["messages"][0]["content"])
    request = prepared()

    async def stream():
        async with request.stream(model.create) as chunks:
            return "".join([c.choices[0].delta.content or "" async for c in chunks])

    assert await asyncio.gather(*(stream() for _ in range(5))) == ["q"] * 5


@given(st.lists(st.text(max_size=5), max_size=6), st.integers(0, 7))
async def test_any_prefix_of_a_stream_may_be_read_and_the_upstream_is_closed_once(
    chunks: list[str], take: int
):
    upstream = Upstream(*chunks)
    got = []
    async with prepared().stream(upstream.create) as stream:
        while len(got) < take and (chunk := await anext(stream, None)) is not None:
            got.append(chunk)
    assert got == chunks[:take]
    assert upstream.closes == upstream.opened == (1 if take else 0)
