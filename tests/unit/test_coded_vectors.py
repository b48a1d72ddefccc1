"""Vectors in eight bits beside those in float32: the answers of an exact search, exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat_retrieval.engine import Batch, Coded, Engine, Mask
from ragchat_retrieval.engine.matrix import BLOCK, Matrix


def unit(count: int, dimension: int, seed: int = 0):
    rows = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def batch(first: int, vectors, has_vector=None) -> Batch:
    size = len(vectors)
    return Batch(
        keys=range(first, first + size),
        # Descending, so that ties by id are not those by row.
        ids=[f"p{100_000 - first - n}" for n in range(size)],
        document_ids=[f"d{first + n}" for n in range(size)],
        titles=[None] * size,
        sources=[None] * size,
        metadata=[{}] * size,
        terms=[{}] * size,
        vectors=vectors,
        has_vector=has_vector,
    )


def assert_equal_answers(engine: Engine, coded: Coded, queries, limits=(1, 10, 100), flags=None):
    snapshot = engine.snapshot
    mask = None if flags is None else Mask(flags & snapshot.alive)
    for query in queries:
        for limit in limits:
            exact = snapshot.search_vector(query, limit, mask)
            found = coded.search(snapshot, query, limit, mask)
            assert found.rows.tolist() == exact.rows.tolist()
            assert found.scores.tolist() == exact.scores.tolist()


@given(
    st.integers(1, 40),
    st.integers(1, 300),
    st.integers(0, 10_000),
    st.sampled_from([None, 0.05, 0.5, 0.95]),
    st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_what_is_found_is_what_an_exact_search_finds(dimension, size, seed, share, doubled):
    """Rows, scores and ties by id, under every mask, with equal vectors and removed rows."""
    chance = np.random.default_rng(seed)
    vectors = unit(size, dimension, seed)
    if doubled:
        vectors = vectors[chance.integers(0, size, size)]
    engine = Engine()
    engine.apply(add=batch(1, vectors, chance.random(size) < 0.9))
    engine.apply(remove=np.flatnonzero(chance.random(size) < 0.2))
    flags = None if share is None else chance.random(engine.snapshot.rows) < share
    coded = Coded(engine.snapshot.matrix)
    assert_equal_answers(engine, coded, unit(3, dimension, seed + 1), (1, 7, size), flags)


@pytest.mark.parametrize("length", [1e-3, 1.0, 1e3])
def test_the_bound_holds_for_queries_of_any_length_and_uneven_vectors(length):
    """One number that dwarfs the others makes the rounding coarse, and the answer stays exact."""
    vectors = unit(3000, 64) * 0.01
    vectors[:, 5] = 1.0
    engine = Engine()
    engine.apply(add=batch(1, vectors))
    assert_equal_answers(engine, Coded(engine.snapshot.matrix), unit(10, 64, 1) * length)


def test_only_what_is_new_is_rounded(monkeypatch):
    """A state that follows another takes over the blocks that are the same, grown ones in part."""
    engine = Engine()
    vectors = unit(BLOCK + 700, 16)
    engine.apply(add=batch(1, vectors[:BLOCK]))
    engine.apply(add=batch(BLOCK + 1, vectors[BLOCK : BLOCK + 100]))
    first = Coded(engine.snapshot.matrix)
    rounded = []
    real = np.rint
    monkeypatch.setattr(np, "rint", lambda rows: rounded.append(len(rows)) or real(rows))
    engine.apply(add=batch(BLOCK + 101, vectors[BLOCK + 100 : BLOCK + 120]))
    second = Coded(engine.snapshot.matrix, first)
    assert sum(rounded) == 20
    assert_equal_answers(engine, second, unit(5, 16, 1))
    engine.apply(remove=np.arange(0, BLOCK, 2))  # enough to move all rows
    assert engine.snapshot.rows == engine.snapshot.live
    assert_equal_answers(engine, Coded(engine.snapshot.matrix, second), unit(5, 16, 1))


def test_a_quarter_of_the_memory_is_taken():
    engine = Engine()
    engine.apply(add=batch(1, unit(1000, 384)))
    full = sum(block.nbytes for block in engine.snapshot.matrix.blocks)
    assert Coded(engine.snapshot.matrix).nbytes <= full * (0.25 + 2 / 384)


def test_few_vectors_are_scored_again(monkeypatch):
    """The bound is tight enough to be of use: for random vectors, a few times the limit."""
    engine = Engine()
    engine.apply(add=batch(1, unit(20_000, 128)))
    scored = []
    real = Matrix.scores

    def counting(self, vector, positions):
        scored.append(len(positions))
        return real(self, vector, positions)

    monkeypatch.setattr(Matrix, "scores", counting)
    coded = Coded(engine.snapshot.matrix)
    for query in unit(10, 128, 1):
        coded.search(engine.snapshot, query, 100, None)
    assert len(scored) == 10
    assert max(scored) < 500
