"""LlamaIndex: its retrievers as ours, ours as its. Needs the extra ``llamaindex``."""

# llama-index-core is no part of the environment that checks types.
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import TYPE_CHECKING

from ragchat import sync
from ragchat.interop.foreign import ForeignRetriever, Found, candidates_for, metadata_of
from ragchat_retrieval.errors import MissingExtra
from ragchat_retrieval.stages import in_thread

try:
    from llama_index.core.retrievers import BaseRetriever, VectorIndexRetriever
    from llama_index.core.schema import (
        MetadataMode,
        NodeRelationship,
        NodeWithScore,
        RelatedNodeInfo,
        TextNode,
    )
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "llama_index":
        raise
    raise MissingExtra("llamaindex", "ragchat.interop.llamaindex") from None

if TYPE_CHECKING:
    from llama_index.core.schema import QueryBundle

    from ragchat.interop.foreign import Narrow
    from ragchat_retrieval.foreign import AnyRetriever
    from ragchat_retrieval.options import FilterLike
    from ragchat_retrieval.values import Passage

__all__ = ["RagchatRetriever", "from_llamaindex"]


def from_llamaindex(
    retriever: BaseRetriever, *, narrow: Narrow | None = None, semantic: bool | None = None
) -> ForeignRetriever:
    """Returns a LlamaIndex retriever as one of ours.

    It is asked by its ``aretrieve`` if it has async code of its own, else in a worker thread:
    LlamaIndex would call it on the event loop and block everything else.

    Args:
        retriever: Any.
        narrow: Takes a `Filter` and returns the retriever with it, such as ``lambda filter:
            index.as_retriever(filters=yours(filter))``. Without it, queries with a filter or a
            scope are refused.
        semantic: Whether it searches by meaning; None says so of vector indexes.
    """
    if semantic is None:
        semantic = isinstance(retriever, VectorIndexRetriever)
    return ForeignRetriever(_ask, retriever, narrow=narrow, semantic=semantic)


async def _ask(retriever: BaseRetriever, text: str) -> list[Found]:
    if type(retriever)._aretrieve is BaseRetriever._aretrieve:  # noqa: SLF001 - what it overrides
        nodes = await in_thread(retriever.retrieve, text)
    else:
        nodes = await retriever.aretrieve(text)
    return [
        Found(
            item.node.get_content(metadata_mode=MetadataMode.NONE),
            item.node.node_id,
            item.node.metadata,
            document_id=item.node.ref_doc_id,
            score=item.score,
        )
        for item in nodes
    ]


class RagchatRetriever(BaseRetriever):
    """A retriever of ours for LlamaIndex.

    Nodes carry the passage's id, its place in the document and its metadata, with ``document_id``,
    ``title``, ``source``, ``headings``, ``page``, ``lines`` and ``span`` beside them.

    Args:
        retriever: An index's ``retriever(…)``, or any function of a query.
        filter: What to narrow to, in any form that `Filter.of` reads.
        scope: The trusted boundary, such as a tenant, in the same forms.
    """

    def __init__(
        self,
        retriever: AnyRetriever,
        *,
        filter: FilterLike = None,
        scope: FilterLike = None,
    ) -> None:
        super().__init__()
        self._retriever = retriever
        self._filter = filter
        self._scope = scope

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return sync.run(self._aretrieve(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = await candidates_for(
            self._retriever, query_bundle.query_str, filter=self._filter, scope=self._scope
        )
        return [NodeWithScore(node=_node(found.passage), score=found.score) for found in found]


def _node(passage: Passage) -> TextNode:
    relationships = {}
    if passage.document_id:
        of_document = RelatedNodeInfo(node_id=passage.document_id)
        relationships = {NodeRelationship.SOURCE: of_document}
    return TextNode(
        id_=passage.id,
        text=passage.text,
        metadata=metadata_of(passage),
        relationships=relationships,
        start_char_idx=passage.span and passage.span.start,
        end_char_idx=passage.span and passage.span.end,
    )
