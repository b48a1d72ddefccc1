"""Revisions as rows, and rows as passages and documents."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ragchat_retrieval.comparison import scalar_key
from ragchat_retrieval.filters import fields_of
from ragchat_retrieval.metadata import decode, encode
from ragchat_retrieval.stores.labels import Labels, MetadataMemo, inherit, own_labels
from ragchat_retrieval.stores.postgres.predicate import shadow
from ragchat_retrieval.terms import joined, tabulated
from ragchat_retrieval.values import Document, Lines, Passage, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.values import Revision

Row = tuple[Any, ...]

DOCUMENT_COLUMNS: Final = "key, id, title, source, fingerprint, digest, metadata, fields, text"
PASSAGE_COLUMNS: Final = (
    "key, document, id, ordinal, span_start, span_end, line_start, line_end, page, length, "
    "headings, own, fields, text"
)

PASSAGE: Final = (
    "p.id, p.ordinal, p.span_start, p.span_end, p.line_start, p.line_end, p.page, "
    "p.headings, p.own, p.text, d.id, d.title, d.source, d.metadata, d.digest"
)
"""What `read_passages` takes, of a passage ``p`` and its document ``d``."""

# The form of COPY's binary files, from PostgreSQL's manual: a signature, flags and the length of
# an extension; then rows, each a number of fields and every field with its length; then −1.
_COPY_HEAD: Final = b"PGCOPY\n\xff\r\n\x00" + struct.pack("!ii", 0, 0)
_COPY_END: Final = struct.pack("!h", -1)

_POSTING: Final = np.dtype(
    [
        ("fields", ">i2"),
        ("size_passage", ">i4"),
        ("passage", ">i8"),
        ("size_term", ">i4"),
        ("term", ">i4"),
        ("size_count", ">i4"),
        ("count", ">i4"),
        ("size_length", ">i4"),
        ("length", ">i4"),
    ]
)
POSTING_COLUMNS: Final = "passage, term, count, length"


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Everything that a write adds, as rows."""

    documents: Sequence[Row]
    passages: Sequence[Row]

    vectors: NDArray[np.float32] | None
    """float32 [passages with a vector, dimension]."""

    with_vector: NDArray[np.int64]
    """Keys of the passages that have one."""

    terms: Sequence[str]
    """The distinct terms."""

    posting_terms: NDArray[np.int32]
    """Positions in `terms`, of all postings, passage by passage."""

    posting_counts: NDArray[np.int64]
    distinct: NDArray[np.int64]
    """Postings of each passage."""

    lengths: NDArray[np.int64]
    """Terms of each passage, repetitions included."""


def build(revisions: Sequence[Revision], *, first_document: int, first_passage: int) -> Batch:
    """Returns the rows of revisions that were checked and have passages.

    Args:
        revisions: What to write.
        first_document: Key of the first document; the others follow.
        first_passage: Key of the first passage.
    """
    table = tabulated(joined(revision.terms or () for revision in revisions))
    distinct = table.lengths
    owners = np.repeat(np.arange(len(distinct)), distinct)
    lengths = np.bincount(owners, table.counts, len(distinct)).astype(np.int64)
    vectors, with_vector = _matrix(revisions, first_passage)
    documents: list[Row] = []
    passages: list[Row] = []
    for key, revision in enumerate(revisions, first_document):
        documents.append(_document_row(key, revision))
        start = len(passages)
        first = (first_passage + start, key)
        passages.extend(_passage_rows(first, revision, lengths[start:].tolist(), documents[-1]))
    return Batch(
        documents,
        passages,
        vectors,
        with_vector,
        table.names,
        table.numbers,
        table.counts.astype(np.int64),
        distinct,
        lengths,
    )


def binary_postings(
    batch: Batch, term_ids: NDArray[np.int32], *, first_passage: int
) -> Iterator[bytes | memoryview]:
    """Yields the postings in the form of COPY's binary files.

    Args:
        batch: The write.
        term_ids: Stored ids of ``batch.terms``.
        first_passage: Key of the first passage.
    """
    rows = np.empty(len(batch.posting_terms), _POSTING)
    rows["fields"] = 4
    rows["size_passage"] = 8
    for name in ("size_term", "size_count", "size_length"):
        rows[name] = 4
    keys = np.arange(first_passage, first_passage + len(batch.distinct))
    rows["passage"] = np.repeat(keys, batch.distinct)
    rows["term"] = term_ids[batch.posting_terms]
    rows["count"] = batch.posting_counts
    rows["length"] = np.repeat(batch.lengths, batch.distinct)
    # In one order for all writers, which the index likes.
    yield from (_COPY_HEAD, _bytes(rows[np.argsort(rows["term"], kind="stable")]), _COPY_END)


def binary_vectors(
    vectors: NDArray[np.float32], keys: NDArray[np.int64]
) -> Iterator[bytes | memoryview]:
    """Yields vectors with their keys in the same form, as pgvector reads a vector's bytes."""
    dimension = vectors.shape[1]
    rows = np.empty(
        len(vectors),
        [
            ("fields", ">i2"),
            ("size_key", ">i4"),
            ("key", ">i8"),
            ("size_vector", ">i4"),
            ("dimension", ">i2"),
            ("unused", ">i2"),
            ("numbers", ">f4", (dimension,)),
        ],
    )
    rows["fields"] = 2
    rows["size_key"] = 8
    rows["key"] = keys
    rows["size_vector"] = 4 + 4 * dimension
    rows["dimension"] = dimension
    rows["unused"] = 0
    rows["numbers"] = vectors
    yield from (_COPY_HEAD, _bytes(rows), _COPY_END)


def read_vectors(sent: Sequence[bytes]) -> NDArray[np.float32]:
    """Returns the matrix of vectors that pgvector sent as bytes, float32 [vectors, dimension]."""
    if not sent:
        return np.empty((0, 0), np.float32)
    raw = np.frombuffer(b"".join(sent), np.uint8).reshape(len(sent), -1)[:, 4:]
    return np.ascontiguousarray(raw).view(">f4").astype(np.float32)


def as_text(vector: NDArray[np.float32]) -> str:
    """Returns a vector in pgvector's text form, exactly."""
    return f"[{','.join(map(repr, vector.tolist()))}]"


def read_document(row: Row) -> Document:
    """Returns the document of a row ``id, title, source, metadata, text``."""
    document_id, title, source, metadata, text = row
    return Document(document_id, text, title=title, source=source, metadata=decode(metadata))


def read_passages(rows: Iterable[Row]) -> Iterator[Passage]:
    """Yields the passages of rows with the columns `PASSAGE`."""
    memo = MetadataMemo()
    for row in rows:
        passage_id, ordinal, start, end, first, last, page, headings, own, text, *above = row
        document_id, title, source, metadata, digest = above
        labels = inherit(Labels(document_id, title, source, memo(metadata), digest), own, memo)
        yield Passage(
            text,
            id=passage_id,
            document_id=document_id,
            title=labels.title,
            source=labels.source,
            metadata=labels.metadata,
            headings=tuple(json.loads(headings)) if headings else (),
            page=page,
            lines=None if first is None else Lines(first, last),
            span=None if start is None else Span(start, end),
            ordinal=ordinal,
            digest=labels.digest,
        )


def _document_row(key: int, revision: Revision) -> Row:
    document = revision.document
    return (
        key,
        document.id,
        document.title,
        document.source,
        revision.fingerprint,
        document.digest,
        encode(document.metadata),
        shadow(fields_of(document)),
        document.text,
    )


def _passage_rows(
    first: tuple[int, int], revision: Revision, lengths: Sequence[int], owner: Row
) -> Iterator[Row]:
    """Yields the passages of one document.

    Args:
        first: Key of its first passage, and its own.
        revision: The document with its passages.
        lengths: Terms of each passage, and more.
        owner: The document's row.
    """
    key, document_key = first
    document = revision.document
    digest = owner[5]
    common = shadow({name: value for name, value in fields_of(document).items() if name != "id"})
    for passage, length in zip(revision.passages, lengths, strict=False):
        own = own_labels(passage, document, digest=digest)
        span, lines = passage.span, passage.lines
        numbers = (
            passage.ordinal,
            span.start if span else None,
            span.end if span else None,
            lines.start if lines else None,
            lines.end if lines else None,
            passage.page,
        )
        yield (
            key,
            document_key,
            passage.id,
            *numbers,
            length,
            json.dumps(passage.headings) if passage.headings else None,
            own,
            _with_id(common, passage.id) if own is None else shadow(fields_of(passage)),
            passage.text,
        )
        key += 1


def _with_id(common: str, passage_id: str) -> str:
    """Returns the shadow of a passage under its document's labels, without computing them again."""
    scalar = scalar_key(passage_id)
    return f'{{"id":{json.dumps(scalar and scalar[1])},{common[1:]}'


def _matrix(
    revisions: Sequence[Revision], first_passage: int
) -> tuple[NDArray[np.float32] | None, NDArray[np.int64]]:
    parts: list[NDArray[np.float32]] = []
    keys: list[NDArray[np.int64]] = []
    key = first_passage
    for revision in revisions:
        size = len(revision.passages)
        if revision.vectors is not None:
            parts.append(revision.vectors)
            keys.append(np.arange(key, key + size))
        key += size
    if not parts:
        return None, np.empty(0, np.int64)
    return np.concatenate(parts), np.concatenate(keys)


def _bytes(rows: NDArray[Any]) -> memoryview:
    return rows.view(np.uint8).data if len(rows) else memoryview(b"")
