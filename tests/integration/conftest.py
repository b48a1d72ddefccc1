"""What tests against servers on loopback share."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import uvicorn
from openai import AsyncOpenAI

from ragchat.server import ServerSettings, create_app
from ragchat.testing import LoopbackOpenAI
from ragchat_retrieval.testing.loopback_server import Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator

    from ragchat_retrieval.testing.loopback_server import LoopbackServer

    Cancel = Callable[[LoopbackServer, Coroutine[Any, Any, object]], Awaitable[None]]


@pytest.fixture
def cancel_midway() -> Cancel:
    """Cancels a call while the server holds its answer back; it must end at once."""

    async def cancel(server: LoopbackServer, call: Coroutine[Any, Any, object]) -> None:
        hold = threading.Event()
        server.misbehave(Fault(hold=hold))
        task = asyncio.create_task(call)
        try:
            async with asyncio.timeout(30):
                while not server.requests:  # noqa: ASYNC110 - the server lives in another thread
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
        finally:
            hold.set()

    return cancel


class Served:
    """A server that runs in this loop, on a port of its own."""

    def __init__(self, app, grace):
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                port=0,
                http="h11",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=grace,
            )
        )
        self._task = asyncio.create_task(self._server._serve())

    async def started(self):
        """Waits until it listens, and makes clients for it."""
        while not self._server.started:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0)
        (listener,) = self._server.servers
        self.port = listener.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx2.AsyncClient(base_url=self.url, timeout=30)
        self.openai = self.client("any")
        return self

    def client(self, key):
        """Returns the official client with a key."""
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    async def post(self, path, body):
        """Sends a request over a socket of its own; returns its two ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        return reader, writer

    async def closing(self):
        """Waits until it takes no more connections."""
        while self._server.servers and self._server.servers[0].is_serving():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)

    async def stop(self):
        """Stops it as a signal does."""
        self._server.should_exit = True
        await self._task

    async def end(self):
        """Closes the clients, then stops it."""
        await self.http.aclose()
        await self.openai.close()
        await self.stop()


@pytest.fixture
def upstream() -> Iterator[LoopbackOpenAI]:
    """The chat model behind a server."""
    with LoopbackOpenAI(default="You get 25 days [1].") as running:
        yield running


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[Served]]]:
    """What starts a server in front of an index, with settings and a chat model."""
    running, clients = [], []

    async def start(index, settings=None, upstream=None, *, model=None, **options):
        client = None
        if upstream is not None:
            client = AsyncOpenAI(base_url=upstream.base_url, api_key="sk-upstream")
            clients.append(client)
        settings = settings or ServerSettings(model=model)
        served = Served(create_app(index, settings, client=client, **options), 10)
        running.append(served)
        return await served.started()

    yield start
    for served in running:
        await served.end()
    for client in clients:
        await client.close()
