"""Every embedder that ships keeps the contract of embedders."""

from __future__ import annotations

import pytest

from ragchat_retrieval.embedders import (
    CachedEmbedder,
    HashingEmbedder,
    LocalEmbedder,
    OllamaEmbedder,
    OpenAIEmbedder,
)
from ragchat_retrieval.testing.embedder_suite import EmbedderContract
from ragchat_retrieval.testing.embedding_server import EmbeddingServer


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


class TestOpenAIEmbedder(EmbedderContract):
    @pytest.fixture
    async def embedder(self):
        with EmbeddingServer(64) as server:
            async with OpenAIEmbedder("m", url=f"{server.url}/v1") as embedder:
                yield embedder


class TestOllamaEmbedder(EmbedderContract):
    @pytest.fixture
    async def embedder(self):
        with EmbeddingServer(64) as server:
            async with OllamaEmbedder("m", url=server.url) as embedder:
                yield embedder
