"""Every embedder that ships keeps the contract of embedders."""

from __future__ import annotations

import pytest

from ragchat_retrieval.embedders import CachedEmbedder, HashingEmbedder, LocalEmbedder
from ragchat_retrieval.testing.embedder_suite import EmbedderContract


class TestHashingEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self):
        return HashingEmbedder(64)


class TestLocalEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self):
        return LocalEmbedder()


class TestCachedEmbedder(EmbedderContract):
    @pytest.fixture
    async def embedder(self, tmp_path):
        async with CachedEmbedder(HashingEmbedder(64), tmp_path / "cache.sqlite") as cached:
            yield cached
