"""Counting the terms of many texts at once is counting those of each."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval import counting, lexical
from ragchat_retrieval.counting import counted
from ragchat_retrieval.lexical import Analyzer

if TYPE_CHECKING:
    from collections.abc import Sequence

ANALYZERS = [Analyzer(), Analyzer(None), Analyzer("german")]

SCRIPTS = {
    "Latin": "aéßÅøIİﬁ",
    "Greek": "ΑςσάὝ",
    "Cyrillic": "ДёйіЩ",
    "Arabic": "عربيةُ٣",
    "Hebrew": "שָׁלוֹם",
    "Devanagari": "हिन्दी२",
    "Tamil": "தமிழ்",
    "Thai": "ภาษาไทย",
    "Khmer": "ភាសា",
    "Han": "我喜欢喝茶",
    "Kana": "おちゃカﾀｶﾅ々",
    "Hangul": "한국어ᄒ",
    "Georgian": "ქართული",
    "none": "09_+#-.'’\u2010( \n\x00\ud800\u00ad\u200b",
}


def chunks(letters: str) -> st.SearchStrategy[str]:
    """Words of one script, with what joins and ends words between the letters."""
    return st.text(st.sampled_from(letters * 3 + "-.'+#_0 "), max_size=20)


WORDS = st.one_of(
    *map(chunks, SCRIPTS.values()),
    st.text(max_size=20),
    st.sampled_from(["the", "user's", "don't", "O'Brien", "ERR-4041", "a_b", "C++", "x" * 40]),
)
TEXTS = st.lists(st.lists(WORDS, max_size=6).map(" ".join), min_size=1, max_size=6)


def slowly(analyzer: Analyzer, text: str) -> Counter[str]:
    """Counts the terms of a text by the general rules, with no short cut for anything."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    plain = unicodedata.normalize("NFKC", plain).translate(analyzer._letters)
    tokens = (token for chunk in plain.split() for token in lexical._TOKEN.findall(chunk))
    return Counter(term for token in tokens for term in analyzer._token(token))


def together(analyzer: Analyzer, texts: list[str]) -> list[dict[str, int]]:
    """Counts the terms of texts as those of a large write."""
    return [dict(counts) for counts in counted(texts, analyzer._plain, analyzer._expand)]


@pytest.mark.parametrize("analyzer", ANALYZERS, ids=repr)
@given(TEXTS)
def test_texts_of_any_script_count_as_the_general_rules_say(
    analyzer: Analyzer, texts: list[str]
) -> None:
    expected = [slowly(analyzer, text) for text in texts]
    assert together(analyzer, texts) == expected
    assert [analyzer.counts(text) for text in texts] == expected
    assert [dict(c) for c in analyzer.counts_many(texts * 50)] == expected * 50


@given(TEXTS, st.integers(1, 3), st.integers(1, 3))
def test_where_a_table_is_full_and_chunks_are_forgotten_nothing_changes(
    texts: list[str], bits: int, together_at_most: int
) -> None:
    """Tables of 2 to 8 places, two tries, and a memory of four chunks of at most eight bytes."""
    analyzer = ANALYZERS[0]
    expected = [slowly(analyzer, text) for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_LARGEST", bits)
        patch.setattr(counting, "_TRIES", 2)
        patch.setattr(counting, "_KEPT_CHUNKS", 4)
        patch.setattr(counting, "_KEPT_LENGTH", 8)
        patch.setattr(counting, "_TOGETHER", together_at_most)
        assert together(analyzer, texts) == expected


def test_keys_of_one_place_are_told_apart_or_told_to_have_none() -> None:
    """Whoever makes words of one hash makes them cost a bounded number of tries."""
    table = counting._Table(4)
    low = np.arange(1, 101, dtype=np.uint64)
    high = low % np.uint64(3)
    first = table.find(low, high)
    assert np.array_equal(first, table.find(low, high))
    known = np.flatnonzero(first)
    assert len(known) == 16
    assert sorted(first[known].tolist()) == list(range(1, 17))
    stored = [key.ljust(16, b"\0") for key in table.keys(1)]
    for at in known.tolist():
        pair = np.array([low[at], high[at]], "<u8").tobytes()
        assert stored[first[at] - 1] == pair


def test_a_chunk_is_expanded_once_however_often_it_occurs() -> None:
    asked: list[str] = []

    def expand(chunk: str) -> list[str]:
        asked.append(chunk)
        return [chunk]

    def plain(some: Sequence[str]) -> tuple[bytes, list[int]]:
        return " ".join(some).encode(), list(map(len, some))

    texts = ["one two.", "two three-- ... one", "'two' " + "long" * 6] * 700
    counts = counted(texts, plain, expand)
    assert sorted(asked) == sorted(["one", "two", "three", "long" * 6])
    assert counts[1] == {"two": 1, "three": 1, "one": 1}
