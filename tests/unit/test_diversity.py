"""Diversification."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ragchat_retrieval.diversity import cap_per_group, drop_near_duplicates, mmr
from ragchat_retrieval.errors import InvalidCandidates, InvalidSetting, InvalidVector
from ragchat_retrieval.vectors import ROUNDING, normalise


def test_a_near_duplicate_falls_behind_a_diverse_passage():
    vectors = normalise(np.array([[1, 0], [0.999, 0.04], [0, 1]], dtype=np.float32))
    order = [step.position for step in mmr([1.0, 0.95, 0.6], vectors, 0.5)]
    assert order == [0, 2, 1]


def test_relevance_alone_keeps_the_order_and_ties_keep_the_input():
    vectors = np.eye(3, dtype=np.float32)
    assert [s.position for s in mmr([0.2, 0.9, 0.9], vectors, 1.0)] == [1, 2, 0]


def test_a_zero_vector_is_similar_to_nothing():
    vectors = np.array([[1, 0], [0, 0]], dtype=np.float32)
    assert [s.max_similarity for s in mmr([1.0, 0.5], vectors, 0.5)] == [0.0, 0.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_no_order_is_made_of_what_cannot_be_compared(bad):
    vectors = np.eye(3, dtype=np.float32)
    with pytest.raises(InvalidCandidates, match="not finite"):
        mmr([0.9, bad, 0.1], vectors, 0.5)
    vectors[1, 0] = bad
    with pytest.raises(InvalidVector, match="vector 1: holds NaN or infinity") as caught:
        mmr([0.9, 0.5, 0.1], vectors, 0.5)
    assert (caught.value.document_id, caught.value.position) == (None, 1)


@pytest.mark.parametrize("shape", [(2, 3), (4, 3), (3,), (0, 3)])
def test_there_must_be_one_vector_for_each_score(shape):
    with pytest.raises(InvalidCandidates, match="for 3 scores"):
        mmr([0.9, 0.5, 0.1], np.zeros(shape, dtype=np.float32), 0.5)


@pytest.mark.parametrize("lam", [-0.1, 1.1, float("nan")])
def test_a_lambda_outside_zero_to_one_is_refused(lam):
    with pytest.raises(InvalidSetting, match="mmr"):
        mmr([1.0], np.ones((1, 1), np.float32), lam)


@given(
    hnp.arrays(np.float32, (6, 3), elements=st.floats(-1, 1, width=32)),
    st.lists(st.floats(0, 1), min_size=6, max_size=6),
    st.floats(0, 1),
)
def test_each_step_takes_the_best_of_what_is_left(raw, relevance, lam):
    vectors = normalise(raw)
    taken: list[int] = []
    for step in mmr(relevance, vectors, lam):
        scores = {}
        for i in set(range(6)) - set(taken):
            nearest = max((max(0.0, float(vectors[i] @ vectors[j])) for j in taken), default=0.0)
            scores[i] = lam * relevance[i] - (1 - lam) * nearest
        assert scores[step.position] == pytest.approx(max(scores.values()), abs=1e-6)
        taken.append(step.position)
    assert sorted(taken) == list(range(6))


class Counted(np.ndarray):
    """An array that counts the products it is the left side of."""

    products = 0

    def __matmul__(self, other):
        Counted.products += 1
        return self.view(np.ndarray) @ np.asarray(other)


@pytest.fixture
def pool(monkeypatch):
    """600 vectors of length 1 of which many are close to another one; it counts its products."""
    rng = np.random.default_rng(4)
    made = rng.normal(size=(200, 8)).repeat(3, axis=0) + 0.1 * rng.normal(size=(600, 8))
    monkeypatch.setattr(Counted, "products", 0)
    return normalise(rng.permutation(made).astype(np.float32)).view(Counted)


def test_a_few_of_a_large_pool_are_chosen_by_a_product_each(pool):
    relevance = np.linspace(1, 0, 600)
    few = [step.position for step in mmr(relevance, pool, 0.5, 10)]
    assert Counted.products <= 10
    assert few == [step.position for step in mmr(relevance, pool, 0.5)][:10]


def test_the_whole_of_a_large_pool_is_ordered_by_one_product(pool):
    relevance = np.linspace(1, 0, 600)
    chosen = mmr(relevance, pool, 0.5)
    assert Counted.products == 1
    assert sorted(step.position for step in chosen) == list(range(600))
    exact = np.asarray(pool, np.float64)
    nearest, left = np.zeros(600), set(range(600))
    for step in chosen:
        best = max(0.5 * relevance[i] - 0.5 * nearest[i] for i in left)
        assert step.score == pytest.approx(best, abs=1e-5)
        assert step.max_similarity == pytest.approx(nearest[step.position], abs=1e-5)
        left.remove(step.position)
        nearest = np.maximum(nearest, exact @ exact[step.position])


def test_a_cap_keeps_the_first_of_each_document():
    assert cap_per_group(["a", "a", "b", "a", "b"], 2) == [0, 1, 2, 4]
    with pytest.raises(InvalidSetting):
        cap_per_group(["a"], 0)


@given(st.integers(0, 2**32 - 1))
def test_equal_vectors_are_near_duplicates_at_any_threshold(seed):
    """The product of a vector of length 1 with itself may be rounded to less than 1."""
    row = normalise(np.random.default_rng(seed).normal(size=(1, 48)).astype(np.float32))
    assert drop_near_duplicates(np.repeat(row, 2, axis=0), 1.0) == [0]


def test_near_duplicates_go_and_zero_vectors_stay():
    vectors = normalise(np.array([[1, 0], [1, 0.01], [0, 1], [0, 0], [0, 0]], np.float32))
    assert drop_near_duplicates(vectors, 0.95) == [0, 2, 3, 4]


@pytest.mark.parametrize("threshold", [0.3, 0.9, 0.99, 1.0])
def test_near_duplicates_of_a_large_pool_are_told_by_a_few_products(pool, threshold):
    kept = drop_near_duplicates(pool, threshold)
    assert Counted.products <= 6
    exact = np.asarray(pool, np.float64)
    expected: list[int] = []
    for position, vector in enumerate(exact):
        if not expected or np.max(exact[expected] @ vector) < threshold - ROUNDING:
            expected.append(position)
    assert kept == expected
    assert 1 < len(kept) <= 600


@pytest.mark.parametrize("limit", [0, 1, 7, 300, 10_000])
def test_no_more_are_kept_than_wanted(pool, limit):
    assert drop_near_duplicates(pool, 0.9, limit) == drop_near_duplicates(pool, 0.9)[:limit]
