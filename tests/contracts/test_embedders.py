"""Every embedder that ships keeps the contract of embedders."""

from __future__ import annotations

import pytest

from ragchat_retrieval.embedders import HashingEmbedder, LocalEmbedder
from ragchat_retrieval.testing.embedder_suite import EmbedderContract


class TestHashingEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self):
        return HashingEmbedder(64)


class TestLocalEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self):
        return LocalEmbedder()
