"""Documents and passages as rows, there and back."""

from __future__ import annotations

import json
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ragchat_retrieval.metadata import decode
from ragchat_retrieval.stores.labels import Labels, MetadataMemo, inherit, own_labels
from ragchat_retrieval.stores.sqlite.schema import BATCH, batches
from ragchat_retrieval.values import Document, Lines, Span, trusted_passage

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

    from ragchat_retrieval.engine import Postings
    from ragchat_retrieval.metadata import MetadataTexts
    from ragchat_retrieval.values import Passage


Row = tuple[Any, ...]

PASSAGE = (
    "document, id, ordinal, span_start, span_end, line_start, line_end, page, headings, own, text"
)
"""The columns that `read_passages` takes."""

_LONG = 8_192
"""Characters of a document beyond which its passages keep their text, too. To cut one out, all of
the document has to be read: 1 MB of Cyrillic takes three milliseconds, for each in a ranking."""

_TOGETHER = 1024
"""Passages whose terms are encoded together."""


# --- writing ---


class Owner(NamedTuple):
    """A document on its way into the file, with what its rows and its passages' rows share."""

    key: int
    corpus: int
    document: Document
    digest: str
    metadata: str
    """Encoded."""

    @classmethod
    def of(cls, key: int, corpus: int, document: Document, encoded: MetadataTexts) -> Owner:
        """Prepares a document."""
        return cls(key, corpus, document, document.digest, encoded(document.metadata))

    def row(self, fingerprint: str) -> Row:
        """Returns the row of table ``documents``."""
        document = self.document
        return (
            self.key,
            self.corpus,
            document.id,
            document.title,
            document.source,
            fingerprint,
            self.digest,
            self.metadata,
            document.text,
        )


def passage_rows(
    owner: Owner, passages: Sequence[Passage], numbered: Iterator[tuple[int, memoryview]]
) -> Iterator[Row]:
    """Yields rows of table ``passages`` for passages of one document.

    Args:
        owner: Their document.
        passages: In order.
        numbered: Keys and encoded terms of these and of what is not theirs, which is left there.
    """
    document = owner.document
    text = document.text
    cut = len(text) <= _LONG
    # The passages come first: zip would take a number before it finds their end.
    for passage, (key, terms) in zip(passages, numbered, strict=False):
        span, lines = passage.span, passage.lines
        sliced = (
            cut and span is not None and text[max(span.start, 0) : max(span.end, 0)] == passage.text
        )
        yield (
            key,
            owner.corpus,
            owner.key,
            passage.id,
            passage.ordinal,
            span.start if span else None,
            span.end if span else None,
            lines.start if lines else None,
            lines.end if lines else None,
            passage.page,
            json.dumps(passage.headings) if passage.headings else None,
            own_labels(passage, document, digest=owner.digest),
            terms,
            None if sliced else passage.text,
        )


def encoded_terms(postings: Postings) -> Iterator[memoryview]:
    """Yields the terms of each passage: pairs of id and count, int32 little-endian."""
    ends = np.cumsum(postings.lengths)
    low = 0
    for start in range(0, len(ends), _TOGETHER):
        some = ends[start : start + _TOGETHER]
        high = int(some[-1])
        pairs = np.empty((high - low, 2), dtype="<i4")
        pairs[:, 0] = postings.term_ids[low:high]
        pairs[:, 1] = postings.counts[low:high]
        encoded = memoryview(pairs.tobytes())
        for begin, end in pairwise([0, *((some - low) * 8).tolist()]):
            yield encoded[begin:end]
        low = high


def insert_rows(
    connection: sqlite3.Connection, table: str, width: int, rows: Iterable[Row]
) -> None:
    """Inserts rows, many a statement, which takes less time than a statement a row.

    Args:
        connection: In a write transaction.
        table: Its name.
        width: Its columns.
        rows: A value for each of its columns.
    """
    marks = f"({','.join('?' * width)})"
    rest = iter(rows)
    statement, size = "", 0
    while some := [*islice(rest, BATCH // width)]:
        if len(some) != size:
            size = len(some)
            values = ",".join([marks] * size)
            statement = f"INSERT INTO {table} VALUES {values}"  # noqa: S608 - a constant, placeholders
        connection.execute(statement, [*chain.from_iterable(some)])


# --- reading ---


def read_document(row: Row) -> Document:
    """Returns the document of a row ``id, title, source, metadata, text``."""
    document_id, title, source, metadata, text = row
    return Document(document_id, text, title=title, source=source, metadata=decode(metadata))


def read_passages(
    connection: sqlite3.Connection, rows: Sequence[Row], memo: MetadataMemo
) -> Iterator[Passage]:
    """Yields the passages of rows with the columns `PASSAGE`, grouped by document.

    A document's text is read only where a passage is a slice of it, and one at a time.
    """
    by_document: dict[int, list[Row]] = {}
    for row in rows:
        by_document.setdefault(row[0], []).append(row)
    sliced = {row[0] for row in rows if row[-1] is None}
    for keys, text in ((sliced, "text"), (by_document.keys() - sliced, "''")):
        for marks, part in batches([*keys]):
            query = (
                f"SELECT key, id, title, source, metadata, digest, {text} FROM documents "  # noqa: S608 - constants and placeholders
                f"WHERE key IN ({marks})"
            )
            for key, document_id, title, source, metadata, digest, body in connection.execute(
                query, part
            ):
                labels = Labels(document_id, title, source, memo(metadata), digest)
                for row in by_document[key]:
                    own = row[-2]
                    yield _passage(row, labels if own is None else inherit(labels, own, memo), body)


def _passage(row: Row, labels: Labels, body: str) -> Passage:
    _, passage_id, ordinal, start, end, first, last, page, headings, _, text = row
    document_id, title, source, metadata, digest = labels
    if text is None:
        text = body[max(start, 0) : max(end, 0)]
    return trusted_passage(
        text,
        passage_id,
        document_id,
        title,
        source,
        metadata,
        tuple(json.loads(headings)) if headings else (),
        page,
        None if first is None else Lines(first, last),
        None if start is None else Span(start, end),
        ordinal,
        digest,
    )
