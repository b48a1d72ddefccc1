"""Metrics, against trec_eval (through ir-measures) and by hand."""

from __future__ import annotations

import math

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.evaluation import Metric, ndcg, precision, recall, reciprocal_rank

DOCUMENTS = [f"d{number}" for number in range(30)]
CUTOFFS = [1, 3, 5, 10, 100]
GAINS = {grade: 2**grade - 1 for grade in range(1, 5)}

rankings = st.lists(st.sampled_from(DOCUMENTS), max_size=25, unique=True)
judgments = st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(0, 4), min_size=1).filter(
    lambda grades: any(grades.values())
)
PAIRS = [
    *(
        (Metric.of(f"{ours}@{k}"), theirs @ k)
        for k in CUTOFFS
        for ours, theirs in (
            ("ndcg", ir_measures.nDCG(gains=GAINS)),
            ("recall", ir_measures.R),
            ("precision", ir_measures.P),
            ("mrr", ir_measures.RR),
        )
    ),
    (Metric.of("ndcg"), ir_measures.nDCG(gains=GAINS)),
    (Metric.of("mrr"), ir_measures.RR),
]


@given(st.lists(st.tuples(rankings, judgments), min_size=1, max_size=4))
def test_values_equal_those_of_ir_measures_on_random_runs(topics):
    qrels = [
        ir_measures.Qrel(str(number), id_, grade)
        for number, (_, grades) in enumerate(topics)
        for id_, grade in grades.items()
    ]
    run = [
        ir_measures.ScoredDoc(str(number), id_, float(-rank))
        for number, (ranking, _) in enumerate(topics)
        for rank, id_ in enumerate(ranking)
    ]
    theirs = {
        (value.query_id, value.measure): value.value
        for value in ir_measures.iter_calc([measure for _, measure in PAIRS], qrels, run)
    }
    assert len(theirs) == len(topics) * len(PAIRS)
    for number, (ranking, grades) in enumerate(topics):
        for metric, measure in PAIRS:
            expected = theirs[str(number), measure]
            assert metric(ranking, grades) == pytest.approx(expected, abs=1e-9), str(metric)


def test_ndcg_by_hand():
    """Gains 3, 0, 1 at ranks 1 to 3 against the ideal 7, 3, 1."""
    found = 3 / math.log2(2) + 1 / math.log2(4)
    best = 7 / math.log2(2) + 3 / math.log2(3) + 1 / math.log2(4)
    assert ndcg(["b", "x", "c"], {"a": 3, "b": 2, "c": 1}, 3) == pytest.approx(found / best)


def test_recall_divides_by_the_relevant_and_precision_by_the_places():
    ranking, grades = ["a", "x", "b"], {"a": 1, "b": 2, "c": 1, "x": 0}
    assert recall(ranking, grades) == pytest.approx(2 / 3)
    assert recall(ranking, grades, 1) == pytest.approx(1 / 3)
    assert precision(ranking, grades, 10) == pytest.approx(2 / 10)


def test_the_reciprocal_rank_ends_at_the_cutoff():
    assert reciprocal_rank(["x", "y", "a"], {"a": 1}) == pytest.approx(1 / 3)
    assert reciprocal_rank(["x", "y", "a"], {"a": 1}, 2) == 0.0


@given(rankings, judgments, st.sampled_from([metric for metric, _ in PAIRS]))
def test_a_repeated_document_counts_where_it_stands_first(ranking, grades, metric):
    repeated = [id_ for id_ in ranking for _ in range(2)]
    assert metric(repeated, grades) == metric(ranking, grades)


@given(rankings, judgments, st.sampled_from([metric for metric, _ in PAIRS]))
def test_every_value_lies_between_0_and_1_and_the_ideal_order_has_the_best(ranking, grades, metric):
    ideal = sorted(grades, key=lambda id_: -grades[id_])
    assert 0.0 <= metric(ranking, grades) <= metric(ideal, grades) + 1e-12
    assert metric(ideal, grades) <= 1.0 + 1e-12


@pytest.mark.parametrize("metric", [metric for metric, _ in PAIRS], ids=str)
def test_without_a_relevant_document_every_value_is_0(metric):
    assert metric(["a", "b"], {"a": 0, "b": -1}) == 0.0
    assert metric([], {"a": 1}) == 0.0


@pytest.mark.parametrize(
    ("text", "name", "cutoff"),
    [("ndcg@10", "ndcg", 10), (" Recall@100 ", "recall", 100), ("MRR", "mrr", None)],
)
def test_a_metric_is_read_as_it_is_written(text, name, cutoff):
    metric = Metric.of(text)
    assert metric == Metric(name, cutoff)
    assert Metric.of(str(metric)) == metric
    assert Metric.of(metric) is metric


@pytest.mark.parametrize(
    "text", ["", "map@10", "ndcg@", "ndcg@0", "ndcg@-1", "ndcg@x", "precision"]
)
def test_what_is_no_metric_is_refused(text):
    with pytest.raises(InvalidSetting, match="metric"):
        Metric.of(text)
