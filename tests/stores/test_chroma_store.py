"""The store in Chroma passes what concerns it of the contract, against a real server."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import InvalidSetting, StoreUnavailable
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.opening import open_index
from ragchat_retrieval.ports import term_counts
from ragchat_retrieval.stores.chroma import ChromaStore
from ragchat_retrieval.testing.chroma_server import chroma_server
from ragchat_retrieval.testing.filter_suite import IDS, VECTOR_WAYS, put_cases, wrong_cases
from ragchat_retrieval.testing.index_suite import VectorIndexContract
from ragchat_retrieval.testing.store_suite import VectorStoreContract
from ragchat_retrieval.testing.store_suite_kit import ALL, put, revision
from ragchat_retrieval.values import Document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from ragchat_retrieval.testing.filter_suite import Way

    Stranger = Callable[[str], AbstractAsyncContextManager[tuple[str, list[str]]]]

_numbers = itertools.count()


@pytest.fixture(scope="session")
def chroma_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on loopback."""
    with chroma_server(tmp_path_factory.mktemp("chroma")) as url:
        yield url


@pytest.fixture(scope="session")
def cases_prefix(chroma_url: str) -> str:
    """Where the document of every filter case is; written once, because that takes a while."""
    prefix = "cases"

    async def write() -> None:
        store = ChromaStore(chroma_url, prefix=prefix)
        await put_cases(store)
        await store.aclose()

    asyncio.run(write())
    return prefix


@pytest.fixture
async def store(chroma_url: str) -> AsyncIterator[ChromaStore]:
    opened = ChromaStore(chroma_url, prefix=f"test-{next(_numbers)}")
    yield opened
    await opened.aclose()


class TestChroma(VectorStoreContract, VectorIndexContract):
    """The whole contract but the keyword lane."""

    @pytest.fixture
    async def store(self, chroma_url: str) -> AsyncIterator[ChromaStore]:
        opened = ChromaStore(chroma_url, prefix=f"contract-{next(_numbers)}")
        yield opened
        await opened.aclose()


@pytest.mark.parametrize("way", VECTOR_WAYS, ids=lambda way: way.__name__)
async def test_every_case_selects_in_chroma_as_the_semantics_say(
    chroma_url: str, cases_prefix: str, way: Way
) -> None:
    """A filter selects the same passages in the vector lane, as filter and scope, and in lists."""
    store = ChromaStore(chroma_url, prefix=cases_prefix)
    assert await wrong_cases(store, way) == []
    assert set(await way(store, Filter())) == set(IDS)
    await store.aclose()


async def test_there_is_no_keyword_lane(store: ChromaStore) -> None:
    """The store says so, and finds nothing by words."""
    await put(store, revision("a", "one two"))
    assert not store.capabilities.keyword
    assert await store.search_text({"one": 1.0}, 5, filter=Filter(), scope=ALL) == []
    assert await term_counts(store, ["one"]) is None


async def test_an_index_opens_by_url_and_searches_by_vectors(chroma_url: str) -> None:
    """The URL's path is the prefix of the corpora."""
    url = f"chroma://{chroma_url.removeprefix('http://')}/test-{next(_numbers)}"
    async with open_index(url, embedder=HashingEmbedder(32)) as index:
        await index.ingest(Document("a", "Tea is grown in the hills."))
        found = await index.search("tea in the hills")
        assert [candidate.passage.document_id for candidate in found] == ["a"]


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    """Opening an index on nothing is a retryable error of ours."""
    with pytest.raises(StoreUnavailable) as caught:
        async with open_index("chroma://127.0.0.1:9/mine", embedder=None):
            pass
    assert caught.value.retryable


async def test_each_store_sends_its_own_headers(stranger: Stranger) -> None:
    """A key given to one store never goes out with the requests of another in the same loop."""
    async with stranger("503 Busy") as (url, heads):
        for key in ("red", "blue"):
            store = ChromaStore(url, headers={"x-key": key})
            with pytest.raises(StoreUnavailable):
                await store.ids(scope=ALL)
            await store.aclose()
    keys = [line for head in heads for line in head.splitlines() if line.startswith("x-key: ")]
    assert keys == ["x-key: red", "x-key: blue"]


@pytest.mark.parametrize(
    ("status", "retryable"),
    [("503 Busy", True), ("429 Slow", True), ("401 Who", False), ("200 OK", False)],
)
async def test_what_another_server_answers_is_an_error_of_ours(
    stranger: Stranger, status: str, *, retryable: bool
) -> None:
    """A proxy's page is no bare exception, and nothing of it is told."""
    async with stranger(status) as (url, _):
        store = ChromaStore(url)
        with pytest.raises(StoreUnavailable) as caught:
            await store.ids(scope=ALL)
        await store.aclose()
    assert caught.value.retryable == retryable
    assert "secret" not in str(caught.value)


def test_a_closed_store_leaves_no_connection_open(
    chroma_url: str, child_env: dict[str, str]
) -> None:
    """Closing closes the connections of its own loop; a loop of the same place starts anew."""
    code = f"""
        import asyncio
        from ragchat_retrieval.stores.chroma import ChromaStore
        from ragchat_retrieval.testing.store_suite_kit import ALL, put, revision

        async def main(n):
            store = ChromaStore({chroma_url!r}, prefix="closing")
            await asyncio.gather(*(put(store, revision(f"d{{n}}{{m}}", "word")) for m in range(3)))
            found = await store.ids(scope=ALL)
            await store.aclose()
            return len(found)

        print(*(asyncio.run(main(n)) for n in range(4)))
    """
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-W",
            "always::ResourceWarning",
            "-c",
            textwrap.dedent(code),
        ],
        env=child_env | {"PYTHONWARNINGS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("3 6 9 12\n", "")


@pytest.mark.parametrize(
    "url", ["chroma://", "chroma://h?x=1", "chroma://u:p@h", "chroma://:p@h", "chroma://h:secret"]
)
def test_urls_with_more_or_less_are_refused(url: str) -> None:
    """Host, port and prefix are all that a URL may hold; a key would end in logs."""
    with pytest.raises(InvalidSetting) as caught:
        open_index(url, embedder=None)
    assert "secret" not in str(caught.value)
