"""Every splitter that ships keeps the contract of splitters."""

from __future__ import annotations

import pytest

from ragchat_retrieval.chunking import HeadingSplitter, ParagraphSplitter, TextSplitter, WholeText
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
