from __future__ import annotations

import pytest

from ragchat.citations import Citations
from ragchat.citations.annotate import document_address, title_of, url_of
from ragchat_retrieval.values import Lines, Passage


def test_an_annotation_has_the_shape_of_the_chat_completions_api():
    from openai.types.chat.chat_completion_message import Annotation

    page = Passage("t", document_id="d", title="T", source="https://example.org/a?b=c")
    (annotation,) = Citations([page]).annotate("so [1].")
    assert annotation == {
        "type": "url_citation",
        "url_citation": {
            "start_index": 3,
            "end_index": 6,
            "title": "T",
            "url": "https://example.org/a?b=c",
        },
    }
    assert Annotation.model_validate(annotation).url_citation.title == "T"


def test_indices_count_code_points_and_the_end_is_exclusive():
    text = "😀👩‍🔬 喝茶[1] e\u0301nd [2]"
    annotations = Citations([Passage("a"), Passage("b")]).annotate(text)
    spans = [
        (a["url_citation"]["start_index"], a["url_citation"]["end_index"]) for a in annotations
    ]
    assert [text[start:end] for start, end in spans] == ["[1]", "[2]"]


def test_each_known_number_of_a_marker_has_its_own_annotation():
    """Invented numbers and foreign markers have none."""
    cited = Citations([Passage("a", title="A"), Passage("b", title="B")])
    annotations = cited.annotate("x [1-3] 【4:0†f】 [7] `[1]`")
    assert [a["url_citation"]["title"] for a in annotations] == ["A", "B"]


@pytest.mark.parametrize(
    ("passage", "title"),
    [
        (Passage("t", title="T", source="s", document_id="d"), "T"),
        (Passage("t", title=" ", source="s", document_id="d"), "s"),
        (Passage("t", document_id="d"), "d"),
        (Passage("t", id="p"), "p"),
    ],
)
def test_the_title_falls_back_to_source_then_id(passage: Passage, title: str):
    assert title_of(passage) == title


@pytest.mark.parametrize(
    "source",
    [
        None,
        "notes/a.md",
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://h/x",
        "http://",
        "//h/x",
        "https://a b",
        "https://a b/c",
        "https://h/a\nb",
        "https://h/a\xa0b",
        "https://h/\u202egpj.exe",
        "https://h/\x1b]8;;x",
    ],
)
def test_only_http_and_https_sources_become_links(source: str | None):
    url = url_of(Passage("t", document_id="notes/a b.md#1", source=source, lines=Lines(3, 7)))
    assert url == "ragchat:document/notes%2Fa%20b.md%231#L3-L7"


def test_the_scheme_of_a_link_may_be_in_upper_case():
    assert url_of(Passage("t", source=" HTTPS://Example.org/x ")) == "HTTPS://Example.org/x"


def test_blanks_in_the_path_of_a_link_are_encoded():
    """As in the addresses of files; a URL has none, and they would end a link in Markdown."""
    passage = Passage("t", source="https://h/Shared Documents/Leave (2025).pdf?a=b c")
    url = "https://h/Shared%20Documents/Leave%20(2025).pdf?a=b%20c"
    assert url_of(passage) == url


def test_a_document_address_leaves_out_what_is_not_known():
    assert document_address(Passage("t", document_id="d")) == "ragchat:document/d"
    assert document_address(Passage("t", id="p/1")) == "ragchat:passage/p%2F1"
    assert document_address(Passage("t", id="\ud800")) == "ragchat:passage/%3F"
