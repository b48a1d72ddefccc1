"""The store in Chroma passes what concerns it of the contract, against a real server."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import InvalidSetting, StoreUnavailable
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.opening import open_index
from ragchat_retrieval.ports import term_counts
from ragchat_retrieval.stores.chroma import ChromaStore
from ragchat_retrieval.testing.filter_cases import FILTER_CASES, TERM
from ragchat_retrieval.testing.store_suite import VectorStoreContract
from ragchat_retrieval.testing.store_suite_kit import ALL, IDENTITY, axis, put, revision, vector_of
from ragchat_retrieval.values import Document, Revision

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_numbers = itertools.count()


@pytest.fixture(scope="session")
def chroma_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on loopback, stopped by its process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("chroma")
    command = [str(Path(sys.executable).with_name("chroma")), "run", "--host", "127.0.0.1"]
    with subprocess.Popen(
        [*command, "--port", str(port), "--path", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "ANONYMIZED_TELEMETRY": "False"},
    ) as server:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and server.poll() is None:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.fixture
async def store(chroma_url: str) -> AsyncIterator[ChromaStore]:
    opened = ChromaStore(chroma_url, prefix=f"test-{next(_numbers)}")
    yield opened
    await opened.aclose()


class TestChroma(VectorStoreContract):
    """The whole contract but the keyword lane."""

    @pytest.fixture
    async def store(self, chroma_url: str) -> AsyncIterator[ChromaStore]:
        opened = ChromaStore(chroma_url, prefix=f"contract-{next(_numbers)}")
        yield opened
        await opened.aclose()


async def test_every_case_selects_in_chroma_as_the_semantics_say(store: ChromaStore) -> None:
    """A filter selects the same passages as filter, as scope, and in lists."""
    revisions = [
        Revision(
            document=case.document,
            passages=(case.passage,),
            vectors=vector_of(case.id)[None],
            terms=({TERM: 1},),
        )
        for case in FILTER_CASES
    ]
    await store.replace(revisions, identity=IDENTITY, scope=ALL)
    passages = {case.passage.id: case.passage for case in FILTER_CASES}
    wrong: list[str] = []
    for case in FILTER_CASES:
        expected = {i for i, passage in passages.items() if case.filter.matches_passage(passage)}
        hits = await store.search_vector(axis(0), 999, filter=case.filter, scope=ALL)
        listed = await store.ids(scope=case.filter)
        if {h.passage_id for h in hits} != expected or set(listed) != expected:
            wrong.append(case.id)
    assert wrong == []


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


@pytest.mark.parametrize("url", ["chroma://", "chroma://h?x=1", "chroma://u:p@h"])
def test_urls_with_more_or_less_are_refused(url: str) -> None:
    """Host, port and prefix are all that a URL may hold; a key would end in logs."""
    with pytest.raises(InvalidSetting):
        open_index(url, embedder=None)
