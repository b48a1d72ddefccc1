"""The tables of the file, and how a file is recognised as ours.

Text of a document is kept once, unless it is long; a passage keeps its own where it is not the
slice of the document that its span says, or where cutting that slice out would be dear. Large
columns come last, so that a scan over the small ones does not walk through them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragchat_retrieval.errors import NotAStore, StoreUnavailable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

APPLICATION_ID = 0x52616743
"""Marks the file as an index of ragchat; the letters ``RagC``."""

SCHEMA_VERSION = 1
"""Kept in ``PRAGMA user_version``."""

PAGE_SIZE = 8192
"""Bytes a page: five vectors of 384 numbers fit, and one B-tree level is saved."""

BATCH = 500
"""Values bound in one statement; SQLite may allow no more than 999."""

KEPT_CHANGES = 1000
"""Writes that the change log of a corpus remembers; who is further behind rebuilds."""

_TABLES = (
    # `stamp` is random per write: a copy of the file that went another way cannot pass for it.
    """CREATE TABLE corpora (
        key INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        uuid TEXT NOT NULL,
        revision INTEGER NOT NULL,
        stamp INTEGER NOT NULL,
        analyzer TEXT,
        model TEXT,
        dimension INTEGER,
        documents INTEGER NOT NULL DEFAULT 0,
        passages INTEGER NOT NULL DEFAULT 0,
        vectors INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE documents (
        key INTEGER PRIMARY KEY,
        corpus INTEGER NOT NULL,
        id TEXT NOT NULL,
        title TEXT,
        source TEXT,
        fingerprint TEXT NOT NULL,
        digest TEXT NOT NULL,
        metadata TEXT NOT NULL,
        text TEXT NOT NULL,
        UNIQUE (corpus, id)
    )""",
    "CREATE INDEX documents_by_source ON documents (corpus, source) WHERE source IS NOT NULL",
    """CREATE TABLE passages (
        key INTEGER PRIMARY KEY,
        corpus INTEGER NOT NULL,
        document INTEGER NOT NULL,
        id TEXT NOT NULL,
        ordinal INTEGER NOT NULL,
        span_start INTEGER,
        span_end INTEGER,
        line_start INTEGER,
        line_end INTEGER,
        page INTEGER,
        headings TEXT,
        own TEXT,
        terms BLOB NOT NULL,
        text TEXT,
        UNIQUE (corpus, id)
    )""",
    "CREATE INDEX passages_by_document ON passages (document, ordinal)",
    "CREATE TABLE vectors (key INTEGER PRIMARY KEY, vector BLOB NOT NULL)",
    """CREATE TABLE terms (
        corpus INTEGER NOT NULL,
        term TEXT NOT NULL,
        id INTEGER NOT NULL,
        PRIMARY KEY (corpus, term)
    ) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX terms_by_id ON terms (corpus, id)",
    """CREATE TABLE changes (
        corpus INTEGER NOT NULL,
        revision INTEGER NOT NULL,
        stamp INTEGER NOT NULL,
        added_from INTEGER NOT NULL,
        added_to INTEGER NOT NULL,
        removed BLOB NOT NULL,
        PRIMARY KEY (corpus, revision)
    ) WITHOUT ROWID""",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO counters VALUES ('corpus', 1), ('document', 1), ('passage', 1)",
)

_MARKS = """SELECT (SELECT application_id FROM pragma_application_id),
                   (SELECT user_version FROM pragma_user_version),
                   (SELECT count(*) FROM sqlite_master)"""
"""What a file is, in one statement: between two, another process could make the tables."""


def is_prepared(connection: sqlite3.Connection, path: str) -> bool:
    """Says whether the file holds our tables; an empty file does not hold them yet.

    Raises:
        NotAStore: The file is a database of something else, or no database.
        StoreUnavailable: A newer version of this library wrote it.
    """
    application, version, tables = connection.execute(_MARKS).fetchone()
    if application == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            problem = f"{path} was written by a newer version (schema {version})"
            raise StoreUnavailable(problem, store="sqlite")
        return True
    if application or version or tables:
        raise NotAStore(f"{path} is a database of something else", store="sqlite")
    return False


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Creates the tables in an empty file, in one transaction; does nothing if they are there."""
    if is_prepared(connection, path):
        return
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not is_prepared(connection, path):
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def batches(values: Sequence[object]) -> Iterator[tuple[str, Sequence[object]]]:
    """Yields placeholders such as ``?,?,?``, each with the values for one statement."""
    for start in range(0, len(values), BATCH):
        part = values[start : start + BATCH]
        yield ",".join("?" * len(part)), part
