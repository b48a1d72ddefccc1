"""The tables: one schema, a list of corpora in it, and five tables to each corpus.

A corpus has tables of its own, so that its vectors have a fixed dimension and an HNSW index that
holds nothing else, and so that dropping it costs nothing. Texts of any length serve as ids and
terms, which a B-tree could not hold; they are looked up through hash indexes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragchat_retrieval.errors import InvalidSetting, NotAStore, StoreUnavailable

if TYPE_CHECKING:
    from ragchat_retrieval.stores.postgres.sessions import Session

NAME: Final = "postgres"

VERSION: Final = 1
"""Version of these tables, kept in table ``about``."""

OLDEST_PGVECTOR: Final = (0, 8)
"""The first with iterative scans, which filtered searches need."""

_PLAIN_DIMENSION: Final = 1900
"""Up to this many numbers a vector fits into a page beside its row's header."""

_FULL_DIMENSION: Final = 2000
_HALF_DIMENSION: Final = 4000
"""Longest vectors that an HNSW index takes, in full and in half precision."""

_NODE: Final = 768
"""Bytes for a vector in a graph that is being built, beside its numbers; pgvector 0.8 takes 720."""

_LEAST_MEMORY: Final = 64 * 1024
_USUAL_MEMORY: Final = 1024 * 1024
"""Memory for building an index, in kB: at least, and what any server is taken to have."""

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

_PREPARING: Final = "pg_advisory_xact_lock(hashtextextended('ragchat: prepare', 0))"


@dataclass(frozen=True, slots=True)
class Tables:
    """Names of the tables of one corpus, quoted and qualified."""

    schema: str
    key: int

    def __post_init__(self) -> None:
        check_schema(self.schema)

    @property
    def documents(self) -> str:
        """Documents with their text."""
        return self._named("documents")

    @property
    def passages(self) -> str:
        """Passages, with the shadow that filters look at."""
        return self._named("passages")

    @property
    def vectors(self) -> str:
        """Vectors by passage; there is no such table before the corpus has a model."""
        return self._named("vectors")

    @property
    def terms(self) -> str:
        """Numbers of terms."""
        return self._named("terms")

    @property
    def postings(self) -> str:
        """How often each passage holds each of its terms, with the passage's length."""
        return self._named("postings")

    def _named(self, kind: str) -> str:
        return f'"{self.schema}".{kind}_{self.key}'


@dataclass(frozen=True, slots=True)
class Catalog:
    """What the database says of our schema and of pgvector."""

    prepared: bool
    """Whether our schema is there."""

    extension: str | None
    """The schema that pgvector is installed in; None where it is not."""

    @property
    def vector(self) -> str:
        """The type of vectors, qualified."""
        return f'"{self._home}".vector'

    @property
    def half(self) -> str:
        """The type of vectors in half precision, qualified."""
        return f'"{self._home}".halfvec'

    @property
    def product(self) -> str:
        """The operator that gives the negative inner product, qualified."""
        return f'OPERATOR("{self._home}".<#>)'

    @property
    def send(self) -> str:
        """The function that gives a vector's bytes, qualified."""
        return f'"{self._home}".vector_send'

    def operators(self, *, half: bool) -> str:
        """Returns the operator class of an HNSW index over inner products, qualified."""
        return f'"{self._home}".{"halfvec" if half else "vector"}_ip_ops'

    @property
    def _home(self) -> str:
        if self.extension is None:
            raise StoreUnavailable("the extension pgvector is not installed", store=NAME)
        return self.extension.replace('"', '""').replace("%", "%%")


def check_schema(schema: str) -> None:
    """Raises `InvalidSetting` unless a schema's name is a plain identifier."""
    if _SCHEMA.fullmatch(schema) is None:
        raise InvalidSetting("schema", "must be 1 to 63 of A-Z, a-z, 0-9 and '_', no digit first")


def indexable(dimension: int) -> bool:
    """Says whether an HNSW index can hold vectors of this length."""
    return dimension <= _HALF_DIMENSION


def indexed_as(catalog: Catalog, dimension: int, column: str) -> tuple[str, str]:
    """Returns the expression of a vector that the HNSW index is over, and its type."""
    if dimension <= _FULL_DIMENSION:
        return column, catalog.vector
    return f"({column}::{catalog.half}({dimension}))", catalog.half


async def read_catalog(session: Session, schema: str) -> Catalog:
    """Reads what is there.

    Raises:
        NotAStore: The schema holds tables of something else, or the database is not in UTF-8.
        StoreUnavailable: A newer version of this library made the tables, or pgvector is too old.
    """
    # Tables are looked up as they are now, rows as they were when the transaction began. What is
    # made last is asked for last, so that being made meanwhile does not look like something else.
    ((encoding, corpora, about, extension, version),) = await session.fetch(
        "SELECT current_setting('server_encoding'), to_regclass(%(corpora)s) IS NOT NULL, "
        "to_regclass(%(about)s) IS NOT NULL, n.nspname, e.extversion "
        "FROM (VALUES (1)) one LEFT JOIN pg_catalog.pg_extension e ON e.extname = 'vector' "
        "LEFT JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace",
        {"about": f'"{schema}".about', "corpora": f'"{schema}".corpora'},
    )
    if encoding != "UTF8":
        raise NotAStore(f"the database's encoding is {encoding}, not UTF8", store=NAME)
    if corpora and not about:
        raise NotAStore(f"the schema {schema!r} holds tables of something else", store=NAME)
    made: list[tuple[int]] = []
    if about:
        made = await session.fetch(f'SELECT version FROM "{schema}".about')  # noqa: S608 - a checked name
    if made and made[0][0] > VERSION:
        problem = f"the schema {schema!r} was written by a newer version ({made[0][0]})"
        raise StoreUnavailable(problem, store=NAME)
    if extension is not None and _parts(version) < OLDEST_PGVECTOR:
        problem = f"pgvector {version} is too old: 0.8 or newer is needed"
        raise StoreUnavailable(problem, store=NAME)
    return Catalog(bool(made), extension)


async def prepare(session: Session, schema: str) -> Catalog:
    """Makes the schema and the list of corpora, unless they are there."""
    await session.run(f"SELECT {_PREPARING}")
    catalog = await read_catalog(session, schema)
    if catalog.prepared:
        return catalog
    # Asking first: making it "if not exists" needs a right that the role may lack.
    ((there,),) = await session.fetch("SELECT to_regnamespace(%s) IS NOT NULL", [f'"{schema}"'])
    if not there:
        await session.run(f'CREATE SCHEMA "{schema}"')
    await session.run(
        f'CREATE TABLE "{schema}".about (version integer NOT NULL, revision bigint NOT NULL)'
    )
    await session.run(
        f'CREATE TABLE "{schema}".corpora ('
        "key integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        'name text COLLATE "C" NOT NULL UNIQUE, '
        "revision bigint NOT NULL DEFAULT 0, "
        "analyzer text, model text, dimension integer, "
        "documents bigint NOT NULL DEFAULT 0, "
        "passages bigint NOT NULL DEFAULT 0, "
        "vectors bigint NOT NULL DEFAULT 0, "
        "length bigint NOT NULL DEFAULT 0, "
        "largest double precision NOT NULL DEFAULT 0, "
        "indexed boolean NOT NULL DEFAULT false, "
        "analyzed bigint NOT NULL DEFAULT 0, "
        "next_document bigint NOT NULL DEFAULT 1, "
        "next_passage bigint NOT NULL DEFAULT 1, "
        "next_term integer NOT NULL DEFAULT 1)"
    )
    # Last: whoever sees a version sees everything.
    await session.run(f'INSERT INTO "{schema}".about VALUES ({VERSION}, 0)')  # noqa: S608 - constants
    return Catalog(prepared=True, extension=catalog.extension)


async def create_tables(session: Session, tables: Tables) -> None:
    """Makes the tables of a corpus, all but the one of vectors."""
    # That ids are distinct follows from the lock under which they are written; the exclusion
    # constraints say so to everybody else.
    await session.run(
        f"CREATE TABLE {tables.documents} ("
        "key bigint PRIMARY KEY, "
        'id text COLLATE "C" NOT NULL, '
        "title text, source text, fingerprint text NOT NULL, digest text NOT NULL, "
        "metadata text NOT NULL, fields jsonb NOT NULL, text text NOT NULL, "
        "EXCLUDE USING hash (id WITH =))"
    )
    await session.run(
        f"CREATE INDEX ON {tables.documents} USING hash (source) WHERE source IS NOT NULL"
    )
    await session.run(
        f"CREATE TABLE {tables.passages} ("
        "key bigint PRIMARY KEY, document bigint NOT NULL, "
        'id text COLLATE "C" NOT NULL, '
        "ordinal bigint NOT NULL, span_start bigint, span_end bigint, "
        "line_start bigint, line_end bigint, page bigint, length integer NOT NULL, "
        "headings text, own text, fields jsonb NOT NULL, text text NOT NULL, "
        "EXCLUDE USING hash (id WITH =))"
    )
    await session.run(f"CREATE INDEX ON {tables.passages} (document, ordinal)")
    await session.run(f"CREATE INDEX ON {tables.passages} USING gin (fields jsonb_path_ops)")
    await session.run(
        f"CREATE TABLE {tables.terms} ("
        'id integer PRIMARY KEY, term text COLLATE "C" NOT NULL, '
        "EXCLUDE USING hash (term WITH =))"
    )
    await session.run(
        f"CREATE TABLE {tables.postings} ("
        "passage bigint NOT NULL, term integer NOT NULL, "
        "count integer NOT NULL, length integer NOT NULL, "
        "PRIMARY KEY (term, passage) INCLUDE (count, length))"
    )
    await session.run(f"CREATE INDEX ON {tables.postings} (passage)")


async def create_vectors(
    session: Session, catalog: Catalog, tables: Tables, dimension: int
) -> Catalog:
    """Makes the table of a corpus's vectors, and installs pgvector if need be."""
    if catalog.extension is None:
        await session.run(f"SELECT {_PREPARING}")
        if not await session.allowed("CREATE EXTENSION IF NOT EXISTS vector"):
            problem = (
                "the database lacks pgvector, and this role cannot add it; "
                "have an administrator run: CREATE EXTENSION vector"
            )
            raise StoreUnavailable(problem, store=NAME)
        catalog = await read_catalog(session, tables.schema)
    await session.run(
        f"CREATE TABLE {tables.vectors} ("
        f"key bigint PRIMARY KEY, embedding {catalog.vector}({dimension}) NOT NULL)"
    )
    if dimension <= _PLAIN_DIMENSION:
        # Inside its row a vector is read much faster than from the table of long values.
        await session.run(f"ALTER TABLE {tables.vectors} ALTER embedding SET STORAGE PLAIN")
    return catalog


async def create_hnsw(
    session: Session, catalog: Catalog, tables: Tables, dimension: int, vectors: int
) -> None:
    """Makes the HNSW index of a corpus, which has none."""
    column, _ = indexed_as(catalog, dimension, "embedding")
    half = dimension > _FULL_DIMENSION
    # A graph that does not fit into this memory is built several times more slowly. Processes that
    # build together reserve it at once, so it is no more than is needed. Of what the server counts
    # on as a cache, half may serve.
    needed = vectors * (dimension * (2 if half else 4) + _NODE) // 1024
    await session.run(
        "SELECT set_config('maintenance_work_mem', greatest(%s, least(%s, greatest(%s, "
        "pg_size_bytes(current_setting('maintenance_work_mem')) / 1024, "
        "pg_size_bytes(current_setting('effective_cache_size')) / 2048))) || 'kB', true)",
        [_LEAST_MEMORY, needed, _USUAL_MEMORY],
    )
    statement = (
        f"CREATE INDEX {_hnsw(tables)} ON {tables.vectors} USING hnsw "
        f"({column} {catalog.operators(half=half)})"
    )
    if not await session.fits(statement):
        # The shared memory of a container is often too small for several processes; one needs none.
        await session.run("SET LOCAL max_parallel_maintenance_workers = 0")
        await session.run(statement)


async def drop_hnsw(session: Session, tables: Tables) -> None:
    """Drops the HNSW index of a corpus, if it has one."""
    await session.run(f'DROP INDEX IF EXISTS "{tables.schema}".{_hnsw(tables)}')


async def drop_tables(session: Session, tables: Tables) -> None:
    """Drops the tables of a corpus."""
    every = (tables.documents, tables.passages, tables.vectors, tables.terms, tables.postings)
    await session.run(f"DROP TABLE IF EXISTS {', '.join(every)}")


async def analyze(session: Session, tables: Tables, *, vectors: bool) -> None:
    """Has the planner look at the tables, which have grown."""
    every = [tables.documents, tables.passages, tables.terms, tables.postings]
    await session.run(f"ANALYZE {', '.join([*every, tables.vectors] if vectors else every)}")


def _hnsw(tables: Tables) -> str:
    return f"vectors_{tables.key}_hnsw"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
