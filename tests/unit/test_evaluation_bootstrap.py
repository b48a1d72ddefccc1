"""The paired bootstrap, against all resamples that there are, and against SciPy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.evaluation import bootstrap as module
from ragchat_retrieval.evaluation import paired_bootstrap

scores = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=12)


def test_the_interval_is_that_of_all_resamples():
    """Five topics have 3125 resamples, few enough to draw each once."""
    mine, theirs = np.array([0.9, 0.2, 0.5, 0.7, 0.1]), np.array([0.4, 0.3, 0.1, 0.6, 0.1])
    means = [np.mean(drawn) for drawn in product(mine - theirs, repeat=5)]
    low, high = np.quantile(means, [0.05, 0.95])
    found = paired_bootstrap(mine, theirs, confidence=0.9, resamples=100_000)
    assert found.mean == pytest.approx(np.mean(mine - theirs))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


def test_the_interval_is_near_that_of_scipy():
    random = np.random.default_rng(7)
    mine, theirs = random.random(80), random.random(80)
    reference = scipy.stats.bootstrap(
        (mine - theirs,), np.mean, method="percentile", rng=random, n_resamples=20_000
    ).confidence_interval
    found = paired_bootstrap(mine, theirs, resamples=20_000)
    assert (found.low, found.high) == pytest.approx(tuple(reference), abs=0.005)


def test_groups_are_drawn_whole():
    """Two conversations, one all better and one all worse: a draw is one of three mixtures."""
    found = paired_bootstrap(
        [1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0], groups=["a", "a", "a", "b"], confidence=0.99
    )
    assert found.mean == pytest.approx(0.5)
    assert (found.low, found.high) == (-1.0, 1.0)


@given(scores, st.integers(0, 3))
def test_groups_of_one_change_nothing(values, seed):
    zeros = [0.0] * len(values)
    ids = [str(number) for number in range(len(values))]
    plain = paired_bootstrap(values, zeros, resamples=200, seed=seed)
    assert paired_bootstrap(values, zeros, groups=ids, resamples=200, seed=seed) == plain


@given(scores)
def test_equal_rankings_do_not_differ(values):
    found = paired_bootstrap(values, values, resamples=100)
    assert (found.mean, found.low, found.high, found.clear) == (0.0, 0.0, 0.0, False)


def test_a_difference_is_clear_when_the_interval_leaves_out_0():
    ahead = paired_bootstrap([0.9] * 9, [0.5] * 9)
    assert ahead.clear
    assert ahead.low == pytest.approx(0.4)
    assert paired_bootstrap([0.5] * 9, [0.9] * 9).clear


def test_equal_seeds_give_equal_intervals_and_memory_is_bounded(monkeypatch):
    random = np.random.default_rng(1)
    mine, theirs = random.random(50), random.random(50)
    whole = paired_bootstrap(mine, theirs, resamples=999, seed=3)
    assert paired_bootstrap(mine, theirs, resamples=999, seed=3) == whole
    monkeypatch.setattr(module, "_CELLS", 100)
    assert paired_bootstrap(mine, theirs, resamples=999, seed=3) == whole


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (([], []), {}),
        (([1.0], [1.0, 2.0]), {}),
        (([[1.0]], [[1.0]]), {}),
        (([1.0], [1.0]), {"resamples": 0}),
        (([1.0], [1.0]), {"confidence": 1.0}),
        (([1.0], [1.0]), {"groups": []}),
    ],
)
def test_what_cannot_be_resampled_is_refused(arguments, settings):
    with pytest.raises(InvalidSetting):
        paired_bootstrap(*arguments, **settings)
