"""Gates and reports."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from ragchat_retrieval import Query
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.evaluation import (
    Difference,
    Evaluation,
    Gate,
    Metric,
    Report,
    Setting,
    Topic,
    Trial,
    Tuning,
    html_report,
)
from ragchat_retrieval.evaluation.svg import Axes, bars, intervals, lines, sorted_bars

HOSTILE = "<script>alert(\"x\")</script> & 'more'"


def evaluation(*, better=True):
    topics = tuple(
        Topic(
            f"t{n}",
            Query(HOSTILE if n == 0 else f"question {n}"),
            {"a": 1},
            fields={"kind": HOSTILE},
        )
        for n in range(4)
    )
    best, worse = [("a", "x")] * 4, [("x", "a")] * 4
    return Evaluation(
        topics=topics,
        rankings={"keyword": worse, "vector": worse, "fused": best if better else worse},
        main="fused",
        metrics=("mrr@10", "recall@1"),
    )


def tuning():
    default, best = Setting(keyword=0.3, candidates=100), Setting(keyword=0.5, candidates=50)
    reranked = Setting(keyword=0.5, candidates=100, rerank_weight=0.7, margin=0.2)
    return Tuning(
        metric=Metric.of("mrr@10"),
        default=default,
        best=best,
        trials=(
            Trial(setting=best, value=0.9),
            Trial(setting=reranked, value=0.85, scored=3.5),
            Trial(setting=Setting(keyword=0.3, candidates=50), value=0.8),
        ),
        tuned_on=("t0",),
        held_out=("t1", "t2"),
        default_value=0.7,
        best_value=0.8,
        gain=Difference(mean=0.1, low=0.05, high=0.2, topics=2),
    )


def report(**changes):
    settings = {
        "collection": HOSTILE,
        "evaluations": {"history": evaluation(), "last turn": evaluation(better=False)},
        "documents": 2,
        "settings": {"store": HOSTILE},
        "notes": (HOSTILE,),
        "segment": "kind",
        "gates": (Gate.of("mrr@10>=0.6").check(evaluation()),),
        "tuning": tuning(),
    }
    return Report(**{**settings, **changes})


# Gates


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("mrr@10>=1", True),
        ("mrr@10>1", False),
        ("keyword:mrr@10<=0.5", True),
        (" vector : mrr@10 < 0.5 ", False),
        ("recall@1 >= 9e-1", True),
    ],
)
def test_a_gate_compares_the_mean(text, passed):
    result = Gate.of(text).check(evaluation())
    assert result.passed is passed
    assert Gate.of(str(result.gate)) == result.gate
    assert Gate.of(result.gate) is result.gate


@pytest.mark.parametrize(
    "text", ["", "mrr@10", "mrr@10>=", "mrr@10=1", "mrr@10>=x", "map>=1", "mrr>=nan", "mrr>=inf"]
)
def test_what_is_no_gate_is_refused(text):
    with pytest.raises(InvalidSetting):
        Gate.of(text)


def test_a_gate_on_a_ranking_that_is_not_there_is_refused():
    with pytest.raises(InvalidSetting, match="keyword, vector, fused"):
        Gate.of("reranked:mrr>=0.5").check(evaluation())
    with pytest.raises(InvalidSetting, match="gate"):
        Gate(Metric.of("mrr"), "==", 1.0)


# Reports


def test_a_report_has_a_json_form_with_everything_but_texts():
    record = report().to_json()
    assert json.loads(json.dumps(record)) == record
    assert record["asked"]["history"]["rankings"]["fused"]["mrr@10"] == 1.0
    assert record["differences"]["keyword"]["mean"] == 0.5
    assert record["ways"]["last turn"]["low"] == 0.5
    assert record["segments"][HOSTILE]["topics"] == 4
    assert record["gates"] == [{"gate": "mrr@10>=0.6", "found": 1.0, "passed": True}]
    assert record["tuning"]["recommended"]["keyword"] == 0.5
    assert record["topics"]["t3"] == {"mrr@10": 1.0, "recall@1": 1.0}
    assert "question 1" not in json.dumps(record)
    plain = report(segment=None, gates=(), tuning=None)
    assert (plain.passed, plain.segments(), plain.to_json()["tuning"]) == (True, {}, None)


def test_a_report_fails_when_any_gate_does():
    gates = tuple(Gate.of(text).check(evaluation()) for text in ("mrr>=0.6", "recall@1>1"))
    assert not report(gates=gates).passed


def test_a_report_without_an_evaluation_is_refused():
    with pytest.raises(InvalidSetting):
        Report(collection="x", evaluations={})


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects what a page would load or run."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text):
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def test_a_page_is_whole_and_loads_and_runs_nothing():
    text = html_report([report(), report(collection="second")])
    page = parsed(text)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not {"src", "href", "onclick"} & {name for name, _ in page.attributes}
    assert "url(" not in text
    assert "@import" not in text
    assert page.tags.count("svg") == 12
    assert page.tags.count("h2") == 2


def test_texts_of_others_are_data():
    text = html_report([report()], title=HOSTILE)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 6


def test_half_a_surrogate_pair_does_not_cost_the_page():
    """JSON has a form of it, which UTF-8 has not."""
    text = html_report([report(collection="plants \ud83c", notes=("\udf31",))])
    assert "plants ?" in text
    assert text.encode()


def test_a_page_says_what_the_gates_found_and_what_to_do_with_the_tuning():
    assert "passed" in html_report([report()])
    assert "take the choice" in html_report([report()])
    failed = report(gates=(Gate.of("mrr<0.5").check(evaluation()),))
    assert 'class="failed"' in html_report([failed])


def test_a_page_of_a_single_ranking_has_no_comparisons():
    topics = (Topic("t", Query("x" * 500), {"a": 1}),)
    alone = Evaluation(topics=topics, rankings={"final": [("a",)]}, main="final")
    text = html_report([Report(collection="c", evaluations={"question": alone})])
    page = parsed(text)
    assert page.tags.count("svg") == 1
    assert "x" * 200 not in text


# Plots


def numbers(svg, attribute):
    return [float(value) for value in re.findall(rf'{attribute}="(-?[\d.]+)"', svg)]


def test_bars_are_as_long_as_their_values():
    none, half, whole = numbers(bars("t", {"a": 0.0, "b": 0.5, "c": 1.0}), " width")
    assert none == 0
    assert half == pytest.approx(whole / 2, abs=0.01)


def test_bars_name_their_counts_and_cut_long_names():
    svg = bars("t", {"n" * 90: 0.5, "b": 0.25}, counts={"n" * 90: 3, "b": 4})
    assert "b (4)" in svg
    assert "n" * 40 not in svg


def test_intervals_say_which_differences_are_clear():
    svg = intervals(
        "t",
        {
            "up": Difference(mean=0.2, low=0.1, high=0.3, topics=9),
            "down": Difference(mean=-0.2, low=-0.3, high=-0.1, topics=9),
            "even": Difference(mean=0.0, low=-0.1, high=0.1, topics=9),
        },
    )
    assert re.findall(r'<circle class="(\w+)"', svg) == ["good", "bad", "even"]


@pytest.mark.parametrize("logarithmic", [True, False])
def test_lines_stay_inside_the_plot_and_are_named(logarithmic):
    series = {f"series {n}": [(k, k / 100) for k in (1, 5, 50, 100)] for n in range(12)}
    svg = lines("t", series, Axes(x="k", y="y", logarithmic=logarithmic, marks=[(10, "here")]))
    points = [tuple(map(float, p.split(","))) for p in re.findall(r"[\d.]+,[\d.]+", svg)]
    assert len(points) == 48
    assert all(0 <= x <= 640 and 0 <= y <= 300 for x, y in points)
    assert all(f"series {n}" in svg for n in range(12))
    parsed(svg)


def test_a_flat_line_and_equal_values_have_a_plot():
    parsed(lines("t", {"a": [(1, 0.5), (2, 0.5)]}, Axes(x="x", y="y")))
    parsed(intervals("t", {"a": Difference(mean=0, low=0, high=0, topics=1)}))
    parsed(sorted_bars("t", [0.0, 0.0]))


def test_sorted_bars_go_up_and_down_from_the_highest():
    svg = sorted_bars("t", [-0.5, 0.25, 0.0, 1.0])
    assert re.findall(r'<rect class="(\w+)"', svg) == ["good", "good", "bad"]
    assert numbers(svg, " height") == pytest.approx([70.0, 17.5, 35.0])
