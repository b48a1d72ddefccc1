"""What a search goes through, seen by evaluation: against searches made one by one."""

from __future__ import annotations

import numpy as np
import pytest

from ragchat_retrieval import RRF, Candidate, Document, Passage, Query, Rerank, Weighted, in_memory
from ragchat_retrieval.chunking import ParagraphSplitter, WholeText
from ragchat_retrieval.combining import federate
from ragchat_retrieval.errors import InvalidRun, InvalidSetting, MalformedRanking
from ragchat_retrieval.evaluation import Evaluation, Topic, evaluate, evaluate_run
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.pipeline import RetrievalPipeline
from ragchat_retrieval.policy import Policy

WORDS = ["apple", "banana", "cherry", "damson", "elder", "fig", "grape", "hazel", "iris", "juniper"]
TOPICS = tuple(
    Topic(f"t{i}", Query(f"{WORDS[i]} {WORDS[i + 1]} {WORDS[i + 3]}"), {f"d{i}": 2, f"d{i + 9}": 1})
    for i in range(6)
)
FUSIONS = {
    "RRF": RRF(),
    "classic": Weighted(0.3, complete=False),
    "half": Weighted(0.5),
    "keywords": Weighted(1.0),
    "vectors": Weighted(0.0),
}


def text(number):
    return " ".join(WORDS[(number * step) % 10] for step in (1, 2, 3, 7)) + f" number{number}"


@pytest.fixture
async def index():
    async with in_memory(64) as index:
        index.splitter = WholeText()
        await index.ingest(*(Document(f"d{number}", text(number)) for number in range(40)))
        yield index


def found(result):
    return tuple(candidate.passage.document_id for candidate in result)


async def searched(index, **options):
    return [found(await index.search(topic.query, **options)) for topic in TOPICS]


async def test_other_fusions_rank_as_searches_with_them_would(index):
    """The lanes read five candidates each, so that completion and cut matter."""
    evaluation = await evaluate(index.retriever(candidates=5), TOPICS, fusions=FUSIONS)
    for name, fusion in {"fused": Weighted(0.3), **FUSIONS}.items():
        expected = await searched(index, candidates=5, top_k=None, fusion=fusion)
        assert list(evaluation.rankings[name]) == expected, name


async def test_the_lanes_are_ranked_as_deep_as_they_were_read(index):
    evaluation = await evaluate(index.retriever(candidates=5), TOPICS)
    assert list(evaluation.rankings) == ["keyword", "vector", "fused"]
    assert evaluation.main == "fused"
    for name, weight in (("keyword", 1.0), ("vector", 0.0)):
        expected = await searched(
            index, candidates=5, top_k=None, fusion=Weighted(weight, complete=False)
        )
        assert list(evaluation.rankings[name]) == expected


async def test_an_index_stands_for_its_retriever_of_ten(index):
    assert (await evaluate(index, TOPICS)).rankings == (
        await evaluate(index.retriever(top_k=10), TOPICS)
    ).rankings


async def test_every_step_that_was_asked_for_is_a_stage(index):
    def backwards(query, candidates):
        return [place / len(candidates) for place in range(len(candidates))]

    step = Rerank(backwards, pool=8)
    evaluation = await evaluate(index.retriever(top_k=5, rerank=step, mmr=0.5), TOPICS)
    assert list(evaluation.rankings) == ["keyword", "vector", "fused", "reranked", "diversified"]
    assert evaluation.main == "diversified"
    for position in range(len(TOPICS)):
        fused, reranked = (evaluation.rankings[n][position] for n in ("fused", "reranked"))
        assert reranked == (*fused[7::-1], *fused[8:])
    expected = await searched(index, top_k=5, rerank=step, mmr=0.5)
    assert list(evaluation.rankings["diversified"]) == expected


async def test_a_result_that_is_not_the_beginning_of_its_last_stage_is_a_stage_of_its_own():
    """Widening to neighbours leaves out hits that lie inside a better one."""
    async with in_memory(32) as index:
        index.splitter = ParagraphSplitter()
        await index.ingest(
            Document("a", "apple\n\nbanana\n\napple banana"), Document("b", "banana\n\nfig")
        )
        topic = Topic("t", Query("apple banana"), {"a": 1})
        assert "final" not in (await evaluate(index, [topic])).rankings
        hidden = await evaluate(_Without(index.retriever(), "a"), [topic])
    assert hidden.main == "final"
    assert list(hidden.rankings["final"]) == [("b",)]


class _Without:
    """A retriever of ours, less one document."""

    lanes = True

    def __init__(self, inner, left_out):
        self._inner, self._left_out = inner, left_out

    async def __call__(self, query):
        return [c for c in await self._inner(query) if c.passage.document_id != self._left_out]


async def test_passages_stand_for_their_documents():
    async with in_memory(32) as index:
        index.splitter = ParagraphSplitter()
        await index.ingest(Document("a", "apple\n\napple apple\n\nfig"), Document("b", "fig"))
        evaluation = await evaluate(index, [Topic("t", Query("apple"), {"a": 1})])
    assert list(evaluation.rankings["keyword"]) == [("a",)]
    assert sorted(evaluation.rankings["fused"][0]) == ["a", "b"]


async def test_without_an_embedder_there_is_no_vector_stage():
    async with HybridIndex(splitter=WholeText()) as index:
        await index.ingest(Document("a", "apple"), Document("b", "fig"))
        evaluation = await evaluate(index, [Topic("t", Query("apple"), {"a": 1})])
    assert list(evaluation.rankings) == ["keyword", "fused"]
    assert evaluation.mean("mrr") == 1.0


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_foreign_retriever_has_its_result_only(asynchronous):
    candidate = Candidate(Passage("x", id="p", document_id="a"), 1.0)
    bare = Candidate(Passage("y", id="q"), 0.5)

    def retrieve(query):
        return [candidate, bare]

    async def retrieve_later(query):
        return [candidate, bare]

    evaluation = await evaluate(
        retrieve_later if asynchronous else retrieve, [Topic("t", Query("x"), {"q": 1})]
    )
    assert evaluation.rankings == {"final": [("a", "q")]}


async def test_a_pipeline_over_a_foreign_retriever_shows_its_steps():
    async def retrieve(query):
        return [Candidate(Passage(str(n), id=f"p{n}"), 1.0 - n / 9) for n in range(4)]

    pipeline = RetrievalPipeline(retrieve, rerank=lambda q, cs: [n / 9 for n in range(len(cs))])
    evaluation = await evaluate(pipeline, [Topic("t", Query("x"), {"p3": 1})])
    assert evaluation.rankings == {"reranked": [("p3", "p2", "p1", "p0")]}


async def test_other_wordings_are_fused_before_they_are_seen(index):
    retriever = index.retriever(expander=lambda query: [query.with_text("hazel iris")])
    evaluation = await evaluate(retriever, TOPICS)
    results = [await retriever(topic.query) for topic in TOPICS]
    for ranking, result in zip(evaluation.rankings["fused"], results, strict=True):
        assert ranking[: len(result)] == found(result)


async def test_a_search_of_several_indexes_has_its_result_only(index):
    evaluation = await evaluate(federate([index.retriever(), index.retriever()]), TOPICS)
    assert list(evaluation.rankings) == ["final"]


async def test_a_policy_of_the_retriever_s_own_hides_nothing(index):
    """It replaces the run, and the new one is watched all the same."""
    evaluation = await evaluate(index.retriever(policy=Policy()), TOPICS)
    assert list(evaluation.rankings) == ["keyword", "vector", "fused"]


async def test_a_failing_stage_raises_unless_the_policy_skips_it(index):
    retriever = index.retriever(rerank=lambda query, candidates: [])
    with pytest.raises(MalformedRanking):
        await evaluate(retriever, TOPICS)
    evaluation = await evaluate(retriever, TOPICS, policy=Policy())
    assert evaluation.degraded == {"rerank": len(TOPICS)}
    assert evaluation.rankings["reranked"] == evaluation.rankings["fused"]


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_topic_is_asked_as_the_asker_says(index, asynchronous):
    asked = []

    def ask(topic):
        asked.append(topic.id)
        return Query("iris")

    async def ask_later(topic):
        return ask(topic)

    evaluation = await evaluate(index, TOPICS, ask=ask_later if asynchronous else ask)
    assert sorted(asked) == [topic.id for topic in TOPICS]
    assert len(set(evaluation.rankings["fused"])) == 1


async def test_progress_never_falls_and_ends_at_1(index):
    shares = []
    await evaluate(index, TOPICS, on_progress=shares.append)
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


async def test_no_topic_one_id_twice_and_a_fusion_named_like_a_stage_are_refused(index):
    with pytest.raises(InvalidSetting, match="topics"):
        await evaluate(index, [])
    with pytest.raises(InvalidSetting, match="twice"):
        await evaluate(index, TOPICS * 2)
    with pytest.raises(InvalidSetting, match="vector"):
        await evaluate(index, TOPICS, fusions={"vector": RRF()})


@pytest.mark.parametrize("grade", [61, 10**6, 1.5, float("nan"), "1", None])
async def test_grades_that_are_no_whole_numbers_up_to_60_are_refused(grade):
    """The gain of a higher one would drown all others, and end in no number."""
    topics = [*TOPICS, Topic("made", Query("apple"), {"d1": 1, "d2": grade})]
    problem, asked = "a grade of 'made' is no whole number up to 60", []
    with pytest.raises(InvalidSetting, match=problem):
        await evaluate(asked.append, topics)
    with pytest.raises(InvalidSetting, match=problem):
        evaluate_run({topic.id: ["d1"] for topic in topics}, topics)
    assert asked == []


def test_the_highest_grade_and_those_below_zero_are_measured():
    topic = Topic("t", Query("x"), {"a": 60, "b": np.int64(1), "c": -2})
    assert evaluate_run({"t": ["a", "b", "c"]}, [topic]).mean("ndcg@10") == 1.0


# Evaluations as values


def example():
    topics = tuple(
        Topic(f"t{n}", Query("x"), {"a": 1}, fields={"kind": kind})
        for n, kind in enumerate(["b", ["a", "b"], "a", "a"])
    )
    return Evaluation(
        topics=topics,
        rankings={
            "keyword": [("a",), ("x",), ("x",), ("a",)],
            "fused": [("a",), ("x", "a"), ("x",), ("a",)],
        },
        main="fused",
        metrics=("mrr@10", "recall@1", "mrr@10"),
    )


def test_means_are_over_topics_and_the_table_has_each_metric_once():
    evaluation = example()
    assert evaluation.table() == {
        "keyword": {"mrr@10": 0.5, "recall@1": 0.5},
        "fused": {"mrr@10": 0.625, "recall@1": 0.5},
    }
    assert list(evaluation.scores("mrr")) == [1.0, 0.5, 0.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        evaluation.scores("mrr")[0] = 2.0


def test_differences_are_those_of_the_means():
    evaluation = example()
    difference = evaluation.difference("mrr", baseline="keyword")
    assert difference.mean == pytest.approx(0.125)
    assert difference.low <= difference.mean <= difference.high
    across = evaluation.difference_from(example(), "mrr", "keyword", baseline="fused")
    assert across.mean == pytest.approx(-0.125)


def test_segments_come_in_the_order_of_their_names_and_a_list_belongs_to_each():
    segments = example().segments("kind")
    assert list(segments) == ["a", "b"]
    assert [topic.id for topic in segments["a"].topics] == ["t1", "t2", "t3"]
    assert [topic.id for topic in segments["b"].topics] == ["t0", "t1"]
    assert segments["b"].mean("mrr") == 0.75


def test_the_hardest_topics_come_first():
    assert [(topic.id, value) for topic, value in example().hardest("mrr", 2)] == [
        ("t2", 0.0),
        ("t1", 0.5),
    ]


def test_unknown_rankings_and_metrics_are_refused():
    with pytest.raises(InvalidSetting, match="keyword, fused"):
        example().mean("mrr", "vector")
    with pytest.raises(InvalidSetting, match="main"):
        Evaluation(topics=TOPICS, rankings={}, main="fused")
    with pytest.raises(InvalidSetting, match="topics"):
        Evaluation(topics=(), rankings={"fused": []}, main="fused")
    with pytest.raises(InvalidRun, match="leaves out 5 topics"):
        Evaluation(topics=TOPICS, rankings={"fused": [()]}, main="fused")


def test_a_run_from_elsewhere_must_rank_exactly_the_topics():
    run = {topic.id: ["d0", "d9"] for topic in TOPICS}
    evaluation = evaluate_run(run, TOPICS, metrics=["recall@10"], name="other")
    assert evaluation.table() == {"other": {"recall@10": pytest.approx(1 / 6)}}
    with pytest.raises(InvalidRun) as caught:
        evaluate_run({**run, "t9": []}, TOPICS[:5])
    assert (caught.value.missing, caught.value.unknown) == (0, 2)
    with pytest.raises(InvalidRun) as caught:
        evaluate_run({}, TOPICS)
    assert caught.value.missing == 6
    with pytest.raises(InvalidRun):
        evaluation.difference_from(evaluate_run({"t0": []}, TOPICS[:1]), "mrr")
