"""The chat model behind the server: its answers as they came, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

import openai

from ragchat.errors import EmptyResponse
from ragchat.server.server_sent import END, DataReader
from ragchat_retrieval.tasks import ended

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from openai import AsyncOpenAI

    from ragchat.access import Foreign

Batch: TypeAlias = list[bytes]
"""Data of chunks that arrived together."""

Create: TypeAlias = Callable[..., Awaitable[Any]]

_AHEAD = 1000
"""Chunks that are read ahead of a client that is slower than the chat model."""

_DRAIN = 0.5
"""Seconds for the end of a body behind ``[DONE]``, so that its connection can be used again."""


class Upstream:
    """Asks the chat model.

    All parameters travel in ``extra_body``: so they reach the server as the client wrote them,
    those that this version of the client library does not know too.

    Args:
        client: The client; it makes no tries of its own, since whoever asks has them.
    """

    def __init__(self, client: AsyncOpenAI) -> None:
        self._completions = client.with_options(max_retries=0).chat.completions
        self._client = client

    @property
    def key(self) -> str:
        """The key that the client sends."""
        return self._client.api_key

    async def call(self, /, **body: Any) -> dict[str, Any]:
        """Returns a whole completion.

        Raises:
            EmptyResponse: It is no JSON object.
            APIError: The server refused, failed on the way, or could not be reached.
        """
        response = await self._completions.with_raw_response.create(
            model=body["model"], messages=[], extra_body=body
        )
        answer = _object(response.http_response.content)
        if (error := answer.get("error")) and not answer.get("choices"):
            raise _failure(response.http_request, error)
        return answer

    async def stream(self, /, **body: Any) -> RawStream:
        """Opens a stream, whose chunks come in batches.

        Raises:
            EmptyResponse: The server did not send a stream.
            APIError: The server refused or could not be reached.
        """
        context = self._completions.with_streaming_response.create(
            model=body["model"], messages=[], extra_body=body
        )
        response = await context.__aenter__()
        stream = RawStream(context, response.iter_bytes(), response.http_request)
        kind = response.headers.get("content-type", "")
        if kind.partition(";")[0].strip() == "application/json":
            await stream.aclose()
            raise EmptyResponse("the chat model returned no stream")
        return stream

    async def chunks(self, /, **body: Any) -> AsyncIterator[dict[str, Any]]:
        """Opens a stream whose chunks come one by one, read."""
        return _Read(await self.stream(**body))


class RawStream:
    """The data of a stream's chunks, in the batches in which they arrived, and of its end.

    A task reads on while a batch is on its way, up to a bound: what arrives in one piece, or faster
    than it can be sent on, travels together.
    """

    def __init__(
        self,
        context: AbstractAsyncContextManager[Any],
        pieces: AsyncIterator[bytes],
        request: Foreign,
    ) -> None:
        self._context = context
        self._pieces = pieces
        self._request = request
        self._arrived: Batch = []
        self._ended = False
        self._error: openai.APIError | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        while not self._arrived and not self._ended:
            self._news.clear()
            await self._news.wait()
        if self._arrived:
            batch, self._arrived = self._arrived, []
            self._room.set()
            return batch
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Gives the connection back."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._context.__aexit__, None, None, None)
            stack.push_async_callback(ended, self._reading)
            if self._ended:
                await asyncio.wait([self._reading], timeout=_DRAIN)

    async def _read(self) -> None:
        """Reads to the end of the body, which makes its connection fit for another request."""
        reader = DataReader()
        try:
            async for piece in self._pieces:
                if self._ended:
                    continue
                for data in reader.feed(piece):
                    self._error = self._error_in(data)
                    if self._error is None:
                        self._arrived.append(data)
                    self._ended = data == END or self._error is not None
                    if self._ended:
                        break
                self._news.set()
                if len(self._arrived) > _AHEAD:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:  # noqa: BLE001 - of the HTTP library: which is the client's choice
            if not self._ended:
                broken = openai.APIConnectionError(request=self._request)
                self._error = error if isinstance(error, openai.APIError) else broken
        finally:
            self._ended = True
            self._news.set()

    def _error_in(self, data: bytes) -> openai.APIError | None:
        """Returns the error that a server sent in a chunk's place, if it did."""
        if b'"error"' not in data:  # nearly always; inside of a text its quotes are escaped
            return None
        try:
            error = _object(data).get("error")
        except EmptyResponse:
            return None
        return _failure(self._request, error) if error else None


class _Read:
    """The chunks of a stream as mappings."""

    def __init__(self, stream: RawStream) -> None:
        self._stream = stream
        self._ready: list[bytes] = []

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._ready:
            self._ready = [data for data in await anext(self._stream) if data != END][::-1]
        return _object(self._ready.pop())

    async def aclose(self) -> None:
        await self._stream.aclose()


def _failure(request: Foreign, error: object) -> openai.APIError:
    """Returns the error that a server told in an answer's place, as the client would raise it."""
    return openai.APIError("the chat model's server failed", request, body=error)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise EmptyResponse("the chat model's answer is no JSON object")
    return value


def completion(text: str, model: str, head: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a text as a whole completion.

    Args:
        text: What the only choice says.
        model: Who says it.
        head: Its ``id`` and ``created``.
    """
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    return {
        **head,
        "object": "chat.completion",
        "model": model,
        "choices": [choice],
        "usage": usage,
    }


def chunks_of(text: str, model: str, head: Mapping[str, Any], *, usage: bool) -> Batch:
    """Returns a text as the chunks of a stream; the arguments are those of `completion`."""
    about = {**head, "object": "chat.completion.chunk", "model": model}
    said = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    ended = {"index": 0, "delta": {}, "finish_reason": "stop"}
    chunks = [{**about, "choices": [{**choice, "logprobs": None}]} for choice in (said, ended)]
    if usage:
        counted = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        chunks.append({**about, "choices": [], "usage": counted})
    return [json.dumps(chunk).encode() for chunk in chunks]
