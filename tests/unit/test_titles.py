"""Titles and file names as a third signal of fusion."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.evaluation import evaluate
from ragchat_retrieval.evaluation.collection import Topic
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.fusion import LaneResult, Weighted
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.lexical import DEFAULT_ANALYZER, idf
from ragchat_retrieval.policy import Policy, StagePolicy
from ragchat_retrieval.ports import Hit, TermCounts
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.titles import file_name, title_shares
from ragchat_retrieval.values import Document, Passage, Query

SHARES = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), max_size=6)
SCORES = st.dictionaries(st.sampled_from("abcdef"), st.floats(-1, 50), max_size=6)


def lane(scores: dict[str, float]) -> LaneResult:
    return LaneResult(
        sorted((Hit(*item) for item in scores.items()), key=lambda hit: (-hit.score, *hit))
    )


def shares(question: str, counts: TermCounts | None = None, **passages: Passage) -> dict:
    return title_shares(DEFAULT_ANALYZER.weights(question), passages, counts, DEFAULT_ANALYZER)


async def index_of(*documents: Document, **settings) -> HybridIndex:
    settings.setdefault("embedder", HashingEmbedder(64))
    index = HybridIndex(**settings)
    await index.ingest(*documents)
    return index


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("docs/go-build.md", "go-build.md"),
        ("C:\\notes\\Leave policy.docx", "Leave policy.docx"),
        ("C#.md", "C#.md"),
        ("https://example.org/guide/caf%C3%A9.html?page=2#top", "café.html"),
        ("https://example.org/", ""),
        ("https://[broken/path", ""),
        ("folder/", "folder"),
        ("", ""),
    ],
)
def test_the_file_name_is_the_last_part_of_a_path_or_address(source, name):
    assert file_name(source) == name


def test_terms_count_where_they_stand_in_title_or_file_name_stemmed_as_everywhere():
    found = shares(
        "caching builds of modules",
        title=Passage("x", title="The build cache"),
        file=Passage("x", source="notes/build_cache.md"),
        both=Passage("x", title="Module", source="a/builds.md"),
        folder=Passage("x", source="build/cache/module/readme.md"),
        none=Passage("x"),
    )
    assert found == {
        "title": pytest.approx(2 / 3),
        "file": pytest.approx(2 / 3),
        "both": pytest.approx(2 / 3),
        "folder": 0.0,
        "none": 0.0,
    }


def test_a_rare_term_is_more_of_the_question_than_a_common_one():
    counts = TermCounts(100, {"build": 80, "cach": 2})
    common, rare = idf(100, 80), idf(100, 2)
    found = shares(
        "build cache", counts, a=Passage("x", title="build"), b=Passage("x", title="cache")
    )
    assert found["a"] == pytest.approx(common / (common + rare))
    assert found["b"] == pytest.approx(rare / (common + rare))


def test_a_question_without_terms_has_no_share_anywhere():
    assert shares("the of", a=Passage("x", title="the of")) == {"a": 0.0}


def test_three_weights_add_up_to_one():
    fused = Weighted(0.3, title=0.2).fuse(
        lane({"a": 4.0, "b": 2.0}), lane({"b": 0.8, "a": 0.4}), {"a": 0.5, "b": 0.0, "c": 1.0}
    )
    assert [(f.passage_id, f.score) for f in fused] == [
        ("a", pytest.approx(0.3 + 0.5 * 0.5 + 0.2 * 0.5)),
        ("b", pytest.approx(0.3 * 0.5 + 0.5)),
    ]
    assert [f.title for f in fused] == [pytest.approx(0.1), 0.0]
    assert Weighted(0.3, title=0.2).vector == pytest.approx(0.5)


def test_a_lone_lane_has_the_weight_of_both():
    for lanes in [(lane({"a": 3.0}), None), (None, lane({"a": 0.5}))]:
        [found] = Weighted(0.3, title=0.2).fuse(*lanes, {"a": 0.5})
        assert found.score == pytest.approx(0.8 + 0.1)


def test_titles_that_are_not_known_leave_their_weight_to_the_lanes():
    keyword, vector = lane({"a": 4.0, "b": 2.0}), lane({"b": 0.8, "a": 0.4})
    scores = [f.score for f in Weighted(0.24, title=0.2).fuse(keyword, vector)]
    assert scores == pytest.approx([f.score for f in Weighted(0.3).fuse(keyword, vector)])


@given(SCORES, SCORES, st.none() | SHARES, st.floats(0, 1), st.floats(0, 0.99))
def test_scores_lie_between_zero_and_one_and_are_the_sum_of_their_parts(k, v, t, share, title):
    for item in Weighted(share * (1 - title), title=title).fuse(lane(k), lane(v), t):
        assert 0.0 <= item.score <= 1.0 + 1e-9
        assert item.score == pytest.approx(item.keyword + item.vector + item.title)


@given(SCORES, SCORES, st.none() | SHARES, st.floats(0, 1))
def test_without_weight_titles_change_nothing(k, v, t, keyword):
    plain = Weighted(keyword)
    assert [*plain.fuse(lane(k), lane(v), t)] == [*plain.fuse(lane(k), lane(v))]


@pytest.mark.parametrize("title", [-0.1, 1.0, 1.5, math.nan, math.inf, 0.71])
def test_a_weight_that_leaves_too_little_is_refused(title):
    with pytest.raises(InvalidSetting, match="title"):
        Weighted(0.3, title=title)


@pytest.mark.parametrize("keyword", [0.7, 0.9, 0.8, 0.6, 0.35])
def test_weights_that_leave_nothing_run_no_vector_lane(keyword):
    assert Weighted(keyword, title=1.0 - keyword).lanes == (True, False)
    assert Weighted(0.0, title=0.5).lanes == (False, True)


@pytest.mark.parametrize("embedder", [None, HashingEmbedder(64)], ids=["words", "hybrid"])
async def test_a_file_name_lifts_its_passages_and_the_explanation_says_so(embedder):
    index = await index_of(
        Document("a", "How to configure the valve.", source="pumps.md"),
        Document("b", "How to configure the valve.", source="valves.md"),
        embedder=embedder,
    )
    assert [c.passage.document_id for c in await index.search("valve")] == ["a", "b"]
    found = await index.search("valve", fusion=Weighted(0.3, title=0.1), explain=True)
    assert [c.passage.document_id for c in found] == ["b", "a"]
    assert [c.explain.title.share for c in found] == [1.0, 0.0]
    assert [c.explain.title.contribution for c in found] == [pytest.approx(0.1), 0.0]
    parts = found[0].explain
    lanes = [part.contribution for part in (parts.keyword, parts.vector, parts.title) if part]
    assert sum(lanes) == pytest.approx(found[0].score) == pytest.approx(parts.fused_score)
    assert (await index.search("valve", explain=True))[0].explain.title is None


async def test_titles_are_read_only_where_they_have_weight():
    class Watched(MemoryStore):
        reads = 0

        async def get(self, passage_ids, *, scope):
            Watched.reads += 1
            return await super().get(passage_ids, scope=scope)

    index = await index_of(Document("a", "valve", title="valve"), store=Watched())
    await index.search("valve")
    assert Watched.reads == 1
    await index.search("valve", fusion=Weighted(0.3, title=0.1))
    assert Watched.reads == 3


@pytest.mark.parametrize("question", ["?!", "zebra"])
async def test_a_question_without_words_of_ours_is_searched_as_ever(question):
    index = await index_of(Document("a", "valve", title="valve"), embedder=None)
    assert not await index.search(question, fusion=Weighted(0.3, title=0.2))


async def test_where_terms_are_not_counted_they_all_count_the_same():
    class Plain(MemoryStore):
        async def term_counts(self, terms):
            return None

    many = [Document(str(n), "valve", title="valve") for n in range(9)]
    documents = [*many, Document("x", "clamp valve", title="clamp")]
    fusion = Weighted(0.2, title=0.3)
    plain = await index_of(*documents, store=Plain())
    counted = await index_of(*documents)
    for index, share in [(plain, 0.5), (counted, idf(10, 1) / (idf(10, 1) + idf(10, 10)))]:
        found = await index.search("clamp valve", fusion=fusion, explain=True)
        by_id = {c.passage.document_id: c.explain.title.share for c in found}
        assert by_id["x"] == pytest.approx(share)


async def test_titles_that_cannot_be_read_are_skipped_where_the_policy_lets_them():
    class Failing(MemoryStore):
        failing = False

        async def term_counts(self, terms):
            if Failing.failing:
                raise RuntimeError
            return await super().term_counts(terms)

    index = await index_of(Document("a", "valve", title="valve"), store=Failing())
    Failing.failing = True
    fusion = Weighted(0.3, title=0.2)
    with pytest.raises(RuntimeError):
        await index.search("valve", fusion=fusion)
    lenient = Policy(keyword=StagePolicy(on_error="skip", timeout=10.0))
    found = await index.search("valve", fusion=fusion, policy=lenient)
    assert [d.stage for d in found.degraded] == ["keyword"]
    assert found[0].score == pytest.approx(1.0)


async def test_evaluation_ranks_other_weights_by_the_same_titles():
    index = await index_of(
        Document("a", "How to configure the valve.", source="pumps.md"),
        Document("b", "How to configure the valve.", source="valves.md"),
        fusion=Weighted(0.3, title=0.1),
    )
    topics = [Topic("t", Query("valve"), {"b": 1})]
    done = await evaluate(
        index,
        topics,
        metrics=["mrr"],
        fusions={"more": Weighted(0.3, title=0.2), "none": Weighted()},
    )
    assert done.mean("mrr", "fused") == done.mean("mrr", "more") == 1.0
    assert done.mean("mrr", "none") == 0.5


async def test_titles_out_of_scope_are_not_read():
    index = await index_of(Document("a", "valve", title="valve", metadata={"team": "red"}))
    found = await index.search(
        "valve", scope={"team": "blue"}, fusion=Weighted(0.3, title=0.2), filter=Filter()
    )
    assert not found
