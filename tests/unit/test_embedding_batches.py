"""Texts are cut into batches by count and by tokens."""

from __future__ import annotations

import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval import tokens
from ragchat_retrieval.embedders import remote
from ragchat_retrieval.embedders.remote import Sending, batches
from ragchat_retrieval.errors import InvalidSetting


def test_batches_as_computed_by_hand():
    cut = batches([3, 3, 3, 9, 1, 1, 1, 1], most=3, total=6)
    assert cut == [range(2), range(2, 3), range(3, 4), range(4, 7), range(7, 8)]
    assert batches([], most=3, total=6) == []


@given(st.lists(st.integers(0, 20)), st.integers(1, 5), st.integers(1, 30))
def test_batches_keep_order_and_limits_and_are_as_few_as_that_allows(sizes, most, total):
    cut = batches(sizes, most=most, total=total)
    assert [place for batch in cut for place in batch] == list(range(len(sizes)))
    for batch in cut:
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(sizes[place] for place in batch) <= total
    for batch, following in itertools.pairwise(cut):
        full = len(batch) == most
        assert full or sum(sizes[place] for place in batch) + sizes[following[0]] > total


def test_sizes_are_exact_token_counts_and_long_texts_are_cut():
    texts, sizes = Sending(max_tokens=2, query_prefix="q ").prepare(["x", "x y z"], "query")
    assert (texts, sizes) == (["q x", "q x"], [2, 2])


def test_texts_that_fit_by_their_bytes_are_not_counted(monkeypatch):
    counted = []
    monkeypatch.setattr(remote, "count_many", lambda texts, _: counted.extend(texts) or [1, 1])
    few = Sending(max_tokens=4, batch_tokens=5)
    assert few.prepare(["ü", "abc"], "query") == (["ü", "abc"], [2, 3])
    assert not counted
    assert few.prepare(["ü", "abcd"], "query") == (["ü", "abcd"], [1, 1])
    assert counted == ["ü", "abcd"]


def test_without_a_tokenizer_bytes_bound_the_tokens(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "toktok", None)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    tokens._counter.cache_clear()
    try:
        texts, sizes = Sending(max_tokens=1).prepare(["ü and more"], "passage")
    finally:
        tokens._counter.cache_clear()
    assert (texts, sizes) == (["ü and more"], [11])


@pytest.mark.parametrize("name", ["batch_size", "batch_tokens", "concurrency", "max_tokens"])
def test_a_limit_below_one_is_refused(name):
    with pytest.raises(InvalidSetting) as caught:
        Sending(**{name: 0})
    assert caught.value.name == name


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout):
    with pytest.raises(InvalidSetting):
        Sending(timeout=timeout)
