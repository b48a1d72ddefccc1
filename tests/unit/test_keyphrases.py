"""The words that a text is about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.keyphrases import keywords
from ragchat_retrieval.lexical import Analyzer


def test_the_most_frequent_words_come_first_and_ties_as_they_occur():
    text = "The kettle boils. A kettle, the tea, and tea leaves; kettles whistle with steam."
    assert keywords(text) == ["kettle", "boils", "leaves", "whistle", "steam"]


def test_forms_of_a_word_count_together_and_keep_the_commonest_spelling():
    assert keywords("Caches cache (caching) Caches", 1) == ["Caches"]


def test_short_words_and_stop_words_are_left_out():
    assert keywords("the tea would be with them") == []
    assert keywords("the tea would be", min_length=3) == ["tea"]


def test_scripts_without_spaces_give_pairs_and_marks_stay_on_their_letters():
    assert keywords("喝茶,我喜欢喝茶。", 1) == ["喝茶"]
    assert keywords("किताब, किताब! किताबें?", 1, analyzer=Analyzer(None)) == ["किताब"]


@given(st.text(max_size=80), st.integers(0, 5))
def test_no_text_breaks_it(text, limit):
    found = keywords(text, limit)
    assert len(found) <= limit
    assert len(set(found)) == len(found)
    assert all(word.strip() for word in found)


@pytest.mark.parametrize("options", [{"limit": -1}, {"min_length": 0}], ids=str)
def test_settings_outside_their_range_are_refused(options):
    with pytest.raises(InvalidSetting):
        keywords("text", **options)
