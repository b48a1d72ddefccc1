"""Giving vectors to a corpus that was written without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragchat_retrieval.filters import Filter
from ragchat_retrieval.revisions import embed_texts, with_terms
from ragchat_retrieval.values import Revision, indexed_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.ports import Embedder, Identity, Store

BATCH_DOCUMENTS = 16
"""Documents per write: a stopped run loses at most this much work."""

_EVERYTHING = Filter()
_ALL = 2**31 - 1


async def fill_vectors(
    store: Store,
    embedder: Embedder,
    analyzer: Analyzer,
    identity: Identity,
    *,
    on_progress: Callable[[float], object],
) -> int:
    """Embeds every passage that has no vector, a few documents at a time.

    Args:
        store: The corpus.
        embedder: The model.
        analyzer: Gives the terms that are written again with the vectors.
        identity: What the corpus is from now on.
        on_progress: Hears floats 0 … 1, never falling, 1.0 last.

    Returns:
        How many vectors it gave.
    """
    ids = list(await store.document_ids(scope=_EVERYTHING))
    given = 0
    for start in range(0, len(ids), BATCH_DOCUMENTS):
        revisions = []
        for document_id in ids[start : start + BATCH_DOCUMENTS]:
            revision = await _embedded(store, embedder, document_id)
            if revision is not None:
                revisions.append(revision)
                given += len(revision.passages)
        if revisions:
            filled = with_terms(revisions, analyzer)
            await store.replace(filled, identity=identity, scope=_EVERYTHING)
        on_progress(min(1.0, (start + BATCH_DOCUMENTS) / len(ids)))
    on_progress(1.0)
    return given


async def _embedded(store: Store, embedder: Embedder, document_id: str) -> Revision | None:
    """Returns a document's revision with vectors; None if it has them or has gone."""
    document = await store.document(document_id, scope=_EVERYTHING)
    passages = await store.neighbours(document_id, 0, _ALL, scope=_EVERYTHING)
    known = await store.vectors([passage.id for passage in passages], scope=_EVERYTHING)
    if document is None or len(known) == len(passages):
        return None
    texts = [indexed_text(passage) for passage in passages]
    fingerprints = await store.fingerprints([document_id], scope=_EVERYTHING)
    return Revision(
        document=document,
        passages=tuple(passages),
        vectors=await embed_texts(texts, embedder, on_progress=lambda _: None),
        fingerprint=fingerprints.get(document_id, ""),
    )
