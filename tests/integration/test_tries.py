"""How often whom is asked again: every kind of failure, for everybody who opens a connection."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
from openai import AsyncOpenAI

import ragchat
from ragchat.testing import Failure, Gate, Held, LoopbackOpenAI, Reset
from ragchat_retrieval.embedders.remote import Sending
from ragchat_retrieval.retry import Retries, status_of
from ragchat_retrieval.testing.embedding_server import EmbeddingServer, Fault
from ragchat_retrieval.testing.rerank_server import RerankServer
from ragchat_retrieval.trace import Degradation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sized

    from ragchat_retrieval.testing.loopback_server import LoopbackServer

GUARD = 60
FINAL = [400, 401, 403, 404, 413, 422]
TRANSIENT = [408, 409, 429, 500, 502, 503, 504, "reset", "silence"]
CALLERS = ["chat", "openai", "ollama", "rerank"]
CANDIDATES = [ragchat.Candidate(ragchat.Passage(f"tea {n}"), 1.0) for n in range(3)]


class Waits(list):
    """Notes waits instead of waiting."""

    async def __call__(self, seconds):
        self.append(seconds)


class Caller(NamedTuple):
    """Somebody who asks a server that fails as it is told."""

    call: Callable[[], Awaitable[Sized]]
    """Makes one call."""

    fail: Callable[[int | str, int], None]
    """Makes the next so many requests fail in a way: a status, ``reset`` or ``silence``."""

    server: LoopbackOpenAI | LoopbackServer

    @property
    def requests(self):
        return len(self.server.requests)


@asynccontextmanager
async def asks_openai(kind, retries, patience):
    """A chat model, or the embedder of the same API."""
    path = {"chat": "/chat/completions", "openai": "/embeddings"}[kind]
    known = {"reset": Reset(), "silence": Held("late", Gate())}
    with LoopbackOpenAI(default="tea leaves") as server:
        async with AsyncOpenAI(
            api_key="k", base_url=server.base_url, max_retries=0, timeout=patience
        ) as client:
            model = ragchat.ChatModel(client.chat.completions.create, model="m", retries=retries)
            embedder = ragchat.OpenAIEmbedder("m", client=client, retries=retries)

            def fail(fault, times):
                server.script(*[known.get(fault) or Failure(fault)] * times, path=path)

            calls = {
                "chat": lambda: model.complete("hello"),
                "openai": lambda: embedder.embed(["tea"]),
            }
            yield Caller(calls[kind], fail, server)


@asynccontextmanager
async def asks_over_our_own_http(kind, retries, patience):
    """The embedder of Ollama's API, or a reranker."""
    hold = threading.Event()
    known = {"reset": Fault(drop=True), "silence": Fault(hold=hold)}
    with EmbeddingServer() if kind == "ollama" else RerankServer() as server:

        def fail(fault, times):
            server.misbehave(*[known.get(fault) or Fault(status=fault)] * times)

        sending = Sending(timeout=patience)
        async with (
            ragchat.OllamaEmbedder(
                "m", url=server.url, sending=sending, retries=retries
            ) as embedder,
            ragchat.HttpReranker(
                server.url, shape="tei", timeout=patience, retries=retries
            ) as scorer,
        ):
            calls = {
                "ollama": lambda: embedder.embed(["tea"]),
                "rerank": lambda: scorer(ragchat.Query("tea"), CANDIDATES),
            }
            try:
                yield Caller(calls[kind], fail, server)
            finally:
                hold.set()


def caller(kind, retries, patience=GUARD):
    """Gives the caller of a kind, who waits so many seconds for an answer."""
    asks = asks_openai if kind in {"chat", "openai"} else asks_over_our_own_http
    return asks(kind, retries, patience)


@pytest.mark.parametrize("kind", CALLERS)
@pytest.mark.parametrize("status", FINAL)
async def test_what_would_fail_again_is_tried_once(kind, status):
    waits = Waits()
    async with caller(kind, Retries(sleep=waits)) as it:
        it.fail(status, 3)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - each caller has its own
            await it.call()
        assert it.requests == 1
    assert waits == []
    cause = caught.value if kind == "chat" else caught.value.__cause__
    assert status_of(cause) == status


@pytest.mark.parametrize("kind", CALLERS)
@pytest.mark.parametrize("fault", TRANSIENT)
async def test_what_may_pass_is_tried_three_times(kind, fault):
    waits = Waits()
    patience = 0.2 if fault == "silence" else GUARD
    async with caller(kind, Retries(sleep=waits), patience) as it:
        it.fail(fault, 4)
        with pytest.raises(Exception):  # noqa: B017, PT011 - each caller has its own
            await it.call()
        if fault != "silence":  # a busy machine may not even send what is given up so soon
            assert it.requests == 3
    assert len(waits) == 2


@pytest.mark.parametrize("kind", CALLERS)
async def test_the_second_try_may_succeed(kind):
    waits = Waits()
    async with caller(kind, Retries(sleep=waits)) as it:
        it.fail(503, 1)
        assert len(await it.call()) > 0
        assert it.requests == 2
    assert len(waits) == 1


@pytest.mark.parametrize("kind", CALLERS)
async def test_cancelling_ends_the_wait_between_two_tries(kind):
    waiting = asyncio.Event()

    async def for_ever(seconds):
        waiting.set()
        await asyncio.Event().wait()

    async with caller(kind, Retries(sleep=for_ever)) as it:
        it.fail(429, 3)
        task = asyncio.create_task(it.call())
        async with asyncio.timeout(GUARD):
            await waiting.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert it.requests == 1


async def test_if_the_embedder_is_down_the_words_are_searched_and_it_is_said(caplog):
    """In the result, in the log, and by the number of tries."""
    waits = Waits()
    with EmbeddingServer() as server:
        async with ragchat.OllamaEmbedder(
            "m", url=server.url, dimension=16, retries=Retries(sleep=waits)
        ) as embedder:
            index = ragchat.HybridIndex(embedder=embedder)
            await index.ingest(
                ragchat.Document("tea", "Tea is grown in the hills."),
                ragchat.Document("rice", "Rice is grown in the plains."),
            )
            server.misbehave(*[Fault(status=503)] * 3)
            before = len(server.requests)
            preparer = ragchat.Preparer(index.retriever(top_k=1))
            with caplog.at_level(logging.WARNING, "ragchat"):
                prepared = await preparer.prepare(
                    model="big", messages=[{"role": "user", "content": "Where is tea grown?"}]
                )
            assert len(server.requests) - before == 3
    reason = "EmbeddingError: embedding model 'm': the server answered 503"
    (found,) = prepared.retrieval.candidates
    assert found.passage.document_id == "tea"
    assert prepared.retrieval.degraded == (Degradation("vector", reason),)
    assert caplog.messages == [f"stage vector skipped ({reason})"]
    (call,) = prepared.retrieval.trace.calls
    assert (call.operation, call.requests, call.outcome) == ("embeddings", 3, "failed")
