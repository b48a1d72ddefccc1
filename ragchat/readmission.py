"""Presenting evidence of earlier turns again, as far as it is still there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragchat_retrieval.foreign import still_held

if TYPE_CHECKING:
    from collections.abc import Collection

    from ragchat.citations import CitationLedger
    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.values import Passage


async def readmitted(
    ledger: CitationLedger,
    most: int,
    retriever: object,
    bounds: Filter,
    *,
    besides: Collection[str],
) -> tuple[Passage, ...]:
    """Returns the passages cited last that may be presented again, the latest first.

    Args:
        ledger: Of the conversation.
        most: Most passages.
        retriever: Says which of them it could still return, and how they read now.
        bounds: Filter and scope of the request.
        besides: Ids of those that are presented anyway.
    """
    left = [passage for passage in ledger.recent() if passage.id not in besides]
    kept: list[Passage] = []
    while left and len(kept) < most:
        kept += await still_held(retriever, left[:most], bounds)
        del left[:most]
    return tuple(kept[:most])
