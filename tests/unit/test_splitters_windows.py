"""Passages of a number of sentences."""

from __future__ import annotations

import pytest

from ragchat_retrieval.chunking import SentenceSplitter
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.values import Document

TEXT = "One is. Two is.\n\nThree is. Four is. Five is."


def split(text=TEXT, *sizes, **options):
    options.setdefault("count", lambda value: len(value.split()))
    return [p.text for p in SentenceSplitter(*sizes, **options).split(Document("d", text))]


def test_passages_have_a_number_of_sentences_across_blocks():
    assert split(TEXT, 2, 0) == ["One is. Two is.", "Three is. Four is.", "Five is."]
    assert split(TEXT, 1, 0) == ["One is.", "Two is.", "Three is.", "Four is.", "Five is."]


def test_sentences_are_repeated_and_the_end_is_no_passage_of_repeats():
    assert split(TEXT, 3, 1) == ["One is. Two is.\n\nThree is.", "Three is. Four is. Five is."]


def test_what_is_repeated_makes_room_for_what_is_new():
    text = "A b c. D e f. G h i j k l."
    assert split(text, 3, 2, most=7) == ["A b c. D e f.", "G h i j k l."]
    assert split(text, 3, 2, most=9) == ["A b c. D e f.", "D e f. G h i j k l."]


@pytest.mark.parametrize("sentences", [1, 2, 9])
def test_a_sentence_that_is_too_long_is_cut_in_parts_that_are_full(sentences):
    """As a transcript without stops is, which would else be passages of a few words."""
    assert split("a b c d e f g.", sentences, 0, most=3) == ["a b c", "d e f", "g."]


def test_each_part_of_a_sentence_that_is_too_long_counts_as_a_sentence():
    text = "One. Two tea cup pot tray. Six. End."
    assert split(text, 2, 0, most=4) == ["One.", "Two tea cup pot", "tray. Six.", "End."]
    assert split(text, 3, 0, most=4) == ["One.", "Two tea cup pot", "tray. Six. End."]


@pytest.mark.parametrize(
    ("sizes", "options"), [((0, 0), {}), ((3, 3), {}), ((3, -1), {}), ((3, 1), {"most": 0})]
)
def test_bad_settings_are_refused(sizes, options):
    with pytest.raises(InvalidSetting):
        SentenceSplitter(*sizes, **options)
