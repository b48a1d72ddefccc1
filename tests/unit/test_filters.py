"""Filters: built strictly, matched totally, equal when they select the same."""

from __future__ import annotations

import copy
import json
import math
import operator
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.comparison import MAX_INTEGER
from ragchat_retrieval.errors import InvalidFilter, InvalidFilterKey
from ragchat_retrieval.filters import (
    Condition,
    Eq,
    Exists,
    Filter,
    Gt,
    Gte,
    In,
    Lt,
    Lte,
    Ne,
    NotExists,
    Op,
    as_filterable,
    fields_of,
    in_values,
    is_semantic,
    validate_key,
)
from ragchat_retrieval.values import Document, Passage

SCALAR_OPERATORS = [Eq, Ne, Gt, Gte, Lt, Lte]
ORDERED_OPERATORS = [Gt, Gte, Lt, Lte]
INSTANT = datetime(2024, 3, 1, 12, tzinfo=UTC)
NAIVE = INSTANT.replace(tzinfo=None)

field_keys = st.sampled_from(["a", "b", "c", "source"])
instants = st.datetimes(
    min_value=NAIVE - timedelta(days=2),
    max_value=NAIVE + timedelta(days=2),
    timezones=st.integers(-12, 12).map(lambda h: timezone(timedelta(hours=h))),
)
orderable = st.one_of(
    st.integers(-3, 3),
    st.floats(-3, 3),
    st.text("aB\u00e9", max_size=2),
    instants,
    instants.map(datetime.isoformat),
    st.integers(-MAX_INTEGER, MAX_INTEGER),
)
scalars = st.one_of(st.none(), st.booleans(), orderable)
anything = st.recursive(
    st.one_of(
        scalars,
        st.floats(),
        st.integers(),
        st.binary(max_size=2),
        st.text(st.characters(codec=None, exclude_categories=()), max_size=3),
        st.datetimes(),
        st.just(object()),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.tuples(inner),
        st.dictionaries(st.text(max_size=2), inner, max_size=2),
    ),
    max_leaves=4,
)
conditions = st.one_of(
    st.builds(Eq, field_keys, scalars),
    st.builds(Ne, field_keys, scalars),
    *(st.builds(op, field_keys, orderable) for op in ORDERED_OPERATORS),
    st.builds(In, field_keys, st.lists(scalars, max_size=3)),
    st.builds(Exists, field_keys),
    st.builds(NotExists, field_keys),
)
filters = st.lists(conditions, max_size=4).map(lambda members: Filter(*members))
metadata = st.dictionaries(field_keys, anything, max_size=4)


# What matches


@given(filters, metadata)
def test_matching_is_total_and_a_conjunction(filter_, mapping):
    verdict = filter_.matches(mapping)
    assert verdict is all(Filter(condition).matches(mapping) for condition in filter_)


@given(conditions, anything)
def test_of_a_present_value_and_an_absent_key_the_condition_itself_decides(condition, value):
    assert Filter(condition).matches({condition.key: value}) is condition.test(value)
    assert Filter(condition).matches({}) is condition.test_absent()
    assert Filter(condition).matches(None) is condition.test_absent()


def kind(value: object) -> str | None:
    """Tells kinds apart by another way than the library: exact types."""
    names = {bool: "bool", int: "number", float: "number", str: "string", datetime: "date"}
    return "null" if value is None else names.get(type(value))


ORACLE = {
    Gt: operator.gt,
    Gte: operator.ge,
    Lt: operator.lt,
    Lte: operator.le,
    Eq: operator.eq,
    Ne: operator.ne,
}


@given(st.sampled_from(SCALAR_OPERATORS), orderable, scalars)
def test_inside_a_kind_operators_are_those_of_python_and_across_kinds_only_ne_matches(
    op, operand, value
):
    def comparable(given_value: object) -> object:
        if isinstance(given_value, str) and len(given_value) > len("2024-03-01"):
            return datetime.fromisoformat(given_value)
        return given_value

    left, right = comparable(value), comparable(operand)
    expected = op is Ne
    if kind(left) == kind(right):
        expected = ORACLE[op](left, right)
    elif {kind(left), kind(right)} == {"date", "string"} and op not in {Eq, Ne}:
        # Instants are strings of their canonical form; the drawn texts hold no digit.
        expected = ORACLE[op](*("2" if isinstance(x, datetime) else x for x in (left, right)))
    assert op("k", operand).test(value) is expected


@given(orderable, scalars)
def test_the_operators_agree_with_each_other(operand, value):
    eq, ne, gt, gte, lt, lte = (op("k", operand).test(value) for op in SCALAR_OPERATORS[:6])
    assert eq is not ne
    assert gte is (gt or eq)
    assert lte is (lt or eq)
    assert gt + eq + lt <= 1
    assert In("k", [operand]).test(value) is eq


@given(scalars, scalars)
def test_equality_is_symmetric(first, second):
    assert Eq("k", first).test(second) is Eq("k", second).test(first)


@given(st.lists(scalars, max_size=4), anything)
def test_in_matches_exactly_what_one_of_its_values_equals(values, value):
    assert In("k", values).test(value) is any(Eq("k", v).test(value) for v in values)


# Building


@pytest.mark.parametrize("op", SCALAR_OPERATORS)
@pytest.mark.parametrize(
    "operand",
    [
        [],
        ["a"],
        {},
        ("a",),
        {"a"},
        math.nan,
        math.inf,
        -math.inf,
        NAIVE,
        INSTANT.date(),
        MAX_INTEGER + 1,
        -MAX_INTEGER - 1,
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        b"bytes",
        1j,
        np.int64(1),
        object(),
        "a\x00b",
        "\ud800",
    ],
    ids=lambda operand: type(operand).__name__,
)
def test_a_bad_operand_is_refused_when_the_filter_is_built(op, operand):
    with pytest.raises(InvalidFilter) as caught:
        op("k", operand)
    assert caught.value.key == "k"
    with pytest.raises(InvalidFilter):
        In("k", ["fine", operand])


def test_an_operator_written_as_a_mapping_is_refused_with_the_form_that_it_has_here():
    with pytest.raises(InvalidFilter, match=r"'year'.* is written as \[\{key, op, value\}\]"):
        Filter.of({"year": {"$gt": 2020}})


@pytest.mark.parametrize("op", ORDERED_OPERATORS)
@pytest.mark.parametrize("operand", [None, True, False])
def test_null_and_bools_have_no_order(op, operand):
    with pytest.raises(InvalidFilter, match="needs a number, a string or a date"):
        op("k", operand)


@pytest.mark.parametrize("values", ["abc", b"abc", {"a": 1}, 3, None, True])
def test_in_takes_an_iterable_of_scalars_but_no_bare_string(values):
    with pytest.raises(InvalidFilter, match="takes a list"):
        In("k", values)
    with pytest.raises(InvalidFilter, match="takes a list"):
        in_values(values)


def test_in_values_are_distinct_by_the_rules_of_equality_in_given_order():
    given_values = (value for value in ["b", 1, True, 1.0, "a", "b", -0.0, 0, None, INSTANT])
    again = INSTANT.astimezone(timezone(timedelta(hours=3))).isoformat()
    assert in_values([*given_values, again]) == ("b", 1, True, "a", -0.0, None, INSTANT)
    assert In("k", {"x"}).value == ("x",)
    assert In("k", range(3)).value == (0, 1, 2)
    assert In("k", ()).value == ()


@pytest.mark.parametrize("value", [None, 1, 0, "true", [], [True]])
def test_exists_takes_a_bool(value):
    with pytest.raises(InvalidFilter, match="true or false"):
        Condition("k", "exists", value)


@pytest.mark.parametrize("op", ["", "EQ", "==", "$eq", "like", "nin", None, 3, ["eq"]])
def test_an_unknown_operator_is_refused(op):
    with pytest.raises(InvalidFilter, match="unknown operator"):
        Condition("k", op, 1)


def test_a_long_hostile_key_is_cut_in_the_error():
    with pytest.raises(InvalidFilterKey) as caught:
        validate_key("k\n" * 10_000)
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidFilterKey):
        validate_key(3)
    validate_key("k" * 128)


@pytest.mark.parametrize("member", [{"a": 1}, None, "a", Filter(), ("a", "eq", 1)])
def test_a_filter_is_made_of_conditions_only(member):
    with pytest.raises(InvalidFilter, match=r"Filter\.of"):
        Filter(member)


# Other forms


def test_a_filter_is_read_from_all_its_forms():
    expected = Filter(Eq("team", "a"), Eq("n", 3))
    listed = [{"key": "team", "op": "eq", "value": "a"}, {"key": "n", "op": "eq", "value": 3}]
    for form in (
        expected,
        {"n": 3, "team": "a"},
        MappingProxyType({"n": 3, "team": "a"}),
        listed,
        tuple(listed),
        [Eq("n", 3), listed[0]],
        [MappingProxyType(member) for member in listed],
    ):
        assert Filter.of(form) == expected
    assert Filter.of(expected) is expected
    assert Filter.of(Eq("n", 3)) == Filter.of({"n": 3})
    for form in (None, {}, [], (), Filter()):
        assert Filter.of(form) == Filter()


@pytest.mark.parametrize(
    "form",
    [
        "team=a",
        b"",
        3,
        True,
        0,
        "",
        {"a"},
        iter([]),
        ["team"],
        [["team", "eq", "a"]],
        [None],
        [{}],
        [{"key": "a", "op": "eq"}],
        [{"key": "a", "value": 1}],
        [{"op": "eq", "value": 1}],
        [{"key": "a", "op": "exists"}],
        [{"key": "a", "op": "eq", "value": 1, "not": True}],
        [{"key": "a", "op": "in", "value": "abc"}],
        [{"key": "a", "op": "between", "value": 1}],
        {"a": [1, 2]},
        {"a": {"gt": 1}},
        {"a": math.nan},
    ],
    ids=lambda form: type(form).__name__,
)
def test_any_other_form_is_refused(form):
    with pytest.raises(InvalidFilter):
        Filter.of(form)


@pytest.mark.parametrize("form", [{"a.b": 1}, {3: 1}, [{"key": None, "op": "eq", "value": 1}]])
def test_a_bad_key_is_refused_in_every_form(form):
    with pytest.raises(InvalidFilterKey):
        Filter.of(form)


def test_a_mapping_or_list_that_changes_later_does_not_change_the_filter():
    mapping, values = {"a": 1}, ["x"]
    from_mapping, from_list = Filter.of(mapping), Filter(In("k", values))
    mapping["a"] = 2
    values.append("y")
    assert from_mapping == Filter(Eq("a", 1))
    assert from_list == Filter(Eq("k", "x"))


@given(filters, metadata)
def test_the_json_form_gives_an_equal_filter(filter_, mapping):
    again = Filter.of(json.loads(json.dumps(filter_.to_json(), allow_nan=False)))
    assert again == filter_
    assert again.matches(mapping) is filter_.matches(mapping)


def test_not_exists_is_exists_with_false_in_the_json_form():
    assert Filter(NotExists("k")).to_json() == [{"key": "k", "op": "exists", "value": False}]
    assert Filter.of([{"key": "k", "op": "exists", "value": False}]) == Filter(NotExists("k"))


# Equality, canonical bytes, immutability


@given(filters, st.randoms())
def test_order_and_repetition_make_no_difference(filter_, random):
    members = [*filter_, *filter_]
    random.shuffle(members)
    again = Filter(*members)
    assert again.canonical_bytes() == filter_.canonical_bytes()
    assert again == filter_
    assert hash(again) == hash(filter_)


@given(filters, filters, metadata)
def test_equal_filters_select_the_same_and_and_is_both(first, second, mapping):
    if first == second:
        assert first.matches(mapping) is second.matches(mapping)
    both = first & second
    assert both == second & first
    assert both.matches(mapping) is (first.matches(mapping) and second.matches(mapping))
    assert (first & Filter()) == first == (Filter() & first)


@given(scalars, scalars)
def test_conditions_are_equal_exactly_if_their_operands_are(first, second):
    assert (Eq("k", first) == Eq("k", second)) is Eq("k", first).test(second)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Eq("k", 3), Eq("k", 3.0)),
        (Eq("k", 0), Eq("k", -0.0)),
        (Gt("k", "2024-03-01T13:00:00+01:00"), Gt("k", "2024-03-01T12:00:00.000Z")),
        (Eq("k", INSTANT), Eq("k", "2024-03-01T12:00:00Z")),
        (In("k", [1, 2]), In("k", (2.0, 1, 2))),
        (In("k", ["a"]), Eq("k", "a")),
        (In("k", [None]), Eq("k", None)),
        (Eq("k", np.float64(1.5)), Eq("k", 1.5)),
        (Condition("k", "exists", False), NotExists("k")),
        (Condition("k", "lte", 1), Condition("k", Op.LTE, 1)),
    ],
    ids=repr,
)
def test_conditions_that_select_the_same_are_equal(left, right):
    assert left == right
    assert hash(left) == hash(right)
    assert Filter(left).canonical_bytes() == Filter(right).canonical_bytes()


def test_conditions_that_select_differently_differ():
    distinct = [
        Eq("k", 1),
        Eq("k", True),
        Eq("k", "1"),
        Eq("k", None),
        Eq("k", "null"),
        Eq("k", ""),
        Ne("k", 1),
        Gt("k", 1),
        Gte("k", 1),
        Lt("k", 1),
        Lte("k", 1),
        In("k", []),
        In("k", [1, 2]),
        In("k", [1, "2"]),
        In("k", [1, True]),
        Exists("k"),
        NotExists("k"),
        Eq("K", 1),
        Eq("k", "2024-03-01T12:00:00"),
        Eq("k", "2024-03-01T12:00:00Z"),
        Eq("k", "\u00e9"),
        Eq("k", "e\u0301"),
    ]
    assert len({Filter(condition).canonical_bytes() for condition in distinct}) == len(distinct)
    assert len(set(distinct)) == len(distinct)
    assert Eq("k", 1) != ("k", "eq", 1)
    assert Filter() != ()


def test_the_empty_filter_has_no_bytes_is_false_and_matches_everything():
    assert Filter().canonical_bytes() == b""
    assert not Filter()
    assert Filter(In("k", []))
    assert Filter().matches(None)
    assert Filter().matches({"k": 1})


def test_only_filters_can_be_joined():
    with pytest.raises(TypeError):
        Filter() & {"k": 1}


def test_filters_and_conditions_cannot_be_changed():
    filter_ = Filter(Eq("k", 1))
    with pytest.raises(AttributeError):
        filter_.conditions = ()
    with pytest.raises(AttributeError):
        del filter_.conditions
    with pytest.raises(AttributeError):
        filter_.extra = 1
    with pytest.raises(AttributeError):
        filter_.conditions[0].value = 2


@given(filters)
def test_copies_and_pickles_are_equal(filter_):
    for again in (
        copy.copy(filter_),
        copy.deepcopy(filter_),
        pickle.loads(pickle.dumps(filter_)),  # noqa: S301 - our own bytes
    ):
        assert again == filter_
        assert [c.to_json() for c in again] == [c.to_json() for c in filter_]


def test_a_filter_shows_its_conditions():
    shown = repr(Filter(Eq("team", "a"), In("n", [1])))
    assert "team" in shown
    assert "Op.IN" in shown or "'in'" in shown
    assert len(Filter(Eq("a", 1), Eq("b", 2))) == 2


# Fields of passages and documents


def test_reserved_keys_address_the_fields_of_a_passage():
    passage = Passage("x", id="d#0", document_id="d", source="s.md", metadata={"k": 1})
    assert fields_of(passage) == {"id": "d#0", "document_id": "d", "source": "s.md", "k": 1}
    assert Filter(Eq("id", "d#0"), Eq("document_id", "d"), Eq("source", "s.md")).matches_passage(
        passage
    )
    assert Filter(NotExists("title"), Eq("k", 1)).matches_passage(passage)
    assert not Filter(Eq("title", None)).matches_passage(passage)


def test_of_a_document_id_and_document_id_are_the_same():
    document = Document("d", "x", title="T", metadata={"k": 1})
    assert fields_of(document) == {"id": "d", "document_id": "d", "title": "T", "k": 1}
    assert Filter(Eq("id", "d"), Eq("document_id", "d"), Eq("k", 1)).matches_document(document)
    assert Filter().matches_document(document)
    assert not Filter(Exists("source")).matches_document(document)


# What stores and retrievers declare


class Plain:
    """Declares nothing."""


class Declares:
    def __init__(self, *, filterable=None, semantic=None):
        self.filterable = filterable
        self.semantic = semantic


class WithCapabilities:
    def __init__(self, **capabilities):
        self.capabilities = type("Some", (), capabilities)


class Wrapper:
    def __init__(self, inner):
        self.inner = inner

    def unwrap(self):
        return self.inner


class Composite:
    def __init__(self, *members):
        self.members = list(members)

    def parts(self):
        return self.members


FILTERABLE = Declares(filterable=True)


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        (FILTERABLE, True),
        (Declares(filterable=False), False),
        (Declares(filterable=lambda: True), True),
        (Declares(filterable=lambda: False), False),
        (Declares(filterable="yes"), False),
        (WithCapabilities(filterable=True), True),
        (WithCapabilities(filterable=False), False),
        (Plain(), False),
        (None, False),
        (Wrapper(FILTERABLE), True),
        (Wrapper(Wrapper(Wrapper(FILTERABLE))), True),
        (Wrapper(Plain()), False),
        (Composite(FILTERABLE, Wrapper(FILTERABLE)), True),
        (Composite(FILTERABLE, Plain()), False),
        (Composite(), False),
        (Wrapper(Composite(FILTERABLE, Composite(FILTERABLE))), True),
        (Wrapper(Composite(FILTERABLE, Composite(Plain()))), False),
    ],
)
def test_a_store_is_filterable_if_it_says_so_behind_wrappers_and_in_every_part(store, expected):
    found = as_filterable(store)
    assert found is (store if expected else None)


def test_a_composite_is_asked_each_time():
    composite = Composite(FILTERABLE)
    assert as_filterable(composite) is composite
    composite.members.append(Plain())
    assert as_filterable(composite) is None


def test_wrappers_in_a_circle_declare_nothing():
    outer = Wrapper(None)
    outer.inner = Wrapper(outer)
    assert as_filterable(outer) is None
    assert not is_semantic(outer)


def test_is_semantic_is_what_a_retriever_declares():
    assert is_semantic(Declares(semantic=True))
    assert is_semantic(Wrapper(Declares(semantic=True)))
    assert is_semantic(WithCapabilities(semantic=True))
    assert not is_semantic(Declares(filterable=True))
    assert not is_semantic(Composite(Declares(semantic=True), Declares(semantic=False)))
    assert not is_semantic(lambda query: [])


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ([1, 2], "'in' takes several values"),
        ((1, 2), "'in' takes several values"),
        ({"gt": 1}, "written as"),
        (date(2026, 1, 1), "datetimes with a time zone"),
        (Decimal("1.5"), "numbers"),
    ],
)
def test_an_operand_that_is_no_scalar_is_refused_with_what_to_write(value, remedy):
    with pytest.raises(InvalidFilter, match=remedy):
        Eq("key", value)
