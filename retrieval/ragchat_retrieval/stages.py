"""Calling a stage, whether its author wrote it sync or async.

A coroutine function runs on the loop. Anything else runs in a worker thread, with the caller's
context variables, and an awaitable that comes back is awaited on the loop. Partials, decorated
functions, bound methods and objects with ``__call__`` are looked through: the OpenAI SDK's
``create`` is a decorated coroutine function for which `inspect.iscoroutinefunction` says False.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import CodeType, CoroutineType, MethodType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_LAYERS = 100
"""Most wrappers looked through; proxies that answer to every attribute would never end."""

_MOST = 64
"""Threads for sync code of the user's on one loop."""

_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


def is_async_callable(stage: object) -> bool:
    """Says whether calling `stage` gives a coroutine without doing its work first."""
    for _ in range(_LAYERS):
        if _is_async(stage) or (callable(stage) and _is_async(type(stage).__call__)):
            return True
        if isinstance(stage, functools.partial):
            stage = stage.func
        elif isinstance(stage, MethodType):
            stage = stage.__func__
        elif inspect.iscoroutinefunction(stage):  # marked as one
            return True
        elif (wrapped := getattr(stage, "__wrapped__", None)) is not None:
            stage = wrapped
        elif not inspect.isroutine(stage) and not inspect.isclass(stage) and callable(stage):
            stage = type(stage).__call__
        else:
            return False
    return False


def check_listener(name: str, given: object) -> None:
    """Refuses a listener that would have to be awaited; None is no listener.

    Raises:
        InvalidSetting: It is async.
    """
    if is_async_callable(given):
        raise InvalidSetting(name, "must not be async: it is called, not awaited")


def _is_async(function: object) -> bool:
    code = getattr(function, "__code__", None)  # methods have it, too, and what passes for either
    return isinstance(code, CodeType) and bool(code.co_flags & _ASYNC)


async def call_stage(stage: Callable[..., T | Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
    """Calls a sync or async stage and returns its result.

    A sync stage that outlives a cancellation keeps its thread to the end; its result is dropped,
    and closed if it is a coroutine.

    Args:
        stage: Any callable.
        *args: Its positional arguments.
        **kwargs: Its keyword arguments.

    Returns:
        What the stage returned, awaited if it was awaitable.

    Raises:
        RuntimeError: The stage let a `StopIteration` escape.
        BaseException: Whatever else it raised.
    """
    if is_async_callable(stage):
        result: object = stage(*args, **kwargs)
    else:
        outcome = _Outcome()
        try:
            result = await in_thread(outcome.of, stage, *args, **kwargs)
        except asyncio.CancelledError:
            outcome.drop()
            raise
    if isinstance(result, (CoroutineType, Awaitable)):  # a coroutine is told much faster
        result = await result
    return cast("T", result)


async def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls sync code of the user's in a worker thread, with the caller's context variables.

    What hangs keeps its thread after it was given up. So such code has threads of its own: those of
    the loop, which stores, models and name look-ups work in, stay free.
    """
    call = functools.partial(copy_context().run, work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads(), call)


def _threads() -> ThreadPoolExecutor:
    """Returns the threads for what is called on the running loop; they end with it."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:  # nobody else makes it meanwhile: a loop runs in one thread
        pool = _pools[loop] = ThreadPoolExecutor(_MOST, thread_name_prefix="ragchat-stage")
    return pool


async def beside(much: bool, work: Callable[..., T], /, *args: Any) -> T:  # noqa: FBT001 - it is the point
    """Calls a function of ours: in a worker thread if there is much to do, else at once."""
    return await asyncio.to_thread(work, *args) if much else work(*args)


class _Outcome:
    """What a sync stage returns in its thread, which nobody may be waiting for by then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._result: object = None
        self._dropped = False

    def of(self, stage: Callable[..., object], /, *args: Any, **kwargs: Any) -> object:
        """Calls the stage."""
        try:
            result = stage(*args, **kwargs)
        except StopIteration as error:
            # A future cannot hold it, so whoever awaits the thread would wait for ever.
            raise RuntimeError("a stage raised StopIteration") from error
        with self._lock:
            self._result = result
            self._close_if_dropped()
        return result

    def drop(self) -> None:
        """Gives up what was or will be returned."""
        with self._lock:
            self._dropped = True
            self._close_if_dropped()

    def _close_if_dropped(self) -> None:
        if self._dropped and inspect.iscoroutine(self._result):
            self._result.close()
