"""Addresses, ranges and scales of the shapes in which servers rerank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.errors import MalformedRanking
from ragchat_retrieval.rerankers.shapes import endpoint, scaled, shape_of


@pytest.mark.parametrize(
    ("url", "shape", "address"),
    [
        ("http://h:8080", None, "http://h:8080/rerank"),
        ("http://h/rerank/", None, "http://h/rerank"),
        ("http://h/v1", "vllm", "http://h/v1/rerank"),
        ("https://api.jina.ai/v1/rerank", "vllm", "https://api.jina.ai/v1/rerank"),
        ("https://api.cohere.com", "cohere", "https://api.cohere.com/v2/rerank"),
        ("https://api.cohere.com/v2", "cohere", "https://api.cohere.com/v2/rerank"),
        ("http://h/proxy/v2/rerank", "cohere", "http://h/proxy/v2/rerank"),
    ],
)
def test_an_address_tells_shape_and_endpoint(url, shape, address):
    assert shape_of(url) == shape
    assert endpoint(url, shape or "tei") == address


@given(st.lists(st.floats(0.0, 1.0), max_size=9), st.sampled_from(["tei", "vllm", "cohere"]))
def test_scores_within_0_and_1_stay(given_scores, shape):
    assert scaled(shape, given_scores, normalise=None) == given_scores


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_spread_scores_lie_in_0_and_1_and_keep_their_order(given_scores):
    made = scaled("vllm", given_scores, normalise=True)
    assert all(0.0 <= score <= 1.0 for score in made)
    pairs = [(a, b) for a in range(len(made)) for b in range(len(made))]
    assert all(made[a] <= made[b] for a, b in pairs if given_scores[a] <= given_scores[b])
    if min(given_scores) / 2 < max(given_scores) / 2:
        assert (min(made), max(made)) == (0.0, 1.0)
    else:
        assert set(made) == {0.5}


def test_rounding_beyond_the_range_is_no_fault():
    assert scaled("cohere", [1.0000001, -1e-9], normalise=None) == [1.0, 0.0]


def test_spreading_may_be_forbidden():
    with pytest.raises(MalformedRanking):
        scaled("vllm", [0.5, 3.0], normalise=False)
