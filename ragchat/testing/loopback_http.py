"""Just enough HTTP/1.1 for the loopback server: reading requests, carrying out plans."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ragchat.testing.loopback_plan import Gate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ragchat.testing.loopback_plan import Plan

MAX_REQUEST_BYTES = 64 * 1024 * 1024
_SECRET_HEADERS = frozenset({"authorization", "api-key", "x-api-key", "cookie"})
_NO_LINGER = struct.pack("ii", 1, 0)


class BadRequest(Exception):
    """The client sent something that is no HTTP request this server reads."""


class RecordedRequest:
    """One request as it arrived.

    Attributes:
        method: Such as ``POST``.
        path: Such as ``/v1/chat/completions``, with its query string.
        headers: Names in lower case; headers that carry keys are left out.
        has_key: Whether a header with a key came along.
        body: The exact bytes.
        json: The parsed body; None if it is no JSON.
    """

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = {k: v for k, v in headers.items() if k not in _SECRET_HEADERS}
        self.has_key = len(self.headers) < len(headers)
        self.body = body
        try:
            self.json: Any = json.loads(body)
        except ValueError:
            self.json = None
        self._ended = threading.Event()
        self._disconnected = False

    def __repr__(self) -> str:
        return f"<{self.method} {self.path}, {len(self.body)} bytes>"

    @property
    def disconnected(self) -> bool:
        """Whether the client went away before the response was complete."""
        return self._disconnected

    def wait_ended(self, timeout: float = 10.0) -> bool:
        """Blocks until the response is over, for at most `timeout` seconds; says whether."""
        return self._ended.wait(timeout)

    def wait_disconnected(self, timeout: float = 10.0) -> bool:
        """Blocks until the response is over, as `wait_ended`; says whether the client left."""
        self._ended.wait(timeout)
        return self._disconnected

    def end(self, *, disconnected: bool) -> None:
        """Marks the response as over; called by the server."""
        self._disconnected = disconnected
        self._ended.set()


class Connection(asyncio.Protocol):
    """One client connection: requests one after the other, each answered by a plan.

    Args:
        answer: Records a request and gives its plan.
        on_open: Called with the connection once it stands.
        on_close: Called with the connection once it is gone.
    """

    def __init__(
        self,
        answer: Callable[[RecordedRequest], Awaitable[Plan]],
        on_open: Callable[[Connection], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        self._answer = answer
        self._on_open = on_open
        self._on_close = on_close
        self._buffer = bytearray()
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._gone = asyncio.Event()
        self.lost = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts serving."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._writable.set()
        self._on_open(self)
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        """Takes bytes of a request."""
        self._buffer += data
        self._news.set()

    def eof_received(self) -> bool:
        """Takes the client's goodbye; what is still being sent is broken off."""
        self._leave()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Notes that the client is gone."""
        self._leave()
        self._on_close(self)
        self.lost.set()

    def pause_writing(self) -> None:
        """Waits before sending more: the client reads slowly."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Goes on sending."""
        self._writable.set()

    def abort(self) -> None:
        """Drops the connection without ceremony."""
        self._transport.abort()

    def _leave(self) -> None:
        self._gone.set()
        self._news.set()
        self._writable.set()

    async def _serve(self) -> None:
        try:
            while (request := await self._read_request()) is not None:
                if not await self._respond(request):
                    return
        except BadRequest:
            self._transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        finally:
            self._transport.close()

    async def _respond(self, request: RecordedRequest) -> bool:
        """Answers one request; says whether the connection can take another."""
        sending = asyncio.ensure_future(self._send(request))
        leaving = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return sending.done() and not sending.cancelled() and sending.result()
        finally:
            finished = sending.done()
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            request.end(disconnected=not finished)

    async def _send(self, request: RecordedRequest) -> bool:
        plan = await self._answer(request)
        streamed = plan.headers.get("content-type") == "text/event-stream"
        plain = [step for step in plan.steps if isinstance(step, bytes)]
        head = _head(plan, None if streamed or len(plain) < len(plan.steps) else len(plain[0]))
        pending = head
        if streamed:
            await self._write(pending)
            pending = b""
        chunked = b"transfer-encoding" in head
        for step in plan.steps:
            if step == "reset":
                self._reset()
                return False
            if step == "cut":
                self._transport.close()
                return False
            if isinstance(step, Gate):
                await step.passed()
            else:
                assert isinstance(step, bytes)
                await self._write(pending + (_chunk(step) if chunked else step))
                pending = b""
        await self._write(pending + (b"0\r\n\r\n" if chunked else b""))
        return True

    async def _write(self, data: bytes) -> None:
        if self._transport.is_closing():  # nobody takes it: asyncio would warn of every piece
            await asyncio.get_running_loop().create_future()  # until `_respond` notes that
        self._transport.write(data)
        await self._writable.wait()

    def _reset(self) -> None:
        raw: socket.socket = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    async def _read_request(self) -> RecordedRequest | None:
        head = await self._until(b"\r\n\r\n")
        if head is None:
            return None
        lines = head.decode("latin-1").split("\r\n")
        try:
            method, path, _version = lines[0].split(" ")
            pairs = [line.split(":", 1) for line in lines[1:]]
            headers = {name.strip().lower(): value.strip() for name, value in pairs}
            length = int(headers.get("content-length", "0"))
        except ValueError:
            raise BadRequest from None
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = await self._chunked_body()
        else:
            body = await self._exactly(length)
        return None if body is None else RecordedRequest(method, path, headers, body)

    async def _chunked_body(self) -> bytes | None:
        body = bytearray()
        while (line := await self._until(b"\r\n")) is not None:
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                raise BadRequest from None
            part = await self._exactly(size + 2)
            if part is None:
                return None
            if size == 0:
                return bytes(body)
            body += part[:-2]
        return None

    async def _until(self, mark: bytes) -> bytes | None:
        while (at := self._buffer.find(mark)) < 0:
            if not await self._more():
                return None
        taken = bytes(self._buffer[:at])
        del self._buffer[: at + len(mark)]
        return taken

    async def _exactly(self, count: int) -> bytes | None:
        while len(self._buffer) < count:
            if not await self._more():
                return None
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _more(self) -> bool:
        if self._gone.is_set():
            return False
        if len(self._buffer) > MAX_REQUEST_BYTES:
            raise BadRequest
        self._news.clear()
        await self._news.wait()
        return True


def _head(plan: Plan, length: int | None) -> bytes:
    body = {"transfer-encoding": "chunked"} if length is None else {"content-length": str(length)}
    try:
        phrase = HTTPStatus(plan.status).phrase
    except ValueError:
        phrase = "Scripted"
    lines = [f"HTTP/1.1 {plan.status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in {**plan.headers, **body}.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
