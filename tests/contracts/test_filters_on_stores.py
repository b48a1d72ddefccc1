"""Every conformance case of filters holds in every way of asking the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.engine import Hnsw, graph
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.postgres import PostgresStore
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.testing.filter_suite import IDS, WAYS, put_cases, wrong_cases

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ragchat_retrieval.ports import Store
    from ragchat_retrieval.testing.filter_suite import Way


def _new(kind: str, path: Path, request: pytest.FixtureRequest) -> Store:
    if kind == "memory":
        return MemoryStore()
    if kind == "sqlite int8":
        return SQLiteStore(path, vectors="int8")
    if kind == "sqlite hnsw":
        request.getfixturevalue("monkeypatch").setattr(graph, "_COMPARED", float("inf"))
        return SQLiteStore(path, vectors=Hnsw(exact_up_to=0))
    if kind.startswith("sqlite"):
        return SQLiteStore(path)
    return PostgresStore(
        request.getfixturevalue("postgres_url"),
        schema=request.getfixturevalue("postgres_schema"),
    )


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        "sqlite reopened",
        "sqlite rebuilt",
        "sqlite int8",
        "sqlite hnsw",
        "postgres",
    ]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store with the document of every case; reopened, its arrays come from disk."""
    kind = request.param
    path = tmp_path / "kb.sqlite"
    opened = _new(kind, path, request)
    await put_cases(opened)
    if kind in {"sqlite reopened", "sqlite rebuilt"}:
        await opened.aclose()
        saved = list((tmp_path / "kb.sqlite.index").iterdir())
        assert len(saved) == 1
        if kind == "sqlite rebuilt":
            saved[0].unlink()
        opened = SQLiteStore(path, read_only=True)
    if kind == "sqlite hnsw":
        await opened.aclose()  # which makes the graph
        opened = _new(kind, path, request)
    yield opened
    await opened.aclose()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_every_case_selects_as_the_semantics_say(store: Store, way: Way) -> None:
    """A filter selects the same passages in both lanes, as filter and scope, and in every list."""
    assert await wrong_cases(store, way) == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_the_empty_filter_selects_everything(store: Store, way: Way) -> None:
    """Without conditions every passage is there."""
    assert set(await way(store, Filter())) == set(IDS)
