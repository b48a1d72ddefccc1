"""The PostgreSQL store and its connections: whose they are, how they fail, what they leave."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from ragchat_retrieval.embedders.hashing import HashingEmbedder
from ragchat_retrieval.errors import (
    InvalidSetting,
    MissingExtra,
    NotAStore,
    StoreClosed,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.opening import open_index
from ragchat_retrieval.stores.postgres import PostgresStore
from ragchat_retrieval.testing.cancelling import cancelled_everywhere
from ragchat_retrieval.testing.store_suite_concurrency import PARTS, version, versions_of
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    KEYWORD_ONLY,
    axis,
    by_vector,
    by_words,
    ids_of,
    passage_ids,
    put,
    revision,
)
from ragchat_retrieval.values import Document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = "hunter2"
DEAD = f"postgresql://user:{SECRET}@127.0.0.1:9/none"
GIVEN = revision("a", "one two", "two three")


@pytest.fixture
async def admin(postgres_url: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """Another session of a superuser's."""
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def store(postgres_url: str, postgres_schema: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, schema=postgres_schema, timeout=20)
    yield store
    await store.aclose()


async def schemas(admin: psycopg.AsyncConnection) -> set[str]:
    found = await admin.execute("SELECT nspname FROM pg_namespace")
    return {name for (name,) in await found.fetchall()}


# --- settings ---


@pytest.mark.parametrize(
    ("where", "options"),
    [
        (f"postgresql://user:{SECRET}@host/db?nonsense=1", {}),
        (object(), {}),
        (DEAD, {"schema": 'x"; DROP TABLE y'}),
        (DEAD, {"schema": ""}),
        (DEAD, {"schema": "a" * 64}),
        (DEAD, {"corpus": " "}),
        (DEAD, {"corpus": "a\x00"}),
        (DEAD, {"timeout": 0}),
        (DEAD, {"connections": 0}),
        (DEAD, {"exact_up_to": -1}),
    ],
)
def test_a_setting_that_cannot_work_is_refused_at_once(where, options):
    """Without asking the server, and without quoting a password."""
    with pytest.raises(InvalidSetting) as caught:
        PostgresStore(where, **options)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_without_the_driver_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra) as caught:
        PostgresStore(DEAD)
    assert caught.value.extra == "postgres"


# --- failing ---


async def test_a_server_that_is_not_there_may_be_tried_again():
    """Making the store asks nobody; using it is a typed error without the password."""
    store = PostgresStore(DEAD)
    with pytest.raises(StoreUnavailable) as caught:
        await store.identity()
    assert caught.value.retryable
    assert SECRET not in str(caught.value)
    await store.aclose()


async def test_a_connection_that_the_server_closed_is_replaced(store, admin):
    """After a restart of the server the next call works."""
    await put(store, GIVEN)
    await admin.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    assert await store.ids(scope=ALL) == sorted(passage_ids(GIVEN))


async def test_a_connection_that_breaks_under_a_write_changes_nothing(
    store, admin, postgres_schema
):
    """The write is a typed error that a retry may mend, and the retry does."""
    await put(store, GIVEN)
    async with admin.transaction():
        await admin.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"ragchat: {postgres_schema} default"],
        )
        writing = asyncio.create_task(put(store, revision("b", "two")))
        while not await waiting(admin):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)
        await admin.execute("SELECT pg_terminate_backend(%s)", [(await waiting(admin))[0]])
        with pytest.raises(StoreUnavailable) as caught:
            await writing
    assert caught.value.retryable
    assert await store.document_ids(scope=ALL) == ["a"]
    await put(store, revision("b", "two"))
    assert await store.document_ids(scope=ALL) == ["a", "b"]


async def waiting(admin: psycopg.AsyncConnection) -> list[int]:
    """Returns the processes that wait for an advisory lock."""
    found = await admin.execute(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    )
    return [pid for (pid,) in await found.fetchall()]


async def test_a_writer_waits_for_others_up_to_its_timeout(
    postgres_url, postgres_schema, store, admin
):
    """Then it says that it may be tried again; readers wait for nobody."""
    await put(store, GIVEN)
    hasty = PostgresStore(postgres_url, schema=postgres_schema, timeout=0.05)
    async with admin.transaction():
        await admin.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"ragchat: {postgres_schema} default"],
        )
        with pytest.raises(StoreUnavailable, match="busy") as caught:
            await put(hasty, revision("b", "two"))
        assert caught.value.retryable
        assert len(await by_words(hasty, "two")) == len(GIVEN.passages)
    await put(hasty, revision("b", "two"))
    await hasty.aclose()


async def test_all_connections_in_use_is_no_endless_wait(
    postgres_url, postgres_schema, store, admin
):
    await put(store, GIVEN)
    one = PostgresStore(postgres_url, schema=postgres_schema, timeout=0.5, connections=1)
    async with admin.transaction():
        await admin.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"ragchat: {postgres_schema} default"],
        )
        outcomes = await asyncio.gather(
            *(put(one, revision("b", "two")) for _ in range(4)), return_exceptions=True
        )
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    await one.aclose()


async def test_errors_hold_no_content(store, admin, postgres_schema):
    """What the server says of a failed statement quotes values, and stays out of ours."""
    await put(store, GIVEN)
    await admin.execute(
        f"ALTER TABLE {postgres_schema}.documents_1 ADD CHECK (text NOT LIKE '%secret%')"
    )
    with pytest.raises(StoreError) as caught:
        await put(store, revision("b", "secret words"))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert await store.document_ids(scope=ALL) == ["a"]


# --- what is there already ---


async def test_reading_creates_nothing(store, admin, postgres_schema):
    assert await store.corpora() == []
    assert await store.count(scope=ALL) == (0, 0, 0)
    await store.delete(["a"], scope=ALL)
    await store.repair()
    assert postgres_schema not in await schemas(admin)


async def test_a_store_opened_for_reading_refuses_writes(
    postgres_url, postgres_schema, store, admin
):
    reader = PostgresStore(postgres_url, schema=postgres_schema, read_only=True)
    for write in (
        put(reader, GIVEN),
        reader.delete(["a"], scope=ALL),
        reader.reset(),
        reader.repair(),
    ):
        with pytest.raises(StoreReadOnly):
            await write
    assert postgres_schema not in await schemas(admin)
    await put(store, GIVEN)
    assert len(await by_words(reader, "two")) == len(GIVEN.passages)
    await reader.aclose()


async def test_tables_of_something_else_are_left_alone(store, admin, postgres_schema):
    await admin.execute(f"CREATE SCHEMA {postgres_schema}")
    await admin.execute(f"CREATE TABLE {postgres_schema}.corpora (name text)")
    with pytest.raises(NotAStore):
        await store.identity()
    with pytest.raises(NotAStore):
        await put(store, GIVEN)


async def test_tables_of_a_newer_version_are_left_alone(
    postgres_url, postgres_schema, store, admin
):
    await put(store, GIVEN)
    await admin.execute(f"UPDATE {postgres_schema}.about SET version = 99")  # noqa: S608
    newer = PostgresStore(postgres_url, schema=postgres_schema)
    with pytest.raises(StoreUnavailable, match="newer") as caught:
        await newer.identity()
    assert not caught.value.retryable
    await newer.aclose()


async def test_a_database_in_another_encoding_is_no_home(postgres_url, admin):
    """Without UTF-8, text could neither be kept nor ordered."""
    await admin.execute("CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    other = PostgresStore(postgres_url.replace("/postgres?", "/bytes?"))
    with pytest.raises(NotAStore, match="UTF8"):
        await put(other, GIVEN)
    await other.aclose()
    await admin.execute("DROP DATABASE bytes")


async def test_a_role_with_few_rights_gets_as_far_as_they_reach(
    postgres_url, postgres_schema, store, admin
):
    """Reading needs no right to write, keywords need no pgvector, and what lacks is named."""
    role = f"role_{postgres_schema}"
    await admin.execute(f"CREATE ROLE {role} LOGIN")
    await admin.execute("CREATE DATABASE bare")
    theirs = PostgresStore(
        postgres_url.replace("postgres:@", f"{role}:@").replace("/postgres?", "/bare?")
    )
    with pytest.raises(StoreReadOnly):
        await put(theirs, GIVEN)
    await admin.execute(f"GRANT CREATE ON DATABASE bare TO {role}")
    await put(theirs, revision("a", "one", embedded=False), identity=KEYWORD_ONLY)
    assert len(await by_words(theirs, "one")) == 1
    assert await theirs.count(scope=ALL) == (1, 1, 0)
    with pytest.raises(StoreUnavailable, match="CREATE EXTENSION vector"):
        await put(theirs, GIVEN)
    assert await theirs.identity() == KEYWORD_ONLY
    await theirs.aclose()
    await put(store, GIVEN)
    mine = PostgresStore(postgres_url.replace("postgres:@", f"{role}:@"), schema=postgres_schema)
    with pytest.raises(StoreUnavailable, match="may not read"):
        await mine.count(scope=ALL)
    await admin.execute(f"GRANT USAGE ON SCHEMA {postgres_schema} TO {role}")
    await admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {postgres_schema} TO {role}")
    assert len(await by_words(mine, "two")) == len(GIVEN.passages)
    with pytest.raises(StoreReadOnly):
        await put(mine, revision("b", "two"))
    await mine.aclose()
    await admin.execute("DROP DATABASE bare")


# --- what the caller gives ---


async def test_the_caller_s_connection_is_his(postgres_url, postgres_schema):
    """It may have any row factory, keeps its settings, and stays open when the store is closed."""
    async with await psycopg.AsyncConnection.connect(
        postgres_url, row_factory=dict_row
    ) as connection:
        store = PostgresStore(connection, schema=postgres_schema, exact_up_to=0)
        await put(store, GIVEN)
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        await asyncio.gather(*(by_words(store, "two") for _ in range(5)))
        assert len(await by_vector(store, axis(0))) == len(GIVEN.passages)
        await store.aclose()
        with pytest.raises(StoreClosed):
            await store.count(scope=ALL)
        found = await connection.execute("SELECT current_setting('enable_sort') AS sort")
        assert await found.fetchone() == {"sort": "on"}


async def test_a_write_can_be_part_of_the_caller_s_transaction(
    postgres_url, postgres_schema, store
):
    """What the caller rolls back is undone, what he commits is there, with his own rows."""
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        await connection.execute(f"CREATE TABLE mine_{postgres_schema} (id text)")
        await connection.commit()
        joined = PostgresStore(connection, schema=postgres_schema, exact_up_to=0)
        for end, expected in ((connection.rollback, []), (connection.commit, ["a"])):
            await connection.execute(f"INSERT INTO mine_{postgres_schema} VALUES ('a')")  # noqa: S608
            await put(joined, GIVEN)
            assert ids_of(await by_vector(joined, axis(0))) != []
            found = await connection.execute(
                "SELECT current_setting('enable_sort'), current_setting('jit')"
            )
            assert await found.fetchone() == ("on", "on")
            assert await store.document_ids(scope=ALL) == []
            await end()
            assert await store.document_ids(scope=ALL) == expected
            found = await connection.execute(f"SELECT id FROM mine_{postgres_schema}")  # noqa: S608
            assert [name for (name,) in await found.fetchall()] == expected
            await connection.rollback()


async def test_what_the_caller_undoes_leaves_no_mark(postgres_url, postgres_schema, store):
    """Nothing that was seen in a transaction that is rolled back is remembered."""
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        joined = PostgresStore(connection, schema=postgres_schema)
        await connection.execute("SELECT 1")
        await put(joined, *(version(f"doc{n}", n) for n in range(5)))
        assert len(await by_words(joined, "shared", 100)) == PARTS * len(range(5))
        await connection.rollback()
        assert await joined.corpora() == []
        await put(joined, version("doc", 0), revision("other", "other words"))
        assert await by_words(joined, "shared part0") == await by_words(store, "shared part0")
        assert await joined.revision() == await store.revision() == 1


async def test_a_refused_write_leaves_the_caller_s_transaction_usable(
    postgres_url, postgres_schema
):
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        joined = PostgresStore(connection, schema=postgres_schema)
        await connection.execute("SELECT 1")
        await put(joined, GIVEN)
        with pytest.raises(Exception, match="scope"):
            await put(joined, revision("a", "x"), scope=Filter(Eq("team", "red")))
        assert await joined.document_ids(scope=ALL) == ["a"]
        await connection.rollback()


async def test_the_caller_s_pool_is_his(postgres_url, postgres_schema):
    """Searches and writes go through it, several at a time, and it stays open."""
    async with AsyncConnectionPool(postgres_url, min_size=1, max_size=3, open=False) as pool:
        store = PostgresStore(pool, schema=postgres_schema)
        await put(store, *(version(f"doc{n}", 0) for n in range(3)))
        await asyncio.gather(
            *(put(store, version(f"doc{n}", 1)) for n in range(3)),
            *(by_words(store, "shared", 100) for _ in range(10)),
        )
        await store.aclose()
        async with pool.connection() as connection:
            assert await (await connection.execute("SELECT 1")).fetchone() == (1,)


# --- together ---


async def test_reading_goes_on_while_a_corpus_is_dropped_and_made(store):
    """A reader sees the corpus whole or not at all, and no error."""
    other = store.corpus("brief")

    async def write() -> None:
        for number in range(8):
            await put(other, version("doc", number))
            await (other.drop_corpus() if number % 2 else other.reset())

    async def read() -> None:
        while not writing.done():
            seen = versions_of(await by_words(other, "shared", 100), "doc")
            assert len(seen) in {0, PARTS}
            assert len(set(seen)) <= 1
            await by_vector(other, axis(0))

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        writing = group.create_task(write())
        for _ in range(3):
            group.create_task(read())


async def test_an_index_opens_by_url(postgres_url):
    """The same code as with a file: ingest, search by both lanes, filter, other corpora."""
    async with open_index(postgres_url, corpus="by url", embedder=HashingEmbedder(64)) as index:
        await index.ingest(
            Document("tea", "Tea is grown in the hills.", metadata={"kind": "leaf"}),
            Document("coffee", "Coffee is grown in the shade.", metadata={"kind": "bean"}),
        )
        found = await index.search("where is tea grown", top_k=1)
        assert [c.passage.document_id for c in found] == ["tea"]
        found = await index.search("grown", filter={"kind": "bean"}, explain=True)
        assert [c.passage.document_id for c in found] == ["coffee"]
        assert (await index.describe()).store == "postgres"
    async with open_index(postgres_url, corpus="by url", embedder=None, read_only=True) as index:
        assert len(await index.search("grown")) == len(["tea", "coffee"])
        with pytest.raises(StoreReadOnly):
            await index.remove("tea")


async def test_a_write_that_is_cancelled_at_whatever_step_is_whole_or_not_there(
    store: PostgresStore, admin: psycopg.AsyncConnection
):
    """And it leaves no transaction open, nor a connection that nobody can use."""
    index = HybridIndex(store, embedder=HashingEmbedder(8))
    versions = iter(range(10_000))

    async def write() -> None:
        number = next(versions)
        await index.ingest(*(Document(name, f"tea v{number} {name}") for name in "abc"))

    async def whole() -> None:
        found = await index.search("tea", top_k=None)
        written = {candidate.passage.text.split()[1] for candidate in found}
        assert len(found) in {0, 3}
        assert len(written) <= 1
        query = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        async with asyncio.timeout(30):  # the server learns of it a moment later
            while await (await admin.execute(query)).fetchone() != (0,):
                pass

    for again in (False, True):
        assert await cancelled_everywhere(write, whole, again=again) > 5
    assert len(await index.search("tea", top_k=None)) == 3
