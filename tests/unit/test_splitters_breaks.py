"""Where text may be cut: odd corners of Unicode."""

from __future__ import annotations

import pytest

from ragchat_retrieval.chunking.breaks import (
    block_spans,
    fragment_spans,
    grapheme_spans,
    joined,
    line_spans,
    trimmed,
    word_spans,
)
from ragchat_retrieval.testing.splitter_suite import inside_cluster


def cut(how, text):
    return [text[span.start : span.end] for span in how(text, 0, len(text))]


def test_a_mark_on_white_space_keeps_it():
    """A space with an accent is one character, so that trimming may not part them."""
    assert cut(block_spans, "a\n\n \u0301b \n\nc") == ["a", " \u0301b", "c"]
    assert cut(word_spans, "a \u0301b c") == ["a", " \u0301b", "c"]
    assert trimmed("  \u0301  ", 0, 5) == (1, 3)


def test_a_prefix_sign_keeps_what_follows():
    """ARABIC NUMBER SIGN belongs to the number after it, whatever that is."""
    assert cut(word_spans, "\u0600漢字") == ["\u0600漢", "字"]
    assert cut(word_spans, "x \u0600 ") == ["x", "\u0600 "]


def test_lines_keep_their_indentation_and_blank_ones_are_left_out():
    assert cut(line_spans, "if a:\r\n    b \n   \n\r  c") == ["if a:", "    b", "  c"]


def test_long_words_are_cut_after_punctuation():
    assert cut(fragment_spans, "https://x.example/a?b=1,2") == [
        "https://",
        "x.",
        "example/",
        "a?",
        "b=",
        "1,",
        "2",
    ]
    assert cut(fragment_spans, "a,\u0301b") == ["a,\u0301b"]
    assert cut(fragment_spans, ")\x1cx") == [")", "\x1cx"]
    assert cut(fragment_spans, ")\x1c") == [")"]


def test_characters_are_what_a_reader_sees():
    assert cut(grapheme_spans, "e\u0301👩‍🔬🇵🇱🇫🇷क्षि\x1c각") == [
        "e\u0301",
        "👩‍🔬",
        "🇵🇱",
        "🇫🇷",
        "क्षि",
        "각",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("今天。好", ["今", "天。", "好"]),
        ("「今天」", ["「今", "天」"]),
        ("GPU显存ok", ["GPU", "显", "存", "ok"]),
        ("コーヒー", ["コー", "ヒー"]),
        ("แม่น้ำ", ["แม่", "น้ำ"]),
        ("ABC (x) y", ["ABC", "(x)", "y"]),
        ("x「今", ["x", "「今"]),
        ("(((((今", ["(", "((((今"]),
    ],
)
def test_words_of_scripts_with_and_without_spaces(text, expected):
    assert cut(word_spans, text) == expected


@pytest.mark.parametrize(
    ("text", "offset", "inside"),
    [
        ("ab", 1, False),
        ("\r\n", 1, True),
        ("\n\u0301", 1, False),
        ("e\u0301", 1, True),
        ("👩\u200d🔬", 2, True),
        ("🇵🇱🇫🇷", 1, True),
        ("🇵🇱🇫🇷", 2, False),
        ("각\u11a8", 1, True),
        ("今天", 1, False),
        ("ab", 0, False),
        ("ab", 2, False),
    ],
)
def test_a_cut_inside_a_character_is_known(text, offset, inside):
    assert joined(text, offset) is inside


@pytest.mark.parametrize("text", ["👩\u200d🔬\u200d🇵🇱", "🇵🇱\u200d👩"])
def test_the_suite_s_own_rule_knows_no_more_characters_than_unicode(text):
    """A joiner joins two pictures, and no flag (rules GB11 to GB13)."""
    inside = [at for at in range(len(text)) if inside_cluster(text, at)]
    assert all(joined(text, at) for at in inside)
