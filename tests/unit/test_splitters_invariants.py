"""What holds for every text, size, overlap and counter: checked on generated input."""

from __future__ import annotations

import re
from itertools import pairwise

import regex
from hypothesis import assume, given
from hypothesis import strategies as st

from ragchat_retrieval.chunking import HeadingSplitter, ParagraphSplitter, TextSplitter
from ragchat_retrieval.testing.splitter_suite import check_passages
from ragchat_retrieval.tokens import count_tokens
from ragchat_retrieval.values import Document

# fmt: off
FRAGMENTS = [
    "word", "Straße", "ελιά", "кот", "שלום", "سلام", "क्षि", "குடை", "ภาษา", "ที่",
    "漢", "字", "かっ", "각", "\u1100\u1161", "e\u0301", "\u0301", "👩‍🔬", "🇵🇱", "🇫",
    "👍🏽", "❤️", "\u200d", "\ufe0f", "\u0600", "\u200b", "\ufeff", "<|endoftext|>",
    "https://x.example/y?z=1", "a,b;c", "e.g.", "1.", ".", "?", "!", "。", "」", "「",
    "(", ")", '"', " ", " ", "  ", "\n", "\r\n", "\r", "\n\n", "\t", "\x0c", "\x1c",
    "\x85", "\u2028", "\u3000", "\u00a0", "# ", "- ", "1) ", "> ", "| a | b |\n",
    "|-|-|\n", "```", "---\n", "===\n", "    ", "[x]: y\n", "<b>",
]
# fmt: on

TEXTS = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join), st.text(max_size=80)
)
COUNTERS = st.sampled_from(
    [
        count_tokens,
        len,
        lambda text: len(text.split()),
        lambda text: len(text.encode("utf-8", "surrogatepass")) // 3,
        lambda text: len(text) + 3,  # special tokens around every text
        lambda text: len(text.split()) + text.count("\n") * 3,  # separators cost more
        lambda text: len(set(text)),  # joined pieces cost much less
    ]
)
SIZES = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1)))


def clusters(text):
    return {0, *(match.end() for match in regex.finditer(r"\X", text))}


def is_one_cluster(text):
    return regex.fullmatch(r"\X", text) is not None


def check(document, passages):
    check_passages(document, passages)
    cuts = clusters(document.text)
    for passage in passages:
        assert {passage.span.start, passage.span.end} <= cuts


def uncovered(document, passages):
    left, end = [], 0
    for passage in passages:
        left.append(document.text[end : max(end, passage.span.start)])
        end = max(end, passage.span.end)
    return [*left, document.text[end:]]


@given(TEXTS, SIZES, COUNTERS)
def test_text_passages_are_bounded_exact_and_hold_everything(text, sizes, count):
    size, overlap = sizes
    document = Document("d", text)
    passages = TextSplitter(size, overlap, count=count).split(document)
    check(document, passages)
    assert not "".join(uncovered(document, passages)).strip()
    for passage in passages:
        assert count(passage.text) <= size or is_one_cluster(passage.text)
    for before, after in pairwise(passages):
        assert after.span.end > before.span.end
        if after.span.start < before.span.end:
            assert count(text[after.span.start : before.span.end]) <= overlap


@given(TEXTS, SIZES, COUNTERS)
def test_heading_passages_are_bounded_and_exact(text, sizes, count):
    size, overlap = sizes
    document = Document("d", text)
    passages = HeadingSplitter(size, overlap, count=count).split(document)
    check(document, passages)
    for passage in passages:
        assert count(passage.text) <= size or is_one_cluster(passage.text)
        assert all(heading.strip() for heading in passage.headings)


@given(TEXTS)
def test_paragraphs_hold_everything(text):
    document = Document("d", text)
    passages = ParagraphSplitter().split(document)
    check(document, passages)
    assert not "".join(uncovered(document, passages)).strip()
    for passage in passages:
        assert not re.search(r"(?:(?<!\r)\n|\r\n|\r(?!\n))[ \t]*(?:\r|\n)", passage.text)


@given(st.lists(st.sampled_from(["alpha", "beta-7", "x.", "no?", "(gamma)"]), min_size=1), SIZES)
def test_words_stay_whole(words, sizes):
    """Every passage begins and ends at a space if each word fits."""
    text = " ".join(words)
    for passage in TextSplitter(*sizes, count=lambda value: len(value.split())).split(
        Document("d", text)
    ):
        start, end = passage.span
        assert text[start - 1 : start] in {"", " "}
        assert text[end : end + 1] in {"", " "}


BLOCKS = st.one_of(
    st.just("para {0} with text\nover two lines"),
    st.just("- item {0}\n  - inner {0}\n\n  more {0}\n- last {0}"),
    st.just("1. one {0}\n2. two {0}"),
    st.just("| head{0} | b |\n|---|---|\n| cell{0} | 2 |\n| other{0} | 4 |"),
    st.just("```\n# code {0}\n\nline {0}\n```"),
    st.just("    indented {0}\n    code {0}"),
    st.just("> quote {0}\nlazy {0}"),
    st.just("<div>\nhtml {0}\n</div>"),
    st.just("[ref{0}]: http://x.example/{0}"),
    st.just("***"),
)
HEADINGS = st.sampled_from(["# H{0}", "## H{0}", "### H{0} ##", "H{0}\n==", "H{0}\n--"])


@given(
    st.lists(st.one_of(BLOCKS, BLOCKS, HEADINGS), max_size=12),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 30),
)
def test_markdown_keeps_all_but_headings_and_names_their_path(blocks, end, size):
    """An independent reading of the same blocks says what must be where."""
    rendered = [block.format(number) for number, block in enumerate(blocks)]
    text = "\n\n".join(rendered).replace("\n", end)
    assume(not text.startswith("---"))
    document = Document("d", text)
    passages = HeadingSplitter(size).split(document)
    check(document, passages)

    path: dict[int, str] = {}
    offset = 0
    for number, block in enumerate(rendered):
        level = _level(block)
        if level:
            path = {k: v for k, v in path.items() if k < level} | {level: f"H{number}"}
        elif block != "***":
            expected = tuple(path[key] for key in sorted(path))
            _check_block(document, passages, block.replace("\n", end), offset, expected)
        offset += len(block.replace("\n", end)) + 2 * len(end)


def _check_block(document, passages, block, offset, path):
    """Every character of the block is in a passage that stands under its headings."""
    missing = {i for i in range(offset, offset + len(block)) if not document.text[i].isspace()}
    for passage in passages:
        covered = set(range(*passage.span)) & missing
        if covered:
            assert passage.headings[: len(path)] == path
            assert all("head" in extra for extra in passage.headings[len(path) :])
            missing -= covered
    assert not missing


def _level(block):
    if block.startswith("#"):
        return len(block) - len(block.lstrip("#"))
    return {"\n==": 1, "\n--": 2}.get(block[-3:] if block.startswith("H") else "", 0)
