"""LangChain: its retrievers as ours, ours as its. Needs the extra ``langchain``."""

# langchain-core is no part of the environment that checks types.
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragchat import sync
from ragchat.interop.foreign import ForeignRetriever, Found, candidates_for, metadata_of
from ragchat_retrieval.errors import MissingExtra

try:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStoreRetriever
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "langchain_core":
        raise
    raise MissingExtra("langchain", "ragchat.interop.langchain") from None

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragchat.interop.foreign import Narrow
    from ragchat_retrieval.values import Candidate

__all__ = ["RagchatRetriever", "from_langchain"]

_SCORES = ("relevance_score", "score")
"""Where LangChain's retrievers and rerankers leave a score: documents have no field for it."""


def from_langchain(
    retriever: BaseRetriever, *, narrow: Narrow | None = None, semantic: bool | None = None
) -> ForeignRetriever:
    """Returns a LangChain retriever as one of ours, asked by its ``ainvoke``.

    Args:
        retriever: Any; a runnable that returns documents will do. One without async code of its own
            runs in a thread, as LangChain has it.
        narrow: Takes a `Filter` and returns the retriever with it, such as ``lambda filter:
            store.as_retriever(search_kwargs={"filter": yours(filter)})``. Without it, queries with
            a filter or a scope are refused.
        semantic: Whether it searches by meaning; None says so of vector stores.
    """
    if semantic is None:
        semantic = isinstance(retriever, VectorStoreRetriever)
    return ForeignRetriever(_ask, retriever, narrow=narrow, semantic=semantic)


async def _ask(retriever: BaseRetriever, text: str) -> list[Found]:
    return [
        Found(
            document.page_content,
            document.id,
            document.metadata,
            score=next((document.metadata[k] for k in _SCORES if k in document.metadata), None),
        )
        for document in await retriever.ainvoke(text)
    ]


class RagchatRetriever(BaseRetriever):
    """A retriever of ours for LangChain: ``RagchatRetriever(retriever=index.retriever(top_k=5))``.

    Documents carry the passage's id and metadata, with ``document_id``, ``title``, ``source``,
    ``headings``, ``page``, ``lines``, ``span`` and ``relevance_score`` beside them.
    """

    retriever: Any
    """An index's ``retriever(…)``, or any function of a query."""

    filter: Any = None
    """What to narrow to, in any form that `Filter.of` reads."""

    scope: Any = None
    """The trusted boundary, such as a tenant, in the same forms."""

    def _get_relevant_documents(self, query: str, *, run_manager: object) -> list[Document]:
        del run_manager
        return sync.run(self._documents(query))

    async def _aget_relevant_documents(self, query: str, *, run_manager: object) -> list[Document]:
        del run_manager
        return await self._documents(query)

    async def _documents(self, query: str) -> list[Document]:
        found: Sequence[Candidate] = await candidates_for(
            self.retriever, query, filter=self.filter, scope=self.scope
        )
        return [
            Document(
                id=candidate.passage.id,
                page_content=candidate.passage.text,
                metadata={**metadata_of(candidate.passage), "relevance_score": candidate.score},
            )
            for candidate in found
        ]
