"""What the citations of answers are worth against the documents that were judged relevant."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragchat
from ragchat import GivenAnswer, Passage, citation_metrics
from ragchat.evaluation import extractive_answers, load_answers
from ragchat_retrieval.errors import InvalidCollection, InvalidRun, InvalidSetting
from ragchat_retrieval.evaluation import (
    CITATION_METRICS,
    CitationEvaluation,
    CitedAnswer,
    Gate,
    Report,
    Topic,
    evaluate_run,
    html_report,
)
from ragchat_retrieval.values import Candidate, Query

TOPICS = [
    Topic("q1", Query("How long is leave?"), {"d1": 1, "d2": 2, "d3": 0}),
    Topic("q2", Query("What do bikes cost?"), {"d4": 1}),
]
ANSWERS = {
    "q1": GivenAnswer(
        "Leave is 25 days [1]. It expires in March [1][2]. It is never paid out. Dogs bark [9].",
        {1: ["d1"], 2: ["d3", "d9"]},
    ),
    "q2": GivenAnswer("I do not know.", {1: ["d4"]}),
}


def test_precision_recall_and_the_share_of_cited_claims_recomputed_by_hand():
    """Claims cite d1; d1, d3, d9; nothing; an unknown number. Relevant are d1 and d2."""
    measured = citation_metrics(ANSWERS, TOPICS)
    assert list(measured.scores("citation precision")) == [pytest.approx(2 / 4), 0.0]
    assert list(measured.scores("citation recall")) == [pytest.approx(1 / 2), 0.0]
    assert list(measured.scores("claims cited")) == [pytest.approx(2 / 4), 0.0]
    assert measured.table() == pytest.approx(dict.fromkeys(CITATION_METRICS, 0.25))
    assert (measured.citing, measured.unknown) == (1, 1)


IDS = st.sampled_from(["d1", "d2", "d3", "d4"])


@given(
    claims=st.lists(st.lists(IDS, max_size=3, unique=True).map(tuple), max_size=5).map(tuple),
    grades=st.dictionaries(IDS, st.integers(0, 2), min_size=1),
)
def test_the_metrics_equal_their_definition_over_pairs_of_claim_and_document(claims, grades):
    answer = CitedAnswer(claims)
    pairs = {(at, id_) for at, ids in enumerate(claims) for id_ in ids}
    right = {(at, id_) for at, id_ in pairs if grades.get(id_, 0) >= 1}
    relevant = [id_ for id_, grade in grades.items() if grade >= 1]
    expected = (
        len(right) / len(pairs) if pairs else 0,
        sum(any((at, id_) in pairs for at in range(5)) for id_ in relevant) / len(relevant)
        if relevant
        else 0,
        len({at for at, _ in pairs}) / len(claims) if claims else 0,
    )
    assert tuple(answer.score(m, grades) for m in CITATION_METRICS) == pytest.approx(expected)


def test_a_mean_has_the_interval_of_its_topics():
    measured = citation_metrics(ANSWERS, TOPICS)
    (recall, _) = measured.scores("citation recall")
    interval = measured.intervals()["citation recall"]
    # Two topics are drawn: both the cited one, both the other, or each once.
    assert (interval.low, interval.mean, interval.high) == (0, recall / 2, recall)


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("citation precision>=0.25", True),
        (" citation  recall > 0.25 ", False),
        ("claims cited<0.3", True),
    ],
)
def test_a_gate_asks_for_what_answers_cite(text, passed):
    evaluation = evaluate_run({"q1": ["d1"], "q2": ["d4"]}, TOPICS)
    gate = Gate.of(text)
    assert gate.check(evaluation, citation_metrics(ANSWERS, TOPICS)).passed is passed
    assert gate.about_answers
    assert Gate.of(str(gate)) == gate
    with pytest.raises(InvalidSetting, match="needs answers"):
        gate.check(evaluation)


@pytest.mark.parametrize("text", ["fused:citation recall>=0.5", "citation f1>=0.5"])
def test_what_is_no_gate_on_answers_is_refused(text):
    with pytest.raises(InvalidSetting):
        Gate.of(text)


def test_there_is_exactly_one_answer_per_topic():
    with pytest.raises(InvalidRun):
        citation_metrics({"q1": ANSWERS["q1"]}, TOPICS)
    with pytest.raises(InvalidRun):
        citation_metrics({**ANSWERS, "q3": ANSWERS["q1"]}, TOPICS)
    with pytest.raises(InvalidSetting):
        CitationEvaluation(topics=(), answers={})


def test_reports_hold_the_figures_as_json_and_as_a_page():
    evaluation = evaluate_run({"q1": ["d1"], "q2": ["d4"]}, TOPICS)
    citations = citation_metrics(ANSWERS, TOPICS, system="<b>mine</b>")
    report = Report(collection="c", evaluations={"run": evaluation}, citations=citations)
    record = json.loads(json.dumps(report.to_json()))["citations"]
    assert record["means"]["citation recall"] == 0.25
    assert record["topics"]["q1"]["citation precision"] == 0.5
    assert (record["citing"], record["unknown"]) == (1, 1)
    page = html_report([report])
    assert "1 of 2 answers cite something; 1 invented numbers." in page
    assert "&lt;b&gt;mine&lt;/b&gt;" in page
    plain = Report(collection="c", evaluations={"run": evaluation})
    assert plain.to_json()["citations"] is None
    assert "<h3>Citations</h3>" not in html_report([plain])


async def test_extractive_answers_cite_the_documents_of_their_sentences():
    def retriever(query):
        text = "Leave is 25 days long." if "leave" in query.text else "Bikes cost 32 euros."
        owner = "d1" if "leave" in query.text else "d4"
        return [Candidate(Passage(text, document_id=owner), 1.0)]

    heard = []
    answers = await extractive_answers(retriever, TOPICS, on_progress=heard.append)
    measured = citation_metrics(answers, TOPICS)
    assert list(measured.scores("citation precision")) == [1, 1]
    assert list(measured.scores("citation recall")) == [0.5, 1]
    assert heard == [0.5, 1.0]


@pytest.mark.parametrize("gzipped", [False, True])
def test_answers_are_read_from_json_lines(tmp_path, gzipped):
    row = {"_id": "q1", "answer": "Leave [1][2].", "citations": {"1": "d1", "2": ["d2", "d3"]}}
    path = tmp_path / ("answers.jsonl" + ".gz" * gzipped)
    text = (json.dumps(row) + '\n{"_id": "q2", "answer": ""}\n').encode()
    path.write_bytes(gzip.compress(text) if gzipped else text)
    read = load_answers(path)
    assert read["q1"] == GivenAnswer("Leave [1][2].", {1: ("d1",), 2: ("d2", "d3")})
    assert read["q2"].documents == {}


@pytest.mark.parametrize(
    "row",
    [
        '{"_id": 1, "answer": "x"}',
        '{"_id": "q"}',
        '{"_id": "q", "answer": "x", "citations": []}',
        '{"_id": "q", "answer": "x", "citations": {"0": "d"}}',
        '{"_id": "q", "answer": "x", "citations": {"²": "d"}}',
        '{"_id": "q", "answer": "x", "citations": {"a": "d"}}',
        '{"_id": "q", "answer": "x", "citations": {"1": [2]}}',
        '{"_id": "q", "answer": "x", "citations": {"1": 2}}',
        "[]",
        '{"_id": "a", "answer": "twice"}',
    ],
)
def test_what_is_no_answer_is_an_error_with_its_line(tmp_path, row):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"_id": "a", "answer": "x"}\n' + row + "\n", "utf-8")
    with pytest.raises(InvalidCollection) as caught:
        load_answers(path)
    assert caught.value.line == 2


def test_a_missing_file_is_a_typed_error(tmp_path):
    with pytest.raises(InvalidCollection):
        load_answers(tmp_path / "none.jsonl")
    assert ragchat.citation_metrics is citation_metrics
