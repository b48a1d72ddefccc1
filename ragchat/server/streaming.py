"""An answer that streams: comments in long silence, and an end for clients that do not read."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from ragchat.wire.encoding import HEADERS, HEARTBEAT
from ragchat_retrieval.tasks import ended

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from starlette.types import Receive, Scope, Send


class EventStream(Response):
    """Sends the pieces of a body, each a whole number of server-sent events.

    Whoever runs it cancels it when the client leaves; the pieces are closed then.

    Args:
        pieces: The body.
        heartbeat: Seconds of silence before a comment.
        stall: Seconds before a client that does not read is given up.
        headers: In place of those that every event stream has.
        closing: Called at the end, also if the pieces never began because the client took not even
            the head: what they were to close is closed here.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes],
        *,
        heartbeat: float,
        stall: float,
        headers: Mapping[str, str] = HEADERS,
        closing: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__(headers=dict(headers))
        del self.headers["content-length"]
        self._pieces = pieces
        self._heartbeat = heartbeat
        self._stall = stall
        self._closing = closing
        self._since = 0.0
        """When sending began last, or when it ended."""

        self._sending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends everything."""
        del scope, receive
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        watch = asyncio.create_task(self._watch(send, asyncio.current_task()))
        try:
            async with aclosing(self._pieces) as pieces:
                await self._send(send, head)
                async for piece in pieces:
                    await self._send(send, _body(piece, more=True))
                await self._send(send, _body(b"", more=False))
        finally:
            try:
                await ended(watch)
            finally:
                if self._closing is not None:
                    await self._closing()

    async def _send(self, send: Send, message: dict[str, Any]) -> None:
        clock = asyncio.get_running_loop().time
        self._since, self._sending = clock(), True
        await send(message)
        self._since, self._sending = clock(), False

    async def _watch(self, send: Send, sender: asyncio.Task[Any] | None) -> None:
        """Sends comments while nothing else is sent, and ends a sender that is stuck."""
        clock = asyncio.get_running_loop().time
        while True:
            limit = self._stall if self._sending else self._heartbeat
            wait = self._since + limit - clock()
            if wait > 0:
                # The shorter of both: what is awaited may change meanwhile.
                await asyncio.sleep(min(wait, self._heartbeat, self._stall))
            elif self._sending:
                if sender is not None:
                    sender.cancel()
                return
            else:
                await self._send(send, _body(HEARTBEAT, more=True))


def _body(piece: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": piece, "more_body": more}
