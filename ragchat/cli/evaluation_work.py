"""What ``ragchat eval`` was asked for, and the index and reranker that it works with."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragchat.cli.options import DEFAULT_INDEX
from ragchat.cli.reranking import reranker_from_env
from ragchat.cli.running import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ragchat.cli.output import Face
    from ragchat_retrieval.evaluation import Collection, Gate, Metric
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ports import Embedder
    from ragchat_retrieval.rerank import Rerank

_BATCH = 256
"""Documents ingested at a time."""

_POOL = 20
"""Candidates that a chat model is shown at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asked for."""

    index: str | None
    corpus: str
    metrics: tuple[Metric, ...]
    gates: tuple[Gate, ...]
    top_k: int
    segment: str | None
    keyword_weight: float
    tune: bool
    cache: Path | None
    rerank_model: str | None
    no_rerank: bool
    mmr: float | None
    per_document: int | None
    answers: str | None


@asynccontextmanager
async def searched(face: Face, collection: Collection, asked: Asked) -> AsyncIterator[HybridIndex]:
    """Opens the index to search: the one named, else the folder's corpus, indexed in memory."""
    if asked.index is not None or collection.corpus is None:
        url = asked.index or os.environ.get("RAGCHAT_INDEX") or DEFAULT_INDEX
        async with opened(url, asked.corpus) as index:
            yield index
        return
    from ragchat_retrieval.chunking import WholeText  # noqa: PLC0415 - --help stays quick
    from ragchat_retrieval.index import HybridIndex  # noqa: PLC0415 - as above

    # BEIR's documents are judged whole, so each is one passage.
    async with (
        _embedder(asked.cache) as embedder,
        HybridIndex(embedder=embedder, splitter=WholeText()) as index,
    ):
        await _fill(face, index, collection)
        yield index


@asynccontextmanager
async def reranking(asked: Asked) -> AsyncIterator[Rerank | None]:
    """Yields the reranker that was asked for or else is configured, its client open."""
    from ragchat_retrieval.rerank import Rerank  # noqa: PLC0415 - --help stays quick

    if asked.rerank_model is None:
        async with reranker_from_env(wanted=not asked.no_rerank) as found:
            yield None if found is None else Rerank(found)
        return
    from openai import AsyncOpenAI  # noqa: PLC0415 - only where a model is asked

    from ragchat.models import ChatModel  # noqa: PLC0415 - as above
    from ragchat.reranking import LLMReranker  # noqa: PLC0415 - as above

    async with AsyncOpenAI() as client:
        model = ChatModel(client.chat.completions.create, model=asked.rerank_model)
        yield Rerank(LLMReranker(model), pool=max(_POOL, asked.top_k))


async def _fill(face: Face, index: HybridIndex, collection: Collection) -> None:
    documents = list(collection.documents())
    with face.progress(f"{collection.name}: indexing") as tell:
        for start in range(0, len(documents), _BATCH):
            await index.ingest(*documents[start : start + _BATCH])
            tell(min(1.0, (start + _BATCH) / len(documents)))


@asynccontextmanager
async def _embedder(cache: Path | None) -> AsyncIterator[Embedder | None]:
    """Yields the embedder that is configured, its connections and its cache closed at the end."""
    from ragchat_retrieval.embedders import CachedEmbedder, embedder_from_env  # noqa: PLC0415 - as above

    async with AsyncExitStack() as stack:
        embedder = embedder_from_env()
        if (close := getattr(embedder, "aclose", None)) is not None:
            stack.push_async_callback(close)
        if cache is not None and embedder is not None:
            embedder = await stack.enter_async_context(CachedEmbedder(embedder, cache))
        yield embedder
