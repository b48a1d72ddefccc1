"""Documents with their passages, kept compactly and rebuilt on reading.

A passage that is a slice of its document, under the document's labels, needs only its numbers; the
text is kept once, with the document. Any other passage is kept whole.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragchat_retrieval.metadata import are_same
from ragchat_retrieval.values import Lines, Passage, Span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragchat_retrieval.values import Document, Revision

_NUMBERS = struct.Struct("<6i")
_NONE = -(2**31)
"""Stands for an absent number."""

_ABSENT = (_NONE, _NONE)
_NO_NUMBERS = bytes(_NUMBERS.size)

# Shared, since most documents have neither.
_NO_HEADINGS: Mapping[int, tuple[str, ...]] = {}
_NO_OWN: Mapping[int, Passage] = {}


@dataclass(frozen=True, slots=True, eq=False)
class PackedDocument:
    """A document, and its passages by their position in the revision."""

    document: Document
    fingerprint: str
    first_key: int
    """Engine key of the first passage; the others follow."""

    size: int
    """How many passages there are."""

    digest: bytes
    """The digest that regular passages carry, of which they hold the hexadecimal form."""

    numbers: bytes
    """Span, lines, page and ordinal of each passage; of no meaning for irregular ones."""

    headings: Mapping[int, tuple[str, ...]]
    """Heading paths of the regular passages that have one."""

    own: Mapping[int, Passage]
    """The irregular passages."""

    @classmethod
    def of(cls, revision: Revision, first_key: int) -> PackedDocument:
        """Packs a revision that was checked."""
        document, passages = revision.document, revision.passages
        digest = _raw(passages[0].digest) if passages else b""
        numbers: list[bytes] = []
        headings: dict[int, tuple[str, ...]] = {}
        own: dict[int, Passage] = {}
        for position, passage in enumerate(passages):
            packed = _packed(passage) if _is_regular(document, passage, digest) else None
            if packed is None:
                own[position] = passage
            elif passage.headings:
                headings[position] = passage.headings
            numbers.append(packed or _NO_NUMBERS)
        return cls(
            document,
            revision.fingerprint,
            first_key,
            len(passages),
            digest,
            b"".join(numbers),
            headings or _NO_HEADINGS,
            own or _NO_OWN,
        )

    def passage(self, key: int, passage_id: str) -> Passage:
        """Rebuilds one passage.

        Args:
            key: Its engine key.
            passage_id: Its id, which the engine keeps.
        """
        position = key - self.first_key
        if position in self.own:
            return self.own[position]
        start, end, first, last, page, ordinal = _NUMBERS.unpack_from(
            self.numbers, position * _NUMBERS.size
        )
        document = self.document
        return Passage(
            document.text[start:end],
            id=passage_id,
            document_id=document.id,
            title=document.title,
            source=document.source,
            metadata=document.metadata,
            headings=self.headings.get(position, ()),
            page=None if page == _NONE else page,
            lines=None if first == _NONE else Lines(first, last),
            span=Span(start, end),
            ordinal=ordinal,
            digest=self.digest.hex(),
        )

    def ordinal(self, key: int) -> int:
        """Returns the ordinal of the passage with this engine key."""
        position = key - self.first_key
        if position in self.own:
            return self.own[position].ordinal
        ordinal: int = _NUMBERS.unpack_from(self.numbers, position * _NUMBERS.size)[-1]
        return ordinal


def _is_regular(document: Document, passage: Passage, digest: bytes) -> bool:
    span = passage.span
    return (
        span is not None
        and 0 <= span.start <= span.end
        and document.text[span.start : span.end] == passage.text
        and passage.digest == digest.hex()
        and passage.title == document.title
        and passage.source == document.source
        and are_same(passage.metadata, document.metadata)
    )


def _raw(digest: str) -> bytes:
    """Returns the bytes of a hexadecimal digest; of other text, bytes that match none."""
    try:
        return bytes.fromhex(digest)
    except ValueError:
        return b"\0"


def _packed(passage: Passage) -> bytes | None:
    """Returns the numbers of a passage with a span; None if one needs more than 32 bits."""
    page = passage.page
    try:
        return _NUMBERS.pack(
            *(passage.span or _ABSENT),
            *(passage.lines or _ABSENT),
            _NONE if page is None else page,
            passage.ordinal,
        )
    except struct.error:
        return None
