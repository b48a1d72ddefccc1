"""Documents with their passages, kept compactly and rebuilt on reading.

A passage that is a slice of its document, under the document's labels, needs only its numbers; the
text is kept once, with the document. Any other passage is kept whole.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.metadata import are_same, encode
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
    mark: bytes | str
    """The fingerprint; if that is hexadecimal, the bytes that it stands for."""

    first_key: int
    """Engine key of the first passage; the others follow."""

    size: int
    """How many passages there are."""

    numbers: bytes
    """Span, lines, page and ordinal of each passage; of no meaning for irregular ones.

    Behind them, the digest that regular passages carry, of which they hold the hexadecimal form.
    """

    headings: Mapping[int, tuple[str, ...]]
    """Heading paths of the regular passages that have one."""

    own: Mapping[int, Passage]
    """The irregular passages."""

    @classmethod
    def of(cls, revision: Revision, first_key: int, sharing: Sharing) -> PackedDocument:
        """Packs a revision that was checked.

        Args:
            revision: The revision.
            first_key: Engine key of its first passage.
            sharing: That of the write.
        """
        document, passages = sharing(revision.document), revision.passages
        mark = _raw(revision.fingerprint)
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
            mark if mark.hex() == revision.fingerprint else revision.fingerprint,
            first_key,
            len(passages),
            b"".join((*numbers, digest)),
            headings or _NO_HEADINGS,
            own or _NO_OWN,
        )

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the revision."""
        return self.mark if isinstance(self.mark, str) else self.mark.hex()

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
            digest=self.numbers[self.size * _NUMBERS.size :].hex(),
        )

    def ordinal(self, key: int) -> int:
        """Returns the ordinal of the passage with this engine key."""
        position = key - self.first_key
        if position in self.own:
            return self.own[position].ordinal
        ordinal: int = _NUMBERS.unpack_from(self.numbers, position * _NUMBERS.size)[-1]
        return ordinal


class Sharing:
    """Lets the documents of one write that have the same metadata share one object of it."""

    def __init__(self) -> None:
        self._known: dict[str, Mapping[str, Any]] = {}

    def __call__(self, document: Document) -> Document:
        """Returns the document, or an equal one whose metadata is that of an earlier one."""
        given = document.metadata
        known = self._known.setdefault(encode(given), given)
        return document if known is given else replace(document, metadata=known)


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
