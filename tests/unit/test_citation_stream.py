"""The stream of an answer with its citations, for every way of cutting the answer."""

# ruff: noqa: RUF001 - look-alike brackets, digits and dashes are what is tested

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat.citations import Citations, CitationStream, markdown_link
from ragchat.citations.scanner import LOOKAHEAD, Scanner
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.values import Passage

ONE = Passage("a", id="a", source="https://example.org/a")
TWO = Passage("b", document_id="d/2")
KNOWN = Citations([ONE, TWO])
MODES = ["keep", "strip", "link"]

PIECES = st.sampled_from(
    [
        *"[]【】()!:^,;`~ \n.1２a中é\t\\",
        *(
            "[1]",
            " [2]",
            "[1, 2]",
            "[1-3]",
            "【1】",
            "［1］",
            "【4:0†f】",
            "[9]",
            "[1](",
            "![",
            "[ 1 ]",
        ),
        *("```\n", "\n```\n", "``", "- ", "name", " claim.", "\n", "\u00a0", "  "),
    ]
)
TEXTS = st.lists(PIECES, max_size=25).map("".join)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    bounds = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds)]


def streamed(pieces: list[str], mode: str, citations: Citations = KNOWN):
    stream = CitationStream(citations, mode=mode)
    emitted = [*map(stream.feed, pieces), stream.finish()]
    return "".join(e.text for e in emitted), [p for e in emitted for p in e.citations]


@given(TEXTS, st.lists(st.integers(0, 500), max_size=10), st.sampled_from(MODES))
def test_text_and_citations_are_those_of_the_whole_text_for_every_way_of_cutting(text, cuts, mode):
    emitted, placed = streamed(pieces_of(text, cuts), mode)
    assert [p.mention for p in placed] == list(KNOWN.find(text))
    assert (emitted, tuple(placed)) == KNOWN.rewrite(text, mode)
    assert streamed(list(text), mode) == (emitted, placed)


@given(TEXTS, st.sampled_from(MODES))
def test_a_citation_lies_in_text_that_was_emitted_and_at_most_64_characters_wait(text, mode):
    """The offsets of a place are those of the emitted text, in order and never overlapping."""
    stream = CitationStream(KNOWN, mode=mode)
    emitted, reached = "", 0
    for fed, char in enumerate(text, start=1):
        step = stream.feed(char)
        emitted += step.text
        for place in step.citations:
            assert reached <= place.start <= place.end <= len(emitted)
            reached = place.end
        assert len(stream._waiting) + len(stream._gap._blank) <= LOOKAHEAD
        assert mode != "keep" or emitted == text[:fed]


@given(TEXTS)
def test_keep_emits_the_answer_as_it_is_and_places_each_citation_where_it_stands(text):
    emitted, placed = streamed(list(text), "keep")
    assert emitted == text
    assert all(text[p.start : p.end] == p.mention.marker for p in placed)


@given(TEXTS)
def test_strip_changes_nothing_but_markers_and_blanks(text):
    emitted, placed = streamed(list(text), "strip")
    prose, read = "", 0
    for place in placed:
        prose += text[read : place.mention.start]
        read = place.mention.end
    prose += text[read:]
    blanks = str.maketrans("", "", " \u00a0\u202f")
    assert emitted.translate(blanks) == prose.translate(blanks)
    assert len(prose) - len(emitted) <= len(placed)
    assert all(place.start == place.end for place in placed)


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("25 days [1].", "25 days."),
        ("25 days [1][2]. More [9].", "25 days. More."),
        ("25 days [1] [2], then", "25 days, then"),
        ("as [1] says", "as says"),
        ("喝茶[1]。", "喝茶。"),
        ("(see [1])", "(see)"),
        ("**bold [1]** next", "**bold** next"),
        ("[1] The rule", "The rule"),
        ("- [1] The rule\n[2] more", "- The rule\nmore"),
        ("ends [1]", "ends"),
        ("ends [1]\nnew", "ends\nnew"),
        ("ends [1]  \nbreak", "ends  \nbreak"),
        ("a [1]b", "a b"),
        ("name [1][x]", "name [x]"),
        ("a [1] `rows[2]` b", "a `rows[2]` b"),
        ("| a [1] | [2] | b |", "| a | | b |"),
        ("foreign 【4:0†f】.", "foreign."),
        ("two  [1].", "two ."),
        ("trailing ", "trailing "),
        ("[1](url) ![2] [^1]", "[1](url) ![2] [^1]"),
    ],
)
def test_strip_leaves_prose_as_if_it_had_never_held_a_marker(text, stripped):
    assert streamed(list(text), "strip")[0] == stripped


def test_strip_reports_invented_and_foreign_markers_too():
    _, placed = streamed(["a [1], b [9], c 【4:0†f】."], "strip")
    assert [(p.mention.numbers, p.mention.unknown, p.mention.foreign) for p in placed] == [
        ((1,), (), False),
        ((), (9,), False),
        ((), (), True),
    ]


@pytest.mark.parametrize(
    ("text", "linked"),
    [
        ("x [1].", "x [1](https://example.org/a)."),
        ("x 【2】.", "x [2](ragchat:document/d%2F2)."),
        ("x [1, 2]", "x [1](https://example.org/a)[2](ragchat:document/d%2F2)"),
        ("x [1, 9]", "x [1](https://example.org/a)[9]"),
        ("x [9] 【4:0†f】 `[1]`", "x [9] 【4:0†f】 `[1]`"),
        ("so!【1】", "so! [1](https://example.org/a)"),
        ("a\\[1]", "a\\ [1](https://example.org/a)"),
    ],
)
def test_link_writes_a_markdown_link_for_every_known_number_and_leaves_the_rest(text, linked):
    emitted, placed = streamed(list(text), "link")
    assert emitted == linked
    for place in placed:
        assert emitted[place.start : place.end][0] in "[【"
    if placed and placed[0].mention.numbers:
        assert streamed([linked], "link")[0] == linked


def test_a_function_writes_links_of_its_own():
    stream = CitationStream(KNOWN, mode="link", link=lambda number, p: f"<a {number} {p.id}>")
    assert (stream.feed("x [1]").text, stream.feed(".").text) == ("x ", "<a 1 a>.")


@pytest.mark.parametrize("bad", '()[]<>\\`"|')
def test_no_character_of_a_source_can_end_a_markdown_link(bad):
    link = markdown_link(1, Passage("t", source=f"https://example.org/a{bad}b"))
    assert link == f"[1](https://example.org/a%{ord(bad):02X}b)"


def test_keep_emits_at_once_and_reports_a_marker_when_it_is_certain():
    stream = CitationStream(KNOWN)
    assert stream.feed("x [1]") == ("x [1]", ())
    text, placed = stream.feed(" y")
    assert (text, [p.mention.marker for p in placed]) == (" y", ["[1]"])
    stream = CitationStream(KNOWN)
    stream.feed("x [1]")
    assert stream.feed("(y)").citations == stream.finish().citations == ()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("filler", ["1", "x", "["])
def test_an_unterminated_marker_holds_back_a_fixed_number_of_characters_and_no_steps(
    mode, filler, monkeypatch
):
    """200 KB in pieces of one character: everything comes out, and work grows with the text."""
    steps = 0
    real = Scanner._scan

    def counted(self, text):
        nonlocal steps
        steps += len(text)
        return real(self, text)

    monkeypatch.setattr(Scanner, "_scan", counted)
    text = "[" + filler * (200_000 // len(filler))
    stream, out = CitationStream(KNOWN, mode=mode), 0
    for fed, char in enumerate(text, start=1):
        out += len(stream.feed(char).text)
        assert fed - out <= LOOKAHEAD
    assert steps <= 2 * LOOKAHEAD * len(text)
    assert [p.mention.numbers for p in stream.feed(" then [2].").citations] == [(2,)]


@pytest.mark.parametrize("mode", ["strip", "link"])
def test_at_most_64_characters_wait_even_after_a_blank(mode):
    stream = CitationStream(KNOWN, mode=mode)
    fed = out = 0
    for char in "so " + "[" + "1" * 200:
        out += len(stream.feed(char).text)
        fed += 1
        assert fed - out <= LOOKAHEAD
    assert fed - out <= LOOKAHEAD


def test_an_unknown_mode_is_refused():
    with pytest.raises(InvalidSetting, match="citations"):
        CitationStream(KNOWN, mode="remove")
