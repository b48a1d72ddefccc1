"""Rows, entries, clauses and words in Qdrant's terms."""

from __future__ import annotations

import uuid
from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, assert_never

import numpy as np
from qdrant_client import models

from ragchat_retrieval.stores.manifest import Entry, Row, passage_text, read_passage
from ragchat_retrieval.stores.rescoring import saturation
from ragchat_retrieval.stores.shadow import (
    AnyOf,
    Both,
    Clause,
    Compare,
    Either,
    Neither,
    shadow,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

DENSE: Final = "dense"
WORDS: Final = "words"

REFERENCE = ["pid", "did", "rev", "ord", "emb"]
"""Payload fields that every row is read with."""

_NAMESPACE = uuid.UUID("5a2c8e0e-6b0f-5c43-9d0b-0f6d3c1f7a52")


def point_id(*parts: object) -> str:
    """Returns the UUID that stands for any ids; Qdrant takes no other strings."""
    return str(uuid.uuid5(_NAMESPACE, repr(parts)))


def row_point(row: Row, typical: float) -> models.PointStruct:
    """Returns the point of a row.

    Args:
        row: With its passage and terms.
        typical: The length of passages that its sparse values are made for.
    """
    assert row.passage is not None  # noqa: S101 - rows are written whole
    vectors: dict[str, Any] = {}
    if row.vector is not None:
        vectors[DENSE] = row.vector.tolist()
    if row.terms:
        vectors[WORDS] = _sparse(
            {term: saturation(count, row.length, typical) for term, count in row.terms.items()}
        )
    payload = {
        "pid": row.passage_id,
        "did": row.document_id,
        "rev": row.stamp,
        "ord": row.ordinal,
        "emb": row.vector is not None,
        **shadow(row.passage),
        "terms": list(row.terms),
        "counts": list(row.terms.values()),
        "body": passage_text(row.passage),
    }
    return models.PointStruct(
        id=point_id("row", row.passage_id, row.stamp), vector=vectors, payload=payload
    )


def read_row(point: models.Record | models.ScoredPoint, score: float = 0.0) -> Row:
    """Returns the row of a point, with what was read of it."""
    payload = point.payload or {}
    vectors = point.vector if isinstance(point.vector, dict) else {}
    dense, body = vectors.get(DENSE), payload.get("body")
    return Row(
        passage_id=payload["pid"],
        document_id=payload["did"],
        stamp=payload["rev"],
        ordinal=payload["ord"],
        embedded=payload["emb"],
        score=score,
        passage=None if body is None else read_passage(body),
        vector=None if dense is None else np.array(dense, dtype=np.float32),
        terms=dict(zip(payload.get("terms", ()), payload.get("counts", ()), strict=True)),
    )


def entry_point(entry: Entry) -> models.PointStruct:
    """Returns the point of a manifest entry."""
    document = entry.document
    payload = {
        "did": document.id,
        "rev": entry.stamp,
        **shadow(document),
        "labels": entry.labels(),
        "text": document.text,
    }
    return models.PointStruct(id=point_id("entry", document.id), vector={}, payload=payload)


def read_entry(point: models.Record) -> Entry:
    """Returns the entry of a point, with its text if that was read."""
    payload = point.payload or {}
    return Entry.read(payload["labels"], payload["rev"], payload.get("text", ""))


def batches(points: Iterable[models.PointStruct], size: int) -> Iterator[list[models.PointStruct]]:
    """Cuts points into requests of about so many bytes of text."""
    batch: list[models.PointStruct] = []
    used = 0
    for point in points:
        payload = point.payload or {}
        weight = 2_000 + sum(len(payload.get(name, "")) * 2 for name in ("body", "labels", "text"))
        dense = point.vector.get(DENSE) if isinstance(point.vector, dict) else None
        weight += 12 * len(dense) if isinstance(dense, list) else 0
        if batch and used + weight > size:
            yield batch
            batch, used = [], 0
        batch.append(point)
        used += weight
    if batch:
        yield batch


def condition(clause: Clause) -> models.Filter:
    """Translates a clause."""
    translated = _translated(clause)
    return translated if isinstance(translated, models.Filter) else models.Filter(must=[translated])


def _translated(clause: Clause) -> models.Filter | models.FieldCondition | models.HasIdCondition:
    made: models.Filter | models.FieldCondition | models.HasIdCondition
    match clause:
        case AnyOf(field, values):
            made = models.FieldCondition(key=field, match=models.MatchAny(any=list(values)))
        case Compare(field, op, number):
            made = models.FieldCondition(key=field, range=models.Range(**{op: number}))
        case Both(clauses):
            made = models.Filter(must=[_translated(inner) for inner in clauses])
        case Either(()):
            made = models.HasIdCondition(has_id=[])
        case Either(clauses):
            made = models.Filter(should=[_translated(inner) for inner in clauses])
        case Neither(inner):
            made = models.Filter(must_not=[_translated(inner)])
        case _:
            assert_never(clause)
    return made


def where(clause: Clause) -> models.Filter | None:
    """Translates a clause; None stands for everything."""
    return None if clause == Both() else condition(clause)


# --- words ---


def words(weights: Mapping[str, float]) -> models.SparseVector:
    """Returns the sparse vector of a query."""
    return _sparse(weights)


def _sparse(values: Mapping[str, float]) -> models.SparseVector:
    # Terms that share a number add up: too much for the engine's score, never too little.
    summed: defaultdict[int, float] = defaultdict(float)
    for term, value in values.items():
        summed[term_number(term)] += value
    return models.SparseVector(indices=list(summed), values=list(summed.values()))


def term_number(term: str) -> int:
    """Returns the dimension of a term, 32 bits of a hash."""
    return int.from_bytes(blake2b(term.encode(), digest_size=4).digest())
