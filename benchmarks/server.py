"""The server beside what it wraps: latency, streams at the same time, throughput.

    python benchmarks/server.py [--requests 200] [--streams 200] [--tokens 200] [--rounds 3]

The chat model is a loopback server in a process of its own, and so is each server that is measured:
ours, and a bare proxy of the same stack (FastAPI, uvicorn, the official client) that passes the
bytes of the model's stream on without looking at them. What is compared runs in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from openai import AsyncOpenAI

import ragchat
from ragchat.server import ServerSettings, create_app
from ragchat.testing import LoopbackOpenAI, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

ASKED = [{"role": "user", "content": "How many days of leave do I get?"}]
DOCUMENTS = [
    ragchat.Document(f"d{n}", f"Employees of unit {n} get {n} days of paid leave a year.")
    for n in range(200)
]


async def filled() -> ragchat.HybridIndex:
    """Returns the index that all questions go to."""
    index = ragchat.in_memory()
    await index.ingest(*DOCUMENTS)
    return index


def bare(client: AsyncOpenAI) -> FastAPI:
    """Returns a proxy that only passes bytes on."""
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> StreamingResponse:
        body = await request.json()
        context = client.chat.completions.with_streaming_response.create(
            model="m", messages=[], extra_body=body
        )
        response = await context.__aenter__()

        async def pieces() -> AsyncIterator[bytes]:
            try:
                async for piece in response.iter_bytes():
                    yield piece
            finally:
                await context.__aexit__(None, None, None)

        return StreamingResponse(pieces(), media_type="text/event-stream")

    return app


async def serve(kind: str, model_url: str) -> None:
    """Runs one of the servers until its parent ends it; tells its port first."""
    client = AsyncOpenAI(base_url=model_url, api_key="k", max_retries=0)
    app = bare(client)
    if kind == "ours":
        app = create_app(await filled(), ServerSettings(model="m"), client=client)
    config = uvicorn.Config(app, port=0, http="h11", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event for that
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await running


def model(tokens: int) -> None:
    """Runs the chat model until its parent ends it; tells its URL first."""
    pieces = [f"t{n} " for n in range(tokens)]
    with LoopbackOpenAI(default=Reply("".join(pieces), pieces=pieces)) as running:
        print(running.base_url, flush=True)
        sys.stdin.read()


@contextmanager
def child(*arguments: str) -> Iterator[tuple[str, int]]:
    """Runs this file in a process; yields its first line and its id."""
    process = subprocess.Popen(
        [sys.executable, __file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.kill()
        process.wait()


async def post(port: int, *, stream: bool) -> tuple[bytes, float, float]:
    """Sends one question; returns the answer, the seconds to its first token and to its end."""
    body = json.dumps({"model": "m", "messages": ASKED, "stream": stream}).encode()
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    first = 0.0
    parts = []
    while part := await reader.read(65536):
        parts.append(part)
        if not first and b"t0 " in part:
            first = time.perf_counter() - began
    writer.close()
    return b"".join(parts), first, time.perf_counter() - began


async def latency(port: int, other: int, url: str, requests: int) -> dict[str, float]:
    """Measures ours against preparing and calling in this process, in turns; milliseconds."""
    preparer = ragchat.Preparer((await filled()).retriever(top_k=5))
    inside, served, first_inside, first_served, first_bare = [], [], [], [], []
    async with AsyncOpenAI(base_url=url, api_key="k") as client:
        create = client.chat.completions.create
        for _ in range(requests):
            began = time.perf_counter()
            prepared = await preparer.prepare(model="m", messages=ASKED)
            await prepared.call(create)
            inside.append(time.perf_counter() - began)
            served.append((await post(port, stream=False))[2])
            began = time.perf_counter()
            prepared = await preparer.prepare(model="m", messages=ASKED)
            async with prepared.stream(create) as chunks:
                await anext(chunks)
                await anext(chunks)
                first_inside.append(time.perf_counter() - began)
            first_served.append((await post(port, stream=True))[1])
            first_bare.append((await post(other, stream=True))[1])
    half = {
        "call in process": inside,
        "call served": served,
        "first token in process": first_inside,
        "first token served": first_served,
        "first token of the bare proxy": first_bare,
    }
    return {name: statistics.median(values) * 1000 for name, values in half.items()}


async def together(port: int, streams: int, tokens: int) -> float:
    """Runs streams at the same time and checks each; returns tokens a second."""
    began = time.perf_counter()
    answers = await asyncio.gather(*(post(port, stream=True) for _ in range(streams)))
    seconds = time.perf_counter() - began
    for body, _, _ in answers:
        places = [body.find(b'"t%d "' % n) for n in range(tokens)]
        if -1 in places or places != sorted(places) or b"[DONE]" not in body:
            raise SystemExit("a stream was cut or mixed up")
    return streams * tokens / seconds


def resident(pid: int) -> float:
    """Returns the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def busy(pid: int) -> float:
    """Returns the seconds that a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(options: argparse.Namespace) -> None:
    """Measures and prints everything."""
    with ExitStack() as stack:
        url, _ = stack.enter_context(child("--model", "--tokens", str(options.tokens)))
        ours, pid = stack.enter_context(child("--serve", "ours", url))
        other, other_pid = stack.enter_context(child("--serve", "bare", url))
        for port in (ours, other):
            await together(int(port), 5, options.tokens)
        measured = await latency(int(ours), int(other), url, options.requests)
        for name, value in measured.items():
            print(f"{name}: p50 {value:.2f} ms")
        ratios: list[Any] = []
        costs: list[Any] = []
        memory = [resident(pid)]
        for _ in range(options.rounds):
            before = [busy(each) for each in (other_pid, pid)]
            rates = [
                await together(int(port), options.streams, options.tokens) for port in (other, ours)
            ]
            spent = [
                busy(each) - start for each, start in zip((other_pid, pid), before, strict=True)
            ]
            costs.append(spent[0] / spent[1])
            each = [seconds / options.streams / options.tokens * 1e6 for seconds in spent]
            print(f"computed a token: bare {each[0]:.1f} us, ours {each[1]:.1f} us")
            ratios.append(rates[1] / rates[0])
            memory.append(resident(pid))
            print(f"tokens/s: bare {rates[0]:,.0f}, ours {rates[1]:,.0f}, x{ratios[-1]:.2f}")
        print(f"median ratio {statistics.median(ratios):.2f}")
        print(f"median ratio by time computed {statistics.median(costs):.2f}")
        print("resident MB:", " ".join(f"{value:.0f}" for value in memory))


def main() -> None:
    """Reads the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "URL"))
    parser.add_argument("--model", action="store_true")
    options = parser.parse_args()
    if options.model:
        model(options.tokens)
    elif options.serve:
        asyncio.run(serve(*options.serve))
    else:
        asyncio.run(measure(options))


if __name__ == "__main__":
    main()
