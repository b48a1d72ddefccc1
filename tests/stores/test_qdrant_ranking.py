"""The keyword lane in Qdrant ranks as the embedded engine, also long after the first write."""

from __future__ import annotations

import random

import pytest

from ragchat_retrieval import QdrantStore, open_index
from ragchat_retrieval.errors import InvalidSetting, StoreUnavailable
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.qdrant.points import point_id
from ragchat_retrieval.stores.rescoring import saturation
from ragchat_retrieval.testing.store_suite_kit import ALL, IDENTITY, put, revision, terms_of

WORDS = [f"w{n}" for n in range(60)]


def text(draw: random.Random, length: int) -> str:
    return " ".join(draw.choices(WORDS, weights=range(60, 0, -1), k=length))


@pytest.mark.parametrize("later", [4, 12, 60])
async def test_the_ranking_is_the_embedded_engines(later: int) -> None:
    """Scores and order agree though passages became shorter or longer than the first ones."""
    draw = random.Random(later)  # noqa: S311 - for texts
    first = [revision(f"a{n}", text(draw, 12), embedded=False) for n in range(20)]
    more = [
        revision(f"b{n}", text(draw, draw.randint(1, 2 * later)), embedded=False)
        for n in range(300)
    ]
    store, reference = QdrantStore(":memory:"), MemoryStore()
    for one in (store, reference):
        await put(one, *first, identity=IDENTITY)
        await put(one, *more, identity=IDENTITY)
    for _ in range(10):
        terms = terms_of(text(draw, draw.randint(1, 5)))
        for limit in (1, 10, 50):
            found = await store.search_text(terms, limit, filter=ALL, scope=ALL)
            expected = await reference.search_text(terms, limit, filter=ALL, scope=ALL)
            assert [h.score for h in found] == pytest.approx([h.score for h in expected], rel=1e-5)
            cut = expected[-1].score * 1.0001 if len(expected) == limit else 0.0
            assert {h.passage_id for h in found if h.score > cut} == {
                h.passage_id for h in expected if h.score > cut
            }
    await store.aclose()


@pytest.mark.parametrize("average", [1.0, 7.0, 80.0])
def test_no_exact_score_is_above_the_bound(average: float) -> None:
    """A term counts at most average/typical times more than what is stored of it."""
    for count in (1, 2, 9):
        for length in (count, 10, 500):
            for typical in (1.0, 12.0, 300.0):
                bound = max(1.0, average / typical) * saturation(count, length, typical)
                assert saturation(count, length, average) <= bound * (1 + 1e-12)


def test_ids_become_the_same_uuids_each_time() -> None:
    """The name of a point follows from what it stands for, and from nothing else."""
    assert point_id("entry", "notes/a.md#1") == point_id("entry", "notes/a.md#1")
    assert len({point_id("row", a, b) for a in ("1", "11") for b in (1, 11)}) == 4


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    """Opening an index on nothing is a retryable error of ours."""
    with pytest.raises(StoreUnavailable) as caught:
        async with open_index("qdrant://127.0.0.1:9/mine", embedder=None):
            pass
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("status", "retryable"), [("503 Busy", True), ("404 Not Found", False), ("200 OK", False)]
)
async def test_what_another_server_answers_is_an_error_of_ours(stranger, status, retryable):
    """A page in Qdrant's place is no empty index and no bare exception."""
    async with stranger(status) as (url, _):
        store = QdrantStore(url)
        for work in (store.ids(scope=ALL), put(store, revision("a", "one"))):
            with pytest.raises(StoreUnavailable) as caught:
                await work
            assert caught.value.retryable == retryable
            assert "secret" not in str(caught.value)
        await store.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "qdrant://",
        "qdrant://h/a/b",
        "qdrant://h?x=1",
        "qdrant://u:p@h",
        "qdrant://h:secret",
        "qdrant://h:99999",
        "qdrant://[::1",
    ],
)
def test_urls_with_more_or_less_are_refused(url: str) -> None:
    """Host, port and prefix are all that a URL may hold; a key would end in logs."""
    with pytest.raises(InvalidSetting) as caught:
        open_index(url, embedder=None)
    assert "secret" not in str(caught.value)
