"""A stage may be sync or async, decorated, partial, a method or an object."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import AsyncMock, MagicMock

import pytest

from ragchat_retrieval.stages import call_stage, is_async_callable


async def coroutine(value: object = "done") -> object:
    return value


def plain(value: object = "done") -> object:
    return value


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class AsyncObject:
    async def __call__(self, value: object = "done") -> object:
        return value

    async def method(self, value: object = "done") -> object:
        return value

    @staticmethod
    async def static(value: object = "done") -> object:
        return value

    @classmethod
    async def of_class(cls, value: object = "done") -> object:
        return value

    @decorated
    async def decorated_method(self, value: object = "done") -> object:
        return value


class SyncObject:
    def __call__(self, value: object = "done") -> object:
        return value

    def method(self, value: object = "done") -> object:
        return value


class DecoratedCall:
    @decorated
    async def __call__(self, value: object = "done") -> object:
        return value


ASYNC = [
    coroutine,
    decorated(coroutine),
    decorated(decorated(coroutine)),
    functools.partial(coroutine),
    functools.partial(functools.partial(decorated(coroutine))),
    AsyncObject(),
    functools.partial(AsyncObject()),
    AsyncObject().method,
    AsyncObject().static,
    AsyncObject().of_class,
    AsyncObject().decorated_method,
    functools.partial(AsyncObject().decorated_method),
    DecoratedCall(),
    decorated(AsyncObject()),
    AsyncMock(return_value="done"),
]
SYNC = [
    plain,
    decorated(plain),
    functools.partial(plain),
    SyncObject(),
    SyncObject().method,
    lambda value="done": value,
    str,
    len,
    [].append,
    MagicMock(return_value="done"),
]


@pytest.mark.parametrize("stage", ASYNC, ids=lambda stage: type(stage).__name__)
async def test_an_async_stage_runs_on_the_loop(stage):
    assert is_async_callable(stage)
    assert await call_stage(stage) == "done"


@pytest.mark.parametrize("stage", SYNC, ids=lambda stage: type(stage).__name__)
def test_anything_else_is_sync(stage):
    assert not is_async_callable(stage)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="functions can be marked from 3.12 on")
async def test_a_wrapper_of_a_sync_function_that_is_marked_as_async_runs_on_the_loop():
    """As ASGI's sync_to_async makes them."""

    @functools.wraps(plain)
    def wrapper(value="done"):
        return coroutine(value)

    assert not is_async_callable(wrapper)
    assert is_async_callable(inspect.markcoroutinefunction(wrapper))


async def test_the_async_client_of_the_sdk_is_recognised():
    """Its `create` is a decorated coroutine function."""
    import openai

    client = openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1:9")
    assert is_async_callable(client.chat.completions.create)
    await client.close()


async def test_async_work_stays_on_the_loops_thread_and_sync_work_leaves_it():
    async def where() -> int:
        return threading.get_ident()

    here = threading.get_ident()
    assert await call_stage(where) == here
    assert await call_stage(threading.get_ident) != here


async def test_an_awaitable_that_comes_back_is_awaited_on_the_loop():
    def gives_coroutine(value: str) -> object:
        return coroutine(value)

    async def where() -> int:
        return threading.get_ident()

    assert await call_stage(gives_coroutine, "x") == "x"
    assert await call_stage(lambda: where()) == threading.get_ident()  # noqa: PLW0108 - is sync


async def test_arguments_and_context_variables_reach_a_sync_stage():
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    def stage(*args: object, **kwargs: object) -> object:
        return (args, kwargs, variable.get())

    assert await call_stage(stage, 1, key=2) == ((1,), {"key": 2}, "set")


@pytest.mark.parametrize("wrap", [lambda f: f, decorated, functools.partial])
async def test_what_a_stage_raises_reaches_the_caller(wrap):
    async def fails_async() -> None:
        raise LookupError("async")

    def fails_sync() -> None:
        raise LookupError("sync")

    with pytest.raises(LookupError, match="async"):
        await call_stage(wrap(fails_async))
    with pytest.raises(LookupError, match="sync"):
        await call_stage(wrap(fails_sync))


async def test_a_stop_iteration_is_an_error_and_no_endless_wait():
    def stage() -> object:
        return next(iter([]))

    async with asyncio.timeout(10):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await call_stage(stage)


async def test_a_sync_stage_that_hangs_leaves_the_threads_of_the_loop_to_everything_else():
    """A timed-out sync stage keeps its thread; stores and models do not wait behind it."""
    loop, started, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))

    def hang() -> bool:
        loop.call_soon_threadsafe(started.set)
        return release.wait(10)

    hanging = asyncio.create_task(call_stage(hang))
    async with asyncio.timeout(5):
        await started.wait()
        assert await asyncio.to_thread(int) == 0
        release.set()
        assert await hanging


async def test_a_slow_sync_stage_does_not_hold_the_loop():
    loop, started, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def slow() -> str:
        loop.call_soon_threadsafe(started.set)
        assert release.wait(10)
        return "late"

    task = asyncio.create_task(call_stage(slow))
    async with asyncio.timeout(10):
        await started.wait()
        # The loop is free to set what the stage waits for.
        release.set()
        assert await task == "late"


async def test_the_result_of_a_cancelled_sync_stage_is_dropped():
    loop, started = asyncio.get_running_loop(), asyncio.Event()
    release, ended = threading.Event(), threading.Event()

    def slow() -> str:
        loop.call_soon_threadsafe(started.set)
        release.wait(10)
        ended.set()
        return "late"

    task = asyncio.create_task(call_stage(slow))
    async with asyncio.timeout(10):
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not ended.is_set()
    release.set()
    assert ended.wait(10)


def test_a_proxy_that_answers_to_every_attribute_is_looked_through_only_so_far():
    class Proxy:
        def __getattr__(self, name: str) -> Proxy:
            return Proxy()

        def __call__(self) -> str:
            return "done"

    assert is_async_callable(Proxy()) is False


def test_wrappers_in_a_circle_and_things_that_cannot_be_called_are_not_async():
    circle = SimpleNamespace()
    circle.__wrapped__ = circle
    assert is_async_callable(circle) is False
    for nothing in (None, 3, "text", object()):
        assert is_async_callable(nothing) is False


@pytest.mark.parametrize("early", [True, False], ids=["before it returns", "after it returned"])
async def test_a_coroutine_that_a_sync_stage_returns_to_nobody_is_closed(early):
    entered, go, returned = threading.Event(), threading.Event(), threading.Event()
    made = []

    async def answer():
        return "never"

    def stage():
        entered.set()
        go.wait(30)
        made.append(answer())
        returned.set()
        return made[0]

    task = asyncio.create_task(call_stage(stage))
    await asyncio.to_thread(entered.wait, 30)
    if early:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    go.set()
    if not early:
        returned.wait(30)  # the loop is held, so that nobody takes the result
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    async with asyncio.timeout(30):
        while not made or inspect.getcoroutinestate(made[0]) != inspect.CORO_CLOSED:  # noqa: ASYNC110 - the thread ends by itself
            await asyncio.sleep(0)
