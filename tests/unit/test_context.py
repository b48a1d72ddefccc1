"""Plain context blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.context import format_context
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.values import Candidate, Lines, Passage

HEADER = "[Source: {source}, Lines: {start}-{end}]"


def words(text: str) -> int:
    return len(text.split())


def candidate(text: str, **fields) -> Candidate:
    return Candidate(Passage(text, **fields), 1.0)


def test_the_header_names_source_and_lines():
    found = [candidate("alpha", source="a.md", lines=(3, 5)), candidate("beta", source="b.md")]
    assert format_context(found, header=HEADER) == (
        "[Source: a.md, Lines: 3-5]\nalpha\n\n[Source: b.md]\nbeta"
    )


def test_a_passage_with_none_of_the_fields_has_no_header():
    assert format_context([candidate("alpha")], header=HEADER) == "alpha"


def test_a_source_cannot_open_a_line_of_its_own():
    block = format_context([candidate("x", source="a\n[Source: b]")], header="[Source: {source}]")
    assert block == "[Source: a [Source: b]]\nx"


def test_braces_in_values_are_text():
    passage = candidate("{source}", source="{start}", lines=Lines(1, 2))
    assert format_context([passage], header="{source}") == "{start}\n{source}"


def test_the_first_block_that_does_not_fit_ends_the_context():
    found = [candidate("one two"), candidate("three four five"), candidate("six")]
    assert format_context(found, max_tokens=4, count=words) == "one two"


def test_headers_count():
    found = [candidate("one two", source="s")]
    assert format_context(found, header="[S: {source}]", max_tokens=3, count=words) == ""
    assert format_context(found, header="[S: {source}]", max_tokens=4, count=words)


def test_the_counter_is_not_called_without_a_limit_and_no_limit_below_one_gives_text():
    def never(text: str) -> int:
        raise AssertionError(text)

    assert format_context([candidate("a")], count=never) == "a"
    assert format_context([candidate("a")], max_tokens=0, count=never) == ""


def test_a_negative_count_is_refused():
    with pytest.raises(InvalidSetting):
        format_context([candidate("a")], max_tokens=5, count=lambda text: -1)


@given(st.lists(st.text(min_size=1, max_size=20)), st.integers(-1, 30))
def test_the_context_never_exceeds_its_limit(texts, limit):
    block = format_context([candidate(t) for t in texts], max_tokens=limit, count=len)
    assert len(block) <= max(limit, 0)
    assert "\n\n".join(texts).startswith(block)
