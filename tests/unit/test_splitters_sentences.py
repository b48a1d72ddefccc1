"""Sentences end where readers see them end."""
# ruff: noqa: RUF001 - Cyrillic is meant

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.chunking import sentence_spans

# fmt: off
FRAGMENTS = [
    "word", "Dr", "1", ".", "!", "。", '"', ")", "(", "e.g.", "...", "क्षि", "👩‍🔬",
    "\u0301", "\u200d", "\u0600", " ", "\n", "\r\n", "\n\n", "# ", "- ", "| ",
    "\x1c",
]
# fmt: on


def sentences(text):
    return [text[span.start : span.end] for span in sentence_spans(text)]


@pytest.mark.parametrize(
    "expected",
    [
        ["One.", "Two!", "Three?", "Four..."],
        ["He left (early).", "She stayed."],
        ['He said "no."', "Then he left."],
        ['"Why?" he asked.', "No answer."],
        ["Wait... what?", "Yes."],
        ["It costs 3.50 dollars.", "Version 1.2.3 is out."],
        ["Use a kettle, e.g. a blue one, i.e. this one.", "It boils."],
        ["Dr. Reed and Mrs. Lane met Mr. Poe.", "They talked."],
        ["J. R. Hale wrote it.", "So do I.", "You too."],
        ["Forks, knives, etc. are there.", "Plates, etc.", "Then the cups."],
        ["See Fig. 3 and No. 12 of it.", "He said no.", "Modern art.", "Old art."],
        ["We meet at 5 p.m. in town.", "It ends at 9 p.m.", "Then we leave."],
        ["The U.S. Army came.", "It left in 1946.", "Nobody minded."],
        ["Wir fahren z. B. nach Ulm.", "Dort bleiben wir bzw. schlafen wir."],
        ["Open .gitignore or x.py first.", "Then go to example.org."],
        ["Really?!", "Yes!!!", "No\u2026", "Fine."],
    ],
)
def test_latin_sentences(expected):
    assert sentences(" ".join(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("今天天气很好。我们喝茶！你呢？", ["今天天气很好。", "我们喝茶！", "你呢？"]),
        ("「はい。」と言った。終わり", ["「はい。」", "と言った。", "終わり"]),
        ("सूरज निकला। पक्षी उड़े।", ["सूरज निकला।", "पक्षी उड़े।"]),
        ("هل رأيتها؟ نعم.", ["هل رأيتها؟", "نعم."]),
        ("စာဖတ်သည်။ ပြီးပြီ။", ["စာဖတ်သည်။", "ပြီးပြီ။"]),
        ("ሰላም ነው። ደህና።", ["ሰላም ነው።", "ደህና።"]),
        ("Поезд, т. е. ночной, ушёл. Всё.", ["Поезд, т. е. ночной, ушёл.", "Всё."]),
    ],
)
def test_stops_of_other_scripts(text, expected):
    assert sentences(text) == expected


def test_a_wrapped_line_is_no_end():
    assert sentences("One sentence\nover two lines. Next\r\none.") == [
        "One sentence\nover two lines.",
        "Next\r\none.",
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_blank_lines_headings_items_and_rows_end_a_sentence(end):
    lines = ["# Head", "some text", "", "next", "- item", "2. second", "| a | b |", "| c | d |"]
    assert sentences(end.join(lines)) == [line for line in lines if line]


def test_the_number_of_an_item_is_no_sentence():
    assert sentences("1. Install it. 2. Run it.") == ["1. Install it.", "2. Run it."]


def test_a_range_of_a_text_gives_offsets_of_the_whole():
    text = "Skip. Take this. And this. Not this."
    assert [text[s:e] for s, e in sentence_spans(text, 6, 26)] == ["Take this.", "And this."]


def test_a_mark_after_a_stop_keeps_its_letter():
    text = "One。\u0301 two. \u0301three"
    assert sentences(text) == ["One。\u0301 two.", " \u0301three"]


def test_blank_text_has_no_sentence():
    assert sentences("") == sentences(" \n\t\r\n ") == []


@given(st.lists(st.sampled_from(FRAGMENTS)).map("".join))
def test_sentences_hold_everything_but_white_space_in_order(text):
    end = 0
    for span in sentence_spans(text):
        assert not text[end : span.start].strip()
        assert text[span.start : span.end].strip()
        assert span.start >= end
        end = span.end
    assert not text[end:].strip()


@pytest.mark.parametrize(
    "text",
    [
        "." * 300_000 + "x",
        "a. " * 100_000,
        "\n" * 300_000 + "x",
        "x. " + " " * 200_000 + "w\n" * 50_000,
        "x" + "(" * 300_000,
        '.")' * 100_000,
        "1. " * 100_000,
        "\u0301" * 100_000,
    ],
    ids=range(8),
)
def test_odd_texts_take_linear_time(text):
    """Each takes a fraction of a second; anything quadratic would be noticed."""
    assert sentence_spans(text)
