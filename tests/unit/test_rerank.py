"""Reranking without an index."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.errors import InvalidSetting, MalformedRanking
from ragchat_retrieval.rerank import Rerank, RerankDefaults, check_scores, rerank
from ragchat_retrieval.values import Candidate, Passage


def candidates(*scores: float) -> list[Candidate]:
    return [Candidate(Passage(f"text {i}", id=f"p{i}"), s) for i, s in enumerate(scores)]


def scorer(*scores):
    return lambda query, candidates: list(scores)


def ids(found) -> list[str]:
    return [candidate.passage.id for candidate in found]


async def test_a_bare_scorer_decides_alone_and_the_cut_comes_last():
    found = await rerank("What is Scope?", candidates(1.0, 0.5), scorer(0.2, 0.9), top_k=1)
    assert [(c.passage.id, c.score) for c in found] == [("p1", 0.9)]


async def test_an_async_scorer_works_alike():
    async def score(query, pool):
        return [0.1, 0.7, 0.3]

    assert ids(await rerank("q", candidates(3, 2, 1), score)) == ["p1", "p2", "p0"]


async def test_equal_scores_keep_the_first_stage_order():
    assert ids(await rerank("q", candidates(3, 2, 1), scorer(0.5, 0.5, 0.5))) == ["p0", "p1", "p2"]


async def test_the_blend_weighs_the_reranker_against_the_relative_first_score():
    step = Rerank(scorer(0.0, 1.0), weight=0.7)
    found = await rerank("q", candidates(2.0, 1.0), step)
    assert [(c.passage.id, round(c.score, 6)) for c in found] == [("p1", 0.85), ("p0", 0.3)]


async def test_what_lies_outside_the_pool_follows_in_its_old_order():
    found = await rerank("q", candidates(4, 3, 2, 1), Rerank(scorer(0.1, 0.4), pool=2))
    assert ids(found) == ["p1", "p0", "p2", "p3"]
    assert [c.score for c in found] == sorted((c.score for c in found), reverse=True)


async def test_a_clear_winner_is_not_reranked():
    calls = []

    def score(query, pool):
        calls.append(len(pool))
        return [1.0] * len(pool)

    step = Rerank(score, margin=0.2)
    assert ids(await rerank("q", candidates(1.0, 0.75), step)) == ["p0", "p1"]
    assert not calls
    await rerank("q", candidates(1.0, 0.81), step)
    await rerank("q", candidates(0.0, -1.0), step)  # a best of 0 or less is never clear
    assert calls == [2, 2]


async def test_a_scorer_may_bring_its_own_defaults():
    seen = []

    class Endpoint:
        rerank_defaults = RerankDefaults(weight=0.7, margin=0.2, least_pool=2)

        async def __call__(self, query, pool):
            seen.append(len(pool))
            return [0.0] * len(pool)

    await rerank("q", candidates(4, 3.9, 3.8, 3.7), Endpoint(), top_k=1)
    await rerank("q", candidates(4, 3.9, 3.8, 3.7), Endpoint(), top_k=3)
    assert seen == [2, 3]


async def test_no_candidates_call_no_scorer():
    assert await rerank("q", [], scorer(1.0)) == ()


@pytest.mark.parametrize(
    "scores",
    [[0.5], [0.5] * 3, [0.5, 1.1], [0.5, -0.1], [0.5, math.nan], [True, 0.5], ["1", 0.5], None, 7],
)
async def test_anything_but_one_score_per_candidate_is_a_malformed_ranking(scores):
    with pytest.raises(MalformedRanking):
        await rerank("q", candidates(2, 1), lambda q, c: scores, top_k=1)


@given(st.lists(st.floats(0, 1)))
def test_valid_scores_pass_unchanged(scores):
    assert check_scores(scores, len(scores)) == scores


@pytest.mark.parametrize("bad", [{"weight": 1.5}, {"margin": -1}, {"pool": 0}])
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(InvalidSetting):
        Rerank(scorer(), **bad)


@pytest.mark.parametrize("meddle", [list.pop, list.reverse, list.clear])
async def test_a_scorer_cannot_move_or_drop_the_candidates_it_is_shown(meddle):
    """Scores given to a list that the scorer has changed would go to other candidates."""

    def score(query, pool):
        meddle(pool)
        return [1.0, 0.0]

    given = candidates(2.0, 1.0)
    with pytest.raises((AttributeError, TypeError)):
        await rerank("q", given, score)
    assert ids(given) == ["p0", "p1"]


@pytest.mark.parametrize("scores", [{0: 1.0, 1: 0.5}, {0.5, 1.0}, {0: 1, 1: 0}.keys()])
def test_scores_that_stand_in_no_order_are_refused(scores):
    with pytest.raises(MalformedRanking, match="sequence"):
        check_scores(scores, 2)


@pytest.mark.parametrize("score", [10**400, -(10**400)])
def test_a_score_too_large_for_a_float_lies_outside(score):
    with pytest.raises(MalformedRanking, match="candidate 1"):
        check_scores([0.5, score], 2)
