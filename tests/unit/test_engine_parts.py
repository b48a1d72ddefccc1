"""The small parts of the engine: string tables, growing arrays, selection."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.engine import Batch, Engine, release
from ragchat_retrieval.engine.growing import Growing
from ragchat_retrieval.engine.matrix import BLOCK
from ragchat_retrieval.engine.segment import Segment
from ragchat_retrieval.engine.select import ranked, top
from ragchat_retrieval.engine.strings import StringTable, Vocabulary
from ragchat_retrieval.pages import room, settled

STRINGS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=12)
# Two different strings with one CRC-32.
COLLIDING = ("plumless", "buckeroo")


@given(STRINGS, STRINGS, st.data())
def test_a_table_finds_strings_and_gives_them_back(
    one: list[str], other: list[str], data: st.DataObject
) -> None:
    """Joined and thinned tables too; a string that occurs twice is found at both positions."""
    table = StringTable.joined([StringTable.of(one), StringTable.of(other)])
    strings = [*one, *other]
    kept = sorted(data.draw(st.sets(st.integers(0, max(len(strings) - 1, 0))))) if strings else []
    for case, expected in (
        (table, strings),
        (table.take(np.array(kept, np.int64)), [strings[n] for n in kept]),
    ):
        assert case.all() == expected
        assert len(case) == len(expected)
        assert case.get(np.arange(len(expected))) == expected
        wanted = [string.encode() for string in (*expected, "missing string")]
        places = [[n for n, s in enumerate(expected) if s.encode() == w] for w in wanted]
        assert case.find(wanted) == places
        assert case.first(wanted).tolist() == [p[0] if p else -1 for p in places]


def test_strings_with_one_hash_are_told_apart() -> None:
    table = StringTable.of(COLLIDING)
    assert len(set(table.hashes.tolist())) == 1
    assert table.first([s.encode() for s in COLLIDING]).tolist() == [0, 1]
    assert table.find([COLLIDING[1].encode()]) == [[1]]
    assert StringTable.of(COLLIDING[:1]).first([COLLIDING[1].encode()]).tolist() == [-1]


@pytest.mark.parametrize("most", [0, 100])
def test_strings_are_the_same_however_often_and_in_whatever_order_they_are_asked_for(most):
    names = [f"§{n}" for n in range(9)]
    table = StringTable.of(names)
    with patch("ragchat_retrieval.engine.strings._MOST_KEPT", most):
        for wanted in ([3, 3, 8], [], [8, 0, 3], list(range(9))):
            found = table.get(np.array(wanted, np.int64))
            assert found == [names[at] for at in wanted]
        first, again = table.get(np.array([4, 4]))
        assert (first is again) == bool(most)


def test_a_vocabulary_numbers_terms_once() -> None:
    vocabulary = Vocabulary()
    assert vocabulary.assign(["a", "b", "a"]).tolist() == [0, 1, 0]
    assert vocabulary.lookup(["b", "c", "\ud800"]).tolist() == [1, -1, -1]
    assert vocabulary.assign(["c"]).tolist() == [2]


def test_a_vocabulary_goes_on_from_a_table() -> None:
    table, ids = Vocabulary().table()
    assert (len(table), len(ids)) == (0, 0)
    vocabulary = Vocabulary(StringTable.of(["x", "y"]), np.array([7, 3], np.int32))
    assert vocabulary.lookup(["y", "x", "z"]).tolist() == [3, 7, -1]
    assert vocabulary.assign(["y", "new", "x", "new"]).tolist() == [3, 8, 7, 8]
    assert vocabulary.lookup(["y", "x", "new", "z"]).tolist() == [3, 7, 8, -1]
    table, ids = vocabulary.table()
    assert dict(zip(table.all(), ids.tolist(), strict=True)) == {"x": 7, "y": 3, "new": 8}


def test_a_vocabulary_numbers_many_terms_as_few() -> None:
    """Whether a term stands in the dict or in the table, and however often it moved there."""
    vocabulary = Vocabulary()
    expected: dict[str, int] = {}
    random = np.random.default_rng(1)
    for size in (20_000, 20_000, 10, 90_000, 5_000):
        terms = [f"t{n}" for n in random.integers(0, 100_000, size).tolist()]
        ids = [expected.setdefault(term, len(expected)) for term in terms]
        assert vocabulary.assign(terms).tolist() == ids
        assert vocabulary.lookup([*terms[:99], "new"]).tolist() == [*ids[:99], -1]
    half = np.arange(0, len(expected), 3, dtype=np.int32)
    pruned = vocabulary.pruned(half)
    assert pruned.lookup([*expected]).tolist() == [
        -1 if id_ % 3 else id_ for id_ in expected.values()
    ]
    assert pruned.assign(["new", "newer"]).tolist() == [len(expected), len(expected) + 1]
    table, ids_of = vocabulary.table()
    assert dict(zip(table.all(), ids_of.tolist(), strict=True)) == expected


@pytest.mark.parametrize("again", [{"new": 8}, {"x": 9, "new": 8}])
def test_a_named_vocabulary_knows_its_terms_in_any_form(again: dict[str, int]) -> None:
    """Whatever was named last, before and after each table that is made for a file."""
    vocabulary = Vocabulary(named=True)
    expected: dict[str, int] = {}
    for names in ({"x": 7, "y": 3}, {}, again, {"ź": 0}):
        vocabulary.name(names)
        expected |= names
        for _ in range(2):
            assert vocabulary.lookup([*expected, "z"]).tolist() == [*expected.values(), -1]
            table, ids = vocabulary.table()
            assert dict(zip(table.all(), ids.tolist(), strict=True)) == expected


@given(st.lists(st.lists(st.integers(0, 99), max_size=9), max_size=8))
def test_views_of_a_growing_array_never_change(parts: list[list[int]]) -> None:
    growing = Growing(np.zeros(0, np.int64))
    views, length = [], 0
    for part in parts:
        views.append(growing.extended(length, np.array(part, np.int64)))
        length += len(part)
    for number, view in enumerate(views):
        assert view.tolist() == [value for part in parts[: number + 1] for value in part]


def test_what_a_failed_write_appended_is_overwritten() -> None:
    growing = Growing(np.array([1, 2]))
    growing.extended(2, np.array([8, 9]))
    assert growing.extended(2, np.array([3])).tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.object_])
@pytest.mark.parametrize("size", [3, 2**20])
def test_room_can_be_filled_whatever_its_size(size: int, dtype: type[np.generic]) -> None:
    array = room((size, 2), dtype)
    array[:] = 7
    assert array.shape == (size, 2)
    assert array.dtype == dtype
    assert (array == 7).all()
    assert array[1:].base is array


@pytest.mark.parametrize("size", [3, 2**20])
def test_settled_values_are_the_same_in_a_place_of_their_own(size: int) -> None:
    values = np.arange(size)
    kept = settled(values)
    assert np.array_equal(kept, values)
    assert kept.dtype == values.dtype
    assert (kept is values) is (size == 3)


def test_releasing_an_array_with_pages_of_its_own_keeps_its_values() -> None:
    array = room((2**20,), np.float32)
    array[:] = 7
    release(array[10:])
    array.flags.writeable = False
    release(array)
    assert (array == 7).all()


@given(st.lists(st.lists(st.dictionaries(st.integers(0, 40), st.integers(1, 300))), min_size=1))
def test_merged_segments_hold_the_postings_of_all(
    parts: list[list[dict[int, int]]],
) -> None:
    """Whatever the number of postings that are merged at a time."""
    segments, start, expected = [], 0, []
    for part in parts:
        triples = sorted(
            (term, start + row, count)
            for row, counts in enumerate(part)
            for term, count in counts.items()
        )
        terms = sorted({term for term, _, _ in triples})
        offsets = np.searchsorted([term for term, _, _ in triples], terms)
        numbers = [np.array([t[at] for t in triples], np.int32) for at in (1, 2)]
        segments.append(
            Segment(
                start,
                start + len(part),
                StringTable.of([f"p{start + row}" for row in range(len(part))]),
                np.array(terms, np.int32),
                np.append(offsets, len(triples)).astype(np.int64),
                numbers[0],
                numbers[1].astype(np.uint16),
            )
        )
        start += len(part)
        expected += triples
    expected.sort()
    for together in (1, 5, 2**18):
        with patch("ragchat_retrieval.engine.segment._TOGETHER", together):
            merged = Segment.merged(segments)
        present = np.repeat(merged.terms, np.diff(merged.offsets)).tolist()
        found = zip(present, merged.rows.tolist(), merged.counts.tolist(), strict=True)
        assert list(found) == expected
        assert (np.diff(merged.terms) > 0).all()
        assert merged.ids.all() == [f"p{row}" for row in range(start)]


def test_compacting_without_removals_copies_no_vectors_until_blocks_are_many() -> None:
    engine = Engine()
    for number in range(30):
        size = BLOCK if number == 0 else 1
        vectors = np.full((size, 2), number, np.float32)
        before = engine.apply(add=_batch(number * BLOCK, size, vectors))
        compacted = engine.compact()
        kept = compacted.matrix.blocks
        assert kept is before.matrix.blocks or len(kept) <= 2
        assert np.array_equal(np.concatenate(kept), np.concatenate(before.matrix.blocks))
    assert len(kept) < 15


SCORES = st.lists(st.integers(-3, 6).map(float), max_size=60)


@given(SCORES, st.integers(1, 70), st.sampled_from([-np.inf, 0.0]), st.sampled_from([0.0, 1.0]))
def test_selection_keeps_the_best_and_all_ties(
    scores: list[float], limit: int, floor: float, slack: float
) -> None:
    """Everything above the floor that is at most `slack` below the cut, and nothing else."""
    for repeat in (1, 200):
        array = np.tile(np.array(scores), repeat)
        eligible = np.sort(array[array > floor])[::-1]
        cut = eligible[limit - 1] - slack if len(eligible) > limit else -np.inf
        expected = np.flatnonzero((array > floor) & (array >= cut))
        assert top(array, limit, floor=floor, slack=slack).tolist() == expected.tolist()


@given(SCORES, st.integers(1, 70))
def test_ranking_orders_by_score_then_name(scores: list[float], limit: int) -> None:
    names = [f"n{(7 * n) % 61:02}" for n in range(len(scores))]

    def names_of(rows: np.ndarray) -> list[str]:
        return [names[row] for row in rows.tolist()]

    rows, kept = ranked(np.arange(len(scores)), np.array(scores), limit, names_of)
    expected = sorted(range(len(scores)), key=lambda n: (-scores[n], names[n]))[:limit]
    assert rows.tolist() == expected
    assert kept.tolist() == [scores[n] for n in expected]


def test_names_are_asked_only_where_scores_are_equal() -> None:
    """So that ordering costs nothing for each row that is not tied."""
    asked: list[int] = []

    def names_of(rows: np.ndarray) -> list[str]:
        asked.extend(rows.tolist())
        return [str(row) for row in rows.tolist()]

    rows, _ = ranked(np.arange(5), np.array([1.0, 5.0, 3.0, 3.0, 2.0]), 3, names_of)
    assert rows.tolist() == [1, 2, 3]
    assert asked == [2, 3]


def _batch(first_key: int, size: int, vectors: np.ndarray) -> Batch:
    ids = [f"p{first_key + row}" for row in range(size)]
    return Batch(
        keys=range(first_key, first_key + size),
        ids=ids,
        document_ids=ids,
        titles=[None] * size,
        sources=[None] * size,
        metadata=[{}] * size,
        terms=[{"word": 1}] * size,
        vectors=vectors,
    )
