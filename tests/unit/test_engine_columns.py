"""Masks of the engine against the definition of filters, passage by passage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat_retrieval.engine import Batch, Engine
from ragchat_retrieval.engine import columns as columns_module
from ragchat_retrieval.filters import Condition, Eq, Exists, Filter, Gt, In, Lt, Ne, NotExists
from ragchat_retrieval.testing.filter_cases import FILTER_CASES
from ragchat_retrieval.values import Passage

if TYPE_CHECKING:
    from collections.abc import Sequence

EAST = timezone(timedelta(hours=2))
SCALARS: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    1.0,
    -0.0,
    2.5,
    2**53,
    "",
    "1",
    "true",
    "b",
    "B",
    "é",
    "e\u0301",
    "2024-03-01",
    "2024-03-01T12:00:00Z",
    "2024-03-01T14:00:00+02:00",
    "2024-03-01T12:00:00.5Z",
    datetime(2024, 3, 1, 12, tzinfo=UTC),
    datetime(2024, 3, 1, 14, tzinfo=EAST),
    datetime(2024, 3, 1, 15, tzinfo=EAST),
]
CONTAINERS: list[Any] = [[], [1], {"a": 1}, {}]
KEYS = ("k", "n")
LABELS = [None, "", "a", "2024-03-01T12:00:00Z", "2024-03-01T14:00:00+02:00"]


@st.composite
def passages(draw: st.DrawFn) -> Passage:
    """Draws a passage with metadata of every kind and odd labels."""
    return Passage(
        "text",
        id=draw(st.sampled_from(["x", "y", *LABELS[3:]])) + "/" + draw(st.uuids().map(str))
        if draw(st.booleans())
        else draw(st.uuids().map(str)),
        document_id=draw(st.sampled_from(["a", "b", *LABELS[3:]])),
        title=draw(st.sampled_from(LABELS)),
        source=draw(st.sampled_from(LABELS)),
        metadata=draw(
            st.dictionaries(st.sampled_from(KEYS), st.sampled_from(SCALARS + CONTAINERS))
        ),
    )


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    """Draws a condition over any key and operator."""
    key = draw(st.sampled_from([*KEYS, "missing", "id", "document_id", "title", "source"]))
    op = draw(st.sampled_from(["eq", "ne", "in", "exists", "gt", "gte", "lt", "lte"]))
    if op == "exists":
        return Condition(key, op, draw(st.booleans()))
    if op == "in":
        return Condition(key, op, draw(st.lists(st.sampled_from(SCALARS), max_size=4)))
    ordered = [v for v in SCALARS if v is not None and not isinstance(v, bool)]
    return Condition(key, op, draw(st.sampled_from(SCALARS if op in {"eq", "ne"} else ordered)))


def engine_of(*batches: Sequence[Passage]) -> Engine:
    """Makes an engine that got its passages in several writes."""
    engine, key = Engine(), 0
    for given_passages in batches:
        keys = range(key, key + len(given_passages))
        engine.apply(add=Batch.of_passages(keys, given_passages, [{}] * len(given_passages)))
        key += len(given_passages)
    return engine


def selected(engine: Engine, *filters: Filter) -> set[str]:
    """Returns the ids of the passages that a mask selects."""
    snapshot = engine.snapshot
    return set(snapshot.ids(snapshot.live_rows(snapshot.mask(*filters))))


@settings(max_examples=100)
@given(
    st.lists(passages(), max_size=6, unique_by=lambda p: p.id),
    st.lists(passages(), max_size=6, unique_by=lambda p: p.id),
    st.lists(st.lists(conditions(), max_size=2), min_size=1, max_size=3),
    st.booleans(),
)
def test_a_mask_is_what_testing_each_passage_gives(
    first: list[Passage],
    second: list[Passage],
    filters: list[list[Condition]],
    compact: bool,  # noqa: FBT001 - drawn
) -> None:
    """Also over several writes, after removals and compaction, and asked again later."""
    known = {p.id for p in first}
    second = [p for p in second if p.id not in known]
    engine = engine_of(first)
    for each in filters:
        assert selected(engine, Filter(*each)) == {
            p.id for p in first if Filter(*each).matches_passage(p)
        }
    keys = range(len(first), len(first) + len(second))
    engine.apply(add=Batch.of_passages(keys, second, [{}] * len(second)), remove_keys=[0, 2])
    if compact:
        engine.compact()
    left = [p for n, p in enumerate(first) if n not in {0, 2}] + second
    for each in filters:
        for _ in range(2):
            assert selected(engine, Filter(*each)) == {
                p.id for p in left if Filter(*each).matches_passage(p)
            }


def test_every_conformance_case_holds_in_one_corpus() -> None:
    """Each case's filter selects its passage or not, whatever other passages there are."""
    engine = engine_of([case.passage for case in FILTER_CASES])
    for case in FILTER_CASES:
        assert (case.passage.id in selected(engine, case.filter)) is case.expected, case.id


def test_ids_that_spell_an_instant_stay_different_ids() -> None:
    """A filter takes them for equal; looking a document up does not."""
    one, other = LABELS[3], LABELS[4]
    assert one
    assert other
    engine = engine_of(
        [Passage("a", id="p", document_id=one), Passage("b", id=other, document_id=other)]
    )
    snapshot = engine.snapshot
    assert snapshot.document_rows([one]).tolist() == [0]
    assert snapshot.document_rows([other]).tolist() == [1]
    assert selected(engine, Filter(Eq("document_id", one))) == {"p", other}
    assert selected(engine, Filter(Eq("id", one))) == {other}


def test_filters_are_joined_and_remembered() -> None:
    engine = engine_of([Passage("t", id=str(n), metadata={"n": n}) for n in range(6)])
    snapshot = engine.snapshot
    assert snapshot.mask(Filter(), Filter()) is None
    assert snapshot.mask_cost() == 0
    late, early = Filter(Gt("n", 1)), Filter(Lt("n", 4))
    assert snapshot.mask_cost(late, early) == 12
    mask = snapshot.mask(late, early)
    assert mask is not None
    assert (mask.rows.tolist(), len(mask)) == ([2, 3], 2)
    assert snapshot.mask_cost(early, late) == 0
    assert snapshot.mask(early & late) is mask


def test_remembered_masks_and_answers_are_bounded() -> None:
    """However many filters are asked, memory stays what it is."""
    engine = engine_of([Passage("t", id=str(n), metadata={"n": n}) for n in range(3)])
    snapshot = engine.snapshot
    for n in range(500):
        assert snapshot.mask(Filter(Gt("n", n))) is not None
    assert len(snapshot._masks) <= 16
    values, _ = snapshot.columns.codes("n") or pytest.fail("no column")
    assert len(values._answers) <= columns_module._CACHED_ANSWERS


def test_new_values_are_tested_when_they_come() -> None:
    """A condition asked before is right for values that were written since."""
    engine = engine_of([Passage("t", id="0", metadata={"n": 1, "s": "a"})])
    asked = [
        Filter(Gt("n", 0)),
        Filter(Eq("s", "b")),
        Filter(Ne("s", "b")),
        Filter(In("n", [2, True])),
        Filter(Exists("late")),
        Filter(NotExists("late")),
        Filter(Gt("s", "a")),
    ]
    before = [selected(engine, f) for f in asked]
    assert before == [{"0"}, set(), {"0"}, set(), set(), {"0"}, set()]
    more = [
        Passage("t", id="1", metadata={"n": 2, "s": "b"}),
        Passage("t", id="2", metadata={"n": True, "s": None, "late": None}),
    ]
    engine.apply(add=Batch.of_passages([1, 2], more, [{}, {}]))
    assert [selected(engine, f) for f in asked] == [
        {"0", "1"},
        {"1"},
        {"0", "2"},
        {"1", "2"},
        {"2"},
        {"0", "1"},
        {"1"},
    ]


def test_a_mask_of_an_older_state_is_not_touched_by_writes() -> None:
    engine = engine_of([Passage("t", id="0", metadata={"n": 1})])
    snapshot = engine.snapshot
    engine.apply(add=Batch.of_passages([1], [Passage("t", id="1", metadata={"n": 5})], [{}]))
    mask = snapshot.mask(Filter(Gt("n", 0)))
    assert mask is not None
    assert np.array_equal(mask.flags, [True])


ALIKE = (["a", "b", "2024-01-01", ""], [True, False], [0, 1, 2**53], [0.0, -0.0, 1.0])
WRITE = st.one_of(
    *(st.lists(st.sampled_from(some), max_size=40) for some in (*ALIKE, [*chain(*ALIKE), None]))
)


@given(st.lists(WRITE))
def test_values_encoded_together_have_the_codes_of_values_one_by_one(
    writes: list[list[object]],
) -> None:
    """Whether all of a write are of one type, as ids are, or not."""
    together, alone = columns_module.Values(), columns_module.Values()
    for write in writes:
        codes = [code for value in write for code in alone.encode([value])]
        assert together.encode(write) == codes
    assert together.to_json() == alone.to_json()
