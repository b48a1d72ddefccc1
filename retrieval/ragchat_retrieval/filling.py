"""Giving vectors to a corpus that was written without."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.errors import DocumentChanged, EmbeddingError
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.revisions import embed_texts, with_terms
from ragchat_retrieval.values import Revision, indexed_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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

    A document that the embedder cannot take does not keep the others from theirs.

    Args:
        store: The corpus.
        embedder: The model.
        analyzer: Gives the terms that are written again with the vectors.
        identity: What the corpus is from now on.
        on_progress: Hears floats 0 … 1, never falling, 1.0 last.

    Returns:
        How many vectors it gave.

    Raises:
        EmbeddingError: At the end, that of the first document that could not be embedded; at once,
            if no document is at fault.
    """
    ids = list(await store.document_ids(scope=_EVERYTHING))
    given = 0
    failed: dict[str, EmbeddingError] = {}
    for start in range(0, len(ids), BATCH_DOCUMENTS):
        some = ids[start : start + BATCH_DOCUMENTS]
        filled = None
        while filled is None:
            with suppress(DocumentChanged):  # others write as well; what they wrote is read again
                filled = await _filled(store, embedder, analyzer, identity, some, failed=failed)
        given += filled
        on_progress(min(1.0, (start + BATCH_DOCUMENTS) / len(ids)))
    if failed:
        raise next(iter(failed.values()))
    on_progress(1.0)
    return given


async def _filled(
    store: Store,
    embedder: Embedder,
    analyzer: Analyzer,
    identity: Identity,
    document_ids: Sequence[str],
    *,
    failed: dict[str, EmbeddingError],
) -> int:
    """Gives vectors to some documents; those that cannot be embedded are added to `failed`.

    Raises:
        DocumentChanged: One of them was changed or removed meanwhile.
    """
    revisions = []
    for document_id in document_ids:
        try:
            revision = await _embedded(store, embedder, document_id)
        except EmbeddingError as error:
            if error.document_id is None:
                raise
            failed[document_id] = error
            continue
        failed.pop(document_id, None)  # it was read again, and is another one
        if revision is not None:
            revisions.append(revision)
    if not revisions:
        return 0
    filled = await asyncio.to_thread(with_terms, revisions, analyzer)
    expected = {revision.document.id: revision.fingerprint for revision in revisions}
    await store.replace(filled, identity=identity, scope=_EVERYTHING, expected=expected)
    return sum(len(revision.passages) for revision in revisions)


async def _embedded(store: Store, embedder: Embedder, document_id: str) -> Revision | None:
    """Returns a document's revision with vectors; None if it has them or has gone.

    Raises:
        DocumentChanged: It was changed or removed while it was read.
    """
    # What was read is of one revision if that is the same before and after.
    fingerprints = await store.hashes([document_id], scope=_EVERYTHING)
    document = await store.document(document_id, scope=_EVERYTHING)
    passages = await store.neighbours(document_id, 0, _ALL, scope=_EVERYTHING)
    known = await store.vectors([passage.id for passage in passages], scope=_EVERYTHING)
    if document is None or document_id not in fingerprints or len(known) == len(passages):
        return None
    if await store.hashes([document_id], scope=_EVERYTHING) != fingerprints:
        raise DocumentChanged(document_id, store=store.name)
    texts = await asyncio.to_thread(lambda: [indexed_text(passage) for passage in passages])
    owners = [document_id] * len(texts)
    rows = await embed_texts(texts, owners, embedder, on_progress=lambda _: None)
    return Revision(
        document=document,
        passages=tuple(passages),
        vectors=np.concatenate(rows),
        fingerprint=fingerprints[document_id],
    )
