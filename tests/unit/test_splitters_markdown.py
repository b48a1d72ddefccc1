"""HeadingSplitter: sections, and what stays whole in them."""

from __future__ import annotations

import pytest

from ragchat_retrieval.chunking import HeadingSplitter, TextSplitter
from ragchat_retrieval.chunking.markdown import first_heading
from ragchat_retrieval.testing.splitter_suite import check_passages
from ragchat_retrieval.values import Document, indexed_text


def words(text):
    return len(text.split())


def split(text, size=512, overlap=0, *, count=None):
    document = Document("d", text)
    passages = HeadingSplitter(size, overlap, count=count).split(document)
    check_passages(document, passages)
    return passages


def parts(text, size=512, overlap=0):
    return [(p.headings, p.text) for p in split(text, size, overlap, count=words)]


def test_passages_stand_under_their_path_of_headings():
    text = "intro\n\n# A\n\none\n\n## B\n\ntwo\n\n### C\n\nthree\n\n## D\n\nfour\n\nE\n=\n\nfive"
    assert parts(text) == [
        ((), "intro"),
        (("A",), "one"),
        (("A", "B"), "two"),
        (("A", "B", "C"), "three"),
        (("A", "D"), "four"),
        (("E",), "five"),
    ]


def test_a_skipped_level_makes_no_gap_in_the_path():
    assert parts("# A\n\n### C\n\nx\n\n## B\n\ny") == [(("A", "C"), "x"), (("A", "B"), "y")]


def test_headings_are_plain_text():
    (passage,) = split("# The `--all` *flag* of [tool](http://x.example) &amp; co ##\n\nx")
    assert passage.headings == ("The --all flag of tool & co",)
    (passage,) = split("A head\nover two lines\n===\n\nx")
    assert passage.headings == ("A head over two lines",)


@pytest.mark.parametrize("form", ["# {}", "{}\n---"])
def test_what_is_too_long_for_a_heading_is_text(form):
    """It would stand with every passage below it, and a line of dashes makes one of any text."""
    long = "word " * 5_000
    text = "\n\n".join(["# A", form.format(long), *["Some text."] * 500])
    passages = split(text, 32, count=words)
    assert {p.headings for p in passages} == {("A",)}
    assert sum(p.text.count("word") for p in passages) == 5_000
    assert first_heading(form.format(long)) is None


def test_of_a_long_header_only_the_beginning_is_repeated():
    """Else a table of as many bytes of header as of rows would need the square of them."""
    header = "|" + " name |" * 1_000
    table = f"{header}\n|{'---|' * 1_000}\n" + "| x |\n" * 50
    passages = split(table, 64, count=words)
    assert {len(p.headings[-1]) for p in passages if p.headings} == {512}
    assert header.startswith(passages[-1].headings[-1])


def test_the_index_reads_the_path_with_the_text():
    (passage,) = split("# Leave\n\n25 days.")
    assert passage.text == "25 days."
    assert indexed_text(passage) == "Leave\n25 days."


def test_short_blocks_are_packed_under_one_heading_and_never_across():
    text = "# A\n\na b\n\n- c\n- d\n\n# B\n\ne"
    assert parts(text, 6) == [(("A",), "a b\n\n- c\n- d"), (("B",), "e")]


def test_a_heading_with_nothing_below_it_is_a_passage():
    assert parts("# A\n\n## B\n\n# C\n\n***\n\n# D\n\nx") == [
        (("A",), "## B"),
        ((), "# C"),
        (("D",), "x"),
    ]


def test_a_document_of_headings_is_not_lost():
    assert parts("# A\n## B\n## C") == [(("A",), "## B"), (("A",), "## C")]


def test_front_matter_is_left_out():
    front = "---\n# about\ntitle: Tea\ntags: [a]\n\nmore: x\n---\n"
    for end in ("\n", "\r\n", "\r"):
        (passage,) = split((front + "\n# H\n\nbody").replace("\n", end))
        assert (passage.headings, passage.text, passage.lines) == (("H",), "body", (11, 11))
    assert parts("---\n---\nbody") == [((), "body")]


@pytest.mark.parametrize(
    "text", ["---\n\nsome text\n\n---\n\nmore", "\n---\na: b\n\n---\nmore", "---\na: b\n\nmore"]
)
def test_a_rule_at_the_start_is_no_front_matter(text):
    found = " ".join(passage.text for passage in split(text))
    assert "more" in found
    assert "some text" in found or "a: b" in found


def test_headings_inside_code_and_quotations_are_none():
    text = "# A\n\n```\n# code\n```\n\n> # quoted\n\n    # indented\n\n~~~\n# open to the end"
    (passage,) = split(text)
    assert passage.headings == ("A",)


def test_lists_tables_code_and_quotations_that_fit_stay_whole():
    blocks = [
        "- a b\n- c d\n\n  e\n- f",
        "| a | b |\n|---|---|\n| c | d |",
        "```\na b\n\nc d e f\n```",
        "> a b c d\n> e f",
    ]
    text = "\n\n".join(blocks)
    assert [p.text for p in split(text, 12, count=words)] == blocks


def test_a_large_list_is_cut_between_items():
    text = "- a b c\n- d\n  - e f\n- g h\n  i"
    assert [text for _, text in parts(text, 5)] == ["- a b c", "- d\n  - e f", "- g h\n  i"]


def test_a_large_table_is_cut_between_rows_and_each_piece_knows_the_header():
    table = "| name | age |\n|------|-----|\n| a | 1 |\n| b | 2 |\n| c | 3 |\n| d | 4 |"
    text = f"# T\n\nbefore\n\n{table}\n\nafter"
    header = ("T", "| name | age |")
    rows = table.split("\n")
    assert parts(text, 11) == [
        (("T",), "before"),
        (("T",), "\n".join(rows[:3])),
        (header, "\n".join(rows[3:5])),
        (header, rows[5]),
        (("T",), "after"),
    ]


def test_two_large_tables_keep_their_own_headers():
    table = "| {0} |\n|---|\n| 1 |\n| 2 |\n| 3 |"
    found = split(table.format("x") + "\n\n" + table.format("y"), 8, count=words)
    assert [p.headings for p in found] == [(), ("| x |",), (), ("| y |",)]


def test_large_code_is_cut_at_line_ends_and_keeps_its_indentation():
    text = "```py\ndef f():\n    return 1\n\n    # done\nx = f()\n```"
    assert [text for _, text in parts(text, 4)] == [
        "```py\ndef f():",
        "    return 1\n\n    # done",
        "x = f()\n```",
    ]


def test_large_paragraphs_are_cut_like_running_text():
    text = "One two. Three four. Five six seven eight."
    expected = [p.text for p in TextSplitter(5, 0, count=words).split(Document("d", text))]
    assert [text for _, text in parts(text, 5)] == expected


def test_overlap_stays_under_its_heading_and_takes_whole_blocks():
    text = "# A\n\na b. c d.\n\ne f g\n\n- h\n- i\n\n# B\n\nj"
    assert parts(text, 7, 3) == [
        (("A",), "a b. c d.\n\ne f g"),
        (("A",), "e f g\n\n- h\n- i"),
        (("B",), "j"),
    ]


def test_what_renders_to_nothing_is_kept():
    """A link's address may be what somebody looks for."""
    (passage,) = split("see [the page]\n\n[the page]: http://x.example/page")
    assert passage.text.endswith("http://x.example/page")
    assert parts("# A\n\n[p]: http://x.example") == [(("A",), "[p]: http://x.example")]


def test_a_byte_order_mark_hides_no_heading():
    (passage,) = split("\ufeff# A\n\nx")
    assert passage.headings == ("A",)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# One\n\n# Two", "One"),
        ("text\n\nSub\n---\n", "Sub"),
        ("---\na: b\n---\n# `T` it", "T it"),
        ("```\n# no\n```", None),
        ("#\n\n## B", "B"),
        ("", None),
        ("text only", None),
    ],
)
def test_the_first_heading_is_the_title(text, title):
    assert first_heading(text) == title


@pytest.mark.parametrize(
    "text",
    [
        "- a b c\n" * 5_000,
        "|a|b|\n|-|-|\n" + "|1|2|\n" * 4_000,
        ">" * 20_000 + "x",
        "```\n" + "x = 1\n" * 10_000,
        "[" * 20_000,
        "---\nkey: x\r" + "a\r" * 10_000,
        "---\n" + "\n" * 10_000 + "x",
        "# a\n" * 2_000,
        "* " * 5_000 + "x",
    ],
    ids=range(9),
)
def test_odd_texts_take_linear_time(text):
    """Each takes a fraction of a second; anything quadratic would be noticed."""
    assert split(text, 50)
