"""The graph of near neighbours: what it proposes, and when it is not asked."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from ragchat_retrieval.engine import Batch, Engine, Graph, Hnsw, Mask, Stopped, graph
from ragchat_retrieval.errors import InvalidSetting

OPTIONS = Hnsw(connectivity=16, expansion_add=64, expansion_search=64, exact_up_to=0)


def clustered(count: int, dimension: int = 64, *, clusters: int = 50, seed: int = 0):
    """Vectors around centres that are the same for every seed, as texts are around topics."""
    centres = np.random.default_rng(99).normal(size=(clusters, dimension))
    chance = np.random.default_rng(seed)
    rows = centres[chance.integers(0, clusters, count)]
    rows = rows + 0.6 * chance.normal(size=(count, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def batch(first: int, vectors) -> Batch:
    size = len(vectors)
    return Batch(
        keys=range(first, first + size),
        ids=[f"p{100_000 - first - n}" for n in range(size)],
        document_ids=[f"d{first + n}" for n in range(size)],
        titles=[None] * size,
        sources=[None] * size,
        metadata=[{}] * size,
        terms=[{}] * size,
        vectors=vectors,
    )


def engine_of(vectors) -> Engine:
    engine = Engine()
    engine.apply(add=batch(1, vectors))
    return engine


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has the graph always tried, however small; lists how many nodes it was asked for."""
    monkeypatch.setattr(graph, "_COMPARED", float("inf"))
    counts: list[int] = []
    real = Graph._nearest

    def counting(self: Graph, vector, count: int):
        counts.append(count)
        return real(self, vector, count)

    monkeypatch.setattr(Graph, "_nearest", counting)
    return counts


def recall(engine: Engine, made: Graph, queries, limit: int, mask: Mask | None = None) -> float:
    shares = []
    for query in queries:
        exact = engine.snapshot.search_vector(query, limit, mask)
        found = made.search(engine.snapshot, query, limit, mask)
        assert len(found.rows) == len(exact.rows)
        assert len(set(found.rows.tolist())) == len(found.rows)
        assert (np.diff(found.scores) <= 0).all()
        again = engine.snapshot.score_vector(query, found.rows)
        assert found.scores.tolist() == again.tolist()
        shares.append(len({*found.rows.tolist()} & {*exact.rows.tolist()}) / len(exact.rows))
    return float(np.mean(shares))


def test_nearly_all_of_the_best_are_found_with_exact_scores(asked: list[int]) -> None:
    """On clustered vectors 95 of 100 are found, in every place that texts put questions."""
    engine = engine_of(clustered(6000))
    made = Graph.built(engine.snapshot, OPTIONS)
    queries = clustered(60, seed=1)
    assert recall(engine, made, queries, 10) >= 0.95
    assert recall(engine, made, queries, 100) >= 0.95
    assert len(asked) >= len(queries)


def test_the_defaults_find_nearly_all_of_hard_vectors_too(asked: list[int]) -> None:
    """Vectors without any structure, which no text gives, are the worst case."""
    chance = np.random.default_rng(0)
    rows = chance.normal(size=(6050, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    engine = engine_of(rows[:6000])
    made = Graph.built(engine.snapshot, Hnsw())
    assert recall(engine, made, rows[6000:], 10) >= 0.95
    assert asked


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1, 0.01])
def test_filters_work_inside(asked: list[int], share: float) -> None:
    """As many rows as an exact search gives, all allowed, and nearly all of the best."""
    engine = engine_of(clustered(4000))
    made = Graph.built(engine.snapshot, OPTIONS)
    flags = np.random.default_rng(5).random(4000) < share
    mask = Mask(flags)
    queries = clustered(30, seed=1)
    assert recall(engine, made, queries, 20, mask) >= 0.95
    for query in queries:
        assert flags[made.search(engine.snapshot, query, 20, mask).rows].all()


def test_a_filter_that_selects_the_far_side_still_fills_the_answer(asked: list[int]) -> None:
    """Where the nearest nodes are all filtered out, the search looks further, then at all."""
    vectors = clustered(4000, clusters=2)
    engine = engine_of(vectors)
    made = Graph.built(engine.snapshot, OPTIONS)
    query = vectors[0]
    scores = vectors @ query
    mask = Mask(scores < np.median(scores))
    exact = engine.snapshot.search_vector(query, 50, mask)
    found = made.search(engine.snapshot, query, 50, mask)
    assert len(found.rows) == len(exact.rows)
    assert mask.flags[found.rows].all()
    assert len(asked) > 1


def test_where_few_are_allowed_all_of_them_are_compared() -> None:
    """The graph is not asked where a look at each allowed row is less work."""
    engine = engine_of(clustered(4000))
    made = Graph.built(engine.snapshot, OPTIONS)
    mask = Mask(np.arange(4000) % 100 == 0)
    for query in clustered(5, seed=1):
        exact = engine.snapshot.search_vector(query, 10, mask)
        assert made.search(engine.snapshot, query, 10, mask).rows.tolist() == exact.rows.tolist()


@pytest.mark.parametrize("limit", [0, -1, 1, 4000, 10**9])
def test_any_limit_will_do(limit: int) -> None:
    engine = engine_of(clustered(4000))
    made = Graph.built(engine.snapshot, OPTIONS)
    found = made.search(engine.snapshot, clustered(1, seed=1)[0], limit, None)
    assert len(found.rows) == max(0, min(limit, 4000))


def test_ties_are_by_id_also_where_more_are_tied_than_wanted(asked: list[int]) -> None:
    """Of many equal vectors those with the lowest ids are found."""
    vectors = clustered(2000)
    vectors[100:400] = vectors[100]
    engine = engine_of(vectors)
    made = Graph.built(engine.snapshot, OPTIONS)
    exact = engine.snapshot.search_vector(vectors[100], 10)
    found = made.search(engine.snapshot, vectors[100], 10, None)
    assert found.rows.tolist() == exact.rows.tolist()
    assert asked


def test_what_was_removed_is_not_found_and_what_came_since_is(asked: list[int]) -> None:
    """A graph serves every later state: removed rows never appear, new ones are compared."""
    vectors = clustered(3000)
    engine = engine_of(vectors)
    made = Graph.built(engine.snapshot, OPTIONS)
    for n in range(6):
        engine.apply(
            add=batch(5001 + 100 * n, clustered(100, seed=10 + n)),
            remove_keys=range(1 + 400 * n, 401 + 400 * n),
        )
        queries = np.concatenate([clustered(10, seed=1), vectors[400 * n : 400 * n + 5]])
        assert recall(engine, made, queries, 10) >= 0.95
    assert engine.snapshot.live == 1200
    assert asked


def test_an_extended_graph_holds_the_later_passages(asked: list[int]) -> None:
    """And the one that was extended stays as it was."""
    vectors = clustered(3000)
    engine = engine_of(vectors[:2000])
    first = Graph.built(engine.snapshot, OPTIONS)
    engine.apply(add=batch(2001, vectors[2000:]))
    engine.apply(remove_keys=[2500, 7])
    second = first.extended(engine.snapshot)
    assert (len(first), len(second)) == (2000, 2999)
    assert first.behind(engine.snapshot) < len(engine.snapshot.matrix.rows)
    assert second.behind(engine.snapshot) == len(engine.snapshot.matrix.rows)
    assert recall(engine, second, vectors[1990:2050], 10) >= 0.95
    found = second.search(engine.snapshot, vectors[2700], 1, None)
    assert engine.snapshot.keys(found.rows).tolist() == [2701]


def test_bytes_give_the_same_graph() -> None:
    engine = engine_of(clustered(2000))
    made = Graph.built(engine.snapshot, OPTIONS)
    opened = made.moved(memoryview(bytes(made.to_bytes())))
    for query in clustered(10, seed=1):
        one, two = (each._nearest(query, 50).tolist() for each in (made, opened))
        assert one == two
    engine.apply(add=batch(2001, clustered(500, seed=3)))
    assert len(opened.extended(engine.snapshot)) == 2500


@pytest.mark.parametrize("wrong", [{"size": 3}, {"dimension": 63}, {"data": b"no graph" * 99}])
def test_bytes_of_another_graph_are_refused(wrong) -> None:
    made = Graph.built(engine_of(clustered(200)).snapshot, OPTIONS)
    right = {"data": bytes(made.to_bytes()), "dimension": 64, "last_key": 200, "size": 200}
    given = {**right, **wrong}
    with pytest.raises(ValueError, match="graph"):
        Graph.of_bytes(memoryview(given.pop("data")), OPTIONS, **given)


def test_a_build_can_be_stopped() -> None:
    engine = engine_of(clustered(1500))
    answers = iter([False, True])
    with pytest.raises(Stopped):
        Graph.built(engine.snapshot, OPTIONS, lambda: next(answers))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connectivity", 1),
        ("connectivity", 513),
        ("expansion_add", 0),
        ("expansion_search", 100_001),
        ("exact_up_to", -1),
        ("expansion_search", 64.0),
        ("connectivity", True),
    ],
)
def test_settings_outside_their_range_are_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidSetting, match=name):
        Hnsw(**{name: value})


@pytest.mark.parametrize("first", ["graph", "embedder"])
def test_a_graph_and_the_local_embedder_live_in_one_process(first: str) -> None:
    """Whichever of their libraries is loaded first; the second must not crash the process."""
    script = """
import asyncio, sys
import numpy as np
from ragchat_retrieval.embedders import LocalEmbedder
from ragchat_retrieval.engine.graph import Hnsw, _new

def graph():
    index = _new(8, Hnsw())
    index.add(np.arange(100), np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32))
    assert len(index.search(np.ones(8, np.float32), 10).keys) == 10

def embedder():
    asyncio.run(LocalEmbedder().embed(["tea"], "query"))

steps = {"graph": graph, "embedder": embedder}
steps.pop(sys.argv[1])()
steps.popitem()[1]()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, first],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
