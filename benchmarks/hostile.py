"""Hostile requests against a whole server: no fault of its own, no word of what is not theirs.

    python benchmarks/hostile.py [--requests 10000] [--seed 1]

The server runs in a process of its own, once with a chat model that repeats its whole prompt, once
without a model; half of the requests go to each. The attacker has a key with a scope. Documents of
another scope, of none and of another corpus hold a planted word, which no answer may show, and are
the same at the end. Whatever goes wrong is printed with the request that did it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import uvicorn
from hostile_requests import Attack, Attacker
from hostile_values import FOREIGN_IDS, JSON, OWN_ID
from openai import AsyncOpenAI

import ragchat
from ragchat.server import Key, KeyRing, ServerSettings, create_app, new_key
from ragchat.testing import LoopbackOpenAI, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragchat.testing import RecordedRequest

PLANTED = "heliotrope-outside-of-your-scope"
UPSTREAM_KEY = "sk-upstream-of-the-server"
SETTINGS = {
    "requests_per_minute": 10**9,
    "body_timeout": 0.5,
    "max_body_bytes": 2**20,
    "max_upload_bytes": 2**20,
}
"""Limits that end what hostile clients leave unfinished, and do not end the run."""

_TOGETHER = 16
_PATIENCE, _SHORT = 60.0, 4.0
"""Seconds to wait for an answer, and where there may be none."""

_MOST_ANSWER = 2**25
_CONTINUE, _FIRST_ERROR, _FIRST_FAULT = 100, 400, 500
_OWN_FAULT = re.compile(rb'"code": ?"internal"')
_USUAL = (b"INFO:", b"WARNING:  Invalid HTTP request")
"""What the log says of any run."""

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


@dataclass(frozen=True, slots=True)
class World:
    """Who has which key, and what must stay as it is."""

    secrets: Mapping[str, str]
    keys: KeyRing
    index: ragchat.HybridIndex

    @property
    def others(self) -> tuple[str, ...]:
        """What an attacker may know of other keys, such as from a stolen file of hashes."""
        given = [key for key in self.keys.keys if key.name != "attacker"]
        parts = [secret[:12] for name, secret in self.secrets.items() if name != "attacker"]
        return (*(key.hash for key in given), *(key.name for key in given), *parts, "rc-", "open")


async def world() -> World:
    """Returns an index in memory with documents of several owners, and the keys."""
    index = ragchat.in_memory()
    secrets, keys = {}, list[Key]()
    for name, corpus, scope in (
        ("attacker", "default", {"team": "x"}),
        ("neighbour", "default", {"team": "y"}),
        ("elsewhere", "two", {}),
        ("owner", "default", {}),
    ):
        secrets[name], key = new_key(name, corpus=corpus, scope=scope)
        keys.append(key)
    text = f"How many days of leave does team y have a year? {PLANTED}."
    told = {"title": PLANTED, "source": PLANTED}
    foreign, elsewhere, stray = FOREIGN_IDS
    owned = {"owner": PLANTED}
    own = "Employees get 25 days of leave a year."
    await index.ingest(
        ragchat.Document(OWN_ID, own, metadata={"team": "x", "n": 1}),
        ragchat.Document(foreign, text, metadata={"team": "y", **owned}, **told),
        ragchat.Document(stray, text, metadata=owned, **told),
    )
    await index.corpus("two").ingest(ragchat.Document(elsewhere, text, metadata=owned, **told))
    return World(secrets, KeyRing(keys), index)


def repeated(request: RecordedRequest) -> Reply:
    """Answers with the whole prompt: what is in it cannot hide."""
    return Reply(json.dumps(request.json["messages"], ensure_ascii=False))


async def send(port: int, attack: Attack) -> bytes | None:
    """Sends a request; returns the whole answer, None if the server was silent until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_MOST_ANSWER)
    parts: list[bytes] = []
    try:
        writer.write(attack.data)
        if attack.leaves:
            await asyncio.sleep(0)
            return b""
        async with asyncio.timeout(_PATIENCE if attack.is_http else _SHORT):
            while part := await reader.read(2**16):
                parts.append(part)
    except TimeoutError:
        return b"".join(parts) if parts else None
    except OSError:  # reset: the server has closed with bytes unread
        pass
    finally:
        writer.transport.abort()
    return b"".join(parts)


def fault_of(attack: Attack, answer: bytes | None) -> str:
    """Returns what is wrong with an answer; empty if nothing is."""
    for secret in (PLANTED, UPSTREAM_KEY):
        if secret.encode() in (answer or b""):
            return "a secret was told"
    if not answer or not read(answer)[0]:
        return "no answer" if attack.is_http and not attack.leaves else ""
    status, body = read(answer)
    if status >= _FIRST_FAULT or _OWN_FAULT.search(body):
        return f"a fault of the server: {status}"
    if attack.kind == "keys" and status < _FIRST_ERROR:
        return "a key that is none opened something"
    if status >= _FIRST_ERROR and attack.is_http and body and not _is_error(body):
        return f"an error of another shape: {status}"
    return ""


def read(answer: bytes) -> tuple[int, bytes]:
    """Returns status and body; the status is 0 where there is none yet."""
    head, _, body = answer.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100") and body:
        head, _, body = body.partition(b"\r\n\r\n")
    found = _STATUS.match(head)
    status = int(found[1]) if found else 0
    return (0 if status == _CONTINUE else status), body


def _is_error(body: bytes) -> bool:
    try:
        names: set[str] = json.loads(body)["error"].keys()
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return names >= {"message", "type", "param", "code"}


async def get(port: int, path: str, key: str) -> JSON:
    """Returns what a good request gets."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_MOST_ANSWER)
    writer.write(
        f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {key}\r\n"
        "\r\n".encode()
    )
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"{path}: {head.decode()}")
    return json.loads(body)


async def ids(port: int, key: str) -> list[str]:
    """Returns the ids of all documents that a key opens."""
    found: list[str] = []
    while True:
        after = quote(found[-1], safe="") if found else ""
        page = await get(port, f"/v1/documents?limit=1000&after={after}", key)
        found += [each["id"] for each in page["data"]]
        if not page["has_more"]:
            return found


async def guarded(port: int, secrets: Mapping[str, str]) -> dict[str, Any]:
    """Returns everything that an attacker must not change."""
    kept: dict[str, Any] = {}
    for name in ("neighbour", "elsewhere"):
        kept[name] = {
            each: await get(port, f"/v1/documents/{quote(each, safe='')}", secrets[name])
            for each in await ids(port, secrets[name])
        }
    inside = await ids(port, secrets["attacker"])
    kept["outside"] = sorted(set(await ids(port, secrets["owner"])) - set(inside))
    return kept


async def attacked(
    ports: tuple[int, ...], world: World, *, requests: int, seed: int
) -> tuple[Counter[tuple[str, int]], list[str]]:
    """Sends requests; returns how many of each kind got which status, and what went wrong."""
    attacker = Attacker(random.Random(seed), world.secrets["attacker"], world.others)  # noqa: S311 - the same every time
    attacks = [attacker.attack() for _ in range(requests)]
    before = await guarded(ports[0], world.secrets)
    faults: list[str] = []
    statuses = Counter[tuple[str, int]]()
    waiting = iter(enumerate(attacks))

    async def work() -> None:
        for number, attack in waiting:
            answer = await send(ports[number % len(ports)], attack)
            statuses[attack.kind, read(answer or b"")[0]] += 1
            if fault := fault_of(attack, answer):
                shown = f"{attack.data[:2000]!r} -> {(answer or b'')[:500]!r}"
                faults.append(f"{number} ({attack.kind}): {fault}: {shown}")

    await asyncio.gather(*(work() for _ in range(_TOGETHER)))
    for port in ports:
        if await get(port, "/healthz", "") != {"status": "ok"}:
            faults.append("the server is not healthy")
        if await guarded(port, world.secrets) != before:
            faults.append("what is not the attacker's has changed")
    return statuses, faults


async def serve() -> None:
    """Runs both servers until the parent ends them; tells the ports and the keys first."""
    for name in ("pypdf", "python_multipart"):  # as `ragchat serve` does
        logging.getLogger(name).setLevel(logging.ERROR)
    here = await world()
    with LoopbackOpenAI(default=repeated) as model:
        client = AsyncOpenAI(base_url=model.base_url, api_key=UPSTREAM_KEY, max_retries=0)
        running = []
        for name in ("m", None):
            settings = ServerSettings(model=name, **SETTINGS)
            app = create_app(here.index, settings, keys=here.keys, client=client)
            config = uvicorn.Config(
                app, port=0, http="h11", access_log=False, timeout_keep_alive=1, log_level="info"
            )
            running.append(uvicorn.Server(config))
        tasks = [asyncio.create_task(server.serve()) for server in running]
        while not all(server.started for server in running):  # noqa: ASYNC110 - no event for that
            await asyncio.sleep(0.01)
        ports = [server.servers[0].sockets[0].getsockname()[1] for server in running]
        hashes = [[key.name, key.hash] for key in here.keys.keys]
        print(json.dumps([ports, dict(here.secrets), hashes]), flush=True)
        await asyncio.wait(tasks)


def main() -> None:
    """Reads the options; runs the servers and the attack."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, Path(__file__), "--serve"], stdout=subprocess.PIPE, stderr=log
        )
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            ports, secrets, hashes = json.loads(process.stdout.readline())
            keys = KeyRing(Key(name=name, hash=hashed) for name, hashed in hashes)
            here = World(secrets, keys, ragchat.in_memory())
            got, faults = asyncio.run(
                attacked(tuple(ports), here, requests=options.requests, seed=options.seed)
            )
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        told = [line for line in log.read().splitlines() if not line.startswith(_USUAL)]
    for fault in faults:
        print(fault)
    for kind in sorted({kind for kind, _ in got}):
        counted = sorted((status, count) for (each, status), count in got.items() if each == kind)
        print(f"{kind}:", ", ".join(f"{status or 'none'} {count}" for status, count in counted))
    for line in told:
        print("log:", line.decode("utf-8", "replace"))
    print(f"{got.total()} requests, {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
