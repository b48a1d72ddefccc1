"""Equal values share a key, different ones do not, and what has no content has none."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from ragchat import Candidate, Eq, Filter, In, Passage, Query
from ragchat.conversation import ConversationQuery
from ragchat_retrieval.keys import key_of

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def typed(value):
    """Returns a value in which what is equal is of the same types too: the oracle."""
    if isinstance(value, list):
        return ("list", *map(typed, value))
    if isinstance(value, dict):
        return ("dict", *sorted((name, typed(item)) for name, item in value.items()))
    return (type(value).__name__, repr(value))


@given(values, values)
def test_two_values_share_a_key_exactly_if_they_are_the_same(first, second):
    assert (key_of(first) == key_of(second)) is (typed(first) == typed(second))


@given(st.dictionaries(st.text(), scalars, max_size=6))
def test_the_order_of_a_mapping_does_not_count(mapping):
    assert key_of(dict(reversed(mapping.items()))) == key_of(mapping)


DIFFERENT = [
    Query("tea"),
    Query("Tea"),
    Query("tea", scope=Eq("tenant", "a")),
    Query("tea", filter=Eq("tenant", "a")),
    Query("tea", scope=Eq("tenant", "b")),
    Query("tea", scope=Eq("tenant", 1)),
    Query("tea", scope=Eq("tenant", "1")),
    Query("tea", top_k=1),
    Query("tea", variants=("x",)),
    Query("tea", lexical="x"),
    Query("tea", semantic="x"),
    ConversationQuery(Query("tea")),
    ConversationQuery(Query("tea"), ({"role": "user", "content": "x"},)),
    ConversationQuery(Query("tea"), ({"role": "assistant", "content": "x"},)),
    Candidate(Passage("tea"), 1.0),
    Candidate(Passage("tea"), 2.0),
    Candidate(Passage("tea", metadata={"a": 1}), 1.0),
    Passage("tea"),
    np.zeros(2),
    np.zeros(2, dtype=np.float32),
    np.zeros((2, 1)),
    "tea",
    b"tea",
    ["tea"],
    ["te", "a"],
    [["tea"]],
    {"tea"},
    {"tea": None},
    1,
    1.0,
    True,
    None,
    0.0,
    -0.0,
    "\ud800",
    datetime(2026, 1, 1, tzinfo=UTC),
    "2026-01-01 00:00:00+00:00",
]


def test_what_matters_to_a_stage_makes_another_key():
    keys = [key_of(value) for value in DIFFERENT]
    assert None not in keys
    for (one, a), (two, b) in itertools.combinations(zip(DIFFERENT, keys, strict=True), 2):
        assert a != b, (one, two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Filter(Eq("a", 1), Eq("b", 2)), Filter(Eq("b", 2), Eq("a", 1), Eq("a", 1.0))),
        (Query("tea ", scope={"a": 1}), Query("tea", scope=In("a", [1]))),
        ((1, 2), [1, 2]),
        (
            ChatCompletionMessage(role="assistant", content="x"),
            ChatCompletionMessage(role="assistant", content="x"),
        ),
        (np.zeros((2, 2))[:, 0], np.zeros(2)),
    ],
)
def test_what_makes_no_difference_makes_no_other_key(one, two):
    assert key_of(one) == key_of(two) is not None


@pytest.mark.parametrize(
    "value",
    [len, object(), Query, [object()], {"f": len}, {1: {2: object()}}, np.array([object()])],
)
def test_what_has_no_content_has_no_key(value):
    assert key_of(value) is None


def test_what_has_no_end_has_no_key():
    endless = []
    endless.append(endless)
    assert key_of(endless) is None


def test_times_in_other_zones_are_other_values():
    one = datetime(2026, 1, 1, tzinfo=UTC)
    assert key_of(one) != key_of(one.astimezone(timezone(timedelta(hours=1))))
