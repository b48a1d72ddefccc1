"""The claims of an answer: its sentences, each with the markers that cite for it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat import Citations, Passage
from ragchat.citations.claims import claims_of, unmarked
from ragchat_retrieval.lexical import DEFAULT_ANALYZER

CITATIONS = Citations([Passage("one"), Passage("two"), Passage("three")])


def claims(text):
    """Each claim with the markers that belong to it."""
    found = claims_of(text, CITATIONS.find(text), DEFAULT_ANALYZER)
    return [(claim.text, [mention.marker for mention in claim.mentions]) for claim in found]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Leave is 25 days [1]. It expires [2].", [["[1]"], ["[2]"]]),
        ("Leave is 25 days. [1] It expires. [2]", [["[1]"], ["[2]"]]),
        ("Leave is 25 days.[1] It expires.[2][3]", [["[1]"], ["[2]", "[3]"]]),
        ("Leave is 25 days.\n[1]\nIt expires. [2]", [["[1]"], ["[2]"]]),
        ("He said “leave.” [1] It expires [2].", [["[1]"], ["[2]"]]),
        ("Leave is 25 days [1]. [2] says that it expires.", [["[1]"], ["[2]"]]),
        ("[1]\nLeave is 25 days. [2] It expires [3].", [["[1]", "[2]"], ["[3]"]]),
        ("休假有二十五天。[1]三月到期【2】。", [["[1]"], ["【2】"]]),
        ("Steps: 1. [1]\nLeave is 25 days [2].", [["[1]"], ["[2]"]]),
    ],
)
def test_a_marker_belongs_to_the_sentence_that_it_stands_in_or_behind(answer, expected):
    assert [markers for _, markers in claims(answer)] == expected


def test_a_claim_is_the_sentence_on_one_line_without_its_markers():
    answer = "- Leave\n  is 25 [1] days, and 30 [2], at 55 [3]."
    assert claims(answer) == [("Leave is 25 days, and 30, at 55.", ["[1]", "[2]", "[3]"])]


def test_the_span_of_a_claim_holds_its_markers():
    answer = "Yes. Leave is 25 days. [1] It expires. [9]"
    found = claims_of(answer, CITATIONS.find(answer), DEFAULT_ANALYZER)
    assert [answer[claim.span.start : claim.span.end] for claim in found] == [
        "Leave is 25 days. [1]",
        "It expires. [9]",
    ]


def test_foreign_and_unknown_markers_stay_with_their_sentence():
    answer = "Leave is 25 days 【4:0†my file. v2.pdf】. It expires [7]."
    assert claims(answer) == [
        ("Leave is 25 days.", ["【4:0†my file. v2.pdf】"]),
        ("It expires.", ["[7]"]),
    ]


def test_fenced_code_makes_no_claims_and_breaks_sentences():
    answer = (
        "Leave is 25 days [1], so\n```py\nx = rows[2] # is long [2].\n```\nIt expires soon [3]."
    )
    assert [markers for _, markers in claims(answer)] == [["[1]"], ["[3]"]]
    assert claims("~~~\nEmployees get 25 days of leave.\n") == []


def test_inline_code_stays_in_its_sentence():
    assert claims("Call `rows[2]` for leave [1].") == [("Call `rows[2]` for leave.", ["[1]"])]


@pytest.mark.parametrize(
    "answer",
    [
        "Hello!",
        "Good morning!",
        "Thank you very much for your question!",
        "Guten Tag!",
        "你好！谢谢您。",
        "I hope that this helps you plan your leave.",
        "Let me know if you have more questions about leave.",
        "# Paid leave and its rules",
        "| Kind of leave | Days |",
        "How many days of leave do employees get?",
        "¿Cuántos días de vacaciones hay?",
        "有多少天假期？",
        "Employees get these days of leave:",
        "Nothing in the documents found answers this.",
        "The provided sources do not say how long the leave is.",
        "Yes.",
        "---",
        "",
    ],
)
def test_what_states_nothing_is_no_claim(answer):
    assert claims(answer) == []


@pytest.mark.parametrize(
    "answer",
    [
        "Sure, employees get 25 days.",
        "Hello! Employees get 25 days.",
        "Die Angestellten haben 25 Urlaubstage.",
        "员工每年有二十五天假期。",
        "- parental leave is 14 weeks",
    ],
)
def test_what_states_something_without_a_marker_is_an_uncited_claim(answer):
    assert [markers for _, markers in claims(answer)] == [[]]


@pytest.mark.parametrize(
    "answer", ["# Leave [1]", "Is it long? [1]", "Hello [1]", "[1]", "(see [1])"]
)
def test_what_carries_a_marker_is_always_a_claim(answer):
    assert [markers for _, markers in claims(answer)] == [["[1]"]]


PIECES = st.sampled_from(
    [
        "[1]",
        "[2, 3]",
        "[9]",
        "【1】",
        "【4:0†f. g】",
        ". ",
        "。",
        "?",
        "\n",
        "\n\n",
        "```\n",
        "~~~\n",
        "`",
        "- ",
        "1. ",
        "# ",
        "| ",
        "Leave is long",
        "休假很长",
        "e.g. ",
        "\x00",
        "\ud800",
        " ",
        "\u0301",
    ]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_every_marker_belongs_to_exactly_one_claim_and_claims_do_not_overlap(answer):
    mentions = CITATIONS.find(answer)
    found = claims_of(answer, mentions, DEFAULT_ANALYZER)
    assert [mention for claim in found for mention in claim.mentions] == list(mentions)
    end = 0
    for claim in found:
        assert end <= claim.span.start < claim.span.end <= len(answer)
        assert all(
            claim.span.start <= mention.start and mention.end <= claim.span.end
            for mention in claim.mentions
        )
        end = claim.span.end


def test_a_sentence_does_not_begin_inside_a_marker():
    """A combining character behind a marker is no part of it."""
    answer = "Leave. [1]\u0301Leave is long."
    first, second = claims_of(answer, CITATIONS.find(answer), DEFAULT_ANALYZER)
    assert first.span.end <= second.span.start


@given(st.text(max_size=200))
def test_no_text_raises(answer):
    claims_of(answer, CITATIONS.find(answer), DEFAULT_ANALYZER)


@pytest.mark.parametrize("unit", ["Leave is long. [1] ", "```\n", "[1]", ". ", "\n[1]", "[1]."])
def test_work_is_linear_in_the_answer(unit):
    """Sixteen times the text takes far less than the 256 times of quadratic work."""

    def seconds(count):
        answer = unit * count
        spent = []
        for _ in range(3):
            start = time.process_time()
            claims_of(answer, CITATIONS.find(answer), DEFAULT_ANALYZER)
            spent.append(time.process_time() - start)
        return min(spent)

    assert seconds(8000) < 64 * max(seconds(500), 0.001)


def test_markers_are_cut_out_of_a_range_and_no_gap_stays_before_a_stop():
    text = "a [1], b [2] c [3]. d"
    assert unmarked(text, 2, len(text), CITATIONS.find(text)) == ", b  c. d"
