"""Metadata is a checked, immutable deep copy that reads the same from every store."""

from __future__ import annotations

import copy
import enum
import itertools
import json
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from types import MappingProxyType
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.comparison import MAX_INTEGER
from ragchat_retrieval.errors import InvalidMetadata
from ragchat_retrieval.filters import RESERVED_KEYS
from ragchat_retrieval.metadata import (
    MAX_DEPTH,
    MAX_VALUES,
    Metadata,
    MetadataTexts,
    are_same,
    decode,
    encode,
    sameness,
)

FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)

offsets = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
instants = st.datetimes(
    min_value=FIRST.replace(tzinfo=None) + timedelta(days=1),
    max_value=LAST.replace(tzinfo=None) - timedelta(days=1),
    timezones=offsets,
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-MAX_INTEGER, MAX_INTEGER),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    instants,
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.text(max_size=3), st.sampled_from(["$datetime", "$map", "$"])),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=10,
)
keys = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True).filter(
    lambda key: key not in RESERVED_KEYS
)
mappings = st.dictionaries(keys, values, max_size=4)


def typed(value: object) -> object:
    """Returns a value that is equal only if types, signs of zero and offsets are, too."""
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    if isinstance(value, datetime):
        return ("datetime", value.isoformat())
    return (type(value).__name__, repr(value))


@given(mappings)
def test_metadata_equals_the_mapping_it_copied_and_is_plain_json_data(mapping):
    metadata = Metadata(mapping)
    assert metadata == mapping
    assert typed(metadata) == typed(mapping)
    assert list(metadata) == list(mapping)
    assert json.loads(json.dumps(metadata, default=str)) == json.loads(
        json.dumps(mapping, default=str)
    )


@given(mappings)
def test_the_stored_form_is_lossless(mapping):
    text = encode(Metadata(mapping))
    assert typed(decode(text)) == typed(mapping)
    assert encode(decode(text)) == text
    json.loads(text)


@given(mappings, st.randoms())
def test_the_stored_form_does_not_depend_on_the_order_of_keys(mapping, random):
    items = list(mapping.items())
    random.shuffle(items)
    assert encode(Metadata(dict(items))) == encode(Metadata(mapping))


@given(mappings)
def test_copies_of_every_kind_are_equal(mapping):
    metadata = Metadata(mapping)
    assert Metadata(metadata) is metadata
    assert copy.copy(metadata) is metadata
    assert copy.deepcopy(metadata) is metadata
    again = pickle.loads(pickle.dumps(metadata))  # noqa: S301 - our own bytes
    assert type(again) is Metadata
    assert typed(again) == typed(metadata)


@pytest.mark.parametrize(
    "value",
    [
        {"$datetime": "2024-03-01T00:00:00+00:00"},
        {"$map": {"$datetime": "x"}},
        {"$map": {"$map": {}}},
        {"$datetime": 1, "$map": 2},
        {"$datetime": datetime(2024, 1, 1, tzinfo=UTC)},
    ],
    ids=str,
)
def test_a_map_that_looks_like_a_stored_datetime_stays_a_map(value):
    assert typed(decode(encode(Metadata({"k": [value]})))) == typed({"k": [value]})


def test_inner_lists_and_maps_are_their_own_copies_too():
    metadata = Metadata({"list": [1], "map": {"a": 1}})
    for inner in metadata.values():
        assert copy.copy(inner) is inner
        assert copy.deepcopy(inner) is inner
        assert pickle.loads(pickle.dumps(inner)) == inner  # noqa: S301 - our own bytes


def test_what_was_given_may_change_afterwards():
    tags = ["a", {"b": [1]}]
    given_mapping = {"tags": tags}
    metadata = Metadata(given_mapping)
    tags[1]["b"].append(2)
    tags.append("c")
    given_mapping["other"] = 1
    assert metadata == {"tags": ["a", {"b": [1]}]}


MUTATIONS = [
    lambda m: m.__setitem__("k", 1),
    lambda m: m.__delitem__("k"),
    lambda m: m.update(k=1),
    lambda m: m.setdefault("new", 1),
    lambda m: m.pop("k"),
    lambda m: m.popitem(),
    lambda m: m.clear(),
    lambda m: m.__ior__({"k": 2}),
    lambda m: m["k"].append(1),
    lambda m: m["k"].extend([1]),
    lambda m: m["k"].insert(0, 1),
    lambda m: m["k"].pop(),
    lambda m: m["k"].remove(1),
    lambda m: m["k"].clear(),
    lambda m: m["k"].sort(),
    lambda m: m["k"].reverse(),
    lambda m: m["k"].__setitem__(0, 9),
    lambda m: m["k"].__delitem__(0),
    lambda m: m["k"].__iadd__([1]),
    lambda m: m["k"].__imul__(2),
    lambda m: m["k"][1].update(a=2),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=itertools.count())
def test_metadata_is_read_only_to_its_leaves(mutation):
    metadata = Metadata({"k": [1, {"a": 1}]})
    with pytest.raises(TypeError, match="read-only"):
        mutation(metadata)
    assert metadata == {"k": [1, {"a": 1}]}


def test_a_copy_that_may_be_changed_is_an_ordinary_dict():
    metadata = Metadata({"k": 1})
    for changeable in (dict(metadata), metadata | {"k": 2}, {**metadata}, metadata.copy()):
        changeable["k"] = 3
    assert metadata == {"k": 1}


def test_any_mapping_and_any_tuple_will_do():
    metadata = Metadata(MappingProxyType({"k": (1, MappingProxyType({"a": ("b",)}))}))
    assert metadata == {"k": [1, {"a": ["b"]}]}


class Team(enum.StrEnum):
    A = "a"


class Level(enum.IntEnum):
    HIGH = 3


def test_subclasses_of_scalars_become_plain():
    """An enum member or a NumPy float would not come back from a store as what it was."""
    metadata = Metadata(
        {Team.A: Team.A, "n": Level.HIGH, "f": np.float64(0.5), "in": [np.str_("s")]}
    )
    assert typed(metadata) == typed({"a": "a", "n": 3, "f": 0.5, "in": ["s"]})
    assert {type(key) for key in metadata} == {str}


def test_a_datetime_keeps_its_clock_and_offset_but_not_its_zone():
    summer = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    kept = Metadata({"when": summer})["when"]
    assert kept == summer
    assert kept.isoformat() == "2024-07-01T12:00:00+02:00"
    assert kept.tzinfo == timezone(timedelta(hours=2))


def test_a_datetime_inside_a_repeated_hour_reads_the_same_from_memory_and_disk():
    second = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    metadata = Metadata({"when": second})
    assert metadata["when"].isoformat() == "2024-10-27T02:30:00+01:00"
    assert decode(encode(metadata)) == metadata


class Fine(datetime):
    nanosecond = 7


cyclic: list[object] = []
cyclic.append(cyclic)
deep: object = 1
for _ in range(MAX_DEPTH + 1):
    deep = [deep]
wide: object = "x"
for _ in range(20):
    wide = [wide, wide]


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        np.float64("nan"),
        MAX_INTEGER + 1,
        -MAX_INTEGER - 1,
        10**400,
        LAST.replace(tzinfo=None),
        FIRST.replace(tzinfo=timezone(timedelta(hours=1))),
        LAST.replace(tzinfo=timezone(timedelta(hours=-1))),
        Fine(2024, 3, 1, tzinfo=UTC),
        date(2024, 3, 1),
        timedelta(1),
        b"bytes",
        {1, 2},
        object(),
        1j,
        np.int64(3),
        np.bool_(True),
        np.zeros(2),
        iter([1]),
        {1: "x"},
        {"ok": {None: 1}},
        [float("nan")],
        {"a": [{"b": 2**60}]},
        cyclic,
        deep,
        wide,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_some_store_could_not_keep_is_refused_naming_its_field(value):
    with pytest.raises(InvalidMetadata) as caught:
        Metadata({"fine": 1, "team": value}, document_id="d")
    assert caught.value.document_id == "d"
    assert caught.value.field == "metadata.team"


def test_the_limits_themselves_are_accepted():
    deepest: object = 1
    for _ in range(MAX_DEPTH):
        deepest = [deepest]
    metadata = Metadata(
        {
            "n": [MAX_INTEGER, -MAX_INTEGER],
            "deep": deepest,
            "first": FIRST,
            "last": LAST,
            "many": [0] * (MAX_VALUES - 1),
            "k" * 128: 1,
        }
    )
    assert decode(encode(metadata)) == metadata


@pytest.mark.parametrize("key", sorted(RESERVED_KEYS))
def test_a_reserved_key_is_refused(key):
    with pytest.raises(InvalidMetadata, match="reserved") as caught:
        Metadata({key: "x"}, document_id="d")
    assert caught.value.field == f"metadata.{key}"


@pytest.mark.parametrize("key", ["", "a.b", "caf\u00e9", "a\n", "k" * 129, 3, None, ("a",)])
def test_a_key_outside_the_pattern_is_refused(key):
    with pytest.raises(InvalidMetadata, match="1 to 128") as caught:
        Metadata({key: "x"}, document_id="d")
    assert caught.value.field == "metadata"


def test_keys_of_inner_maps_are_free():
    mapping = {"k": {"id": 1, "a.b": 2, "": 3, "caf\u00e9": 4}}
    assert Metadata(mapping) == mapping


@pytest.mark.parametrize("mapping", ["text", ["k"], [("k", 1)], 3, 0, [], ""])
def test_what_is_no_mapping_is_refused(mapping):
    with pytest.raises(InvalidMetadata, match="not a mapping"):
        Metadata(mapping)


def test_nothing_is_empty_metadata():
    assert Metadata() == Metadata(None) == Metadata({}) == {}
    assert not Metadata()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '{"k": NaN}',
        '{"k": {"$datetime": 3}}',
        '{"k": {"$datetime": "soon"}}',
        '{"k": {"$datetime": "2024-03-01T00:00:00"}}',
        '{"k": {"$map": 3}}',
        '{"a.b": 1}',
        '{"source": 1}',
        '{"k": ' + "[" * 100_000,
        '{"k": 18014398509481984}',
    ],
    ids=lambda text: text[:24],
)
def test_a_damaged_stored_form_is_a_typed_error(text):
    with pytest.raises(InvalidMetadata):
        decode(text)


ALIKE = st.dictionaries(
    st.sampled_from("ab"),
    st.sampled_from([True, 1, 1.0, 0.0, -0.0, None, "1", [1], [True], {"k": 1}, {"k": 1.0}]),
).map(Metadata)


@given(ALIKE, ALIKE)
def test_metadata_are_the_same_exactly_if_their_stored_forms_are(one, other):
    """Python takes True, 1 and 1.0 for equal, and filters do not."""
    assert are_same(one, other) is (encode(one) == encode(other))
    assert are_same(one, one)


@given(ALIKE, ALIKE)
def test_metadata_of_one_sameness_have_one_stored_form(one, other):
    assert encode(one) == encode(other) or sameness(one) != sameness(other)
    assert sameness(one) == sameness(Metadata(dict(one)))


@given(st.lists(ALIKE, max_size=12), st.integers(0, 3))
def test_remembered_stored_forms_are_what_encoding_each_would_give(given_ones, remembered):
    """However few are remembered, and whatever came before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ragchat_retrieval.metadata._REMEMBERED", remembered)
        encoded = MetadataTexts()
        assert list(map(encoded, given_ones)) == list(map(encode, given_ones))
