"""How the HNSW index of the PostgreSQL store is built."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest

from ragchat_retrieval.stores.postgres import PostgresStore, layout, sessions
from ragchat_retrieval.testing.store_suite_kit import (
    axis,
    by_vector,
    ids_of,
    passage_ids,
    put,
    revision,
)


@pytest.mark.parametrize(("node", "fits"), [(layout._NODE, True), (2**40, False)])
async def test_one_process_builds_where_several_have_no_room(
    postgres_url, postgres_schema, monkeypatch, node, fits
):
    """Where shared memory is too small to build the index in together, one process does alone."""
    tried, real = [], sessions.Session.fits

    async def spied(session, statement):
        tried.append(await real(session, statement))
        return tried[-1]

    monkeypatch.setattr(sessions.Session, "fits", spied)
    monkeypatch.setattr(layout, "_NODE", node)
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        # Several build however few vectors there are, and may take what they say they need.
        for setting in ("min_parallel_table_scan_size = 0", "maintenance_work_mem = '2000GB'"):
            await connection.execute(f"SET {setting}")
        store = PostgresStore(connection, schema=postgres_schema, exact_up_to=1)
        given = [revision(f"d{n}", "one", vectors=axis(n)[np.newaxis]) for n in range(3)]
        await put(store, *given)
        assert ids_of(await by_vector(store, axis(1), 1)) == passage_ids(given[1])
    assert tried == [fits]


async def test_an_index_can_be_put_off_until_everything_is_written(postgres_url, postgres_schema):
    """Written without one, a corpus gets its index by the repair of a store that wants one."""

    async def indexes():
        found = await admin.execute(
            "SELECT count(*) FROM pg_indexes WHERE schemaname = %s AND indexdef LIKE '%%hnsw%%'",
            [postgres_schema],
        )
        return await found.fetchone()

    loading = PostgresStore(postgres_url, schema=postgres_schema, exact_up_to=10**9)
    store = PostgresStore(postgres_url, schema=postgres_schema, exact_up_to=1)
    given = [revision(f"d{n}", "one", vectors=axis(n)[np.newaxis]) for n in range(3)]
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as admin:
        for each in given:
            await put(loading, each)
        assert await indexes() == (0,)
        assert ids_of(await by_vector(store, axis(1), 1)) == passage_ids(given[1])
        await store.repair()
        assert await indexes() == (1,)
        assert ids_of(await by_vector(store, axis(2), 1)) == passage_ids(given[2])
    await loading.aclose()
    await store.aclose()
