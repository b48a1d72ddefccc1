"""Every conformance case of filters holds in every way of asking the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.filters import Filter
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.postgres import PostgresStore
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.testing.filter_cases import FILTER_CASES, TERM
from ragchat_retrieval.testing.store_suite_kit import ALL, IDENTITY, axis, vector_of
from ragchat_retrieval.values import Revision

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection
    from pathlib import Path

    from ragchat_retrieval.ports import Store

PASSAGES = {case.passage.id: case.passage for case in FILTER_CASES}
IDS = list(PASSAGES)


async def keyword_filter(store: Store, given: Filter) -> Collection[str]:
    hits = await store.search_text({TERM: 1.0}, len(IDS), filter=given, scope=ALL)
    return [hit.passage_id for hit in hits]


async def keyword_scope(store: Store, given: Filter) -> Collection[str]:
    hits = await store.search_text({TERM: 1.0}, len(IDS), filter=ALL, scope=given)
    return [hit.passage_id for hit in hits]


async def vector_filter(store: Store, given: Filter) -> Collection[str]:
    hits = await store.search_vector(axis(0), len(IDS), filter=given, scope=ALL)
    return [hit.passage_id for hit in hits]


async def vector_scope(store: Store, given: Filter) -> Collection[str]:
    hits = await store.search_vector(axis(0), len(IDS), filter=ALL, scope=given)
    return [hit.passage_id for hit in hits]


async def score_text(store: Store, given: Filter) -> Collection[str]:
    return await store.score_text({TERM: 1.0}, IDS, scope=given)


async def score_vector(store: Store, given: Filter) -> Collection[str]:
    return await store.score_vector(axis(0), IDS, scope=given)


async def listed(store: Store, given: Filter) -> Collection[str]:
    found = await store.ids(scope=given)
    counts = await store.count(scope=given)
    assert counts.passages == counts.vectors == len(found)
    return found


async def got(store: Store, given: Filter) -> Collection[str]:
    return await store.get(IDS, scope=given)


async def vectors(store: Store, given: Filter) -> Collection[str]:
    return await store.vectors(IDS, scope=given)


WAYS: list[Callable[[Store, Filter], Awaitable[Collection[str]]]] = [
    keyword_filter,
    keyword_scope,
    vector_filter,
    vector_scope,
    score_text,
    score_vector,
    listed,
    got,
    vectors,
]


def _new(kind: str, path: Path, request: pytest.FixtureRequest) -> Store:
    if kind == "memory":
        return MemoryStore()
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
        "postgres",
    ]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store with the document of every case; reopened, its arrays come from disk."""
    kind = request.param
    path = tmp_path / "kb.sqlite"
    opened = _new(kind, path, request)
    revisions = [
        Revision(
            document=case.document,
            passages=(case.passage,),
            vectors=vector_of(case.id)[None],
            terms=({TERM: 1},),
        )
        for case in FILTER_CASES
    ]
    await opened.replace(revisions, identity=IDENTITY, scope=ALL)
    if kind in {"sqlite reopened", "sqlite rebuilt"}:
        await opened.aclose()
        saved = list((tmp_path / "kb.sqlite.index").iterdir())
        assert len(saved) == 1
        if kind == "sqlite rebuilt":
            saved[0].unlink()
        opened = SQLiteStore(path, read_only=True)
    yield opened
    await opened.aclose()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_every_case_selects_as_the_semantics_say(
    store: Store, way: Callable[[Store, Filter], Awaitable[Collection[str]]]
) -> None:
    """A filter selects the same passages in both lanes, as filter and scope, and in every list."""
    wrong: list[str] = []
    for case in FILTER_CASES:
        found = set(await way(store, case.filter))
        if (case.passage.id in found) is not case.expected:
            wrong.append(case.id)
        expected = {i for i, passage in PASSAGES.items() if case.filter.matches_passage(passage)}
        if found != expected:
            wrong.append(f"{case.id} among others")
    assert wrong == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_the_empty_filter_selects_everything(
    store: Store, way: Callable[[Store, Filter], Awaitable[Collection[str]]]
) -> None:
    """Without conditions every passage is there."""
    assert set(await way(store, Filter())) == set(IDS)
