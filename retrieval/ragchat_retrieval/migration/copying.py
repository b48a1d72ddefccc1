"""Copying documents with their passages, as they are, from one index to another."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ragchat_retrieval.filters import Filter
from ragchat_retrieval.revisions import embed_texts, with_terms
from ragchat_retrieval.tasks import each
from ragchat_retrieval.values import Revision, indexed_text
from ragchat_retrieval.vectors import unit_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ports import Identity

EVERYTHING: Final = Filter()
EVERY_ORDINAL: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Copied:
    """What was written of a batch."""

    documents: int = 0
    passages: int = 0
    kept_vectors: int = 0
    embedded: int = 0


@dataclass(frozen=True, slots=True)
class Copying:
    """From where to where, and as what."""

    old: HybridIndex
    new: HybridIndex
    identity: Identity
    """What the new corpus is."""

    keeps_vectors: bool
    """Whether the old vectors are those that the new embedder would give."""

    async def copy(self, document_ids: Sequence[str]) -> Copied:
        """Writes these documents, in one step; those that change meanwhile are left for later."""
        revisions = await self._read(document_ids)
        given = [r for r in revisions if r.vectors is not None]
        kept = sum(len(r.passages) for r in given)
        revisions, embedded = await self._embedded(revisions)
        revisions = await asyncio.to_thread(with_terms, revisions, self.new.analyzer)
        if revisions:
            await self.new.store.replace(revisions, identity=self.identity, scope=EVERYTHING)
        passages = sum(len(revision.passages) for revision in revisions)
        return Copied(len(revisions), passages, kept, embedded)

    async def remove(self, document_ids: Collection[str]) -> int:
        """Removes documents from the new index and returns how many there were."""
        return await self.new.store.delete(document_ids, scope=EVERYTHING)

    async def _read(self, document_ids: Sequence[str]) -> list[Revision]:
        store = self.old.store
        before = await store.hashes(document_ids, scope=EVERYTHING)
        read = await each(list(before.items()), self._read_one)
        found = [revision for revision in read if revision is not None]
        if self.keeps_vectors:
            ids = [passage.id for revision in found for passage in revision.passages]
            known = await store.vectors(ids, scope=EVERYTHING)
            found = [replace(r, vectors=_rows(r, known)) for r in found]
        # What was read of a document is of one revision if it is the same before and after.
        after = await store.hashes(list(before), scope=EVERYTHING)
        return [r for r in found if after.get(r.document.id) == r.fingerprint]

    async def _read_one(self, known: tuple[str, str]) -> Revision | None:
        document_id, fingerprint = known
        store = self.old.store
        document = await store.document(document_id, scope=EVERYTHING)
        passages = await store.neighbours(document_id, 0, EVERY_ORDINAL, scope=EVERYTHING)
        if document is None:
            return None
        return Revision(document=document, passages=tuple(passages), fingerprint=fingerprint)

    async def _embedded(self, revisions: list[Revision]) -> tuple[list[Revision], int]:
        """Gives vectors to the revisions without, if there is an embedder."""
        embedder = self.new.embedder
        if embedder is None:
            return revisions, 0
        bare = [r for r in revisions if r.vectors is None]
        texts = [indexed_text(passage) for r in bare for passage in r.passages]
        if not texts:
            return revisions, 0
        owners = [r.document.id for r in bare for _ in r.passages]
        rows = iter(np.concatenate(await embed_texts(texts, owners, embedder, on_progress=_ignore)))
        filled = [
            replace(r, vectors=np.stack([next(rows) for _ in r.passages]))
            if r.vectors is None and r.passages
            else r
            for r in revisions
        ]
        return filled, len(texts)


def _rows(
    revision: Revision, known: Mapping[str, NDArray[np.float32]]
) -> NDArray[np.float32] | None:
    """Returns the vectors of a revision's passages; None unless each has one."""
    if not all(passage.id in known for passage in revision.passages):
        return None
    if not revision.passages:
        return None
    return unit_rows(np.stack([known[passage.id] for passage in revision.passages]))


def _ignore(share: float) -> None:
    del share
