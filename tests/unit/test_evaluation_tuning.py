"""Tuning, against searches made one by one with each setting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval import RRF, Document, Query, Rerank, Weighted, in_memory
from ragchat_retrieval.chunking import WholeText
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import InvalidSetting, MalformedRanking
from ragchat_retrieval.evaluation import Grid, Metric, Setting, Topic, tune
from ragchat_retrieval.evaluation.tuning import split
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.rerank import RerankDefaults

WORDS = ["apple", "banana", "cherry", "damson", "elder", "fig", "grape", "hazel", "iris", "juniper"]
TOPICS = tuple(
    Topic(f"t{i}", Query(f"{WORDS[i % 10]} {WORDS[(i + 3) % 10]}"), {f"d{i}": 1, f"d{i + 7}": 2})
    for i in range(12)
)
GRID = Grid(keyword=(0.0, 0.2, 0.6, 1.0), candidates=(3, 8))


@pytest.fixture
async def index():
    async with in_memory(64) as index:
        index.splitter = WholeText()
        await index.ingest(
            *(
                Document(
                    f"d{n}", " ".join(WORDS[(n * step) % 10] for step in (1, 2, 3, 7)) + f" w{n}"
                )
                for n in range(40)
            )
        )
        yield index


def by_length(query, candidates):
    """Scores a passage by itself, as a cross-encoder does."""
    return [(len(c.passage.text) * 7 % 11) / 11 for c in candidates]


async def measured(index, setting, topics, metric, **options):
    values = []
    for topic in topics:
        result = await index.search(
            topic.query,
            candidates=setting.candidates,
            fusion=setting.fusion,
            **options,
        )
        values.append(metric([c.passage.document_id for c in result], topic.grades))
    return float(np.mean(values))


def chosen(topics, ids):
    return [topic for topic in topics if topic.id in ids]


class Halting(HashingEmbedder):
    """Reads some questions worse than others."""

    def legibility(self, text):
        return (1 + len(text) % 4) / 4


@pytest.mark.parametrize("embedder", [HashingEmbedder(64), Halting(64)])
async def test_every_trial_has_the_value_of_searches_with_its_setting(index, embedder):
    index.embedder = embedder
    metric = Metric.of("ndcg@5")
    tuning = await tune(index, TOPICS, grid=GRID, metric=metric)
    assert len(tuning.trials) == 8
    for trial in tuning.trials:
        expected = await measured(index, trial.setting, chosen(TOPICS, tuning.tuned_on), metric)
        assert trial.value == pytest.approx(expected), trial.setting
    assert tuning.best == tuning.trials[0].setting
    assert tuning.trials[0].value == max(trial.value for trial in tuning.trials)
    held_out = chosen(TOPICS, tuning.held_out)
    default = await measured(index, tuning.default, held_out, metric)
    best = await measured(index, tuning.best, held_out, metric)
    assert (tuning.default_value, tuning.best_value) == pytest.approx((default, best))
    assert tuning.gain.mean == pytest.approx(best - default)


async def test_rerank_weight_and_margin_are_tuned_as_searches_would_rerank(index):
    metric = Metric.of("mrr@5")
    grid = Grid(keyword=(0.3, 1.0), candidates=(8,), rerank_weight=(0.5, 1.0), margin=(None, 0.1))
    tuning = await tune(index, TOPICS, grid=grid, metric=metric, rerank=Rerank(by_length, pool=6))
    assert len(tuning.trials) == 8
    for trial in tuning.trials:
        s = trial.setting
        step = Rerank(by_length, weight=s.rerank_weight, margin=s.margin, pool=6)
        topics = chosen(TOPICS, tuning.tuned_on)
        expected = await measured(index, s, topics, metric, rerank=step)
        assert trial.value == pytest.approx(expected), s
        assert 0 <= trial.scored <= 6
        assert s.margin is not None or trial.scored == 6


async def test_the_weight_of_titles_is_tuned_where_it_is_asked_for():
    """Titles name what is asked for, and the texts mention it everywhere."""
    metric = Metric.of("ndcg@5")
    topics = [Topic(f"t{n}", Query(word), {f"d{n}": 1}) for n, word in enumerate(WORDS)]
    async with in_memory(64) as index:
        index.splitter = WholeText()
        await index.ingest(
            *(
                Document(f"d{n}", " ".join(WORDS) + f" {WORDS[(n + 1) % 10]}" * 2, title=word)
                for n, word in enumerate(WORDS)
            )
        )
        grid = Grid(keyword=(0.2, 0.9), title=(0.0, 0.3, 0.8), candidates=(4, 10))
        tuning = await tune(index, topics, grid=grid, metric=metric)
        assert {(t.setting.keyword, t.setting.title) for t in tuning.trials} == {
            (0.2, 0.0),
            (0.2, 0.3),
            (0.2, 0.8),
            (0.9, 0.0),
        }
        for trial in tuning.trials:
            expected = await measured(index, trial.setting, chosen(topics, tuning.tuned_on), metric)
            assert trial.value == pytest.approx(expected), trial.setting
        assert tuning.best.title > tuning.default.title == 0.0
        index.fusion = Weighted(0.2, title=0.4)
        beaten = await tune(index, topics, grid=Grid(keyword=(0.2,)), metric=metric)
        assert beaten.default.fusion == index.fusion
        assert beaten.default_value == pytest.approx(
            await measured(index, beaten.default, chosen(topics, beaten.held_out), metric)
        )
        given = await tune(index, topics, grid=grid, keyword=0.9)
        assert (given.default.keyword, given.default.title) == (0.9, 0.0)


async def test_a_reranker_is_asked_once_per_question_and_passage(index):
    seen = []

    def counting(query, candidates):
        seen.extend((query.text, c.passage.id) for c in candidates)
        return by_length(query, candidates)

    await tune(index, TOPICS, grid=GRID, rerank=counting)
    assert len(seen) == len(set(seen))


async def test_the_default_is_what_the_index_does(index):
    tuning = await tune(index, TOPICS, grid=GRID)
    assert tuning.default == Setting(keyword=0.3, candidates=100)
    index.fusion = Weighted(0.7)
    assert (await tune(index, TOPICS, grid=GRID, top_k=30)).default == Setting(
        keyword=0.7, candidates=300
    )
    assert (await tune(index, TOPICS, grid=GRID, keyword=0.4)).default.keyword == 0.4
    index.fusion = RRF()
    assert (await tune(index, TOPICS, grid=GRID)).default.keyword == 0.3


async def test_the_default_of_a_reranker_is_its_own(index):
    class Scorer:
        rerank_defaults = RerankDefaults(weight=0.7, margin=0.2, least_pool=10)

        def __call__(self, query, candidates):
            return by_length(query, candidates)

    plain = await tune(index, TOPICS, grid=GRID, rerank=Scorer())
    assert (plain.default.rerank_weight, plain.default.margin) == (0.7, 0.2)
    given = await tune(index, TOPICS, grid=GRID, rerank=Rerank(Scorer(), weight=0.4, margin=0.0))
    assert (given.default.rerank_weight, given.default.margin) == (0.4, 0.0)


async def test_among_equals_the_cheaper_and_then_the_nearer_to_the_default_comes_first(index):
    impossible = [Topic(t.id, t.query, {"nowhere": 1}) for t in TOPICS]
    grid = Grid(keyword=(0.9, 0.4, 0.3), candidates=(50, 100), rerank_weight=(1.0,))
    tuning = await tune(index, impossible, grid=grid)
    assert tuning.best == tuning.default
    assert tuning.trials[1].setting.candidates == 50
    assert tuning.trials[1].setting.keyword == 0.3
    assert tuning.recommended == tuning.default
    reranked = await tune(index, impossible, grid=Grid(margin=(None, 0.0)), rerank=by_length)
    assert reranked.trials[0].scored == 0.0


async def test_a_choice_is_recommended_if_it_is_clearly_better_on_topics_it_has_not_seen(index):
    """The vector lane is asked for something else, so that only keywords find anything."""
    await index.ingest(*(Document(f"k{n}", f"unique{n} {WORDS[n % 10]}") for n in range(30)))
    topics = [
        Topic(f"t{n}", Query(f"unique{n}", semantic="zebra"), {f"k{n}": 1}) for n in range(30)
    ]
    tuning = await tune(index, topics, grid=Grid(keyword=(0.0, 1.0)), keyword=0.0)
    assert tuning.gain.low > 0
    assert tuning.recommended == tuning.best == Setting(keyword=1.0, candidates=100)


async def test_with_one_lane_the_weight_stays(index):
    async with HybridIndex(splitter=WholeText()) as keywords:
        await keywords.ingest(*(Document(f"d{n}", WORDS[n % 10]) for n in range(20)))
        tuning = await tune(keywords, TOPICS, grid=GRID)
    assert {trial.setting.keyword for trial in tuning.trials} == {0.3}


async def test_a_question_that_the_embedder_cannot_read_keeps_no_weight_from_being_tried(index):
    """But for 0: a search with that would compare the question by vectors that mean nothing."""

    class Latin(HashingEmbedder):
        def legibility(self, text):
            return text.isascii()

    index.embedder = Latin(64)
    metric = Metric.of("ndcg@5")
    topics = (*TOPICS, *(Topic(f"u{n}", Query(f"ã {WORDS[n]}"), {f"d{n}": 1}) for n in range(6)))
    tuning = await tune(index, topics, grid=GRID, metric=metric)
    assert {trial.setting.keyword for trial in tuning.trials} == {0.2, 0.6, 1.0}
    for trial in tuning.trials:
        expected = await measured(index, trial.setting, chosen(topics, tuning.tuned_on), metric)
        assert trial.value == pytest.approx(expected), trial.setting


async def test_topics_are_asked_as_the_asker_says_and_progress_ends_at_1(index):
    shares = []

    async def ask(topic):
        return Query("iris")

    tuning = await tune(index, TOPICS, grid=GRID, ask=ask, on_progress=shares.append)
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert set(tuning.tuned_on) | set(tuning.held_out) == {topic.id for topic in TOPICS}


async def test_scores_that_break_their_contract_are_an_error(index):
    with pytest.raises(MalformedRanking):
        await tune(index, TOPICS, grid=GRID, rerank=lambda query, candidates: [0.5])


@pytest.mark.parametrize(
    "values",
    [
        {"keyword": ()},
        {"keyword": (1.5,)},
        {"candidates": (0,)},
        {"rerank_weight": (float("nan"),)},
        {"margin": (-0.1,)},
        {"title": ()},
        {"title": (-0.1,)},
        {"title": (1.0,)},
        {"keyword": (0.8,), "title": (0.3,)},
    ],
)
def test_a_grid_of_impossible_values_is_refused(values):
    with pytest.raises(InvalidSetting):
        Grid(**values)


@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=40).filter(
        lambda groups: len(set(groups)) > 1
    ),
    st.floats(0.01, 0.99),
    st.integers(0, 9),
)
def test_conversations_are_never_split_and_no_part_is_empty(groups, share, seed):
    topics = [
        Topic(str(n), Query("x"), {"d": 1}, messages=({"role": "user", "content": str(group)},))
        for n, group in enumerate(groups)
    ]
    training, test = split(topics, share, seed=seed)
    assert training
    assert test
    assert {t.group for t in training}.isdisjoint(t.group for t in test)
    assert sorted([*training, *test], key=topics.index) == topics
    assert split(topics, share, seed=seed) == (training, test)


def test_what_cannot_be_split_is_refused():
    with pytest.raises(InvalidSetting, match="held_out"):
        split(TOPICS, 1.0)
    with pytest.raises(InvalidSetting, match="topics"):
        split(TOPICS[:1], 0.5)
