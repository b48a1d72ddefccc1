"""Connections to OpenSearch: whose they are, when they close, what their failures are called."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

import pytest
from opensearchpy import AsyncOpenSearch

from ragchat_retrieval import OpenSearchStore, open_index
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import InvalidSetting, MissingExtra, StoreUnavailable
from ragchat_retrieval.stores.manifest import Gone
from ragchat_retrieval.stores.opensearch import store as module
from ragchat_retrieval.stores.shadow import EVERYTHING
from ragchat_retrieval.testing.store_suite_kit import ALL, by_words, contents, put, revision
from ragchat_retrieval.values import Document

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    Open = Callable[..., OpenSearchStore]
    Stranger = Callable[..., AbstractAsyncContextManager[tuple[str, list[str]]]]


async def test_a_closed_store_leaves_no_connection_open(open_opensearch: Open) -> None:
    """Closing closes the connections of every loop, on that loop."""
    store = open_opensearch()
    await put(store, revision("a", "one"))
    ((client, _),) = store._shared.engine._clients._clients._kept.values()
    session = client.transport.connection_pool.connections[0].session
    (connections,) = session.connector._conns.values()
    transports = [protocol.transport for protocol, _ in connections]
    assert transports
    await store.aclose()
    assert session.closed
    assert all(transport.is_closing() for transport in transports)
    assert all(transport._sock is None for transport in transports)


def test_a_process_that_never_closes_leaves_no_warning(
    opensearch_url: str, opensearch_prefix: str, child_env: dict[str, str]
) -> None:
    """Loops that come and go close their connections, though nobody closed the store."""
    code = f"""
        import asyncio, threading
        from ragchat_retrieval.stores.opensearch import OpenSearchStore
        from ragchat_retrieval.testing.store_suite_kit import ALL, put, revision

        store = OpenSearchStore({opensearch_url!r}, prefix={opensearch_prefix!r})

        async def main(n):
            await asyncio.gather(*(put(store, revision(f"d{{n}}{{m}}", "word")) for m in range(3)))
            await asyncio.gather(*(store.ids(scope=ALL) for _ in range(8)))

        threads = [threading.Thread(target=asyncio.run, args=[main(n)]) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(main(3))
        print(len(asyncio.run(store.ids(scope=ALL))))
    """
    done = subprocess.run(
        [sys.executable, "-X", "tracemalloc", "-c", textwrap.dedent(code)],
        env=child_env,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("12\n", "")


async def test_a_client_of_the_callers_stays_open(
    opensearch_url: str, opensearch_prefix: str
) -> None:
    """A given client is used and not closed."""
    async with AsyncOpenSearch(opensearch_url) as client:
        store = OpenSearchStore(client=client, prefix=opensearch_prefix)
        await put(store, revision("a", "one"))
        await store.aclose()
        assert await client.ping()


async def test_connections_of_a_loop_in_another_thread_are_closed_there(
    open_opensearch: Open,
) -> None:
    """A store that is closed on one loop closes what it opened on others that still run."""
    store, opened, closed = open_opensearch(), asyncio.Event(), threading.Event()
    here = asyncio.get_running_loop()

    async def inside() -> bool:
        await store.corpora()
        client, _ = store._shared.engine._clients._clients._kept[asyncio.get_running_loop()]
        session = client.transport.connection_pool.connections[0].session
        here.call_soon_threadsafe(opened.set)
        await asyncio.to_thread(closed.wait)
        return session.closed

    working = asyncio.create_task(asyncio.to_thread(asyncio.run, inside()))
    await opened.wait()
    await store.aclose()
    closed.set()
    assert await working


async def test_writing_to_an_index_that_is_gone_makes_none(open_opensearch: Open) -> None:
    """A place that another process removed is missing, not made again without its mapping."""
    store = open_opensearch()
    await put(store, revision("a", "one"))
    engine = store._shared.engine
    state = await engine.state(store.corpus_name)
    await engine.discard(state)
    for write in (engine.put_rows, engine.put_entries):
        with pytest.raises(Gone):
            await write(state, [])
    with pytest.raises(Gone):
        await engine.drop_entries(state, ["a"])
    with pytest.raises(Gone):
        await engine.by_words(state, {"one": 1.0}, 5, EVERYTHING, passages=False)


async def test_more_documents_than_one_answer_holds_are_read_at_one_moment(
    open_opensearch: Open,
) -> None:
    """Thousands of passages are listed whole while documents are replaced."""
    store = open_opensearch()
    ids = [f"{n:05}" for n in range(2_500)]
    await put(store, revision("big", *ids, ids=ids), revision("other", "x"))

    async def write() -> None:
        for n in range(4):
            await put(store, revision("other", f"x{n}"))

    writing = asyncio.create_task(write())
    while not writing.done():
        found = await store.ids(scope=ALL)
        assert len(found) == len(ids) + 1
        assert found[: len(ids)] == ids
    await writing


async def test_a_refused_write_is_an_error_of_ours(
    open_opensearch: Open, opensearch_url: str, opensearch_prefix: str
) -> None:
    """What OpenSearch refuses reaches the caller, without content, and nothing changes."""
    store = open_opensearch()
    await put(store, revision("a", "one"))
    before = await contents(store)
    async with AsyncOpenSearch(opensearch_url) as client:
        index = f"{opensearch_prefix}.*.passages.*"
        await client.indices.put_settings(index=index, body={"index.blocks.write": True})
        with pytest.raises(StoreUnavailable) as caught:
            await put(store, revision("a", "secret words"))
        assert not caught.value.retryable
        assert "secret" not in str(caught.value)
        assert await contents(store) == before
        await client.indices.put_settings(index=index, body={"index.blocks.write": None})
    await put(store, revision("a", "secret words"))
    assert len(await by_words(store, "secret")) == 1


async def test_settings_that_opensearch_refuses_are_an_error_of_ours(
    open_opensearch: Open,
) -> None:
    """The settings of indexes are the server's to judge, at the first write."""
    store = open_opensearch(settings={"number_of_shards": 0})
    with pytest.raises(StoreUnavailable, match="400") as caught:
        await put(store, revision("a", "one"))
    assert not caught.value.retryable


async def test_an_index_opens_by_url_and_searches_both_lanes(
    opensearch_url: str, opensearch_prefix: str
) -> None:
    """The URL's path is the prefix of the indexes."""
    url = f"http+opensearch://{opensearch_url.removeprefix('http://')}/{opensearch_prefix}"
    async with open_index(url, embedder=HashingEmbedder(32)) as index:
        await index.ingest(Document("a", "Tea is grown in the hills."))
        found = await index.search("tea in the hills")
        assert [candidate.passage.document_id for candidate in found] == ["a"]
        assert not found.degraded


async def test_the_environment_names_addresses_prefix_and_user(
    monkeypatch: pytest.MonkeyPatch, opensearch_url: str, opensearch_prefix: str
) -> None:
    """What the URL leaves out comes from the environment; a node that is down is passed over."""
    addresses = f"127.0.0.1:9, {opensearch_url}"
    monkeypatch.setenv("OPENSEARCH_ADDRESSES", addresses)
    monkeypatch.setenv("OPENSEARCH_INDEX_PREFIX", opensearch_prefix)
    monkeypatch.setenv("OPENSEARCH_USERNAME", "user")
    monkeypatch.setenv("OPENSEARCH_PASSWORD", "key")
    async with open_index("http+opensearch://", embedder=None) as index:
        await index.ingest(Document("a", "Tea is grown in the hills."))
        clients = index.store._shared.engine._clients
        assert clients._hosts == ["http://127.0.0.1:9", opensearch_url]
        assert clients._options["http_auth"] == ("user", "key")
    async with AsyncOpenSearch(opensearch_url) as client:
        assert await client.indices.exists(index=f"{opensearch_prefix}.records")


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    """Opening an index on nothing is a retryable error of ours."""
    with pytest.raises(StoreUnavailable) as caught:
        async with open_index("http+opensearch://127.0.0.1:9/mine", embedder=None):
            pass
    assert caught.value.retryable


@pytest.mark.parametrize(
    "url",
    [
        "http+opensearch://",
        "https+opensearch://h/a/b",
        "http+opensearch://h?x=1",
        "http+opensearch://u:p@h",
        "http+opensearch://h/Upper",
        "http+opensearch://h:x/mine",
    ],
)
def test_urls_with_more_or_less_are_refused(url: str) -> None:
    """Host, port and prefix are all that a URL may hold; a password would end in logs."""
    with pytest.raises(InvalidSetting):
        open_index(url, embedder=None)


def test_a_user_without_a_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the two alone is a mistake, and not a request without a user."""
    monkeypatch.setenv("OPENSEARCH_USERNAME", "user")
    with pytest.raises(InvalidSetting):
        open_index("https+opensearch://h", embedder=None)


@pytest.mark.parametrize(
    "given",
    [{}, {"hosts": []}, {"hosts": "h:9200"}, {"hosts": "http://u:p@h"}, {"hosts": "http://h?a=1"}],
)
def test_a_store_needs_addresses_or_a_client(given: dict[str, object]) -> None:
    """What cannot be an address is refused before anything is sent."""
    with pytest.raises(InvalidSetting):
        OpenSearchStore(**given)


def test_without_the_extra_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where aiohttp or the client is missing, the error names what to install."""
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="opensearch"):
        OpenSearchStore("http://127.0.0.1:9")


@pytest.mark.parametrize("status", ["200 OK", "201 Created"])
@pytest.mark.parametrize(
    "said",
    ["", "{}", "[]", '"secret"', "null", '{"items": ["secret"], "docs": {}, "hits": ["secret"]}'],
)
async def test_what_another_server_answers_is_an_error_of_ours(
    stranger: Stranger, said: str, status: str
) -> None:
    """Whatever is in OpenSearch's place and says that all is well: no bare exception."""
    async with stranger(status, said) as (url, _):
        store = OpenSearchStore(url)
        for work in (store.ids(scope=ALL), put(store, revision("a", "one"))):
            with pytest.raises(StoreUnavailable) as caught:
                await work
            assert not caught.value.retryable
            assert "secret" not in str(caught.value)
        await store.aclose()


@pytest.mark.parametrize(
    "said",
    [
        *("{}", "[]", '"secret"', '{"items": ["secret"]}', '{"items": []}'),
        '{"items": [{"index": {"status": 201}}]}',
    ],
)
async def test_a_write_that_another_server_takes_is_an_error_of_ours(
    stranger: Stranger, said: str
) -> None:
    """An answer without a word of each document does not pass for their being written."""
    async with stranger("200 OK", said) as (url, _):
        clients = OpenSearchStore(url)._shared.engine._clients
        with pytest.raises(StoreUnavailable, match="answered as no OpenSearch does"):
            await clients.bulk("any", [{"_id": "a"}, {"_id": "b"}])
        await clients.aclose()
