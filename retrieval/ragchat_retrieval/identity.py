"""Which identities may share a corpus."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import IdentityMismatch

if TYPE_CHECKING:
    from ragchat_retrieval.ports import Identity


def check_identity(
    stored: Identity | None, mine: Identity, *, store: str, writing: bool = False
) -> None:
    """Raises unless work under `mine` is right for a corpus written under `stored`.

    Reading by keywords needs no model on either side, so a corpus without vectors can be searched
    with an embedder at hand and one with vectors without; writing needs equal identities.

    Args:
        stored: What the corpus was written with; None is compatible with everything.
        mine: What the caller works with.
        store: The store's kind, for the error.
        writing: Whether the work is a write.

    Raises:
        IdentityMismatch: With a remedy.
    """
    if stored is None or stored == mine:
        return
    if mine.model is not None and mine.dimension is None and not writing:
        mine = replace(mine, dimension=stored.dimension)  # not learnt yet; the vectors will tell
        if stored == mine:
            return
    remedy = ""
    if stored.analyzer == mine.analyzer:
        if not writing and (mine.model is None or stored.model is None):
            return
        if stored.model is None:
            remedy = "the corpus is keyword-only: run embed() to give it vectors first"
        elif mine.model is None:
            remedy = f"writing needs the embedder {stored.model!r}"
    raise IdentityMismatch(str(stored), str(mine), store=store, remedy=remedy)
