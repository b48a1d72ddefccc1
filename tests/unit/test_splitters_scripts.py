"""Every splitter keeps its promises on generated text in ten scripts."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat_retrieval.chunking import (
    CodeSplitter,
    DocumentSplitter,
    HeadingSplitter,
    SemanticSplitter,
    SentenceSplitter,
    TableSplitter,
    TextSplitter,
)
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.testing.splitter_suite import SAMPLES, check_passages
from ragchat_retrieval.values import Document

SCRIPTS = [
    "English",
    "Russian",
    "Greek",
    "Arabic",
    "Hebrew",
    "Hindi",
    "Tamil",
    "Thai",
    "Chinese",
    "Korean",
]
JOINTS = [
    " ",
    "\n",
    "\n\n",
    "\r\n",
    "  ",
    "\f",
    ". ",
    "\n# ",
    "\n- ",
    "\n| ",
    " | ",
    ",",
    '"',
    "\n\tdef ",
]
SPLITTERS = {
    "sentence": lambda size: SentenceSplitter(2, 1, most=size, count=len),
    "table": lambda size: TableSplitter(size, size // 2, count=len),
    "rows": lambda size: TableSplitter(size, form="delimited", count=len),
    "code": lambda size: CodeSplitter(size, size // 2, count=len),
    "semantic": lambda size: SemanticSplitter(
        HashingEmbedder(32), size=size, least=size // 2, count=len
    ),
    "document": lambda size: DocumentSplitter(size, size // 2, count=len),
    "text": lambda size: TextSplitter(size, size // 2, count=len),
    "heading": lambda size: HeadingSplitter(size, size // 2, count=len),
}
WHOLE = ["sentence", "rows", "code", "semantic", "text"]
"""Those that leave nothing out; Markdown's headings are in the paths instead."""


def words_of(script):
    return [word for word in regex.split(r"\s+", SAMPLES[script]) if word]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("kind", SPLITTERS)
@settings(max_examples=25)
@given(data=st.data())
def test_passages_are_exact_bounded_and_hold_everything(kind, script, data):
    words = st.sampled_from(words_of(script))
    pairs = data.draw(st.lists(st.tuples(words, st.sampled_from(JOINTS)), max_size=25))
    text = "".join(word + joint for word, joint in pairs)
    size = data.draw(st.integers(1, 60))
    document = Document("d", text, title="t", metadata={"a": 1})
    passages = SPLITTERS[kind](size).split(document)
    check_passages(document, passages)
    clusters = {0, *(match.end() for match in regex.finditer(r"\X", text))}
    for passage in passages:
        assert {passage.span.start, passage.span.end} <= clusters
        assert len(passage.text) <= size or regex.fullmatch(r"\X", passage.text)
    if kind in WHOLE:
        covered = {n for p in passages for n in range(*p.span)}
        assert all(n in covered or char.isspace() for n, char in enumerate(text))
    if kind == "document" and "\f" in text:
        for passage in passages:
            assert "\f" not in passage.text
            assert passage.page == text.count("\f", 0, passage.span.start) + 1
