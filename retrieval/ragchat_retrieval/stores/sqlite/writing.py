"""What a write does to the tables, inside a transaction that the caller opens and commits."""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass, replace
from itertools import chain, count, pairwise, repeat
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.engine import Batch, Postings
from ragchat_retrieval.errors import (
    CorpusChanged,
    InvalidDocument,
    PassageIDConflict,
    ScopeViolation,
    UnknownCorpus,
)
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.stores.checks import agreed_identity, check_expected
from ragchat_retrieval.stores.sqlite.lanes import NAME
from ragchat_retrieval.stores.sqlite.reading import (
    DocumentKey,
    documents_by_id,
    fingerprints,
    first_revision,
    read_state,
)
from ragchat_retrieval.stores.sqlite.rows import Owner, encode_terms, passage_rows
from ragchat_retrieval.stores.sqlite.schema import KEPT_CHANGES, batches
from ragchat_retrieval.stores.sqlite.state import CorpusState
from ragchat_retrieval.terms import tabulated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import Identity
    from ragchat_retrieval.values import Revision


_NONE: NDArray[np.int64] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """What a committed write changed, for the search arrays to follow."""

    before: CorpusState
    after: CorpusState
    removed: NDArray[np.int64]
    """Keys of the passages that went, ascending."""

    added: Batch | None = None
    names: Mapping[str, int] | None = None
    """Ids of the terms that are new."""

    documents: int = 0
    """Documents that went."""


def replace_documents(
    connection: sqlite3.Connection,
    corpus: str,
    revisions: Sequence[Revision],
    *,
    identity: Identity,
    scope: Filter,
    expected: Mapping[str, str] | None = None,
) -> Written:
    """Makes the revisions, which were checked, the only ones of their documents.

    Raises:
        IdentityMismatch: The corpus was written with something else.
        ScopeViolation: A stored document that would be replaced lies outside `scope`.
        DocumentChanged: A document is not the expected revision.
        PassageIDConflict: A document that is not replaced owns a passage id.
        InvalidDocument: A number of a passage is beyond 64 bits.
    """
    stored = read_state(connection, corpus)
    agreed = agreed_identity(stored.identity if stored else None, identity, revisions, store=NAME)
    state = stored or _new_corpus(connection, corpus)
    old = documents_by_id(connection, state.key, [r.document.id for r in revisions], scope)
    for document in old:
        if not document.visible:
            raise ScopeViolation(document_id=document.id)
    if expected:
        known = fingerprints(connection, state.key, expected, Filter())
        check_expected(expected, known, store=NAME)
    state = replace(state, identity=agreed)
    state, removed = _remove(connection, state, [document.key for document in old])
    written = [revision for revision in revisions if revision.passages]
    if not written:
        return Written(state, _commit_state(connection, state, removed), removed)
    batch, names, state = _insert(connection, state, written)
    after = _commit_state(connection, state, removed, added=batch)
    return Written(state, after, removed, batch, names)


def delete_documents(
    connection: sqlite3.Connection, corpus: str, documents: Sequence[DocumentKey]
) -> Written | None:
    """Removes documents; returns None if none is to be removed."""
    state = read_state(connection, corpus)
    if state is None or not documents:
        return None
    before = state
    state, removed = _remove(connection, state, [document.key for document in documents])
    after = _commit_state(connection, state, removed)
    return Written(before, after, removed, documents=len(documents))


def clear_corpus(connection: sqlite3.Connection, corpus: str, *, drop: bool) -> CorpusState | None:
    """Removes everything in a corpus, identity and vocabulary included.

    Args:
        connection: In a write transaction.
        corpus: Its name.
        drop: Forget the corpus itself too.

    Returns:
        Its state before; None if there is no such corpus.
    """
    state = read_state(connection, corpus)
    if state is None:
        return None
    key = (state.key,)
    connection.execute(
        "DELETE FROM vectors WHERE key IN (SELECT key FROM passages WHERE corpus = ?)", key
    )
    for table in ("passages", "documents", "terms", "changes"):
        connection.execute(f"DELETE FROM {table} WHERE corpus = ?", key)  # noqa: S608 - constants
    if drop:
        connection.execute("DELETE FROM corpora WHERE key = ?", key)
        # A later corpus of the name goes on counting, so that nothing derived passes for current.
        connection.execute(
            "INSERT INTO counters VALUES ('revision', ?) "
            "ON CONFLICT (name) DO UPDATE SET next = max(next, excluded.next)",
            (state.revision + 1,),
        )
    else:
        empty = CorpusState(state.key, corpus, secrets.token_hex(16), state.revision, 0, None)
        _commit_state(connection, empty, np.empty(0, np.int64))
    return state


def swap_corpora(
    connection: sqlite3.Connection, names: tuple[str, str], *, expected: int | None
) -> None:
    """Lets two corpora change names.

    Raises:
        UnknownCorpus: One of them was never written.
        CorpusChanged: The first is at another revision than the expected one.
    """
    found = []
    for name in names:
        state = read_state(connection, name)
        if state is None:
            raise UnknownCorpus(name, store=NAME)
        found.append(state)
    if expected is not None and found[0].revision != expected:
        raise CorpusChanged(names[0], store=NAME)
    # No name has NUL in it, so this one is free while the two are on their way.
    for name, state in (("\0", found[0]), (names[0], found[1]), (names[1], found[0])):
        connection.execute("UPDATE corpora SET name = ? WHERE key = ?", (name, state.key))
    revision = max(state.revision for state in found)
    for state in found:
        _raise(connection, replace(state, revision=revision))


def renew(connection: sqlite3.Connection, corpus: str) -> list[str]:
    """Counts a corpus anew and forgets terms that no passage holds.

    Ids of forgotten terms may be given again, which no arrays that know the old terms must meet: so
    the corpus begins another life, at the same revision.

    Returns:
        The uuids of the other corpora.
    """
    connection.execute(
        "UPDATE corpora SET "
        "documents = (SELECT count(*) FROM documents d WHERE d.corpus = corpora.key), "
        "passages = (SELECT count(*) FROM passages p WHERE p.corpus = corpora.key), "
        "vectors = (SELECT count(*) FROM passages p JOIN vectors v ON v.key = p.key "
        "WHERE p.corpus = corpora.key) WHERE name = ?",
        (corpus,),
    )
    state = read_state(connection, corpus)
    if state is not None and _forget_terms(connection, state.key):
        connection.execute("DELETE FROM changes WHERE corpus = ?", (state.key,))
        life = replace(state, uuid=secrets.token_hex(16), revision=state.revision - 1)
        _commit_state(connection, life, np.empty(0, np.int64))
    others = connection.execute("SELECT uuid FROM corpora WHERE name <> ?", (corpus,))
    return [uuid for (uuid,) in others]


def _forget_terms(connection: sqlite3.Connection, corpus: int) -> int:
    """Removes terms that no passage holds, and returns how many."""
    (end,) = connection.execute(
        "SELECT coalesce(max(id) + 1, 0) FROM terms WHERE corpus = ?", (corpus,)
    ).fetchone()
    used = np.zeros(end, np.bool_)
    for (blob,) in connection.execute("SELECT terms FROM passages WHERE corpus = ?", (corpus,)):
        used[np.frombuffer(blob, dtype="<i4")[::2]] = True
    forgotten = 0
    for marks, part in batches(np.flatnonzero(~used).tolist()):
        query = f"DELETE FROM terms WHERE corpus = ? AND id IN ({marks})"  # noqa: S608 - placeholders
        forgotten += connection.execute(query, (corpus, *part)).rowcount
    return forgotten


def _new_corpus(connection: sqlite3.Connection, name: str) -> CorpusState:
    key = _allocate(connection, "corpus", 1)
    state = CorpusState(key, name, secrets.token_hex(16), first_revision(connection), 0, None)
    connection.execute(
        "INSERT INTO corpora (key, name, uuid, revision, stamp) VALUES (?, ?, ?, ?, 0)",
        (key, name, state.uuid, state.revision),
    )
    return state


def _allocate(connection: sqlite3.Connection, name: str, number: int) -> int:
    """Returns the first of `number` fresh keys; a key is never used again."""
    (first,) = connection.execute("SELECT next FROM counters WHERE name = ?", (name,)).fetchone()
    connection.execute("UPDATE counters SET next = ? WHERE name = ?", (first + number, name))
    return int(first)


def _commit_state(
    connection: sqlite3.Connection,
    state: CorpusState,
    removed: NDArray[np.int64],
    *,
    added: Batch | None = None,
) -> CorpusState:
    """Raises the revision, keeps the state, and notes the change in the bounded log."""
    after = _raise(connection, state, removed, added=added)
    connection.execute(
        "DELETE FROM changes WHERE corpus = ? AND revision <= ?",
        (after.key, after.revision - KEPT_CHANGES),
    )
    return after


def _raise(
    connection: sqlite3.Connection,
    state: CorpusState,
    removed: NDArray[np.int64] = _NONE,
    *,
    added: Batch | None = None,
) -> CorpusState:
    """Raises the revision, keeps the state, and notes the change in the log."""
    after = replace(state, revision=state.revision + 1, stamp=1 + secrets.randbits(62))
    identity = after.identity
    connection.execute(
        "UPDATE corpora SET uuid = ?, revision = ?, stamp = ?, analyzer = ?, model = ?, "
        "dimension = ?, documents = ?, passages = ?, vectors = ? WHERE key = ?",
        (
            after.uuid,
            after.revision,
            after.stamp,
            identity and identity.analyzer,
            identity and identity.model,
            identity and identity.dimension,
            after.documents,
            after.passages,
            after.vectors,
            after.key,
        ),
    )
    first = end = 0
    if added is not None:
        first, end = int(added.keys[0]), int(added.keys[-1]) + 1
    connection.execute(
        "INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?)",
        (after.key, after.revision, after.stamp, first, end, removed.astype("<i8").tobytes()),
    )
    return after


def _remove(
    connection: sqlite3.Connection, state: CorpusState, document_keys: Sequence[int]
) -> tuple[CorpusState, NDArray[np.int64]]:
    keys: list[int] = []
    for marks, part in batches(document_keys):
        query = f"SELECT key FROM passages WHERE document IN ({marks})"  # noqa: S608 - placeholders
        keys.extend(key for (key,) in connection.execute(query, part))
    keys.sort()
    vectors = _delete(connection, "vectors", keys)
    _delete(connection, "passages", keys)
    _delete(connection, "documents", document_keys)
    state = replace(
        state,
        documents=state.documents - len(document_keys),
        passages=state.passages - len(keys),
        vectors=state.vectors - vectors,
    )
    return state, np.array(keys, dtype=np.int64)


def _delete(connection: sqlite3.Connection, table: str, keys: Sequence[int]) -> int:
    removed = 0
    for marks, part in batches(keys):
        query = f"DELETE FROM {table} WHERE key IN ({marks})"  # noqa: S608 - constants, placeholders
        removed += connection.execute(query, part).rowcount
    return removed


def _insert(
    connection: sqlite3.Connection, state: CorpusState, revisions: Sequence[Revision]
) -> tuple[Batch, Mapping[str, int], CorpusState]:
    passages = [passage for revision in revisions for passage in revision.passages]
    first = _allocate(connection, "passage", len(passages))
    keys = range(first, first + len(passages))
    postings, names = _intern_terms(connection, state.key, revisions)
    _insert_texts(connection, state.key, revisions, first, postings)
    vectors, has_vector = _matrix(revisions)
    if vectors is not None and has_vector is not None:
        _insert_vectors(connection, first, vectors, has_vector)
    batch = Batch.of_passages(keys, passages, postings, vectors=vectors, has_vector=has_vector)
    state = replace(
        state,
        documents=state.documents + len(revisions),
        passages=state.passages + len(passages),
        vectors=state.vectors + (0 if has_vector is None else int(has_vector.sum())),
    )
    return batch, names, state


def _intern_terms(
    connection: sqlite3.Connection, corpus: int, revisions: Sequence[Revision]
) -> tuple[Postings, dict[str, int]]:
    """Returns the terms as flat arrays of ids, and the ids of terms that are new, now stored."""
    table, lengths = tabulated([counts for r in revisions for counts in r.terms or ()])
    distinct = table.names
    known: dict[str, int] = {}
    (fresh,) = connection.execute(
        "SELECT coalesce(max(id) + 1, 0) FROM terms WHERE corpus = ?", (corpus,)
    ).fetchone()
    for marks, part in batches(distinct) if fresh else ():
        query = f"SELECT term, id FROM terms WHERE corpus = ? AND term IN ({marks})"  # noqa: S608 - placeholders
        known.update(connection.execute(query, (corpus, *part)).fetchall())
    # In one order, both B-trees of the table are written from one end to the other.
    new = dict(zip(sorted(set(distinct) - known.keys()), count(fresh), strict=False))
    connection.executemany(
        "INSERT INTO terms VALUES (?, ?, ?)",
        zip(repeat(corpus), new.keys(), new.values(), strict=False),
    )
    known |= new
    ids = np.fromiter(map(known.__getitem__, distinct), np.int32, len(distinct))
    return Postings(lengths, ids[table.numbers], table.counts), new


def _insert_texts(
    connection: sqlite3.Connection,
    corpus: int,
    revisions: Sequence[Revision],
    first: int,
    postings: Postings,
) -> None:
    keys = count(_allocate(connection, "document", len(revisions)))
    owners = [Owner.of(next(keys), corpus, revision.document) for revision in revisions]
    connection.executemany(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (owner.row(r.fingerprint) for owner, r in zip(owners, revisions, strict=True)),
    )
    encoded = memoryview(encode_terms(postings.term_ids, postings.counts))
    ends = np.concatenate(([0], np.cumsum(postings.lengths * 8))).tolist()
    numbered = enumerate((encoded[start:end] for start, end in pairwise(ends)), first)
    rows = chain.from_iterable(
        passage_rows(owner, revision.passages, numbered)
        for owner, revision in zip(owners, revisions, strict=True)
    )
    try:
        connection.executemany(
            "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
        )
    except sqlite3.IntegrityError:
        raise PassageIDConflict(_taken(connection, corpus, revisions, first), store=NAME) from None
    except OverflowError:
        problem = "a number of a passage is beyond 64 bits"
        raise InvalidDocument(problem, field="passages") from None


def _taken(
    connection: sqlite3.Connection, corpus: int, revisions: Sequence[Revision], first: int
) -> str:
    """Returns the smallest of the new passage ids that an older passage has."""
    ids = [passage.id for revision in revisions for passage in revision.passages]
    taken: list[str] = []
    for marks, part in batches(ids):
        query = f"SELECT id FROM passages WHERE corpus = ? AND key < ? AND id IN ({marks})"  # noqa: S608 - placeholders
        taken.extend(found for (found,) in connection.execute(query, (corpus, first, *part)))
    return min(taken)


def _matrix(
    revisions: Sequence[Revision],
) -> tuple[NDArray[np.float32] | None, NDArray[np.bool_] | None]:
    """Returns the vectors of all passages in one matrix, and which rows count."""
    given = [revision.vectors for revision in revisions if revision.vectors is not None]
    if not given:
        return None, None
    if len(given) == len(revisions):
        matrix = given[0] if len(given) == 1 else np.concatenate(given)
        return matrix, np.ones(len(matrix), dtype=np.bool_)
    blank = [
        np.zeros((len(revision.passages), given[0].shape[1]), np.float32)
        if revision.vectors is None
        else revision.vectors
        for revision in revisions
    ]
    flags = [np.full(len(r.passages), r.vectors is not None, np.bool_) for r in revisions]
    return np.concatenate(blank), np.concatenate(flags)


def _insert_vectors(
    connection: sqlite3.Connection,
    first: int,
    vectors: NDArray[np.float32],
    has_vector: NDArray[np.bool_],
) -> None:
    width = vectors.shape[1] * 4
    stored = np.ascontiguousarray(vectors, dtype="<f4").data.cast("B")
    connection.executemany(
        "INSERT INTO vectors VALUES (?, ?)",
        (
            (first + row, stored[row * width : (row + 1) * width])
            for row in np.flatnonzero(has_vector).tolist()
        ),
    )
