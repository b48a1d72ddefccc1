"""Haystack: its retrievers as ours, ours as its component. Needs the extra ``haystack``."""

# haystack-ai is no part of the environment that checks types.
# pyright: reportMissingImports=false

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ragchat import sync
from ragchat.interop.foreign import ForeignRetriever, Found, Theirs, candidates_for, metadata_of
from ragchat_retrieval.errors import InvalidSetting, MissingExtra
from ragchat_retrieval.stages import in_thread

try:
    from haystack import Document, component
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "haystack":
        raise
    raise MissingExtra("haystack", "ragchat.interop.haystack") from None

if TYPE_CHECKING:
    from ragchat.interop.foreign import Narrow
    from ragchat_retrieval.foreign import AnyRetriever
    from ragchat_retrieval.options import FilterLike

__all__ = ["RagchatRetriever", "from_haystack"]


def from_haystack(
    retriever: Theirs,
    *,
    embedder: Theirs | None = None,
    narrow: Narrow | None = None,
    semantic: bool | None = None,
) -> ForeignRetriever:
    """Returns a Haystack retriever as one of ours.

    It is asked by its ``run_async`` if it has one, else by ``run`` in a worker thread.

    Args:
        retriever: A component that takes ``query``, or ``query_embedding``, and gives documents.
        embedder: The text embedder that a retriever by ``query_embedding`` needs. Both should be
            warmed up.
        narrow: Takes a `Filter` and returns the retriever with it, such as ``lambda filter:
            InMemoryBM25Retriever(store, filters=yours(filter))``. Without it, queries with a filter
            or a scope are refused.
        semantic: Whether it searches by meaning; None says so where there is an `embedder`.

    Raises:
        InvalidSetting: A retriever by ``query_embedding`` has no `embedder`, or another has one.
    """
    takes = retriever.__haystack_input__._sockets_dict  # noqa: SLF001 - the only list of inputs
    if ("query_embedding" in takes) is (embedder is None):
        problem = "is needed" if embedder is None else "is of no use"
        raise InvalidSetting("embedder", f"{problem} by {type(retriever).__name__}")
    if semantic is None:
        semantic = embedder is not None
    return ForeignRetriever(partial(_ask, embedder), retriever, narrow=narrow, semantic=semantic)


async def _ask(embedder: Theirs | None, retriever: Theirs, text: str) -> list[Found]:
    given: dict[str, Any] = {"query": text}
    if embedder is not None:
        given = {"query_embedding": (await _run(embedder, text=text))["embedding"]}
    return [
        Found(document.content, document.id, document.meta, score=document.score)
        for document in (await _run(retriever, **given))["documents"]
    ]


async def _run(part: Theirs, **given: Any) -> dict[str, Any]:
    if getattr(part, "__haystack_supports_async__", False):
        outputs: dict[str, Any] = await part.run_async(**given)
        return outputs
    return await in_thread(part.run, **given)


@component
class RagchatRetriever:
    """A retriever of ours as a component: takes ``query`` and ``top_k``, gives ``documents``.

    Documents carry the passage's id and metadata, with ``document_id``, ``title``, ``source``,
    ``headings``, ``page``, ``lines`` and ``span`` beside them.

    Args:
        retriever: An index's ``retriever(…)``, or any function of a query.
        filter: What to narrow to, in any form that `Filter.of` reads.
        scope: The trusted boundary, such as a tenant, in the same forms.
    """

    def __init__(
        self, retriever: AnyRetriever, *, filter: FilterLike = None, scope: FilterLike = None
    ) -> None:
        self._retriever = retriever
        self._filter = filter
        self._scope = scope

    @component.output_types(documents=list[Document])
    def run(self, query: str, top_k: int | None = None) -> dict[str, list[Document]]:
        """Searches and waits for the result."""
        return sync.run(self._found(query, top_k))

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, top_k: int | None = None) -> dict[str, list[Document]]:
        """Searches."""
        return await self._found(query, top_k)

    async def _found(self, query: str, top_k: int | None) -> dict[str, list[Document]]:
        found = await candidates_for(
            self._retriever, query, filter=self._filter, scope=self._scope, top_k=top_k
        )
        documents = [
            Document(
                id=candidate.passage.id,
                content=candidate.passage.text,
                meta=metadata_of(candidate.passage),
                score=candidate.score,
            )
            for candidate in found
        ]
        return {"documents": documents}
