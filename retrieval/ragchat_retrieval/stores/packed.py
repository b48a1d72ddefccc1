"""Documents with their passages, kept compactly and rebuilt on reading.

A document is one run of bytes: numbers, then its labels and its text as UTF-8. A passage that is a
slice of its document, under the document's labels, needs only its numbers; any other passage is
kept whole, beside. Runs stand one after another in large pieces of memory, which takes far less
than objects would, and a passage is cut out of its document's run without decoding the rest.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ragchat_retrieval.metadata import are_same
from ragchat_retrieval.values import Document, Lines, Span, trusted_passage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ragchat_retrieval.values import Passage, Revision

_HEAD = struct.Struct("<2i4q")
"""How many passages there are, the flags, and where parts of the run begin.

The passages' numbers and the digest that regular ones carry come before the first of these parts:
fingerprint, labels, text, and the end. The labels are id, title and source, parted by NUL.
"""

_HEXADECIMAL, _TITLED, _SOURCED = 1, 2, 4
"""Flags: the fingerprint is kept as the bytes that it stands for; there are a title, a source."""

_NUMBERS = struct.Struct("<8i")
"""Of one passage: its span in characters and in bytes, lines, page and ordinal.

Without meaning for irregular passages.
"""

_NONE = -(2**31)
"""Stands for an absent number."""

_ABSENT = (_NONE, _NONE)
_FIXED, _EACH = _HEAD.size, _NUMBERS.size
_NO_NUMBERS = bytes(_EACH)


class Extra(NamedTuple):
    """What only some documents have, by the passages' position in the revision."""

    headings: Mapping[int, tuple[str, ...]]
    """Heading paths of the regular passages that have one."""

    own: Mapping[int, Passage]
    """The irregular passages."""


class PackedDocument:
    """A document and its passages in a run of bytes, decoded as far as it is asked.

    Args:
        piece: Memory that holds the run.
        start: Where the run begins.
        first_key: Engine key of the first passage; the others follow.
        metadata: That of the document.
        extra: What is not in the run.
    """

    __slots__ = ("_extra", "_head", "_labels", "_metadata", "_piece", "_start", "first_key")

    first_key: int
    """Engine key of the first passage; the others follow."""

    def __init__(
        self,
        piece: memoryview,
        start: int,
        first_key: int,
        metadata: Mapping[str, Any],
        extra: Extra | None,
    ) -> None:
        self._piece = piece
        self._start = start
        self.first_key = first_key
        self._metadata = metadata
        self._extra = extra
        self._head: tuple[int, ...] = _HEAD.unpack_from(piece, start)
        self._labels: tuple[str, str | None, str | None] | None = None

    @property
    def size(self) -> int:
        """How many passages there are."""
        return self._head[0]

    @property
    def nbytes(self) -> int:
        """What the run takes."""
        return self._head[-1]

    @property
    def run(self) -> memoryview:
        """The run."""
        return self._piece[self._start : self._start + self._head[-1]]

    @property
    def document(self) -> Document:
        """The document."""
        *_, text, end = self._head
        return self._document(str(self._piece[self._start + text : self._start + end], "utf-8"))

    @property
    def bare(self) -> Document:
        """The document without its text, for filters."""
        return self._document("")

    @property
    def id(self) -> str:
        """The document's id."""
        return self._named()[0]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the revision."""
        start, (_, flags, first, second, *_) = self._start, self._head
        mark = self._piece[start + first : start + second]
        if flags & _HEXADECIMAL:
            return mark.hex()
        return str(mark, "utf-8", "surrogatepass")

    def passage(self, key: int, passage_id: str) -> Passage:
        """Rebuilds one passage.

        Args:
            key: Its engine key.
            passage_id: Its id, which the engine keeps.
        """
        position = key - self.first_key
        extra = self._extra
        headings: tuple[str, ...] = ()
        if extra is not None:
            if position in extra.own:
                return extra.own[position]
            headings = extra.headings.get(position, ())
        piece, run = self._piece, self._start
        size, _, mark, _, text, _ = self._head
        text += run
        start, end, low, high, first, last, page, ordinal = _NUMBERS.unpack_from(
            piece, run + _FIXED + position * _EACH
        )
        document_id, title, source = self._labels or self._named()
        return trusted_passage(
            str(piece[text + low : text + high], "utf-8"),
            passage_id,
            document_id,
            title,
            source,
            self._metadata,
            headings,
            None if page == _NONE else page,
            None if first == _NONE else Lines(first, last),
            Span(start, end),
            ordinal,
            piece[run + _FIXED + size * _EACH : run + mark].hex(),
        )

    def ordinal(self, key: int) -> int:
        """Returns the ordinal of the passage with this engine key."""
        position = key - self.first_key
        if self._extra is not None and position in self._extra.own:
            return self._extra.own[position].ordinal
        at = self._start + _FIXED + position * _EACH
        ordinal: int = _NUMBERS.unpack_from(self._piece, at)[-1]
        return ordinal

    def _named(self) -> tuple[str, str | None, str | None]:
        """Returns id, title and source."""
        if self._labels is None:
            run, (_, flags, _, labels, text, _) = self._start, self._head
            id_, title, source = str(self._piece[run + labels : run + text], "utf-8").split("\0")
            self._labels = (
                id_,
                title if flags & _TITLED else None,
                source if flags & _SOURCED else None,
            )
        return self._labels

    def _document(self, text: str) -> Document:
        id_, title, source = self._named()
        return Document(id_, text, title=title, source=source, metadata=self._metadata)


def run_of(revision: Revision) -> tuple[bytes, Extra | None]:
    """Returns a revision that was checked as a run of bytes, and what is not in it."""
    document, passages = revision.document, revision.passages
    text = document.text.encode()
    digest = _raw(passages[0].digest) if passages else b""
    places = None if len(text) == len(document.text) else _places(document.text, passages)
    numbers: list[bytes] = []
    headings: dict[int, tuple[str, ...]] = {}
    own: dict[int, Passage] = {}
    for position, passage in enumerate(passages):
        packed = None
        if _is_regular(document, passage, digest):
            packed = _packed(passage, places, len(text))
        if packed is None:
            own[position] = passage
        elif passage.headings:
            headings[position] = passage.headings
        numbers.append(packed or _NO_NUMBERS)
    mark = _raw(revision.fingerprint)
    title, source = document.title, document.source
    flags = 0 if title is None else _TITLED
    flags |= 0 if source is None else _SOURCED
    if mark.hex() == revision.fingerprint:
        flags |= _HEXADECIMAL
    else:
        mark = revision.fingerprint.encode("utf-8", "surrogatepass")
    labels = f"{document.id}\0{title or ''}\0{source or ''}".encode()
    first = _FIXED + len(passages) * _EACH + len(digest)
    second = first + len(mark)
    third = second + len(labels)
    head = _HEAD.pack(len(passages), flags, first, second, third, third + len(text))
    run = b"".join((head, *numbers, digest, mark, labels, text))
    return run, Extra(headings, own) if headings or own else None


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


def _places(text: str, passages: Iterable[Passage]) -> dict[int, int]:
    """Returns how many bytes of UTF-8 stand before the ends of the passages' spans."""
    ends = {end for passage in passages for end in passage.span or () if end >= 0}
    places: dict[int, int] = {}
    before = size = 0
    for end in sorted(ends):
        places[end] = size = size + len(text[before:end].encode())
        before = end
    return places


def _packed(passage: Passage, places: Mapping[int, int] | None, size: int) -> bytes | None:
    """Returns the numbers of a regular passage; None if one needs more than 32 bits.

    Args:
        passage: A slice of its document, which may end beyond it.
        places: Bytes before the ends of spans; None if each character is a byte.
        size: Bytes of the document.
    """
    assert passage.span is not None  # noqa: S101 - it is regular
    (start, end), page = passage.span, passage.page
    low, high = (start, end) if places is None else (places[start], places[end])
    first, last = passage.lines or _ABSENT
    number = _NONE if page is None else page
    try:
        return _NUMBERS.pack(start, end, low, min(high, size), first, last, number, passage.ordinal)
    except struct.error:
        return None
