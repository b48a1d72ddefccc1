"""NUL and lone surrogates: a typed error in documents, spaces in queries, for every store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.errors import InvalidText
from ragchat_retrieval.text import check_document, check_text, clean_query, is_storable
from ragchat_retrieval.values import Document, Passage

BAD = {"NUL": "o\x00er", "a lone surrogate": "o\ud83der"}
characters = st.text(st.characters(codec=None, exclude_categories=()))


@pytest.mark.parametrize("text", BAD.values(), ids=ascii)
def test_what_cannot_be_stored_becomes_a_space_in_a_query(text):
    assert clean_query(text) == "o er"


def test_a_query_is_trimmed_after_cleaning():
    assert clean_query("\x00 \ud800 what\u00a0is it? \udfff\n") == "what\u00a0is it?"
    assert clean_query("\x00\ud800") == ""


def test_pairs_that_form_one_character_are_kept():
    assert clean_query("\U0001f600") == "\U0001f600"
    check_text("\U0001f600", document_id="d", field="text")


@given(characters)
def test_a_cleaned_query_can_be_stored_and_cleaning_again_changes_nothing(text):
    cleaned = clean_query(text)
    assert is_storable(cleaned)
    assert clean_query(cleaned) == cleaned
    assert len(cleaned) <= len(text)


@given(characters)
def test_storable_is_exactly_utf8_without_nul(text):
    try:
        oracle = b"\x00" not in text.encode("utf-8")
    except UnicodeEncodeError:
        oracle = False
    assert is_storable(text) is oracle


@pytest.mark.parametrize(("what", "text"), BAD.items(), ids=ascii)
def test_the_error_names_document_and_field_and_what_is_wrong_but_no_content(what, text):
    with pytest.raises(InvalidText, match=rf"document 'd', title: holds {what}$") as caught:
        check_text(text, document_id="d", field="title")
    assert (caught.value.document_id, caught.value.field) == ("d", "title")
    assert "o" not in str(caught.value).removeprefix("document 'd', title: holds ").replace(
        what, ""
    )


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("id", {"id": "a\x00b"}),
        ("text", {"text": "a\x00b"}),
        ("title", {"title": "a\ud800b"}),
        ("source", {"source": "a\x00b"}),
        ("metadata.team", {"metadata": {"ok": "x", "team": "a\x00b"}}),
        ("metadata.tags", {"metadata": {"tags": ["ok", ["\udc00"]]}}),
        ("metadata.map", {"metadata": {"map": {"inner": {"k": "\x00"}}}}),
        ("metadata.map", {"metadata": {"map": {"k\x00": 1}}}),
    ],
)
def test_every_text_field_of_a_document_is_checked(field, changes):
    document = Document(**{"id": "d", "text": "fine", **changes})
    with pytest.raises(InvalidText) as caught:
        check_document(document)
    assert caught.value.field == field
    assert caught.value.document_id == document.id


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("id", {"id": "a\x00b"}),
        ("document_id", {"document_id": "a\x00b"}),
        ("text", {"text": "a\ud800b"}),
        ("title", {"title": "\x00"}),
        ("source", {"source": "\x00"}),
        ("headings", {"headings": ("ok", "\x00")}),
        ("metadata.team", {"metadata": {"team": "\x00"}}),
    ],
)
def test_every_text_field_of_a_passage_is_checked(field, changes):
    passages = [Passage("fine", document_id="d"), Passage(**{"text": "fine", **changes})]
    with pytest.raises(InvalidText) as caught:
        check_document(Document("d", "fine"), passages)
    assert caught.value.field == f"passages[1].{field}"
    assert caught.value.document_id == "d"


def test_everything_else_is_accepted_as_it_is():
    text = "\x01\x1f\x7f\ufeff\ufffd\ufffe e\u0301 \u200f \U0010ffff \r\n"
    document = Document(
        "d",
        text,
        title=text,
        source=text,
        metadata={"k": [text, {text: text}], "n": 1, "f": 0.5, "none": None, "yes": True},
    )
    check_document(document, [Passage(text, headings=(text,), metadata=document.metadata)])
    assert document.text == text
