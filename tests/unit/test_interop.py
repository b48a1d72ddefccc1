"""The part of the bridges to other libraries that needs none of them."""

from __future__ import annotations

import datetime as dt
import importlib
import math
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat import MissingExtra, Passage, Query
from ragchat.interop.foreign import ForeignRetriever, Found, metadata_of
from ragchat_retrieval.trace import Degradation
from ragchat_retrieval.values import Lines, Span

NAIVE = dt.datetime(2026, 1, 2)  # noqa: DTZ001 - as loaders leave them


async def found_by(*items, **options):
    async def ask(_retriever, _text):
        return items

    return await ForeignRetriever(ask, object(), **options)(Query("tea"))


def item(text="Tea.", id="1", metadata=None, **more):
    return Found(text, id, metadata or {}, **more)


scores = st.one_of(st.none(), st.floats(), st.integers(), st.booleans(), st.text(max_size=2))


@given(st.lists(scores, max_size=6))
async def test_scores_are_finite_fall_and_keep_the_order(given):
    """They are the given ones, as floats, exactly if those are numbers, finite, and never rise."""
    result = await found_by(*(item(id=str(n), score=score) for n, score in enumerate(given)))
    made = [candidate.score for candidate in result]
    assert [candidate.passage.id for candidate in result] == [str(n) for n in range(len(given))]
    assert all(map(math.isfinite, made))
    assert all(above >= below for above, below in pairwise(made))
    usable = all(type(score) in {int, float} and math.isfinite(score) for score in given)
    numbers = [float(score) for score in given] if usable else []
    kept = usable and numbers == sorted(numbers, reverse=True)
    assert made == (numbers if kept else [1 / rank for rank in range(1, len(given) + 1)])


@given(
    st.dictionaries(
        st.one_of(st.text(max_size=8), st.sampled_from(["title", "source", "team", "a b"])),
        st.one_of(
            st.none(), st.text(max_size=4), st.integers(), st.floats(), st.just({1}), st.just(NAIVE)
        ),
    )
)
async def test_no_metadata_of_theirs_break_a_passage(metadata):
    """What a filter can compare is kept as it is, and no key that it can name is lost."""
    (candidate,) = await found_by(item(metadata=metadata))
    assert candidate.passage.metadata.get("team") == metadata.get("team") or isinstance(
        candidate.passage.metadata["team"], str
    )
    assert ("team" in candidate.passage.metadata) is ("team" in metadata)


async def test_a_value_that_metadata_cannot_hold_is_kept_as_its_text():
    (candidate,) = await found_by(item(metadata={"on": NAIVE, "big": 2**60, "a.b": 1, "ok": [1]}))
    assert candidate.passage.metadata == {"on": "2026-01-02 00:00:00", "big": str(2**60), "ok": [1]}


@pytest.mark.parametrize(
    ("metadata", "title", "source"),
    [
        ({"source": "a.md", "title": "A", "file_path": "b.md"}, "A", "a.md"),
        ({"file_path": "b.md", "url": "http://c"}, None, "b.md"),
        ({"url": "http://c", "file_name": "d"}, None, "http://c"),
        ({"source": " ", "title": 3, "file_name": "d"}, None, "d"),
        ({}, None, None),
    ],
)
async def test_title_and_source_are_where_loaders_leave_them(metadata, title, source):
    (candidate,) = await found_by(item(metadata=metadata))
    assert (candidate.passage.title, candidate.passage.source) == (title, source)


@pytest.mark.parametrize(
    ("found", "document_id"),
    [
        (item(document_id="d", metadata={"document_id": "e"}), "d"),
        (item(metadata={"document_id": "e"}), "e"),
        (item(), "1"),
        (item(id=None), ""),
    ],
)
async def test_a_document_is_named_by_the_first_that_names_one(found, document_id):
    (candidate,) = await found_by(found)
    assert candidate.passage.document_id == document_id
    assert candidate.passage.id


async def test_chunks_that_share_an_id_are_passages_of_one_document():
    """Else a merge of rankings would take them for one."""
    result = await found_by(item("Tea.", "doc"), item("Rice.", "doc"), item("Oats.", "other"))
    assert [c.passage.document_id for c in result] == ["doc", "doc", "other"]
    assert len({c.passage.id for c in result}) == 3
    assert result[2].passage.id == "other"


async def test_items_without_text_are_left_out_and_counted():
    result = await found_by(item(None), item(" \n", "2"), item("Tea.", "3"))
    assert [candidate.passage.id for candidate in result] == ["3"]
    assert result.degraded == (Degradation("retrieve", "2 items without text"),)


def test_a_passage_tells_its_fields_beside_its_metadata():
    """Its own keys win over its place, and null stays where it was given."""
    passage = Passage(
        "Tea.",
        document_id="d",
        source="a.md",
        metadata={"page": "iv", "none": None, "deep": {"list": [1]}},
        page=4,
        lines=Lines(1, 2),
        span=Span(0, 4),
        headings=("Drinks",),
    )
    told = metadata_of(passage)
    assert told == {
        "document_id": "d",
        "source": "a.md",
        "page": "iv",
        "none": None,
        "deep": {"list": [1]},
        "lines": [1, 2],
        "span": [0, 4],
        "headings": ["Drinks"],
    }
    told["deep"]["list"].append(2)
    assert passage.metadata["deep"] == {"list": [1]}


@pytest.mark.parametrize(
    ("module", "library"),
    [("langchain", "langchain_core"), ("llamaindex", "llama_index"), ("haystack", "haystack")],
)
def test_a_bridge_without_its_library_names_the_extra(module, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"ragchat.interop.{module}", raising=False)
    with pytest.raises(MissingExtra) as caught:
        importlib.import_module(f"ragchat.interop.{module}")
    assert caught.value.extra == module
