from __future__ import annotations

import copy
import itertools
import json
import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat.citations import Citations
from ragchat.errors import InvalidCitations, UnknownCitation
from ragchat_retrieval.values import Lines, Passage, Span

A, B, C = (Passage(text, id=text.lower()) for text in ("A", "B", "C"))
THREE = Citations([A, B, C])


@pytest.mark.parametrize(
    ("marker", "passage"),
    [("[1]", A), ("[3]", C), ("[ 2 ]", B), ("1", A), ("2", B), (3, C)],
)
def test_a_marker_resolves_to_the_passage_with_the_number_printed_in_the_prompt(marker, passage):
    assert THREE.resolve(marker) is passage


@pytest.mark.parametrize(
    "marker",
    [
        "[0]",
        "[4]",
        "[-1]",
        "[1.0]",
        "[01]",
        "[]",
        "",
        "one",
        "[1",
        "[1, 2]",
        0,
        -1,
        4,
        True,
        1.0,
        "9" * 30,
    ],
)
def test_any_other_spelling_or_number_is_an_unknown_citation(marker):
    with pytest.raises(UnknownCitation) as caught:
        THREE.resolve(marker)
    assert caught.value.known == 3


def test_citations_are_an_immutable_map_from_one_to_n():
    assert list(THREE) == [1, 2, 3]
    assert THREE == {1: A, 2: B, 3: C}
    assert len(Citations()) == 0
    with pytest.raises(AttributeError, match="immutable"):
        THREE._passages = {}
    with pytest.raises(AttributeError, match="immutable"):
        del THREE._passages
    with pytest.raises(TypeError):
        THREE[1] = B


def test_equal_content_is_equal():
    assert Citations([A, B]) == Citations({2: B, 1: A})
    assert hash(Citations([A, B])) == hash(Citations({2: B, 1: A}))
    assert Citations([A, B]) != Citations([B, A])
    assert pickle.loads(pickle.dumps(THREE)) == copy.deepcopy(THREE) == THREE  # noqa: S301 - ours
    assert repr(Citations([A])) == "Citations({1: 'a'})"


@pytest.mark.parametrize("bad", [{0: A}, {"1": A}, {True: A}, ["text"], {1: None}])
def test_numbers_are_positive_integers_and_stand_for_passages(bad):
    with pytest.raises(InvalidCitations):
        Citations(bad)


def test_find_tells_known_numbers_invented_numbers_and_foreign_markers_apart():
    found = THREE.find("One [1][2], two [2-5], three 【4:0†f】, four [9] and `[1]`.")
    assert [(m.marker, m.numbers, m.unknown, m.foreign) for m in found] == [
        ("[1]", (1,), (), False),
        ("[2]", (2,), (), False),
        ("[2-5]", (2, 3), (4, 5), False),
        ("【4:0†f】", (), (), True),
        ("[9]", (), (9,), False),
    ]


def test_a_number_named_twice_in_one_marker_counts_once():
    (mention,) = THREE.find("[2, 1, 2, 1-3]")
    assert mention.numbers == (2, 1, 3)


@given(st.text(alphabet="[]1239,- `\nab【】†:", max_size=60))
def test_a_mention_spans_its_marker_and_the_mentions_are_in_order(text: str):
    found = THREE.find(text)
    assert all(text[m.start : m.end] == m.marker for m in found)
    assert all(a.end <= b.start for a, b in itertools.pairwise(found))


def test_cited_are_the_known_passages_in_order_of_first_appearance():
    assert list(THREE.cited("x [3], y [1], z [3][8]").items()) == [(3, C), (1, A)]
    assert THREE.cited("nothing") == {}


def test_a_message_without_a_text_cites_nothing():
    """The content of a message that calls tools is None."""
    assert THREE.find(None) == ()
    assert THREE.cited(None) == {}
    assert THREE.annotate(None) == []


RICH = Passage(
    "text \u2028 with <tags> & \U0001f600",
    id="d#0",
    document_id="d",
    title="Title",
    source="https://example.org/d",
    metadata={"n": 1, "when": datetime(2026, 1, 2, tzinfo=UTC), "inner": {"$datetime": "x"}},
    headings=("A", "B"),
    page=3,
    lines=Lines(4, 9),
    span=Span(10, 30),
    ordinal=2,
    digest="ab",
)


def test_citations_survive_json_without_loss():
    stored = Citations({1: A, 4: RICH})
    again = Citations.from_json(stored.to_json())
    assert again == stored
    assert again[4].metadata["when"] == datetime(2026, 1, 2, tzinfo=UTC)
    assert (type(again[4].lines), type(again[4].span)) == (Lines, Span)
    assert Citations.from_json(stored.to_json().encode()) == stored


@given(
    st.lists(
        st.builds(
            Passage,
            st.text(),
            document_id=st.text(),
            title=st.none() | st.text(),
            source=st.none() | st.text(),
            headings=st.lists(st.text()).map(tuple),
            page=st.none() | st.integers(1),
            ordinal=st.integers(0),
            metadata=st.dictionaries(st.text("ab", min_size=1), st.integers(-9, 9) | st.text()),
        ),
        max_size=4,
    )
)
def test_any_passages_survive_json(passages: list[Passage]):
    assert Citations.from_json(Citations(passages).to_json()) == Citations(passages)


def test_the_stored_form_has_a_version():
    assert json.loads(THREE.to_json())["version"] == 1


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "no json",
        "[]",
        "{}",
        '{"version": 2, "citations": []}',
        '{"version": true, "citations": []}',
        '{"version": 1}',
        '{"version": 1, "citations": [3]}',
        '{"version": 1, "citations": [{"text": "no number"}]}',
        '{"version": 1, "citations": [{"number": 0, "text": "a"}]}',
        '{"version": 1, "citations": [{"number": 1, "text": 5}]}',
        '{"version": 1, "citations": [{"number": 1, "text": "a", "lines": [1]}]}',
        '{"version": 1, "citations": [{"number": 1, "text": "a", "headings": "ab"}]}',
        '{"version": 1, "citations": [{"number": 1, "text": "a", "page": "1"}]}',
        '{"version": 1, "citations": [{"number": 1, "text": "a", "extra": 1}]}',
        '{"version": 1, "citations": [{"number": 1, "text": "a", "metadata": {"bad key": 1}}]}',
        '{"version": 1, "citations": [{"number": 1, "text": "a", "metadata": [1]}]}',
        '{"version": 1, "citations": [{"number": 1, "text": "a"}, {"number": 1, "text": "b"}]}',
        "[" * 100_000,
    ],
)
def test_another_version_or_damage_is_an_error_that_repeats_nothing(stored: str):
    with pytest.raises(InvalidCitations) as caught:
        Citations.from_json(stored)
    assert "no number" not in str(caught.value)
