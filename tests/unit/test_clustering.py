"""Clusters are connected components, by an independent reading of the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval import clustering
from ragchat_retrieval.clustering import cluster
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.vectors import normalise


def components(directions, threshold):
    """Walks the graph of similar pairs, one vertex at a time."""
    exact = directions.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    exact /= np.where(lengths > 0, lengths, 1)
    linked = exact @ exact.T >= threshold - 1e-9
    left, found = set(range(len(exact))), []
    while left:
        reached = {min(left)}
        edge = list(reached)
        while edge:
            new = {int(n) for n in np.flatnonzero(linked[edge.pop()])} - reached
            reached |= new
            edge += new
        left -= reached
        found.append(tuple(sorted(reached)))
    return sorted(found, key=lambda group: (-len(group), group[0]))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(clustering, "_ROWS_AT_ONCE", 4)


@given(st.integers(0, 24), st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.8, 0.92, 1.0]))
def test_groups_are_the_connected_components(count, seed, threshold):
    random = np.random.default_rng(seed)
    # Small whole numbers, so that equal directions occur and others are clearly apart.
    directions = random.integers(0, 3, (count, 4)).astype(np.float32)
    assert cluster(normalise(directions), threshold) == components(directions, threshold)


@given(st.integers(0, 2**32 - 1))
def test_equal_vectors_are_alike_whatever_their_product_is_rounded_to(seed):
    row = normalise(np.random.default_rng(seed).normal(size=(1, 48)).astype(np.float32))
    assert cluster(np.repeat(row, 3, axis=0), 1.0) == [(0, 1, 2)]


def test_a_chain_is_one_group_though_its_ends_are_apart():
    angles = np.radians([0, 20, 40, 60, 180])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert cluster(rows) == [(0, 1, 2, 3), (4,)]
    assert cluster(rows, least=2) == [(0, 1, 2, 3)]


def test_zeros_are_like_nothing_and_nothing_has_no_groups():
    assert cluster(np.zeros((2, 3), dtype=np.float32)) == [(0,), (1,)]
    assert cluster(np.zeros((0, 3), dtype=np.float32)) == []


@pytest.mark.parametrize(
    "vectors", [np.full((2, 3), np.nan), np.full((2, 3), np.inf), np.ones(3)], ids=str
)
def test_what_has_no_direction_is_refused(vectors):
    with pytest.raises(InvalidSetting, match="vectors"):
        cluster(vectors.astype(np.float32))


@pytest.mark.parametrize("options", [{"threshold": 0}, {"threshold": 1.1}, {"least": 0}], ids=str)
def test_settings_outside_their_range_are_refused(options):
    with pytest.raises(InvalidSetting):
        cluster(np.zeros((0, 3), dtype=np.float32), **options)
