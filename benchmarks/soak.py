"""A whole server under mixed requests: what it holds afterwards.

    python benchmarks/soak.py [--requests 5000] [--batches 10] [--seed 1]

The server runs in a process of its own, over a SQLite file, in front of a chat model in another:
calls, streams, streams that are left, rounds of tools, searches, documents that are written and
removed, uploads, and requests that are refused, eight at a time. After each batch, when nothing
runs any more, it tells its resident memory, open files and sockets, and tasks. Connections to the
chat model are not kept, so that none is open for a good reason.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import uvicorn
from openai import AsyncOpenAI, DefaultAsyncHttpx2Client
from server import ASKED, DOCUMENTS, child, resident

import ragchat
from ragchat.server import ServerSettings, create_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from ragchat.server.service import Service

    Held = Awaitable[dict[str, Any]]

CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "days", "parameters": {}}}
SETTINGS = ServerSettings(model="m", requests_per_minute=10**9)
_TOGETHER = 8
_WARM_UP = 2
_PATIENCE = 30.0


class Client:
    """Asks one server for one thing after another.

    Args:
        port: The server's.
        http: Sends what is read to its end.
    """

    def __init__(self, port: int, http: httpx2.AsyncClient) -> None:
        self._port = port
        self._http = http
        self.ways = (
            *(self.call, self.stream, self.left, self.round, self.search, self.written),
            *(self.uploaded, self.refused, self.unknown),
        )

    async def call(self, _: int) -> None:
        """Takes a whole answer."""
        await self._post(CHAT, {"messages": ASKED})

    async def stream(self, _: int) -> None:
        """Takes a streamed answer."""
        answer = await self._post(CHAT, {"messages": ASKED, "stream": True})
        if not answer.text.endswith("data: [DONE]\n\n"):
            raise SystemExit("a stream has no end")

    async def left(self, number: int) -> None:
        """Leaves a streamed answer before or after its beginning."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = json.dumps({"messages": ASKED, "stream": True}).encode()
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (CHAT.encode(), len(body), body)
        )
        await writer.drain()
        if number % 2:
            await reader.readline()
        writer.transport.abort()

    async def round(self, number: int) -> None:
        """Goes on with a turn after a round of tools."""
        asked = [{"role": "user", "content": f"How many days of leave has unit {number % 50}?"}]
        await self._post(CHAT, {"messages": asked, "tools": [TOOL]})
        rest = [{"role": "assistant", "content": "Let me see."}]
        await self._post(CHAT, {"messages": [*asked, *rest], "tools": [TOOL]})

    async def search(self, number: int) -> None:
        """Searches."""
        await self._post("/v1/search", {"query": f"leave of unit {number}"})

    async def written(self, number: int) -> None:
        """Writes a document and removes it."""
        path = f"/v1/documents/written-{number}"
        text = f"Unit {number} has paid leave. " * 40
        expect(await self._http.put(path, json={"text": text}), 201)
        expect(await self._http.delete(path), 200)

    async def uploaded(self, number: int) -> None:
        """Uploads a file and removes it."""
        files = [("file", (f"{number}.md", b"# Leave\n\nPaid leave. " * 40))]
        expect(await self._http.post("/v1/documents", files=files), 200)
        expect(await self._http.delete(f"/v1/documents/uploads%2F{number}.md"), 200)

    async def refused(self, _: int) -> None:
        """Sends what cannot be prepared."""
        expect(await self._http.post(CHAT, json={"messages": []}), 400)

    async def unknown(self, number: int) -> None:
        """Asks for what is not there."""
        expect(await self._http.get(f"/v1/documents/unknown-{number}"), 404)

    async def _post(self, path: str, body: object) -> httpx2.Response:
        return expect(await self._http.post(path, json=body), 200)


def expect(answer: httpx2.Response, status: int) -> httpx2.Response:
    """Returns an answer of the status that is due."""
    if answer.status_code != status:
        raise SystemExit(f"{answer.request.url}: {answer.status_code} {answer.text[:500]}")
    return answer


async def mixed(port: int, numbers: range, chance: random.Random) -> Counter[str]:
    """Asks for one thing a number, eight at a time; returns how often for what."""
    asked = Counter[str]()
    waiting = iter(numbers)
    url = f"http://127.0.0.1:{port}"
    # None is used again: the server closes one that rests for a while, perhaps in that moment.
    limits = httpx2.Limits(max_keepalive_connections=0)
    async with httpx2.AsyncClient(base_url=url, timeout=_PATIENCE, limits=limits) as http:
        client = Client(port, http)

        async def work() -> None:
            for number in waiting:
                way = chance.choice(client.ways)
                asked[way.__name__] += 1
                await way(number)

        await asyncio.gather(*(work() for _ in range(_TOGETHER)))
    return asked


async def held(server: uvicorn.Server, service: Service, tasks: int) -> dict[str, Any]:
    """Returns what a server in this loop holds as soon as nothing of it runs.

    Args:
        server: The server.
        service: Its service.
        tasks: How many tasks there are when it rests. Where it does not come to rest, the numbers
            that are returned say so.
    """
    connections = server.server_state.connections
    for _ in range(1000):
        resting = not service.slots.running and not connections
        if resting and len(asyncio.all_tasks()) <= tasks:
            break
        await asyncio.sleep(0.01)
    gc.collect()
    return {
        "MB": round(resident(os.getpid()), 1),
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - no file is read
        "tasks": len(asyncio.all_tasks()),
    }


def asking(url: str) -> AsyncOpenAI:
    """Returns a client of the chat model that keeps no connection."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    http = DefaultAsyncHttpx2Client(limits=limits)
    return AsyncOpenAI(base_url=url, api_key="k", max_retries=0, http_client=http)


@asynccontextmanager
async def started(url: str, folder: Path) -> AsyncIterator[tuple[int, Callable[[], Held]]]:
    """Runs a server in this loop; yields its port, and what tells what it holds."""
    async with (
        asking(url) as client,
        ragchat.open_index(folder / "kb.sqlite", embedder=ragchat.HashingEmbedder(256)) as index,
    ):
        await index.ingest(*DOCUMENTS)
        app = create_app(index, SETTINGS, client=client)
        config = uvicorn.Config(app, port=0, http="h11", log_config=None, access_log=False)
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        tasks = len(asyncio.all_tasks())
        yield port, partial(held, server, app.state.ragchat, tasks)
        server.should_exit = True
        await running


async def serve(url: str, folder: str) -> None:
    """Runs the server; answers each line on its input with what it holds."""
    async with started(url, Path(folder)) as (port, told):
        print(port, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await told()), flush=True)


@contextmanager
def served(url: str) -> Iterator[subprocess.Popen[str]]:
    """Runs this file's server in a process."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, __file__, "--serve", url, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def main() -> None:
    """Reads the options and measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", nargs=2, metavar=("URL", "FOLDER"))
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(*options.serve))
        return
    chance = random.Random(options.seed)  # noqa: S311 - the same every time
    size = options.requests // options.batches
    asked, rows = Counter[str](), []
    with child("--model", "--tokens", "50") as (url, _), served(url) as process:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        assert process.stdout is not None  # noqa: S101 - as above
        port = int(process.stdout.readline())
        for batch in range(options.batches):
            asked += asyncio.run(mixed(port, range(batch * size, (batch + 1) * size), chance))
            process.stdin.write("\n")
            process.stdin.flush()
            rows.append(json.loads(process.stdout.readline()))
            print(f"{(batch + 1) * size} requests: {rows[-1]}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(asked.items())))
    warm, last = rows[min(_WARM_UP, len(rows) - 1)], rows[-1]
    print(f"grown by {last['MB'] / warm['MB'] - 1:+.1%} since {(_WARM_UP + 1) * size} requests")
    sys.exit(any(last[name] > warm[name] for name in ("files", "tasks")))


if __name__ == "__main__":
    main()
