"""What a write does to the tables, inside a transaction that the caller opens and commits."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.errors import CorpusChanged, ScopeViolation, UnknownCorpus
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.stores.checks import agreed_identity, check_expected
from ragchat_retrieval.stores.sqlite.inserting import allocate, insert
from ragchat_retrieval.stores.sqlite.lanes import NAME
from ragchat_retrieval.stores.sqlite.reading import (
    DocumentKey,
    documents_by_id,
    first_revision,
    hashes,
    read_state,
)
from ragchat_retrieval.stores.sqlite.schema import KEPT_CHANGES, batches
from ragchat_retrieval.stores.sqlite.state import CorpusState

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine import Batch
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
    """
    stored = read_state(connection, corpus)
    agreed = agreed_identity(stored.identity if stored else None, identity, revisions, store=NAME)
    state = stored or _new_corpus(connection, corpus)
    old = documents_by_id(connection, state.key, [r.document.id for r in revisions], scope)
    for document in old:
        if not document.visible:
            raise ScopeViolation(document_id=document.id)
    if expected:
        known = hashes(connection, state.key, expected, Filter())
        check_expected(expected, known, store=NAME)
    state = replace(state, identity=agreed)
    state, removed = _remove(connection, state, [document.key for document in old])
    written = [revision for revision in revisions if revision.passages]
    if not written:
        return Written(state, _commit_state(connection, state, removed), removed)
    batch, names, state = insert(connection, state, written)
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
    key = allocate(connection, "corpus", 1)
    state = CorpusState(key, name, secrets.token_hex(16), first_revision(connection), 0, None)
    connection.execute(
        "INSERT INTO corpora (key, name, uuid, revision, stamp) VALUES (?, ?, ?, ?, 0)",
        (key, name, state.uuid, state.revision),
    )
    return state


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
