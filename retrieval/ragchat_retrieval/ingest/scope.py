"""What may be written under a scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragchat_retrieval.errors import ScopeViolation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.ports import Store
    from ragchat_retrieval.values import Document


async def check_scope(
    store: Store, documents: Sequence[Document], known: Mapping[str, str], scope: Filter
) -> None:
    """Refuses documents that may not be written under a scope.

    Unchanged ones count too: to be told that one was skipped would tell what is outside.

    Args:
        store: Where they are to be written.
        documents: What is to be written.
        known: Fingerprints, by id, of those that are there already, in or out of the scope.
        scope: What the writer may see and write.

    Raises:
        ScopeViolation: The first document that lies outside, or hides there.
    """
    if not scope:
        return
    mine = await store.hashes([d.id for d in documents], scope=scope)
    for document in documents:
        hidden = document.id in known and document.id not in mine
        if hidden or not scope.matches_document(document):
            raise ScopeViolation(document_id=document.id)
