"""A real HTTP server on loopback that records what it gets and misbehaves on request.

`EmbeddingServer` and `RerankServer` are such servers; one of your own says in `paths` where it
answers and in `reply` what.
"""

from __future__ import annotations

import json
import socket
import threading
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the server got it."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How the server treats one request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Sent instead of the right reply."""

    edit: Callable[[Any], object] | None = None
    """Makes another reply of the right one."""

    drop: bool = False
    """Cuts the connection without any answer."""

    hold: threading.Event | None = None
    """Waited for before the answer."""


class Refusal(Exception):
    """The right reply to a request is an error; a server's `reply` raises it.

    Args:
        status: The HTTP status.
        body: The reply, as JSON.
    """

    def __init__(self, status: int, body: object) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.body = body


class LoopbackServer(ABC):
    """The server; a context manager."""

    paths: frozenset[str]
    """Where it answers; elsewhere it says 404."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        """All requests so far, also those that met a fault."""

        self._faults: deque[Fault] = deque()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.double = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def misbehave(self, *faults: Fault) -> None:
        """Treats the next requests so, one fault each; later ones are answered rightly again."""
        with self._lock:
            self._faults.extend(faults)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, request: Request) -> Fault:
        """Records a request and returns the fault it meets."""
        with self._lock:
            self.requests.append(request)
            return self._faults.popleft() if self._faults else Fault()

    @abstractmethod
    def reply(self, request: Request) -> object:
        """Returns the right reply to a request, as JSON.

        Raises:
            Refusal: The right reply is an error.
        """


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """Serves a connection until the client leaves, in whatever way."""
        with suppress(ConnectionError):
            super().handle()

    def finish(self) -> None:
        """Closes the connection, of which the client may have left nothing to close."""
        with suppress(ConnectionError):
            super().finish()

    def do_POST(self) -> None:
        double: LoopbackServer = self.server.double  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, body)
        fault = double.take(request)
        if fault.hold is not None:
            fault.hold.wait()
        if fault.drop:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if self.path not in double.paths:
            self._answer(404, {}, b"{}")
            return
        try:
            content = _content(double, request, fault)
        except Refusal as refusal:
            self._answer(refusal.status, {}, json.dumps(refusal.body).encode())
        else:
            self._answer(fault.status, fault.headers, content)

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keeps the test's output clean."""


def _content(double: LoopbackServer, request: Request, fault: Fault) -> bytes:
    if fault.body is not None:
        return fault.body
    if fault.status != 200:  # noqa: PLR2004 - HTTP OK
        return b'{"error": {"message": "misbehaving"}}'
    right = double.reply(request)
    return json.dumps(right if fault.edit is None else fault.edit(right)).encode()
