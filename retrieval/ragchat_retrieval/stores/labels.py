"""What a passage inherits from its document, and how the rest is kept.

For stores with a row per passage: labels equal to the document's are kept once, with the document.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ragchat_retrieval.metadata import are_same, decode, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragchat_retrieval.metadata import Metadata
    from ragchat_retrieval.values import Document, Passage


_SHORT, _REMEMBERED = 500, 256
"""Metadata texts of so many characters are remembered from one reading to the next: so many."""


class Labels(NamedTuple):
    """What passages inherit from their document."""

    document_id: str
    title: str | None
    source: str | None
    metadata: Metadata
    digest: str


class MetadataMemo:
    """Decodes metadata texts, each once: many documents carry the same few."""

    def __init__(self) -> None:
        self._known: dict[str, Metadata] = {}

    def __call__(self, text: str) -> Metadata:
        """Returns the metadata that a text encodes."""
        known = self._known.get(text)
        if known is None:
            known = _decoded(text) if len(text) <= _SHORT else decode(text)
            self._known[text] = known
        return known


@lru_cache(_REMEMBERED)
def _decoded(text: str) -> Metadata:
    return decode(text)


def inherit(labels: Labels, own: str | None, memo: MetadataMemo) -> Labels:
    """Returns a passage's labels: its document's, except where it has its own."""
    if own is None:
        return labels
    given: Mapping[str, str | None] = json.loads(own)
    metadata = given.get("metadata")
    return Labels(
        labels.document_id,
        given.get("title", labels.title),
        given.get("source", labels.source),
        labels.metadata if metadata is None else memo(metadata),
        given.get("digest", labels.digest) or "",
    )


def own_labels(passage: Passage, document: Document, *, digest: str) -> str | None:
    """Returns the labels in which a passage differs from its document, as JSON; None if in none.

    Args:
        passage: The passage.
        document: Its document.
        digest: The document's digest.
    """
    own: dict[str, str | None] = {}
    if passage.title != document.title:
        own["title"] = passage.title
    if passage.source != document.source:
        own["source"] = passage.source
    if passage.digest != digest:
        own["digest"] = passage.digest
    if not are_same(passage.metadata, document.metadata):
        own["metadata"] = encode(passage.metadata)
    return json.dumps(own, ensure_ascii=False) if own else None
