"""The rows that a write brings: documents, passages, terms and vectors, in a transaction."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, count, repeat
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.engine import Batch, Inverted, Postings
from ragchat_retrieval.errors import PassageIDConflict
from ragchat_retrieval.metadata import MetadataTexts
from ragchat_retrieval.stores.sqlite.lanes import NAME
from ragchat_retrieval.stores.sqlite.rows import Owner, encoded_terms, insert_rows, passage_rows
from ragchat_retrieval.stores.sqlite.schema import batches
from ragchat_retrieval.terms import joined, tabulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.stores.sqlite.state import CorpusState
    from ragchat_retrieval.values import Revision

_TOGETHER = 256
"""Documents inserted before their passages are, while their texts are at hand."""

_MANY = 100_000
"""Postings that take long enough to invert, a few milliseconds, to be worth a thread."""


def allocate(connection: sqlite3.Connection, name: str, number: int) -> int:
    """Returns the first of `number` fresh keys; a key is never used again."""
    (first,) = connection.execute("SELECT next FROM counters WHERE name = ?", (name,)).fetchone()
    connection.execute("UPDATE counters SET next = ? WHERE name = ?", (first + number, name))
    return int(first)


def insert(
    connection: sqlite3.Connection, state: CorpusState, revisions: Sequence[Revision]
) -> tuple[Batch, Mapping[str, int], CorpusState]:
    """Adds revisions, each with passages, of documents that the corpus does not have.

    Returns:
        The passages, for the search arrays; ids of the terms that are new; and the state with all
        that counted.

    Raises:
        PassageIDConflict: A document of the corpus owns a passage id.
    """
    passages = [passage for revision in revisions for passage in revision.passages]
    first = allocate(connection, "passage", len(passages))
    keys = range(first, first + len(passages))
    postings, names = _intern_terms(connection, state.key, revisions)
    with _inverting(postings) as inverted:
        _insert_texts(connection, state.key, revisions, first, postings)
        vectors, has_vector = _matrix(revisions)
        if vectors is not None and has_vector is not None:
            _insert_vectors(connection, first, vectors, has_vector)
        terms = inverted()
    batch = Batch.of_passages(keys, passages, terms, vectors=vectors, has_vector=has_vector)
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
    table = tabulated(joined(revision.terms or () for revision in revisions))
    distinct = table.names
    known: dict[str, int] = {}
    (fresh,) = connection.execute(
        "SELECT coalesce(max(id) + 1, 0) FROM terms WHERE corpus = ?", (corpus,)
    ).fetchone()
    for marks, part in batches(distinct) if fresh else ():
        query = f"SELECT term, id FROM terms WHERE corpus = ? AND term IN ({marks})"  # noqa: S608 - placeholders
        known.update(connection.execute(query, (corpus, *part)).fetchall())
    # In one order, both B-trees of the table are written from one end to the other.
    unknown = [term for term in distinct if term not in known] if known else distinct
    new = dict(zip(sorted(unknown), count(fresh)))
    insert_rows(connection, "terms", 3, zip(repeat(corpus), new.keys(), new.values()))
    known |= new
    ids = np.fromiter(map(known.__getitem__, distinct), np.int32, len(distinct))
    return Postings(table.lengths, ids.take(table.numbers), table.counts), new


@contextmanager
def _inverting(postings: Postings) -> Iterator[Callable[[], Postings | Inverted]]:
    """Lets another thread invert many postings for the search arrays while SQLite is at work.

    Yields:
        What waits for them; it gives few back as they are.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="ragchat-inverting") as pool:
        started = None
        if len(postings.term_ids) > _MANY:
            with suppress(RuntimeError):  # the system gives no thread; whoever follows inverts then
                started = pool.submit(Inverted.of, postings)
        yield (lambda: postings) if started is None else started.result


def _insert_texts(
    connection: sqlite3.Connection,
    corpus: int,
    revisions: Sequence[Revision],
    first: int,
    postings: Postings,
) -> None:
    keys = count(allocate(connection, "document", len(revisions)))
    encoded = MetadataTexts()
    numbered = enumerate(encoded_terms(postings), first)
    try:
        for start in range(0, len(revisions), _TOGETHER):
            part = revisions[start : start + _TOGETHER]
            owners = [Owner.of(next(keys), corpus, r.document, encoded) for r in part]
            pairs = list(zip(owners, part, strict=True))
            insert_rows(
                connection, "documents", 9, (owner.row(r.fingerprint) for owner, r in pairs)
            )
            rows = (passage_rows(owner, r.passages, numbered) for owner, r in pairs)
            insert_rows(connection, "passages", 14, chain.from_iterable(rows))
    except sqlite3.IntegrityError:
        raise PassageIDConflict(_taken(connection, corpus, revisions, first), store=NAME) from None


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
    rows = (
        (first + row, stored[row * width : (row + 1) * width])
        for row in np.flatnonzero(has_vector).tolist()
    )
    insert_rows(connection, "vectors", 2, rows)
