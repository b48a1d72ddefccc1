"""A chat model that says what its script says, behind the signature of ``create``."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ragchat.request import owned
from ragchat.testing.shapes import Foreign, Reply, as_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from types import TracebackType
    from typing import Self

Scripted: TypeAlias = Any
"""A reply of a script; see `ScriptedChatModel` for what it may be."""


class ScriptExhausted(AssertionError):
    """A scripted model was called more often than its script has replies."""


class ScriptedChatModel:
    """A chat model that replies from a script and records every call.

    ``model.create`` is async and has the keyword signature of ``chat.completions.create``;
    ``model.create_sync`` is its blocking twin. Safe for concurrent tasks and threads.

    A reply is one of:

    - a string or a `Reply`;
    - a mapping with ``choices`` (a whole response), or with the fields of `Reply` (``content``
      stands for ``text`` too);
    - an exception, which is raised;
    - a callable that gets the call's kwargs as a dict and returns, or resolves to, a reply;
    - a list of chunks for a streamed call: a string is a content delta, a mapping a chunk's
      payload, an exception is raised at that point, and a callable is called (and awaited) before
      the stream goes on;
    - None or any other object, returned as it is.

    Args:
        replies: A sequence of replies, one per call, or a single reply that is given every time (a
            list is a sequence of replies).
    """

    def __init__(self, replies: Scripted = "ok") -> None:
        self._always: tuple[Scripted, ...] = ()
        self._script: Iterator[Scripted] = iter(())
        if isinstance(replies, str | Reply | Mapping | BaseException) or callable(replies):
            self._always = (replies,)
        else:
            self._script = iter(replies)
        self._lock = threading.Lock()
        self.calls: list[dict[str, Any]] = []
        """The kwargs of every call as it came in: containers and pydantic models are copies."""

        self.streams: list[ScriptedStream] = []
        """Every stream that was handed out."""

    @property
    def prompts(self) -> list[str]:
        """Content of the last message of every call."""
        return [call["messages"][-1]["content"] for call in self.calls]

    async def create(self, **kwargs: Any) -> Foreign:
        """Replies to one call; with ``stream=True`` returns a `ScriptedStream`."""
        reply = self._next(kwargs)
        while callable(reply):
            reply = reply(owned(kwargs))
            if inspect.isawaitable(reply):
                reply = await reply
        return self._respond(reply, kwargs)

    def create_sync(self, **kwargs: Any) -> Foreign:
        """Replies to one call without a loop; callables must not be async."""
        reply = self._next(kwargs)
        while callable(reply):
            reply = reply(owned(kwargs))
        return self._respond(reply, kwargs)

    def _next(self, kwargs: dict[str, Any]) -> Scripted:
        with self._lock:
            self.calls.append(owned(kwargs))
            if self._always:
                return self._always[0]
            try:
                return next(self._script)
            except StopIteration:
                raise ScriptExhausted(f"no reply left for call {len(self.calls)}") from None

    def _respond(self, reply: Scripted, kwargs: dict[str, Any]) -> Foreign:
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, str):
            reply = Reply(reply)
        elif isinstance(reply, Mapping) and "choices" not in reply:
            fields = dict(reply)
            if "content" in fields:
                fields["text"] = fields.pop("content")
            reply = Reply(**{"text": None, **fields})
        if kwargs.get("stream"):
            return self._stream(reply, kwargs)
        if isinstance(reply, Reply):
            reply = reply.completion(kwargs)
        if isinstance(reply, list):
            raise TypeError("a list of chunks answers a streamed call only")
        return as_object(reply) if isinstance(reply, Mapping) else reply

    def _stream(self, reply: Scripted, kwargs: dict[str, Any]) -> Foreign:
        if isinstance(reply, Reply):
            reply = reply.stream(kwargs)
        elif isinstance(reply, Mapping):
            reply = [reply]
        if not isinstance(reply, list):
            return reply
        stream = ScriptedStream([_chunk(item, kwargs) for item in reply])
        with self._lock:
            self.streams.append(stream)
        return stream


def _chunk(item: Scripted, kwargs: dict[str, Any]) -> Scripted:
    if isinstance(item, str):
        item = Reply(pieces=(item,)).stream({**kwargs, "stream_options": None})[1]
    return as_object(item) if isinstance(item, Mapping) else item


class ScriptedStream:
    """The chunks of a streamed reply, with ``close()`` as the SDK's streams have it.

    ``async for`` and ``for`` both iterate it; ``close()`` may be called plainly or awaited.

    Args:
        items: Chunks, exceptions to raise, and callables to run (and await) on the way.
    """

    def __init__(self, items: Iterable[Scripted]) -> None:
        self._items = iter(list(items))
        self.closes = 0
        """How often it was closed; exhaustion and errors do not count."""

        self.taken = 0
        """How many chunks were handed out."""

    @property
    def closed(self) -> bool:
        """Whether it was closed at least once."""
        return self.closes > 0

    def __aiter__(self) -> AsyncIterator[Foreign]:
        return self

    async def __anext__(self) -> Foreign:
        for item in self._items:
            if callable(item):
                waiting = item()
                if inspect.isawaitable(waiting):
                    await waiting
            else:
                return self._hand_out(item)
        raise StopAsyncIteration

    def __iter__(self) -> Iterator[Foreign]:
        return self

    def __next__(self) -> Foreign:
        for item in self._items:
            if not callable(item):
                return self._hand_out(item)
            item()
        raise StopIteration

    def _hand_out(self, item: Scripted) -> Foreign:
        if isinstance(item, BaseException):
            raise item
        if self.closes:
            raise AssertionError("a closed stream was read")
        self.taken += 1
        return item

    def close(self) -> _Closed:
        """Closes the stream."""
        self.closes += 1
        return _Closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Closed:
    """What ``close()`` returns: nothing, whether or not it is awaited."""

    def __await__(self) -> Iterator[None]:
        return iter(())


def tool_call(name: str, arguments: str = "{}", *, id: str = "call_1") -> dict[str, Any]:
    """Returns a tool call for `Reply.tool_calls` or an assistant message."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
