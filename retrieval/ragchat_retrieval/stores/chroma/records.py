"""Rows and clauses in Chroma's terms, whose metadata is flat: each token is a key of its own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from ragchat_retrieval.stores.manifest import Entry, Gone, Row, read_passage
from ragchat_retrieval.stores.shadow import (
    TOKENS,
    AnyOf,
    Both,
    Clause,
    Compare,
    Either,
    Neither,
    shadow,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ragchat_retrieval.values import Document, Passage

_OPPOSITE = {"gt": "lte", "gte": "lt", "lt": "gte", "lte": "gt"}
_NAMESPACE = uuid.UUID("0c0e7d6a-54d8-53a0-9b6c-2b7d5b8b0f11")


def record_id(*parts: object) -> str:
    """Returns the id that stands for any ids."""
    return str(uuid.uuid5(_NAMESPACE, repr(parts)))


def row_fields(row: Row) -> dict[str, Any]:
    """Returns the metadata of a row, which has its passage."""
    assert row.passage is not None  # noqa: S101 - rows are written whole
    return {
        "pid": row.passage_id,
        "did": row.document_id,
        "rev": row.stamp,
        "ord": row.ordinal,
        "emb": float(row.vector is not None),
        "len": row.length,
        **_flat(row.passage),
    }


def listed(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Turns columns into records.

    Raises:
        Gone: Some were removed while the answer was put together.
    """
    if any(metadata is None for metadata in answer.get("metadatas") or ()):
        raise Gone
    names = {"metadatas": "metadata", "documents": "document", "embeddings": "embedding"}
    columns = {one: answer[many] for many, one in names.items() if answer.get(many) is not None}
    return [
        {name: column[at] for name, column in columns.items()} for at in range(len(answer["ids"]))
    ]


def entry_fields(entry: Entry) -> dict[str, Any]:
    """Returns the metadata of a manifest entry."""
    return {
        "did": entry.document.id,
        "rev": entry.stamp,
        "labels": entry.labels(),
        **_flat(entry.document),
    }


def read_entry(record: Mapping[str, Any]) -> Entry:
    """Returns the entry of a record, with its text if that was read."""
    fields = record["metadata"]
    return Entry.read(fields["labels"], fields["rev"], record.get("document") or "")


def read_row(record: Mapping[str, Any], query: NDArray[np.float32] | None = None) -> Row:
    """Returns the row of a record with what was read of it, scored by a query if there is one."""
    fields, body, given = record["metadata"], record.get("document"), record.get("embedding")
    embedded = fields["emb"] > 0
    vector = np.array(given, np.float32) if embedded and given is not None else None
    score = 0.0
    if query is not None and vector is not None:
        score = float((vector.astype(np.float64) * query).sum())
    return Row(
        passage_id=fields["pid"],
        document_id=fields["did"],
        stamp=fields["rev"],
        ordinal=fields["ord"],
        embedded=embedded,
        score=score,
        passage=None if body is None else read_passage(body),
        vector=vector,
    )


def _flat(item: Passage | Document) -> dict[str, Any]:
    """Returns the shadow fields as one flat mapping."""
    given = shadow(item)
    flat: dict[str, Any] = {f"{TOKENS}.{token}": True for token in given[TOKENS]}
    flat.update((f"n.{key}", number) for key, number in given["n"].items())
    for key, chunks in given["s"].items():
        flat.update((f"s.{key}.{level}", chunk) for level, chunk in chunks.items())
    return flat


def where_of(clause: Clause) -> dict[str, Any] | None:
    """Translates a clause; None stands for everything."""
    translated = _translated(clause, negated=False)
    return translated or None


def _translated(clause: Clause, *, negated: bool) -> dict[str, Any]:
    made: dict[str, Any]
    match clause:
        case AnyOf(field, values) if field == TOKENS:
            tests = [{f"{TOKENS}.{token}": {"$ne" if negated else "$eq": True}} for token in values]
            made = _joined(tests, every=negated)
        case AnyOf(field, values):
            made = {field: {"$nin" if negated else "$in": list(values)}}
        case Compare(field, op, number):
            made = {field: {f"${_OPPOSITE[op] if negated else op}": float(number)}}
        case Neither(inner):
            made = _translated(inner, negated=not negated)
        case Both(clauses) | Either(clauses):
            every = isinstance(clause, Both) is not negated
            made = _joined([_translated(c, negated=negated) for c in clauses], every=every)
        case _:
            assert_never(clause)
    return made


def _joined(tests: list[dict[str, Any]], *, every: bool) -> dict[str, Any]:
    """Joins tests; {} matches everything, and no record has a negative revision."""
    if every:
        tests = [test for test in tests if test]
    elif not tests:
        return {"rev": {"$lt": -1.0}}
    elif not all(tests):
        return {}
    if not tests:
        return {}
    return tests[0] if len(tests) == 1 else {"$and" if every else "$or": tests}
