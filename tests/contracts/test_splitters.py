"""Every splitter that ships keeps the contract of splitters."""

from __future__ import annotations

import pytest

from ragchat_retrieval.chunking import (
    CachedSplitter,
    CodeSplitter,
    DocumentSplitter,
    HeadingSplitter,
    ParagraphSplitter,
    SemanticSplitter,
    SentenceSplitter,
    TableSplitter,
    TextSplitter,
    WholeText,
)
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.testing.splitter_suite import SplitterContract


@pytest.fixture(params=[(512, 64), (16, 4), (3, 1), (1, 0)], ids=str)
def sizes(request):
    return request.param


class TestTextSplitter(SplitterContract):
    @pytest.fixture
    def splitter(self, sizes):
        return TextSplitter(*sizes)


class TestHeadingSplitter(SplitterContract):
    @pytest.fixture
    def splitter(self, sizes):
        return HeadingSplitter(*sizes)


class TestParagraphSplitter(SplitterContract):
    @pytest.fixture
    def splitter(self):
        return ParagraphSplitter()


class TestWholeText(SplitterContract):
    @pytest.fixture
    def splitter(self):
        return WholeText()


class TestSentenceSplitter(SplitterContract):
    @pytest.fixture
    def splitter(self, sizes):
        size, overlap = sizes
        return SentenceSplitter(min(size, 16), overlap % 16, most=size)


class TestTableSplitter(SplitterContract):
    @pytest.fixture
    def splitter(self, sizes):
        return TableSplitter(*sizes)


class TestTableSplitterOnDelimitedText(SplitterContract):
    @pytest.fixture
    def splitter(self, sizes):
        return TableSplitter(*sizes, form="delimited")


class TestCodeSplitter(SplitterContract):
    @pytest.fixture
    def splitter(self, sizes):
        return CodeSplitter(*sizes)


class TestSemanticSplitter(SplitterContract):
    @pytest.fixture(params=[(512, 64), (16, 4), (3, 1), (1, 0)], ids=str)
    def splitter(self, request):
        size, least = request.param
        return SemanticSplitter(HashingEmbedder(64), size=size, least=least)


class TestDocumentSplitter(SplitterContract):
    @pytest.fixture
    def splitter(self, sizes):
        return DocumentSplitter(*sizes)


class TestCachedSplitter(SplitterContract):
    @pytest.fixture
    def splitter(self):
        return CachedSplitter(TextSplitter(16, 4))


class TestCachedSplitterAroundOneThatWaits(SplitterContract):
    @pytest.fixture
    def splitter(self):
        return CachedSplitter(SemanticSplitter(HashingEmbedder(64), size=16, least=4))
