"""The lanes in OpenSearch rank as the embedded engine, also long after the first write."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ragchat_retrieval.filters import Filter, Lt
from ragchat_retrieval.ports import Identity
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.opensearch import engine
from ragchat_retrieval.stores.opensearch.documents import grid, words_query
from ragchat_retrieval.stores.shadow import EVERYTHING
from ragchat_retrieval.testing.store_suite_kit import ALL, IDENTITY, put, revision, terms_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat_retrieval.stores.opensearch import OpenSearchStore

    Open = Callable[..., OpenSearchStore]

WORDS = [f"w{n}" for n in range(60)]
WIDE = 24


def text(draw: random.Random, length: int) -> str:
    return " ".join(draw.choices(WORDS, weights=range(60, 0, -1), k=length))


@pytest.mark.parametrize("later", [4, 12, 60])
@pytest.mark.parametrize("shards", [1, 3])
async def test_the_ranking_is_the_embedded_engines(
    open_opensearch: Open, later: int, shards: int
) -> None:
    """Scores and order agree over shards, deletions, and passages of other lengths than at first.

    Lucene counts what was deleted, per shard, and rounds lengths of more than 40 terms.
    """
    draw = random.Random(later)  # noqa: S311 - for texts
    first = [revision(f"a{n}", text(draw, 12), embedded=False) for n in range(20)]
    gone = [revision(f"b{n}", text(draw, 30), embedded=False) for n in range(100)]
    more = [
        revision(f"b{n}", text(draw, draw.randint(1, 2 * later)), embedded=False)
        for n in range(300)
    ]
    store = open_opensearch(settings={"number_of_shards": shards})
    reference = MemoryStore()
    for one in (store, reference):
        for given in (first, gone, more):
            await put(one, *given, identity=IDENTITY)
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


async def test_a_question_may_have_any_number_of_words(open_opensearch: Open) -> None:
    """Of thousands of terms all count, in the order of the embedded engine."""
    draw = random.Random(5)  # noqa: S311 - for texts
    names = [f"t{n}" for n in range(3_000)]
    given = [revision(f"d{n}", " ".join(draw.sample(names, 40)), embedded=False) for n in range(60)]
    store, reference = open_opensearch(), MemoryStore()
    for one in (store, reference):
        await put(one, *given, identity=IDENTITY)
    terms = {name: draw.uniform(0.1, 2.0) for name in names}
    found = await store.search_text(terms, 10, filter=ALL, scope=ALL)
    expected = await reference.search_text(terms, 10, filter=ALL, scope=ALL)
    assert [h.passage_id for h in found] == [h.passage_id for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], rel=1e-5)


def test_terms_beyond_the_limit_of_clauses_count_at_their_most() -> None:
    """What shares a clause weighs all of its weights together: too much, never too little."""
    query = words_query({f"t{n}": n + 1.0 for n in range(502)}, EVERYTHING)
    *single, shared = query["bool"]["should"]
    assert len(single) == 500
    assert shared["constant_score"]["boost"] == 1.0 + 2.0
    assert set(shared["constant_score"]["filter"]["terms"]["words"]) == {"t0", "t1"}


@pytest.mark.parametrize("typical", [1.0, 1.0001, 7.3, 12.0, 300.0, 12_345.6])
def test_lengths_are_rounded_up_to_a_grid(typical: float) -> None:
    """The length that an index scores for is not below the typical one, and a little above."""
    assert typical <= grid(typical) <= typical * 1.0906
    assert grid(typical) in [2.0 ** (n / 8) for n in range(120)]


@pytest.fixture
async def many(open_opensearch: Open) -> tuple[OpenSearchStore, dict[str, np.ndarray]]:
    """A store of more vectors than are compared whole, and these vectors by passage."""
    draw = np.random.default_rng(3)
    vectors = draw.normal(size=(engine.EXACT_UP_TO + 500, WIDE)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    given = [
        revision(f"d{n}", "word", ids=[f"p{n:04}"], vectors=vectors[n : n + 1], metadata={"n": n})
        for n in range(len(vectors))
    ]
    store = open_opensearch()
    identity = Identity(analyzer="words", model="model", dimension=WIDE)
    for at in range(0, len(given), 500):
        await put(store, *given[at : at + 500], identity=identity)
    return store, {f"p{n:04}": vector for n, vector in enumerate(vectors)}


async def test_the_graph_finds_what_comparing_all_finds(
    open_opensearch: Open, many: tuple[OpenSearchStore, dict[str, np.ndarray]]
) -> None:
    """Above so many vectors the graph is asked: scores are exact, and nearly all best ones there.

    Under a filter the limit is filled, and vectors come back as they were given.
    """
    store, vectors = many
    exact = open_opensearch(exact=True)
    assert len(await store.ids(scope=ALL)) == len(vectors)
    found_again = 0
    for query in list(vectors.values())[:20]:
        scores = {i: float(vector.astype(np.float64) @ query) for i, vector in vectors.items()}
        best = sorted(scores, key=lambda i: (-scores[i], i))[:10]
        hits = await exact.search_vector(query, 10, filter=ALL, scope=ALL)
        assert [h.passage_id for h in hits] == best
        hits = await store.search_vector(query, 10, filter=ALL, scope=ALL)
        assert [h.score for h in hits] == pytest.approx([scores[h.passage_id] for h in hits])
        found_again += len({h.passage_id for h in hits} & set(best))
        few = await store.search_vector(query, 10, filter=Filter(Lt("n", 7)), scope=ALL)
        assert {h.passage_id for h in few} == {f"p{n:04}" for n in range(7)}
    assert found_again >= 0.95 * 200
    kept = await store.vectors(["p0000", "p1499"], scope=ALL)
    assert {i: v.tolist() for i, v in kept.items()} == {i: vectors[i].tolist() for i in kept}
