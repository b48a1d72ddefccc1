"""Owning a provider's stream: one task opens it, reads it on demand, and closes it once.

The consumer's task never touches the provider's stream. So a consumer that is cancelled, even twice
in a row, cannot interrupt the closing that returns the connection to its pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import BaseModel

from ragchat.errors import EmptyResponse
from ragchat_retrieval.stages import in_thread, is_async_callable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat.access import Foreign

_END: Final = object()
_open: set[asyncio.Task[None]] = set()  # an event loop holds tasks weakly; gone when they end


class StreamOwner:
    """Owns one stream; must be made in a running event loop.

    Args:
        create: ``chat.completions.create``, async or sync.
        params: Its keyword arguments.
    """

    def __init__(self, create: Callable[..., Foreign], params: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._answer: asyncio.Future[Foreign] | None = None
        self._stopped = False
        self._closing = False
        self._close_error: BaseException | None = None
        self._task = self._loop.create_task(self._own(create, params))
        _open.add(self._task)
        self._task.add_done_callback(self._ended)

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on the stream's event loop."""
        return asyncio.get_running_loop() is self._loop

    @property
    def busy(self) -> bool:
        """Whether somebody waits for a chunk."""
        return self._answer is not None and not self._answer.done()

    async def next(self) -> Foreign:
        """Returns the next chunk.

        Raises:
            StopAsyncIteration: The stream has ended and is closed.
            EmptyResponse: ``create`` returned no stream.
            BaseException: What the provider raised; the stream is closed.
        """
        if self._task.done():
            raise StopAsyncIteration
        self._answer = self._loop.create_future()
        self._asked.set()
        chunk = await self._answer
        if chunk is _END:
            raise StopAsyncIteration
        return chunk

    async def stop(self) -> None:
        """Closes the stream and waits until it is closed. Cancelling the wait does not stop it.

        From another event loop there is no waiting; see `abandon`.
        """
        if not self.is_here:
            self.abandon()
            return
        self._cancel()
        if not self._task.done():
            await asyncio.wait([self._task])

    def abandon(self) -> None:
        """Closes the stream in the background; may be called from any thread."""
        if not self._task.done():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and everything with it
                self._loop.call_soon_threadsafe(self._cancel)

    def raise_close_error(self) -> None:
        """Raises what went wrong when the stream was closed, once."""
        error, self._close_error = self._close_error, None
        if error is not None:
            raise error

    def _cancel(self) -> None:
        if not self._stopped and not self._closing:
            self._stopped = True
            self._task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        _open.discard(task)
        self._deliver(_END)  # a task that is cancelled before its first step delivers nothing

    async def _own(self, create: Callable[..., Foreign], params: dict[str, Any]) -> None:
        outcome: object = _END
        try:
            await self._asked.wait()
            upstream = await _opened(create, params)
            try:
                async for chunk in upstream:
                    self._asked.clear()
                    self._deliver(chunk)
                    await self._asked.wait()
            finally:
                self._closing = True
                await self._close(upstream)
        except BaseException as error:  # noqa: BLE001 - the consumer gets it, whatever it is
            if not self._stopped:
                outcome = error
        if outcome is _END and not self._stopped and self._close_error is not None:
            outcome, self._close_error = self._close_error, None
        self._deliver(outcome)

    async def _close(self, upstream: _Upstream) -> None:
        try:
            await upstream.close()
        except Exception as error:  # noqa: BLE001 - raised where nothing else is on its way
            self._close_error = error

    def _deliver(self, outcome: object) -> None:
        answer = self._answer
        if answer is None or answer.done():
            return
        if isinstance(outcome, asyncio.CancelledError):
            answer.cancel()
        elif isinstance(outcome, BaseException):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)


class _Upstream(Protocol):
    def __aiter__(self) -> AsyncIterator[Foreign]: ...

    async def close(self) -> None: ...


async def _opened(create: Callable[..., Foreign], params: dict[str, Any]) -> _Upstream:
    """Calls ``create`` and returns its stream, whichever kind it is.

    What is no stream says so when it is iterated, so that it is closed as any other.
    """
    worker: _Worker | None = None
    if is_async_callable(create):
        response = create(**params)
    else:
        worker = _Worker()
        response = await worker.run(lambda: create(**params), opens=True)
    if isinstance(response, Awaitable) and not isinstance(response, AsyncIterable):
        worker, response = None, await response
    if isinstance(response, AsyncIterable) or not (worker or isinstance(response, Iterable)):
        return _AsyncUpstream(response)
    return _SyncUpstream(response, worker or _Worker(response))


class _AsyncUpstream:
    """A stream that is read on the event loop."""

    def __init__(self, response: Foreign) -> None:
        self._response = response
        self._chunks = response

    def __aiter__(self) -> AsyncIterator[Foreign]:
        if not isinstance(self._response, AsyncIterable):
            raise _no_stream(self._response)
        chunks: AsyncIterator[Foreign] = aiter(self._response)
        self._chunks = chunks
        return chunks

    async def close(self) -> None:
        try:
            if self._chunks is not self._response:
                await _aclose(self._chunks)
        finally:
            await _aclose(self._response)


class _SyncUpstream:
    """A stream of a sync client, read in worker threads."""

    def __init__(self, response: Foreign, worker: _Worker) -> None:
        self._worker = worker
        self._chunks = response

    def __aiter__(self) -> AsyncIterator[Foreign]:
        self._chunks = iter(checked_stream(self._chunks))
        return self

    async def __anext__(self) -> Foreign:
        chunk = await self._worker.run(lambda: next(self._chunks, _END))
        if chunk is _END:
            raise StopAsyncIteration
        return chunk

    async def close(self) -> None:
        await in_thread(self._worker.close)


class _Worker:
    """Runs one thing at a time of a sync stream in a thread, and closes the stream after the last.

    A thread cannot be cancelled. If one is inside the client when the stream is to be closed, it
    closes the stream itself when it comes out.
    """

    def __init__(self, response: Foreign = None) -> None:
        self._lock = threading.Lock()
        self._response: Foreign = response
        self._closing = False

    async def run(self, work: Callable[[], Foreign], *, opens: bool = False) -> Foreign:
        try:
            return await in_thread(self._run, work, opens=opens)
        except asyncio.CancelledError:
            self._closing = True
            if opens:  # the thread may be out already, with a stream that nobody else knows of
                await in_thread(self.close)
            raise

    def close(self) -> None:
        self._closing = True
        if self._lock.acquire(blocking=False):
            try:
                response, self._response = self._response, None
                close_stream(response)
            finally:
                self._lock.release()

    def _run(self, work: Callable[[], Foreign], *, opens: bool) -> Foreign:
        try:
            with self._lock:
                if self._closing:  # cancelled before a thread was free
                    return _END
                result = work()
                if opens:
                    self._response = result
                return result
        except StopIteration as error:
            # A future cannot hold it, so whoever awaits the thread would wait for ever.
            raise RuntimeError("the chat model's client raised StopIteration") from error
        finally:
            if self._closing:
                self.close()


def checked_stream(response: object) -> Iterable[Foreign]:
    """Returns what a sync ``create`` returned, if it is a stream.

    Raises:
        EmptyResponse: It is none.
    """
    # A whole completion is a pydantic model, and those are iterable too.
    if not isinstance(response, Iterable) or isinstance(response, str | Mapping | BaseModel):
        raise _no_stream(response)
    return response


def _no_stream(response: object) -> EmptyResponse:
    return EmptyResponse(f"the chat model returned no stream, but a {type(response).__name__}")


def close_stream(stream: object) -> None:
    """Closes a sync stream or iterator, if it can be closed."""
    close = getattr(_closable(stream), "close", None)
    if callable(close):
        close()


def _closable(stream: Foreign) -> Foreign:
    """Returns what holds the connection: of a client's raw response, the response inside."""
    return getattr(stream, "http_response", stream)


async def _aclose(stream: Foreign) -> None:
    """Closes a stream by whichever method it has."""
    stream = _closable(stream)
    for name in ("aclose", "close"):
        method = getattr(stream, name, None)
        if callable(method):
            waiting = method()
            if inspect.isawaitable(waiting):
                await waiting
            return
    leave = getattr(stream, "__aexit__", None)
    if callable(leave):
        left: Foreign = leave(None, None, None)
        await left
