"""ragchat's part of the job without a transport: the index, the stages, the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ragchat
import ragchat.sync
from ragchat.conversation import window
from ragchat_retrieval.filters import Filter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Message = dict[str, Any]

BUDGET = 2000
"""Tokens of the final messages. ragchat counts its prompts and the evidence exactly; that all of it
together fits is seen to as the floor does, in characters / 4."""

TOP = 5
POOL = 20
LANE = 50
EVERYTHING = Filter()


class Given:
    """An embedder that returns the one vector it was handed."""

    model = "given"

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.vector: NDArray[np.float32] | None = None

    async def embed(self, texts: Sequence[str], kind: str = "query") -> list[NDArray[np.float32]]:
        """Returns it."""
        del texts, kind
        assert self.vector is not None  # noqa: S101 - `search` has set it
        return [self.vector]


class Core:
    """The whole contestant but for `connect`, `create` and `embedder`."""

    name = "ragchat"

    def ingest(self, passages: list[str], vectors: NDArray[np.float32]) -> None:
        """Writes each text as a document of one passage with its given vector."""
        self.dimension = vectors.shape[1]
        self.store = ragchat.MemoryStore()
        self.given = Given(self.dimension)
        self.index = self._index(self.given)
        revisions = [_revision(str(n), text, vectors[n : n + 1]) for n, text in enumerate(passages)]
        ragchat.sync.run(self.index.replace(*revisions))

    def bm25(self, query: str, k: int) -> list[int]:
        """Searches the keyword lane."""
        terms = self.index.analyzer.weights(query)
        found = self.store.search_text(terms, k, filter=EVERYTHING, scope=EVERYTHING)
        return [_number(hit.passage_id) for hit in ragchat.sync.run(found)]

    def dense(self, vector: NDArray[np.float32], k: int) -> list[int]:
        """Searches the vector lane."""
        found = self.store.search_vector(vector, k, filter=EVERYTHING, scope=EVERYTHING)
        return [_number(hit.passage_id) for hit in ragchat.sync.run(found)]

    def search(self, query: str, vector: NDArray[np.float32], k: int) -> list[int]:
        """Searches both lanes, merges them and reads the passages."""
        self.given.vector = vector
        found = self.index.search(query, top_k=k, candidates=k, fusion=ragchat.RRF())
        return [int(candidate.passage.document_id) for candidate in ragchat.sync.run(found)]

    async def prepare(self, messages: list[Message]) -> tuple[list[Message], list[int]]:
        """Returns the final messages within the budget, and the passages they cite."""
        prepared = await self.preparer.prepare(model="gpt-5", messages=messages)
        final = window(prepared.request["messages"], max_tokens=BUDGET, count=_quarter)
        cited = prepared.retrieval.citations.values()
        return list(final), [int(passage.document_id) for passage in cited]

    def assemble(
        self,
        create: Callable[..., Awaitable[Any]],
        embedder: ragchat.Embedder,
        *,
        planned: bool = False,
    ) -> None:
        """Builds the preparer over a transport: condense and expand apart, or both as one plan."""

        def model(name: str) -> ragchat.ChatModel:
            return ragchat.ChatModel(create, model=name, temperature=0)

        reranker = ragchat.LLMReranker(model("mock-rerank-index"))
        expander = None if planned else ragchat.MultiQueryExpander(model("mock-expand-json"))
        retriever = self._index(embedder).retriever(
            expander=expander,
            fusion=ragchat.RRF(),
            candidates=LANE,
            rerank=ragchat.Rerank(reranker, pool=POOL),
            top_k=TOP,
        )
        self.preparer = ragchat.Preparer(
            retriever,
            query_transformer=ragchat.QueryPlanner(model("mock-plan"))
            if planned
            else ragchat.CompressionTransformer(model("mock-condense")),
            augmenter=ragchat.ContextualAugmenter(max_context_tokens=BUDGET),
            policy=ragchat.Policy.strict(),
        )

    def _index(self, embedder: ragchat.Embedder) -> ragchat.HybridIndex:
        return ragchat.HybridIndex(self.store, embedder=embedder, identity="peers")


def _revision(document_id: str, text: str, vectors: NDArray[np.float32]) -> ragchat.Revision:
    document = ragchat.Document(document_id, text)
    passage = ragchat.Passage(text, document_id=document_id, digest=document.digest)
    return ragchat.Revision(document=document, passages=[passage], vectors=vectors)


def _quarter(text: str) -> int:
    return len(text) // 4


def _number(passage_id: str) -> int:
    return int(passage_id.partition("#")[0])
