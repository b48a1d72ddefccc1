"""Vector maths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.errors import InvalidVector
from ragchat_retrieval.values import ContextText
from ragchat_retrieval.vectors import (
    blend,
    check_query_vector,
    damping,
    exact_products,
    normalise,
    squared_lengths,
    unit_matrices,
    unit_rows,
)

E0, E1 = np.eye(2, dtype=np.float32)


def test_rows_get_length_one_and_zeros_stay():
    rows = normalise(np.array([[3, 4], [0, 0]], np.float32))
    assert rows == pytest.approx(np.array([[0.6, 0.8], [0, 0]]))


LENGTHS = [1.0, 1.0 + 4e-6, 1.0 - 9.999e-6, 1.0 + 1.0001e-5, 0.5, 0.0, np.nan, np.inf]


@given(st.lists(st.lists(st.sampled_from(LENGTHS), max_size=3), max_size=5))
def test_many_matrices_are_scaled_as_each_of_them(lengths):
    """To the last bit, also where a row is so near to length 1 that it keeps its own bits."""
    rows = normalise(np.arange(1, 13, dtype=np.float32).reshape(3, 4))
    with np.errstate(invalid="ignore"):
        matrices = [rows[: len(n)] * np.array(n, np.float32)[:, None] for n in lengths]
    found = unit_matrices(matrices)
    assert [m.tobytes() for m in found] == [unit_rows(m).tobytes() for m in matrices]


def test_matrices_of_unit_rows_come_back_as_they_are_and_odd_ones_too():
    rows = np.eye(4, dtype=np.float32)
    matrices = [rows[n % 4 : n % 4 + 1] for n in range(3000)]
    assert all(a is b for a, b in zip(unit_matrices(matrices), matrices, strict=True))
    odd = [rows, rows[0], rows[:, :2]]
    assert [m.shape for m in unit_matrices(odd)] == [(4, 4), (4,), (4, 2)]


def test_lengths_of_many_matrices_are_in_order_and_show_what_is_not_finite():
    matrices = [np.full((1 + n % 2, 2), n, np.float32) for n in range(2500)]
    expected = [2.0 * n * n for n in range(2500) for _ in range(1 + n % 2)]
    assert squared_lengths(matrices).tolist() == expected
    odd = np.array([[1e38, 1e38], [1e-45, 0], [np.inf, 0], [np.nan, 0]], np.float32)
    squares = squared_lengths([odd])
    assert np.isfinite(squares).tolist() == [True, True, False, False]
    assert squares[1] > 0
    assert squared_lengths([]).tolist() == []


@pytest.mark.parametrize(
    ("similarity", "factor"), [(-1, 1), (0.1, 1), (0.35, 0.5), (0.6, 0), (1, 0)]
)
def test_a_context_counts_less_the_more_it_repeats_the_question(similarity, factor):
    assert damping(similarity) == pytest.approx(factor)


def test_contexts_are_added_at_their_weight_and_the_sum_is_normalised():
    contexts = [ContextText("x", semantic=0.5)]
    assert blend(E0, contexts, [E1]) == pytest.approx(np.array([1, 0.5]) / np.sqrt(1.25))


def test_a_damped_context_equal_to_the_question_adds_nothing():
    near = normalise(np.array([0.9, 0.4], np.float32))
    damped = blend(E0, [ContextText("x", semantic=1.0, damp=True)], [near])
    assert damped == pytest.approx(E0)


def test_a_sum_that_vanishes_leaves_the_question():
    assert blend(E0, [ContextText("x", semantic=1.0)], [-E0]) is E0


def test_a_query_without_contexts_keeps_its_vector():
    assert blend(E0, [], []) is E0


@pytest.mark.parametrize(
    "vector",
    [np.array([np.nan, 1]), np.array([np.inf, 1]), np.zeros(2), np.ones(3), np.ones((1, 2))],
)
def test_a_query_vector_that_cannot_be_compared_is_refused(vector):
    with pytest.raises(InvalidVector):
        check_query_vector(vector.astype(np.float32), 2)


@given(st.integers(1, 70), st.integers(0, 20), st.integers(0, 20), st.integers(0, 2**32 - 1))
def test_equal_rows_have_equal_products_wherever_they_stand(dimension, before, after, seed):
    """To the last bit, and within float64's error of the true product."""
    numbers = np.random.default_rng(seed)
    vector, row = numbers.standard_normal((2, dimension), dtype=np.float32)
    rows = numbers.standard_normal((before + 1 + after, dimension), dtype=np.float32)
    rows[before] = row
    (alone,) = exact_products(row[np.newaxis], vector)
    assert exact_products(rows, vector)[before] == alone
    true = math.fsum(float(a) * float(b) for a, b in zip(row, vector, strict=True))
    assert alone == pytest.approx(true, rel=0, abs=1e-12)
