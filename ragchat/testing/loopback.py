"""`LoopbackOpenAI`: a real OpenAI-compatible HTTP server on 127.0.0.1 that can misbehave."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import inspect
import math
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ragchat.testing.loopback_http import Connection, RecordedRequest
from ragchat.testing.loopback_plan import Behaviour, Failure, plan
from ragchat.testing.shapes import CREATED

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from ragchat.testing.loopback_plan import Plan

Scripted: TypeAlias = Behaviour | Callable[[RecordedRequest], Any]
"""A behaviour, or a callable of the request that returns, or resolves to, one."""

CHAT = "/chat/completions"
EMBEDDINGS = "/embeddings"
MODELS = "/models"
RESPONSES = "/responses"


class LoopbackOpenAI:
    """An OpenAI-compatible server on 127.0.0.1, in a thread of its own, for tests.

    It speaks ``/v1/chat/completions`` (streamed and not), ``/v1/embeddings`` and ``/v1/models``,
    records every request, and follows a script. Use it as a context manager and give ``base_url``
    to a client; any key will do.

    Args:
        *script: Behaviours of the chat endpoint, one per request. Afterwards `default` holds.
        default: The behaviour without a script.
        dimension: Length of its embeddings, which are hashed words: texts that share words are
            similar, nothing more.
        embed: Replaces the hashed embedding of one text.
        models: Names for ``/v1/models``.
    """

    def __init__(
        self,
        *script: Scripted,
        default: Scripted = "ok",
        dimension: int = 16,
        embed: Callable[[str], Sequence[float]] | None = None,
        models: Sequence[str] = ("scripted",),
    ) -> None:
        self._scripts: dict[str, deque[Scripted]] = {
            CHAT: deque(_checked(*script)),
            EMBEDDINGS: deque(),
            RESPONSES: deque(),
        }
        (self._default,) = _checked(default)
        self._embed = embed or (lambda text: hashed_embedding(text, dimension))
        self._models = tuple(models)
        self._requests: list[RecordedRequest] = []
        self._connections: set[Connection] = set()
        self._opened = 0
        self._news = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._port = 0

    @property
    def base_url(self) -> str:
        """What a client takes as its ``base_url``, such as ``http://127.0.0.1:40123/v1``."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def requests(self) -> tuple[RecordedRequest, ...]:
        """Every request so far, in the order of arrival."""
        with self._news:
            return tuple(self._requests)

    @property
    def connections(self) -> int:
        """How many connections were ever opened."""
        with self._news:
            return self._opened

    @property
    def open_connections(self) -> int:
        """How many connections are open now."""
        with self._news:
            return len(self._connections)

    def script(self, *behaviours: Scripted, path: str = CHAT) -> None:
        """Adds behaviours to the script of an endpoint.

        Args:
            *behaviours: One per request. ``/responses`` has no shape of its own: it takes a mapping
                for the JSON body, a `Raw` or a `Failure`, and answers 404 without a script.
            path: ``/chat/completions``, ``/embeddings`` or ``/responses``.
        """
        with self._news:
            self._scripts[path].extend(_checked(*behaviours))

    def wait_for_requests(self, count: int, timeout: float = 10.0) -> bool:
        """Blocks until `count` requests have arrived, at most `timeout` seconds; says whether."""
        with self._news:
            return self._news.wait_for(lambda: len(self._requests) >= count, timeout)

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="loopback-openai", daemon=True
        )
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        except BaseException:
            self._end_thread(self._loop)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._end_thread(self._loop)

    def _end_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()
        self._loop = None

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        self._server.close()
        connections = tuple(self._connections)
        tasks = [connection.task for connection in connections if connection.task is not None]
        for connection in connections:
            connection.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            await connection.lost.wait()
        await self._server.wait_closed()

    def _connection(self) -> Connection:
        return Connection(self._answer, self._opened_one, self._closed_one)

    def _opened_one(self, connection: Connection) -> None:
        with self._news:
            self._connections.add(connection)
            self._opened += 1

    def _closed_one(self, connection: Connection) -> None:
        with self._news:
            self._connections.discard(connection)

    async def _answer(self, request: RecordedRequest) -> Plan:
        endpoint = request.path.partition("?")[0].removeprefix("/v1")
        with self._news:
            self._requests.append(request)
            script = self._scripts.get(endpoint)
            default = self._default if endpoint == CHAT else None
            behaviour: Any = script.popleft() if script else default
            self._news.notify_all()
        try:
            while callable(behaviour):
                behaviour = behaviour(request)
                if inspect.isawaitable(behaviour):
                    behaviour = await behaviour
        except Exception as error:  # noqa: BLE001 - the script is the test's own code
            behaviour = Failure(500, f"the script raised {type(error).__name__}")
        params = request.json if isinstance(request.json, Mapping) else {}
        if behaviour is None:
            behaviour = self._usual(request.method, endpoint, params)
        return plan(behaviour, params)

    def _usual(self, method: str, endpoint: str, params: Mapping[str, Any]) -> Behaviour:
        if endpoint == MODELS and method == "GET":
            return {"object": "list", "data": [_model(name) for name in self._models]}
        if endpoint == EMBEDDINGS and method == "POST":
            return self._embeddings(params)
        return Failure(404, "no such endpoint")

    def _embeddings(self, params: Mapping[str, Any]) -> Behaviour:
        given = params.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
            return Failure(400, "input must be a string or a list of strings")
        as_floats = params.get("encoding_format", "float") == "float"
        rows = [list(self._embed(text)) for text in texts]
        data = [
            {"object": "embedding", "index": index, "embedding": row if as_floats else _base64(row)}
            for index, row in enumerate(rows)
        ]
        words = sum(len(text.split()) for text in texts)
        usage = {"prompt_tokens": words, "total_tokens": words}
        return {"object": "list", "data": data, "model": params.get("model"), "usage": usage}


def _checked(*behaviours: Scripted) -> tuple[Scripted, ...]:
    """Refuses a list, which would only show as a connection that breaks."""
    if any(isinstance(behaviour, list | tuple) for behaviour in behaviours):
        raise TypeError("replies are given one by one, and chunks as Reply(chunks=[…])")
    return behaviours


def hashed_embedding(text: str, dimension: int) -> list[float]:
    """Returns a unit vector made of hashed words; the first axis alone for a blank text."""
    row = [0.0] * dimension
    for word in text.lower().split():
        digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
        row[int.from_bytes(digest[:4], "big") % dimension] += 1.0 if digest[4] % 2 else -1.0
    length = math.sqrt(sum(value * value for value in row))
    if length == 0:
        return [1.0] + [0.0] * (dimension - 1)
    return [value / length for value in row]


def _base64(row: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode("ascii")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "loopback"}
