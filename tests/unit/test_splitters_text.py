"""TextSplitter, ParagraphSplitter, WholeText, and the recommended sizes."""

from __future__ import annotations

import functools

import pytest

from ragchat_retrieval.chunking import (
    HeadingSplitter,
    ParagraphSplitter,
    Profile,
    TextSplitter,
    WholeText,
    recommended_profile,
)
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.testing.splitter_suite import check_passages
from ragchat_retrieval.tokens import count_tokens
from ragchat_retrieval.values import Document

HANDBOOK = (
    "# Leave policy\n\nEmployees get 25 days of paid leave per year.\n\n"
    "# Remote work\n\nUp to three days a week from home."
)


def words(text):
    return len(text.split())


def texts(splitter, text):
    document = Document("d", text)
    passages = splitter.split(document)
    check_passages(document, passages)
    return [passage.text for passage in passages]


# Settings


@pytest.mark.parametrize("splitter", [TextSplitter, HeadingSplitter])
@pytest.mark.parametrize(
    ("size", "overlap", "name"),
    [
        (10, 10, "overlap"),
        (10, 11, "overlap"),
        (10, -1, "overlap"),
        (0, 0, "size"),
        (-5, 0, "size"),
        (True, 0, "size"),
        (10.5, 0, "size"),
        (10, None, "overlap"),
    ],
)
def test_sizes_that_cannot_work_are_refused_at_construction(splitter, size, overlap, name):
    with pytest.raises(InvalidSetting) as caught:
        splitter(size, overlap)
    assert caught.value.name == name


def test_names_tell_policy_and_settings():
    assert TextSplitter().name == "text:512/64"
    assert HeadingSplitter(224).name == "heading:224/0"
    assert ParagraphSplitter().name == "paragraph"
    assert WholeText().name == "whole"


def test_a_counter_is_part_of_the_name():
    """It moves the cuts, so that documents must be split again."""
    partial = functools.partial(words)
    names = [TextSplitter(count=count).name for count in (None, words, partial)]
    assert names == ["text:512/64", "text:512/64:words", "text:512/64:partial"]


@pytest.mark.parametrize(
    ("model", "window", "expected"),
    [
        (None, None, (512, 64)),
        ("text-embedding-3-small", None, (512, 64)),
        ("all-MiniLM-L6-v2-int8", None, (224, 32)),
        ("anything", 256, (224, 32)),
        ("anything", 512, (448, 64)),
        ("anything", 8192, (512, 64)),
        ("anything", 8, (7, 1)),
    ],
)
def test_the_recommended_profile_fits_the_window(model, window, expected):
    profile = recommended_profile(model, window=window)
    assert profile == Profile(*expected)
    assert TextSplitter(*profile)


def test_a_window_without_room_is_refused():
    with pytest.raises(InvalidSetting):
        recommended_profile(window=7)


# TextSplitter


def test_a_short_text_is_one_passage_without_the_white_space_around_it():
    assert texts(TextSplitter(), "\n\n  One.\n\nTwo.  \n") == ["One.\n\nTwo."]


def test_short_blocks_are_packed_and_blocks_that_fit_stay_whole():
    text = "a b c\n\nd e\n\nf g h i\n\nj"
    assert texts(TextSplitter(5, 0, count=words), text) == ["a b c\n\nd e", "f g h i\n\nj"]


def test_a_large_block_is_cut_between_sentences():
    text = "One two three. Four five. Six seven eight nine. Ten."
    assert texts(TextSplitter(5, 0, count=words), text) == [
        "One two three. Four five.",
        "Six seven eight nine. Ten.",
    ]


def test_a_large_sentence_is_cut_between_words():
    assert texts(TextSplitter(3, 0, count=words), "a b c d e f g") == ["a b c", "d e f", "g"]


def test_a_word_that_is_too_long_is_cut_after_punctuation_or_between_characters():
    assert texts(
        TextSplitter(6, 0, count=len), "one,two,abcdefgh e\u0301e\u0301e\u0301e\u0301"
    ) == [
        "one,",
        "two,ab",
        "cdefgh",
        "e\u0301e\u0301e\u0301",
        "e\u0301",
    ]


def test_scripts_without_spaces_break_between_characters_but_not_before_a_closing_mark():
    assert texts(TextSplitter(4, 0, count=len), "今天天气「很好」，我们去") == [
        "今天天气",
        "「很",
        "好」，我",
        "们去",
    ]


def test_thai_vowels_stay_with_their_consonant():
    pieces = texts(TextSplitter(4, 0, count=len), "แม่น้ำล้นตลิ่งแล้วไปไหน")
    assert "".join(pieces) == "แม่น้ำล้นตลิ่งแล้วไปไหน"
    assert not any(piece[-1] in "เแโใไ" or piece[0] in "ะาำ" for piece in pieces)


def test_the_overlap_is_whole_sentences():
    text = "A b c. D e. F g. H i j. K l m."
    assert texts(TextSplitter(7, 4, count=words), text) == [
        "A b c. D e. F g.",
        "D e. F g. H i j.",
        "H i j. K l m.",
    ]


def test_the_overlap_is_whole_words_where_a_sentence_is_too_long():
    assert texts(TextSplitter(4, 2, count=words), "a b c d e f g h") == [
        "a b c d",
        "c d e f",
        "e f g h",
    ]


def test_the_overlap_leaves_room_for_a_block_that_fits_alone():
    text = "a b.\n\nc d e f g"
    assert texts(TextSplitter(6, 3, count=words), text) == ["a b.", "b.\n\nc d e f g"]
    assert texts(TextSplitter(5, 3, count=words), text) == ["a b.", "c d e f g"]


def test_repeated_text_has_rising_offsets():
    document = Document("d", "go go go go go")
    passages = TextSplitter(2, 1).split(document)
    check_passages(document, passages)
    assert [passage.span for passage in passages] == [(0, 5), (3, 8), (6, 11), (9, 14)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_characters_are_never_cut(size):
    text = "über 漢字 👩‍🔬🇵🇱 e\u0301nd\r\n👍🏽❤️"
    pieces = texts(TextSplitter(size, 0), text)
    assert "\ufffd" not in "".join(pieces)
    assert {"👩‍🔬", "🇵🇱", "👍🏽", "❤️"} <= set(pieces)


def test_a_single_character_larger_than_the_size_is_a_passage_of_its_own():
    assert count_tokens("👩‍🔬") > 1
    assert texts(TextSplitter(1, 0), "👩‍🔬 a") == ["👩‍🔬", "a"]


def test_no_passage_counts_more_than_the_size():
    text = "The valve closes, and then (after 3.5 s) it opens again; see ERR-4041. " * 200
    for size in (7, 50, 224):
        pieces = texts(TextSplitter(size, size // 4), text)
        counts = [count_tokens(piece) for piece in pieces]
        assert max(counts) <= size
        assert sum(counts) / len(counts) > size / 2


def test_a_counter_whose_sums_are_off_still_fills_passages():
    """Separators cost much, or a constant is added to every count."""
    text = "a\n" * 300
    for count in (len, lambda value: words(value) + 3, lambda value: 2 * value.count("\n") + 1):
        pieces = texts(TextSplitter(20, 0, count=count), text)
        assert all(count(piece) <= 20 for piece in pieces)
        assert min(count(piece) for piece in pieces[:-1]) >= 17


def test_spelled_out_special_tokens_are_ordinary_text():
    text = "Stop at <|endoftext|> and <|im_start|>system, says the manual. " * 3
    assert texts(TextSplitter(8, 2), text)


def test_lines_count_every_kind_of_line_end_once():
    document = Document("d", "one\r\n\r\ntwo\rthree\x0cstill three\n\nfour")
    passages = ParagraphSplitter().split(document)
    check_passages(document, passages)
    assert [tuple(passage.lines) for passage in passages] == [(1, 1), (3, 4), (6, 6)]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 20_000,
        "( " * 20_000,
        "(" * 20_000,
        "." * 20_000,
        "今" * 20_000,
        "a\r" * 8_000,
        "\u0301" * 20_000,
        " \n" * 20_000,
        "🇵" * 5_000,
    ],
    ids=range(9),
)
def test_odd_texts_take_linear_time(text):
    """Each takes a fraction of a second; anything quadratic would be noticed."""
    passages = TextSplitter(10, 3).split(Document("d", text))
    assert bool(passages) == bool(text.strip())


# ParagraphSplitter and WholeText


def test_paragraphs_are_never_merged():
    assert texts(ParagraphSplitter(), HANDBOOK) == [
        "# Leave policy",
        "Employees get 25 days of paid leave per year.",
        "# Remote work",
        "Up to three days a week from home.",
    ]


def test_lines_of_spaces_separate_paragraphs_and_crlf_does_not():
    assert texts(ParagraphSplitter(), "a\r\nb\r\n \t\r\nc\n\n\n\nd") == ["a\r\nb", "c", "d"]


def test_whole_text_is_the_text_as_it_is():
    assert texts(WholeText(), "\n a \r\n b\n") == ["\n a \r\n b\n"]
