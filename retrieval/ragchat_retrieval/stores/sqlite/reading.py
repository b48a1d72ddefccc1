"""Reading the tables, inside a transaction that the caller opens."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ragchat_retrieval.engine import Batch, Postings
from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.filters import RESERVED_KEYS
from ragchat_retrieval.ports import Identity, StoreCounts
from ragchat_retrieval.stores.labels import Labels, MetadataMemo, inherit
from ragchat_retrieval.stores.sqlite.lanes import NAME
from ragchat_retrieval.stores.sqlite.rows import PASSAGE, read_document, read_passages
from ragchat_retrieval.stores.sqlite.schema import batches
from ragchat_retrieval.stores.sqlite.state import CorpusState
from ragchat_retrieval.text import is_storable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine import Snapshot
    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.stores.sqlite.rows import Row
    from ragchat_retrieval.values import Document, Passage

_FURTHEST = 2**62
"""Bound for ordinals in a query; SQLite's integers have 64 bits."""


class DocumentKey(NamedTuple):
    """A stored document, and whether the caller's scope shows it."""

    key: int
    id: str
    visible: bool


class ScopeTest:
    """Says of documents whether a scope shows them; each distinct combination is tested once."""

    def __init__(self, scope: Filter) -> None:
        self._scope = scope
        self._fields = sorted({c.key for c in scope} & RESERVED_KEYS)
        self._memo = MetadataMemo()
        self._known: dict[tuple[str | None, ...], bool] = {}

    def __call__(
        self, document_id: str, title: str | None, source: str | None, metadata: str
    ) -> bool:
        """Says it of a document with this id, title, source and encoded metadata."""
        if not self._scope:
            return True
        reserved = {"id": document_id, "document_id": document_id, "title": title, "source": source}
        group = (metadata, *(reserved[name] for name in self._fields))
        known = self._known.get(group)
        if known is None:
            present = {name: value for name, value in reserved.items() if value is not None}
            known = self._known[group] = self._scope.matches({**self._memo(metadata), **present})
        return known


def read_state(connection: sqlite3.Connection, corpus: str) -> CorpusState | None:
    """Returns the state of a corpus; None if it was never written."""
    row = connection.execute(
        "SELECT key, uuid, revision, stamp, analyzer, model, dimension, "
        "documents, passages, vectors FROM corpora WHERE name = ?",
        (corpus,),
    ).fetchone()
    if row is None:
        return None
    return _state(corpus, row)


@lru_cache
def _state(corpus: str, row: tuple[Any, ...]) -> CorpusState:
    """Returns the state that a row tells; who searches mostly reads what the last one did."""
    key, uuid, revision, stamp, analyzer, model, dimension, *counts = row
    identity = (
        None if analyzer is None else Identity(analyzer=analyzer, model=model, dimension=dimension)
    )
    return CorpusState(key, corpus, uuid, revision, stamp, identity, *counts)


def first_revision(connection: sqlite3.Connection) -> int:
    """Returns the revision of a corpus that was never written, or was dropped."""
    row = connection.execute("SELECT next FROM counters WHERE name = 'revision'").fetchone()
    return 0 if row is None else int(row[0])


def check_integrity(connection: sqlite3.Connection) -> None:
    """Checks every page of the file.

    Raises:
        StoreUnavailable: The file is damaged.
    """
    if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        raise StoreUnavailable("the file is damaged", store=NAME)


def corpus_names(connection: sqlite3.Connection) -> list[str]:
    """Returns the names of all corpora, ascending."""
    return [name for (name,) in connection.execute("SELECT name FROM corpora ORDER BY name")]


def documents_by_id(
    connection: sqlite3.Connection, corpus: int, document_ids: Iterable[str], scope: Filter
) -> list[DocumentKey]:
    """Returns the stored ones among these documents."""
    wanted = [i for i in dict.fromkeys(document_ids) if is_storable(i)]
    test = ScopeTest(scope)
    found = []
    for marks, part in batches(wanted):
        query = (
            "SELECT key, id, title, source, metadata FROM documents "  # noqa: S608 - placeholders
            f"WHERE corpus = ? AND id IN ({marks})"
        )
        for key, *labels in connection.execute(query, (corpus, *part)):
            found.append(DocumentKey(key, labels[0], test(*labels)))
    return found


def documents_by_source(
    connection: sqlite3.Connection, corpus: int, source: str, scope: Filter
) -> list[DocumentKey]:
    """Returns the documents of a source that the scope shows."""
    if not is_storable(source):
        return []
    test = ScopeTest(scope)
    rows = connection.execute(
        "SELECT key, id, title, source, metadata FROM documents WHERE corpus = ? AND source = ?",
        (corpus, source),
    )
    return [DocumentKey(key, labels[0], True) for key, *labels in rows if test(*labels)]


def document_ids(connection: sqlite3.Connection, corpus: int, scope: Filter) -> list[str]:
    """Returns the ids of the documents that the scope shows, ascending."""
    if not scope:
        rows = connection.execute(
            "SELECT id FROM documents WHERE corpus = ? ORDER BY id", (corpus,)
        )
        return [found for (found,) in rows]
    test = ScopeTest(scope)
    rows = connection.execute(
        "SELECT id, title, source, metadata FROM documents WHERE corpus = ?", (corpus,)
    )
    return sorted(labels[0] for labels in rows if test(*labels))


def passage_ids(connection: sqlite3.Connection, corpus: int) -> list[str]:
    """Returns the ids of all passages, ascending."""
    rows = connection.execute("SELECT id FROM passages WHERE corpus = ? ORDER BY id", (corpus,))
    return [found for (found,) in rows]


def hashes(
    connection: sqlite3.Connection, corpus: int, wanted: Collection[str] | None, scope: Filter
) -> dict[str, str]:
    """Returns fingerprints by document id; None asks for all."""
    test = ScopeTest(scope)
    columns = "SELECT fingerprint, id, title, source, metadata FROM documents WHERE corpus = ?"
    if wanted is None:
        rows = connection.execute(columns, (corpus,))
        return {labels[0]: fingerprint for fingerprint, *labels in rows if test(*labels)}
    found: dict[str, str] = {}
    for marks, part in batches([i for i in dict.fromkeys(wanted) if is_storable(i)]):
        rows = connection.execute(f"{columns} AND id IN ({marks})", (corpus, *part))
        found |= {labels[0]: fingerprint for fingerprint, *labels in rows if test(*labels)}
    return found


def document(
    connection: sqlite3.Connection, corpus: int, document_id: str, scope: Filter
) -> Document | None:
    """Returns a document with its text, if the scope shows it."""
    if not is_storable(document_id):
        return None
    row = connection.execute(
        "SELECT id, title, source, metadata, text FROM documents WHERE corpus = ? AND id = ?",
        (corpus, document_id),
    ).fetchone()
    if row is None:
        return None
    found = read_document(row)
    return found if scope.matches_document(found) else None


def passages(
    connection: sqlite3.Connection,
    corpus: int,
    wanted: Sequence[str],
    scope: Filter,
    *,
    near: Snapshot | None = None,
) -> dict[str, Passage]:
    """Returns the known ones among these passages by id, in the order asked for.

    Args:
        connection: In a transaction.
        corpus: Key of the corpus.
        wanted: Ids.
        scope: What the caller may see.
        near: Arrays of the corpus, of any time, that spare the index of ids for what they know.
    """
    ids = list(dict.fromkeys(wanted))
    rows = [] if near is None else _by_key(connection, corpus, ids, near)
    known = {row[1] for row in rows}
    for marks, part in batches([i for i in ids if i not in known and is_storable(i)]):
        query = f"SELECT {PASSAGE} FROM passages WHERE corpus = ? AND id IN ({marks})"  # noqa: S608 - constants, placeholders
        rows.extend(connection.execute(query, (corpus, *part)).fetchall())
    read = read_passages(connection, rows, MetadataMemo())
    shown = filter(scope.matches_passage, read) if scope else read
    found = {passage.id: passage for passage in shown}
    return {i: found[i] for i in ids if i in found}


def _by_key(
    connection: sqlite3.Connection, corpus: int, ids: Sequence[str], near: Snapshot
) -> list[Row]:
    """Returns the rows that stand where the arrays have these passages.

    The file may have moved on, so that some are of other passages, which nobody asked for.
    """
    at = near.find(ids)
    rows: list[Row] = []
    for marks, part in batches(near.keys(at[at >= 0]).tolist()):
        # The sign keeps SQLite from walking through the whole corpus by its index.
        query = f"SELECT {PASSAGE} FROM passages WHERE key IN ({marks}) AND +corpus = ?"  # noqa: S608 - constants, placeholders
        rows.extend(connection.execute(query, (*part, corpus)).fetchall())
    return rows


def neighbours(
    connection: sqlite3.Connection,
    corpus: int,
    document_id: str,
    ordinals: tuple[int, int],
    scope: Filter,
) -> list[Passage]:
    """Returns a document's passages with ordinals in an inclusive range, in order."""
    owner = documents_by_id(connection, corpus, [document_id], scope)
    if not owner:
        return []
    low, high = (max(-_FURTHEST, min(bound, _FURTHEST)) for bound in ordinals)
    rows = connection.execute(
        f"SELECT {PASSAGE} FROM passages WHERE document = ? AND ordinal BETWEEN ? AND ?",  # noqa: S608 - a constant
        (owner[0].key, low, high),
    ).fetchall()
    found = read_passages(connection, rows, MetadataMemo())
    return sorted(
        (passage for passage in found if scope.matches_passage(passage)),
        key=lambda passage: (passage.ordinal, passage.id),
    )


# --- what the search arrays are made of ---


def keys_of(connection: sqlite3.Connection, corpus: int) -> NDArray[np.int64]:
    """Returns the keys of all passages of a corpus, ascending."""
    rows = connection.execute("SELECT key FROM passages WHERE corpus = ?", (corpus,))
    keys = np.fromiter((key for (key,) in rows), dtype=np.int64)
    keys.sort()
    return keys


def runs(keys: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yields half-open ranges that cover ascending keys."""
    if not len(keys):
        return
    breaks = np.flatnonzero(np.diff(keys) != 1) + 1
    starts = keys[np.concatenate(([0], breaks))]
    ends = keys[np.concatenate((breaks - 1, [len(keys) - 1]))] + 1
    yield from zip(starts.tolist(), ends.tolist(), strict=True)


def term_names(connection: sqlite3.Connection, corpus: int, start: int) -> dict[str, int]:
    """Returns the terms with ids from `start` on."""
    rows = connection.execute(
        "SELECT term, id FROM terms WHERE corpus = ? AND id >= ?", (corpus, start)
    )
    return dict(rows.fetchall())


def read_batch(
    connection: sqlite3.Connection,
    state: CorpusState,
    ranges: Iterable[tuple[int, int]],
) -> Batch:
    """Returns the passages whose keys lie in half-open ranges, in ascending order of keys."""
    rows = []
    for start, end in ranges:
        rows.extend(
            connection.execute(
                "SELECT p.key, p.id, d.id, d.title, d.source, d.metadata, p.own, p.terms, v.vector "
                "FROM passages p JOIN documents d ON d.key = p.document "
                "LEFT JOIN vectors v ON v.key = p.key "
                "WHERE p.key >= ? AND p.key < ? AND p.corpus = ? ORDER BY p.key",
                (start, end, state.key),
            ).fetchall()
        )
    memo = MetadataMemo()
    labels = [
        inherit(Labels(document_id, title, source, memo(metadata), ""), own, memo)
        for _, _, document_id, title, source, metadata, own, _, _ in rows
    ]
    blobs = [row[7] for row in rows]
    pairs = np.frombuffer(b"".join(blobs), dtype="<i4").reshape(-1, 2)
    vectors, has_vector = _matrix(state, [row[8] for row in rows])
    return Batch(
        keys=[row[0] for row in rows],
        ids=[row[1] for row in rows],
        document_ids=[own.document_id for own in labels],
        titles=[own.title for own in labels],
        sources=[own.source for own in labels],
        metadata=[own.metadata for own in labels],
        terms=Postings(
            np.fromiter(map(len, blobs), np.int64, len(blobs)) // 8,
            np.ascontiguousarray(pairs[:, 0]).astype(np.int32, copy=False),
            np.ascontiguousarray(pairs[:, 1]).astype(np.int32, copy=False),
        ),
        vectors=vectors,
        has_vector=has_vector,
    )


def _matrix(
    state: CorpusState, blobs: Sequence[bytes | None]
) -> tuple[NDArray[np.float32] | None, NDArray[np.bool_] | None]:
    has_vector = np.fromiter((blob is not None for blob in blobs), np.bool_, len(blobs))
    if not has_vector.any() or state.identity is None or state.identity.dimension is None:
        return None, None
    dimension = state.identity.dimension
    there = np.frombuffer(b"".join(blob for blob in blobs if blob is not None), dtype="<f4")
    dense = there.reshape(-1, dimension).astype(np.float32, copy=False)
    if has_vector.all():
        return dense, has_vector
    matrix = np.zeros((len(blobs), dimension), dtype=np.float32)
    matrix[has_vector] = dense
    return matrix, has_vector


def stored_counts(state: CorpusState | None) -> StoreCounts:
    """Returns how much the whole corpus holds."""
    if state is None:
        return StoreCounts(0, 0, 0)
    return StoreCounts(state.documents, state.passages, state.vectors)
