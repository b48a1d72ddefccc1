"""Reading the tables of a corpus, in a transaction that the caller opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ragchat_retrieval.ports import StoreCounts
from ragchat_retrieval.stores.postgres.predicate import predicate
from ragchat_retrieval.stores.postgres.rows import (
    PASSAGE,
    read_document,
    read_passages,
    read_vectors,
)
from ragchat_retrieval.text import is_storable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.stores.postgres.layout import Catalog, Tables
    from ragchat_retrieval.stores.postgres.sessions import Session
    from ragchat_retrieval.values import Document, Passage

_FURTHEST: Final = 2**62
"""Bound for ordinals in a query; the column has 64 bits."""


def storable(texts: Iterable[str]) -> list[str]:
    """Returns the distinct texts that may be stored, so that the others need no asking for."""
    return [text for text in dict.fromkeys(texts) if is_storable(text)]


async def passage_ids(session: Session, tables: Tables, scope: Filter) -> list[str]:
    """Returns the ids of the passages that the scope shows, ascending."""
    return await _ids(session, tables.passages, scope)


async def document_ids(session: Session, tables: Tables, scope: Filter) -> list[str]:
    """Returns the ids of the documents that the scope shows, ascending."""
    return await _ids(session, tables.documents, scope)


async def document(
    session: Session, tables: Tables, document_id: str, scope: Filter
) -> Document | None:
    """Returns a document with its text, if the scope shows it."""
    inside = predicate(scope, column="fields")
    rows = await session.fetch(
        f"SELECT id, title, source, metadata, text FROM {tables.documents} "  # noqa: S608 - our own names
        f"WHERE id = %(id)s AND {inside.sql}",
        {"id": document_id, **inside.params},
    )
    return read_document(rows[0]) if rows else None


async def passages(
    session: Session, tables: Tables, ids: Sequence[str], scope: Filter
) -> dict[str, Passage]:
    """Returns the known ones among these passages by id, in the order asked for."""
    inside = predicate(scope, column="p.fields")
    rows = await session.fetch(
        f"SELECT {PASSAGE} FROM {tables.passages} p "  # noqa: S608 - our own names
        f"JOIN {tables.documents} d ON d.key = p.document "
        f"WHERE p.id = ANY(%(ids)s) AND {inside.sql}",
        {"ids": [*ids], **inside.params},
    )
    found = {passage.id: passage for passage in read_passages(rows)}
    return {id_: found[id_] for id_ in ids if id_ in found}


async def neighbours(
    session: Session,
    tables: Tables,
    document_id: str,
    ordinals: tuple[int, int],
    scope: Filter,
) -> list[Passage]:
    """Returns a document's passages with ordinals in an inclusive range, in order."""
    low, high = (max(-_FURTHEST, min(bound, _FURTHEST)) for bound in ordinals)
    inside = predicate(scope, column="p.fields")
    rows = await session.fetch(
        f"SELECT {PASSAGE} FROM {tables.passages} p "  # noqa: S608 - our own names
        f"JOIN {tables.documents} d ON d.key = p.document "
        f"WHERE d.id = %(id)s AND p.ordinal BETWEEN %(low)s AND %(high)s AND {inside.sql} "
        "ORDER BY p.ordinal, p.id",
        {"id": document_id, "low": low, "high": high, **inside.params},
    )
    return [*read_passages(rows)]


async def hashes(
    session: Session, tables: Tables, wanted: Collection[str] | None, scope: Filter
) -> dict[str, str]:
    """Returns fingerprints by document id; None asks for all."""
    inside = predicate(scope, column="fields")
    chosen = "true" if wanted is None else "id = ANY(%(ids)s)"
    rows = await session.fetch(
        f"SELECT id, fingerprint FROM {tables.documents} WHERE {chosen} AND {inside.sql}",  # noqa: S608 - our own names
        {"ids": [*(wanted or ())], **inside.params},
    )
    return dict(rows)


async def counts(
    session: Session, tables: Tables, scope: Filter, *, has_vectors: bool
) -> StoreCounts:
    """Counts what the scope shows."""
    inside = predicate(scope, column="fields")
    vectors = f"count(*) FILTER (WHERE key IN (SELECT key FROM {tables.vectors}))"  # noqa: S608 - our own names
    ((documents, found, embedded),) = await session.fetch(
        f"SELECT (SELECT count(*) FROM {tables.documents} WHERE {inside.sql}), count(*), "  # noqa: S608 - our own names
        f"{vectors if has_vectors else '0::bigint'} FROM {tables.passages} WHERE {inside.sql}",
        inside.params,
    )
    return StoreCounts(documents, found, embedded)


async def vectors(
    session: Session,
    catalog: Catalog,
    tables: Tables,
    ids: Sequence[str],
    scope: Filter,
) -> tuple[list[str], NDArray[np.float32]]:
    """Returns those of these passages that have a vector, with the vectors, in the order given."""
    inside = predicate(scope, column="p.fields")
    rows = await session.fetch(
        f"SELECT p.id, {catalog.send}(v.embedding) FROM {tables.passages} p "  # noqa: S608 - our own names
        f"JOIN {tables.vectors} v ON v.key = p.key "
        f"WHERE p.id = ANY(%(ids)s) AND {inside.sql}",
        {"ids": [*ids], **inside.params},
    )
    sent: dict[str, bytes] = dict(rows)
    known = [id_ for id_ in ids if id_ in sent]
    return known, read_vectors([sent[id_] for id_ in known])


async def _ids(session: Session, table: str, scope: Filter) -> list[str]:
    inside = predicate(scope, column="fields")
    rows = await session.fetch(
        f"SELECT id FROM {table} WHERE {inside.sql} ORDER BY id",  # noqa: S608 - our own names
        inside.params,
    )
    return [found for (found,) in rows]
