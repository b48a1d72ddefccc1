"""Vector maths."""

from __future__ import annotations

import numpy as np
import pytest

from ragchat_retrieval.errors import InvalidVector
from ragchat_retrieval.values import ContextText
from ragchat_retrieval.vectors import blend, check_query_vector, damping, normalise

E0, E1 = np.eye(2, dtype=np.float32)


def test_rows_get_length_one_and_zeros_stay():
    rows = normalise(np.array([[3, 4], [0, 0]], np.float32))
    assert rows == pytest.approx(np.array([[0.6, 0.8], [0, 0]]))


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


@pytest.mark.parametrize(
    "vector",
    [np.array([np.nan, 1]), np.array([np.inf, 1]), np.zeros(2), np.ones(3), np.ones((1, 2))],
)
def test_a_query_vector_that_cannot_be_compared_is_refused(vector):
    with pytest.raises(InvalidVector):
        check_query_vector(vector.astype(np.float32), 2)
