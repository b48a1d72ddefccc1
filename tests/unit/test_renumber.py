# ruff: noqa: RUF001 - look-alike brackets are what is tested

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat.citations import Citations, scan
from ragchat_retrieval.values import Passage

FIVE = Citations([Passage(name, id=name) for name in "ABCDE"])
MANY = Citations({number: Passage(str(number)) for number in range(1, 1101)})

PIECES = st.sampled_from(
    [
        *" .`\n(:a!",
        *("[1]", "[3]", " [5]", "[4, 2]", "[2-4]", "【3】", "［5］", "[9]", "[1, 8]", "【4:0†f】"),
        *("[1](u)", "name[2]", "`[1]`", "```\n[2]\n```\n"),
    ]
)
TEXTS = st.lists(PIECES, max_size=20).map("".join)


@pytest.mark.parametrize(
    ("text", "expected", "cited"),
    [
        ("x [3], y [1], z [3].", "x [1], y [2], z [1].", "CA"),
        ("x [5][2] y [2, 5]", "x [1][2] y [2, 1]", "EB"),
        ("x [3-5] y [5]", "x [1-3] y [3]", "CDE"),
        ("x 【4】 y ［2］", "x 【1】 y ［2］", "DB"),
        ("x [4] `[4]` a[4] [4](u)\n```\n[4]\n```", "x [1] `[4]` a[4] [4](u)\n```\n[4]\n```", "D"),
        ("x [9] y [2]", "x [?] y [1]", "B"),
        ("x [2, 9]", "x [1][?]", "B"),
        ("x 【4:0†f】 [2]", "x 【4:0†f】 [1]", "B"),
        ("nothing", "nothing", ""),
    ],
)
def test_numbers_go_by_first_appearance_and_the_list_matches_the_text(text, expected, cited):
    renumbered, citations = FIVE.renumber(text)
    assert renumbered == expected
    assert "".join(passage.text for passage in citations.values()) == cited
    assert list(citations) == list(range(1, len(cited) + 1))


def signature(citations: Citations, text: str) -> list[tuple[str, ...]]:
    """What each marker of a text points at, runs of markers taken together."""
    return [tuple(citations[n].text for n in m.numbers) for m in citations.find(text) if m.numbers]


@given(TEXTS)
def test_every_marker_points_at_the_same_passages_as_before_and_none_is_invented(text):
    renumbered, citations = FIVE.renumber(text)
    assert signature(citations, renumbered) == signature(FIVE, text)
    assert not any(mention.unknown for mention in citations.find(renumbered))
    assert list(citations.cited(renumbered)) == list(citations)
    assert citations.renumber(renumbered) == (renumbered, citations)


@given(TEXTS)
def test_everything_but_markers_stays(text):
    def around(text: str) -> list[str]:
        parts, read = [], 0
        for marker in scan(text):
            parts.append(text[read : marker.start])
            read = marker.end
        return "".join([*parts, text[read:]]).replace("[?]", "").replace("【?】", "")

    assert around(FIVE.renumber(text).text) == around(text)


@given(st.lists(st.integers(1, 1100), min_size=1, max_size=40, unique=True))
@settings(max_examples=10)
def test_a_marker_never_grows_beyond_what_counts_as_one(numbers):
    """Many numbers in one marker become several markers, and long runs several ranges."""
    head = " ".join(f"[{number}]" for number in range(1100, 0, -1))
    spans = "".join(f"[{number}]" for number in numbers)
    text = f"{head}. {spans} [1-99] [900-999]"
    renumbered, citations = MANY.renumber(text)
    expected = [p for passages in signature(MANY, text) for p in passages]
    assert [p for passages in signature(citations, renumbered) for p in passages] == expected
