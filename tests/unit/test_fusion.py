"""Fusion of the lanes."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.fusion import (
    RRF,
    Fused,
    Hits,
    LaneResult,
    Order,
    Weighted,
    fuse_orders,
    fuse_rankings,
    fuse_wordings,
)
from ragchat_retrieval.ports import Hit

IDS = st.sampled_from("abcdefgh")
SCORES = st.dictionaries(IDS, st.floats(-1, 50, allow_nan=False), max_size=8)


def lane(scores: dict[str, float], completed: dict[str, float] | None = None) -> LaneResult:
    hits = sorted((Hit(i, s) for i, s in scores.items()), key=lambda h: (-h.score, h.passage_id))
    return LaneResult(hits, completed or {})


def fused(fusion, keyword, vector):
    return {f.passage_id: f.score for f in fusion.fuse(keyword, vector)}


def test_a_missing_score_contributes_exactly_nothing_without_completion():
    scores = fused(Weighted(0.5), lane({"a": 1, "b": 2}), lane({"a": 0.2, "b": 0.3, "c": 0.9}))
    assert scores == pytest.approx(
        {"a": 0.5 * 0.5 + 0.5 * 0.2 / 0.9, "b": 0.5 + 0.5 * 0.3 / 0.9, "c": 0.5}
    )


def test_completion_gives_a_candidate_its_true_score_in_the_other_lane():
    scores = fused(Weighted(0.3), lane({"a": 4}, {"b": 2}), lane({"b": 0.8}, {"a": 0.4}))
    assert scores == pytest.approx({"a": 0.3 + 0.7 * 0.5, "b": 0.3 * 0.5 + 0.7})


def test_a_lone_lane_has_the_whole_weight():
    assert fused(Weighted(0.3), lane({"a": 4, "b": 2}), None) == {"a": 1.0, "b": 0.5}
    assert fused(Weighted(0.3), None, lane({"a": 0.5, "b": 0.25})) == {"a": 1.0, "b": 0.5}


def test_what_a_lane_loses_that_is_not_to_be_trusted_the_words_get():
    keyword = lane({"a": 4}, {"b": 2})
    vector = replace(lane({"b": 0.8}, {"a": 0.4}), trust=0.5)
    scores = fused(Weighted(0.3), keyword, vector)
    assert scores == pytest.approx({"a": 0.65 + 0.35 * 0.5, "b": 0.65 * 0.5 + 0.35})
    titles = {
        f.passage_id: f.title for f in Weighted(0.3, title=0.2).fuse(keyword, vector, {"a": 1})
    }
    assert titles == {"a": 0.2, "b": 0.0}


@given(SCORES, SCORES, st.floats(0, 1), st.floats(0, 1))
def test_trust_is_a_lower_weight_of_the_lane(keyword, vector, weight, trust):
    """With all of it nothing changes, to the last bit; with none words have all the weight."""
    rule = Weighted(weight)
    told = replace(lane(vector), trust=trust)
    same = Weighted(min(1.0, 1.0 - rule.vector * trust))
    assert fused(rule, lane(keyword), told) == pytest.approx(
        fused(same, lane(keyword), lane(vector)), abs=1e-12
    )
    whole = replace(told, trust=1.0)
    assert fused(rule, lane(keyword), whole) == fused(rule, lane(keyword), lane(vector))
    nothing = Weighted(weight).fuse(lane(keyword), replace(told, trust=0.0))
    assert all(item.vector == 0.0 for item in nothing)
    assert fused(rule, None, told) == fused(rule, None, lane(vector))


@pytest.mark.parametrize("scores", [{"a": 3.0}, {"a": 3.0, "b": 3.0}, {}])
def test_single_equal_or_no_scores_divide_by_nothing(scores):
    result = fused(Weighted(0.5), lane(scores), lane({"z": 0.0}))
    assert result == {**dict.fromkeys(scores, 0.5), "z": 0.0}


def test_a_lane_whose_best_is_not_positive_contributes_nothing():
    assert fused(Weighted(0.5), lane({"a": 1.0}), lane({"a": -0.2, "b": -0.1})) == {
        "a": 0.5,
        "b": 0.0,
    }


def test_a_lane_of_weight_zero_is_not_wanted():
    assert Weighted(0.0).lanes == (False, True)
    assert Weighted(1.0).lanes == (True, False)
    assert Weighted(0.3).lanes == RRF().lanes == (True, True)


@pytest.mark.parametrize("weight", [-0.1, 1.1, math.nan, math.inf])
def test_a_weight_outside_zero_to_one_is_refused(weight):
    with pytest.raises(InvalidSetting, match="keyword"):
        Weighted(weight)


@given(SCORES, SCORES, st.floats(0, 1))
def test_fused_scores_are_finite_and_lie_between_zero_and_one(keyword, vector, weight):
    for item in Weighted(weight).fuse(lane(keyword), lane(vector)):
        assert 0.0 <= item.score <= 1.0 + 1e-12
        assert item.score == pytest.approx(item.keyword + item.vector)


@given(SCORES, SCORES)
def test_the_order_is_by_score_then_by_id(keyword, vector):
    for fusion in (Weighted(0.3), RRF()):
        order = [(-f.score, f.passage_id) for f in fusion.fuse(lane(keyword), lane(vector))]
        assert order == sorted(order)


def test_reciprocal_ranks_count_from_one_and_absence_is_nothing():
    keyword = LaneResult([Hit("p", 9), Hit("q", 8), Hit("r", 7)])
    vector = LaneResult([Hit("s", 0.9), Hit("t", 0.8), Hit("r", 0.7)])
    order = RRF().fuse(keyword, vector)
    assert [f.passage_id for f in order] == ["r", "p", "s", "q", "t"]
    assert order[0].score == pytest.approx(2 / 63)
    assert order[1].score == order[2].score == pytest.approx(1 / 61)


@pytest.mark.parametrize("k", [0, -5, math.nan, math.inf, -math.inf])
def test_a_constant_that_makes_no_sense_means_sixty(k):
    assert RRF(k) == RRF(60)


def test_an_empty_lane_leaves_the_other_one():
    hits = [Hit("a", 2), Hit("b", 1)]
    assert [f.passage_id for f in RRF().fuse(LaneResult(()), LaneResult(hits))] == ["a", "b"]


@given(SCORES, SCORES, st.dictionaries(IDS, st.floats(0, 1), max_size=4))
def test_fused_parts_are_those_of_the_lanes_and_add_up_to_the_last_bit(keyword, vector, titles):
    rule = Weighted(0.3, title=0.2)
    order = rule.fuse(lane(keyword), lane(vector), titles)
    alone = [rule.fuse(lane(keyword), LaneResult(()), {}), rule.fuse(None, lane(vector))]
    lexical, semantic = ({f.passage_id: f for f in each} for each in alone)
    assert {f.passage_id for f in order} == keyword.keys() | vector.keys()
    for item in order:
        id_ = item.passage_id
        assert item.keyword == (lexical[id_].keyword if id_ in keyword else 0.0)
        share = semantic[id_].vector if id_ in semantic else 0.0
        assert item.vector == pytest.approx(rule.vector * share, rel=1e-12)
        assert item.title == 0.2 * titles.get(id_, 0.0)
        assert item.score == item.keyword + item.vector + item.title


@pytest.mark.parametrize("best", [5e-324, 1e-310, sys.float_info.max])
@pytest.mark.parametrize("weight", [0.3, 0.5, 0.7])
def test_a_lane_s_best_has_the_lane_s_whole_weight_however_small_or_large_it_is(best, weight):
    parts = Weighted(weight).fuse(lane({"a": best}), lane({"a": best}))[0]
    assert (parts.keyword, parts.vector) == (weight, 1.0 - weight)


@given(SCORES, st.slices(8))
def test_hits_as_columns_are_the_same_hits(scores, part):
    plain = lane(scores).hits
    columns = Hits.of(plain)
    assert Hits.of(columns) is columns
    assert [*columns] == plain
    assert [*columns[part]] == plain[part]
    assert [columns[n] for n in range(len(columns))] == plain
    one, other = LaneResult(plain, {"z": 1.0}), LaneResult(columns, {"z": 1.0})
    assert one.scores() == other.scores()
    assert one.ranks() == other.ranks()
    assert one.completed_by({"a": 1.0}).completed == other.completed_by({"a": 1.0}).completed


@given(st.lists(st.lists(IDS, max_size=6, unique=True), min_size=1, max_size=4), st.slices(8))
def test_a_passage_of_several_orders_has_the_parts_that_the_first_gives_it(rankings, part):
    rows = [[Fused(id_, 1.0, n, -n) for id_ in row] for n, row in enumerate(rankings)]
    order = fuse_orders([Order.of(row) for row in rows])
    scores = fuse_wordings(rankings)
    first = {item.passage_id: item for row in reversed(rows) for item in row}
    expected = [first[id_].rescored(score) for id_, score in scores.items()]
    assert [*order] == expected
    assert [*order[part]] == expected[part]
    assert Order.of(order) is order
    assert len(order) == len(expected)


@given(st.lists(IDS, max_size=8, unique=True), st.lists(IDS, max_size=8, unique=True))
def test_reciprocal_ranks_of_the_lanes_add_up_to_the_score(keyword, vector):
    words, meaning = ([Hit(id_, 1.0) for id_ in ids] for ids in (keyword, vector))
    order = RRF().fuse(LaneResult(words), LaneResult(meaning))
    assert {item.passage_id for item in order} == {*keyword, *vector}
    for item in order:
        id_ = item.passage_id
        assert item.keyword == (1 / (61 + keyword.index(id_)) if id_ in keyword else 0.0)
        assert item.vector == (1 / (61 + vector.index(id_)) if id_ in vector else 0.0)
        assert item.score == item.keyword + item.vector


def test_a_repeated_id_counts_where_it_stands_first():
    assert fuse_rankings([["a", "b", "a", "c"]]) == {"a": 1 / 61, "b": 1 / 62, "c": 1 / 63}
    hits = [Hit("a", 3), Hit("b", 2), Hit("a", 2), Hit("c", 1)]
    order = RRF().fuse(LaneResult(hits), LaneResult(hits))
    assert order.scores == {"a": 2 / 61, "b": 2 / 62, "c": 2 / 63}
    assert fuse_orders([Order.of([*order, order[0]])]).ids == ["a", "b", "c"]


def test_every_rank_of_a_long_ranking_counts():
    ids = [f"{n:04}" for n in range(2_000)]
    assert fuse_rankings([ids]) == {id_: 1 / (61 + n) for n, id_ in enumerate(ids)}


@given(
    st.lists(st.lists(IDS, max_size=6), min_size=1, max_size=4),
    st.integers(1, 100),
)
def test_reciprocal_rank_fusion_equals_its_definition(rankings, k):
    weights = [2] + [1] * (len(rankings) - 1)
    expected: dict[str, Fraction] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        seen: list[str] = []
        for id_ in ranking:
            if id_ not in seen:
                seen.append(id_)
                expected[id_] = expected.get(id_, Fraction()) + Fraction(weight, k + len(seen))
    got = fuse_rankings(rankings, weights=weights, k=k)
    assert got == pytest.approx({id_: float(score) for id_, score in expected.items()})
