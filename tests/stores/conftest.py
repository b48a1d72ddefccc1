"""An OpenSearch node for the tests, built of Maven Central's jars and started on loopback.

The jars and the compiled launcher are kept under ``build/``; a node's data is temporary. All test
processes share one node: the first that asks starts it, and stops it when the others are done.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import filelock
import pytest
from opensearchpy import AsyncOpenSearch

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.stores.opensearch import OpenSearchStore
from ragchat_retrieval.testing.opensearch_node import opensearch_program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from ragchat_retrieval.testing.opensearch_node import OpenSearchNode

SOURCES = Path(__file__).with_name("opensearch")
BUILD = Path(__file__).parents[2] / "build"
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of its own there
"""Where a node's data is: each index that is made is synced to the disk several times."""

UNSAFE = {"number_of_replicas": 0, "translog.durability": "async"}
"""Settings of indexes that need not outlive the node."""

JVM = ("-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=1")


@pytest.fixture
def stranger() -> Callable[..., AbstractAsyncContextManager[tuple[str, list[str]]]]:
    """Runs servers that are no store, such as a proxy, and answer with a given status.

    They answer a page, or else the JSON text that they are given.

    Each yields its URL and the heads of the requests that it was sent.
    """

    @asynccontextmanager
    async def run(status: str, json: str = "") -> AsyncIterator[tuple[str, list[str]]]:
        heads: list[str] = []
        body = json or "<p>secret"
        kind = "application/json" if json else "text/html"

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}"
            writer.write(f"{head}\r\nContent-Type: {kind}\r\n\r\n{body}".encode())
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads

    return run


@pytest.fixture(scope="session")
def launch_opensearch() -> Callable[..., AbstractContextManager[OpenSearchNode]]:
    """Starts nodes with settings of their own; skips the test where a machine cannot."""
    BUILD.mkdir(exist_ok=True)
    with filelock.FileLock(BUILD / "opensearch.lock"):
        try:
            program = opensearch_program(SOURCES, BUILD)
        except StoreUnavailable as missing:
            pytest.skip(str(missing))

    @contextmanager
    def launch(settings: dict[str, str]) -> Iterator[OpenSearchNode]:
        owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        with (
            TemporaryDirectory(prefix="ragchat-opensearch-", dir=IN_MEMORY) as folder,
            program.node(Path(folder), settings, jvm=JVM, owner=owner) as node,
        ):
            yield node

    return launch


@pytest.fixture(scope="session")
def opensearch_url(
    launch_opensearch: Callable[..., AbstractContextManager[OpenSearchNode]], shared_folder: Path
) -> Iterator[str]:
    """The address of the node that all test processes share."""
    address, lock = shared_folder / "address", filelock.FileLock(shared_folder / "address.lock")
    users = shared_folder / "users"
    users.mkdir(exist_ok=True)
    mine = filelock.FileLock(users / f"{os.getpid()}.lock")
    with lock:
        if address.exists():
            node = None
            mine.acquire()
        else:
            node = launch_opensearch({"discovery.type": "single-node"})
            address.write_text(node.__enter__().url)
        url = address.read_text()
    yield url
    if node is None:
        mine.release()
        return
    with lock:
        address.unlink()
    for user in users.glob("*.lock"):
        with filelock.FileLock(user):  # when it is free, that process is done
            pass
    node.__exit__(None, None, None)


@pytest.fixture
async def opensearch_prefix(opensearch_url: str) -> AsyncIterator[str]:
    """Begins the names of the indexes of one test, which are removed after it."""
    prefix = f"test-{uuid.uuid4().hex}"
    yield prefix
    async with AsyncOpenSearch(opensearch_url) as client:
        await client.indices.delete(index=f"{prefix}.*")


@pytest.fixture
async def open_opensearch(
    opensearch_url: str, opensearch_prefix: str
) -> AsyncIterator[Callable[..., OpenSearchStore]]:
    """Opens stores over the test's indexes, and closes them after it."""
    opened: list[OpenSearchStore] = []

    def open_store(**options: Any) -> OpenSearchStore:
        settings = {**UNSAFE, **options.pop("settings", {})}
        store = OpenSearchStore(
            opensearch_url, prefix=opensearch_prefix, settings=settings, **options
        )
        opened.append(store)
        return store

    yield open_store
    for store in opened:
        await store.aclose()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A temporary folder of all test processes together."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder
