"""Embedders that ask a server: batches, order, failures, retries; with a real one on loopback."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64decode

import numpy as np
import openai
import pytest

from ragchat_retrieval.embedders import HashingEmbedder, OllamaEmbedder, OpenAIEmbedder
from ragchat_retrieval.embedders.remote import Sending
from ragchat_retrieval.errors import EmbeddingError, InvalidSetting
from ragchat_retrieval.policy import Policy, Run, running
from ragchat_retrieval.retry import Retries
from ragchat_retrieval.testing.embedding_server import EmbeddingServer, Fault
from ragchat_retrieval.testing.loopback_server import Refusal

TEXTS = [f"text number {n}" for n in range(10)]


class Waits(list):
    """Records waits instead of waiting."""

    async def __call__(self, seconds):
        self.append(seconds)


@pytest.fixture
def server():
    with EmbeddingServer() as server:
        yield server


@pytest.fixture
def waits():
    return Waits()


@pytest.fixture(params=["openai", "ollama"])
async def make(request, server, waits):
    """Gives a maker of embedders of either kind, closed at the end."""
    made = []

    def build(url=server.url, **options):
        options.setdefault("retries", Retries(sleep=waits, jitter=lambda: 1.0))
        if request.param == "openai":
            embedder = OpenAIEmbedder("m", url=f"{url}/v1", **options)
        else:
            embedder = OllamaEmbedder("m", url=url, **options)
        made.append(embedder)
        return embedder

    build.kind = request.param
    yield build
    for embedder in made:
        await embedder.aclose()


async def right(texts, dimension=16):
    return await HashingEmbedder(dimension).embed(texts)


async def test_texts_go_in_batches_and_come_back_in_order(make, server):
    embedder = make(sending=Sending(batch_size=3))
    assert embedder.dimension == 0
    assert np.allclose(await embedder.embed(TEXTS), await right(TEXTS), atol=1e-6)
    assert embedder.dimension == 16
    sent = sorted(request.body["input"] for request in server.requests)
    assert sent == [TEXTS[0:3], TEXTS[3:6], TEXTS[6:9], TEXTS[9:]]


async def test_only_what_the_caller_set_is_sent(make, server):
    embedder = make(dimensions=8)
    assert embedder.dimension == 8
    await embedder.embed(["a"])
    [request] = server.requests
    own = {"model", "input", "dimensions"} | (
        {"encoding_format"} if make.kind == "openai" else set()
    )
    assert set(request.body) == own
    assert request.body["dimensions"] == 8


async def test_blank_texts_are_not_sent(make, server):
    rows = await make().embed(["", "a", "\n"])
    assert server.requests[0].body["input"] == ["a"]
    assert not rows[[0, 2]].any()


async def test_a_dimension_is_learned_by_preparing_once(make, server):
    embedder = make()
    await embedder.prepare()
    await embedder.prepare()
    assert (embedder.dimension, len(server.requests)) == (16, 1)


async def test_a_dimension_that_was_told_is_checked(make):
    with pytest.raises(EmbeddingError, match="16 numbers, not 8"):
        await make(dimension=8).embed(["a"])


async def test_prefixes_go_before_queries_and_passages(make, server):
    embedder = make(sending=Sending(query_prefix="query: ", passage_prefix="passage: "))
    await embedder.embed(["a"], "query")
    await embedder.embed(["a"], "passage")
    assert [request.body["input"] for request in server.requests] == [["query: a"], ["passage: a"]]


async def test_a_busy_server_is_asked_again_when_it_says(make, server, waits):
    server.misbehave(Fault(status=429, headers={"Retry-After": "7"}), Fault(status=503))
    assert (await make().embed(["a"])).any()
    assert waits == [7.0, 1.0]


async def test_a_cut_connection_is_tried_again(make, server, waits):
    server.misbehave(Fault(drop=True))
    assert (await make().embed(["a"])).any()
    assert len(server.requests) == 2


async def test_a_failure_that_stays_is_typed_and_retryable(make, server, waits):
    server.misbehave(*[Fault(status=500)] * 3)
    with pytest.raises(EmbeddingError) as caught:
        await make().embed(["a secret text"])
    assert (caught.value.status, caught.value.retryable) == (500, True)
    assert "secret" not in str(caught.value)
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
async def test_a_refusal_is_tried_once(make, server, waits, status):
    server.misbehave(Fault(status=status))
    with pytest.raises(EmbeddingError) as caught:
        await make().embed(["a"])
    assert (caught.value.status, caught.value.retryable) == (status, False)
    assert caught.value.__cause__ is not None
    assert (len(server.requests), waits) == (1, [])


async def test_a_wait_beyond_the_deadline_raises_at_once(make, server, waits):
    server.misbehave(Fault(status=429, headers={"Retry-After": "120"}))
    with running(Run(Policy(deadline=30))), pytest.raises(EmbeddingError):
        await make().embed(["a"])
    assert waits == []


async def test_a_server_that_is_not_there_is_typed_and_retryable(make, waits):
    with EmbeddingServer() as gone:
        url = gone.url
    with pytest.raises(EmbeddingError) as caught:
        await make(url).embed(["a"])
    assert (caught.value.status, caught.value.retryable) == (None, True)
    assert len(waits) == 2


def _vectors(reply):
    return reply.get("data") or reply["embeddings"]


def _without_last(reply):
    _vectors(reply).pop()
    return reply


def _with_values(values):
    def edit(reply):
        vectors = _vectors(reply)
        if "data" in reply:
            vectors[1]["embedding"] = values
        else:
            vectors[1] = values
        return reply

    return edit


@pytest.mark.parametrize(
    "fault",
    {
        "one vector less": Fault(edit=_without_last),
        "no numbers": Fault(edit=_with_values(["x"] * 16)),
        "another length": Fault(edit=_with_values([1.0] * 3)),
        "nothing": Fault(edit=lambda reply: {}),
        "a list": Fault(edit=lambda reply: [reply]),
        "null": Fault(body=b"null"),
        "no JSON": Fault(body=b"<html>"),
        "half of it": Fault(body=b'{"data": ['),
        "empty": Fault(body=b""),
    }.items(),
    ids=lambda case: case[0],
)
async def test_an_unusable_reply_is_a_typed_error(make, server, fault):
    server.misbehave(fault[1])
    with pytest.raises(EmbeddingError):
        await make().embed(["a", "b"])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
async def test_a_non_finite_value_names_the_text_among_all(make, server, value):
    server.misbehave(Fault(), Fault(edit=_with_values([value] * 16)))
    embedder = make(sending=Sending(batch_size=2, concurrency=1))
    with pytest.raises(EmbeddingError) as caught:
        await embedder.embed(["a", " ", "b", "c", "d"])
    assert caught.value.position == 4


class Particular(EmbeddingServer):
    """Takes so many texts a request, each up to a length, and all of it with a status."""

    def __init__(self, status, *, texts=1000, letters=1000):
        super().__init__()
        self.status, self.texts, self.letters = status, texts, letters

    def reply(self, request):
        given = request.body["input"]
        if len(given) > self.texts or max(map(len, given)) > self.letters:
            raise Refusal(self.status, {"error": {"message": "too much of a secret text"}})
        return super().reply(request)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_passages_that_are_too_many_for_a_server_go_in_smaller_batches(make, status):
    with Particular(status, texts=3) as server:
        rows = await make(server.url).embed(TEXTS, "passage")
    assert np.allclose(rows, await right(TEXTS), atol=1e-6)
    assert [len(request.body["input"]) for request in server.requests] == [10, 5, 2, 3, 5, 2, 3]


@pytest.mark.parametrize("count", [1, 2, 9, 10])
async def test_a_passage_that_a_server_refuses_is_told_among_the_others(make, count):
    texts = [*TEXTS[: count - 1], "long " * 300]
    with Particular(400) as server, pytest.raises(EmbeddingError) as caught:
        await make(server.url, sending=Sending(batch_size=8)).embed([" ", *texts], "passage")
    assert (caught.value.position, caught.value.status) == (count, 400)
    assert "secret" not in str(caught.value)


async def test_a_server_that_refuses_everything_blames_no_passage(make):
    with Particular(400, letters=0) as server, pytest.raises(EmbeddingError) as caught:
        await make(server.url).embed([f"text {n}" for n in range(128)], "passage")
    assert (caught.value.position, caught.value.status) == (None, 400)
    assert len(server.requests) == 9


async def test_a_question_that_a_server_refuses_is_asked_once(make):
    with Particular(400) as server, pytest.raises(EmbeddingError):
        await make(server.url).embed(["long " * 300, "short"])
    assert len(server.requests) == 1


async def test_batches_that_disagree_about_the_dimension_are_an_error(make, server):
    server.misbehave(Fault(edit=lambda reply: _cut(reply, 4)))
    embedder = make(sending=Sending(batch_size=1, concurrency=2))
    with pytest.raises(EmbeddingError, match="different lengths"):
        await embedder.embed(["a", "b"])


def _cut(reply, dimension):
    if "data" in reply:
        for item in reply["data"]:
            item["embedding"] = [1.0] * dimension
    else:
        reply["embeddings"] = [[1.0] * dimension for _ in reply["embeddings"]]
    return reply


async def test_at_most_the_given_number_of_requests_run_at_a_time(make, server):
    hold = threading.Event()
    server.misbehave(*[Fault(hold=hold)] * 10)
    embedder = make(sending=Sending(batch_size=1, concurrency=3))
    task = asyncio.create_task(embedder.embed(TEXTS))
    async with asyncio.timeout(30):
        while len(server.requests) < 3:  # noqa: ASYNC110 - the server lives in another thread
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(server.requests) == 3
        hold.set()
        assert (await task).any()


async def test_cancelling_ends_a_call_at_once(make, server, cancel_midway):
    await cancel_midway(server, make().embed(["a"]))


def test_one_embedder_serves_several_loops(make):
    embedder = make()

    async def use():
        async with embedder:
            return await embedder.embed(["a"])

    first, second = asyncio.run(use()), asyncio.run(use())
    assert np.array_equal(first, second)


class TestOpenAI:
    """What holds for the OpenAI-compatible API alone."""

    @pytest.mark.parametrize(
        "edit",
        [
            lambda items: [{**items[0], "index": 1}, items[1]],
            lambda items: [{**items[0], "index": -1}, items[1]],
            lambda items: [items[0], {**items[1], "index": 2}],
            lambda items: [items[0], {**items[1], "index": True}],
            lambda items: [{k: v for k, v in item.items() if k != "index"} for item in items],
            lambda items: [*items, items[0]],
        ],
    )
    async def test_indexes_must_match_the_texts(self, server, edit):
        def wrong(reply):
            return {**reply, "data": edit(reply["data"])}

        server.misbehave(Fault(edit=wrong))
        async with OpenAIEmbedder("m", url=f"{server.url}/v1") as embedder:
            with pytest.raises(EmbeddingError):
                await embedder.embed(["a", "b"])

    async def test_vectors_are_matched_by_index(self, server):
        def backwards(reply):
            return {**reply, "data": reply["data"][::-1]}

        server.misbehave(Fault(edit=backwards))
        async with OpenAIEmbedder("m", url=f"{server.url}/v1") as embedder:
            assert np.allclose(await embedder.embed(TEXTS), await right(TEXTS), atol=1e-6)

    async def test_numbers_are_read_whether_a_server_knows_base64_or_not(self, server):
        def plain(reply):
            for item in reply["data"]:
                item["embedding"] = np.frombuffer(b64decode(item["embedding"]), "<f4").tolist()
            return reply

        async with OpenAIEmbedder("m", url=f"{server.url}/v1") as embedder:
            encoded = await embedder.embed(TEXTS)
            server.misbehave(Fault(edit=plain))
            numbers = await embedder.embed(TEXTS)
        async with OpenAIEmbedder("m", url=f"{server.url}/v1", encoding_format="float") as embedder:
            asked_for = await embedder.embed(TEXTS)
        assert encoded.tobytes() == numbers.tobytes() == asked_for.tobytes()
        formats = [request.body["encoding_format"] for request in server.requests]
        assert formats == ["base64", "base64", "float"]

    @pytest.mark.parametrize("wrong", ["AAAA", "AAA", "no base64 at all", ""])
    async def test_bytes_that_are_no_numbers_are_refused(self, server, wrong):
        def broken(reply):
            return {**reply, "data": [{**reply["data"][0], "embedding": wrong}]}

        server.misbehave(Fault(edit=broken))
        async with OpenAIEmbedder("m", url=f"{server.url}/v1") as embedder:
            with pytest.raises(EmbeddingError):
                await embedder.embed(["a"])

    async def test_the_key_of_openai_goes_to_no_other_server(self, server, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-stray")
        async with OpenAIEmbedder("m", url=f"{server.url}/v1") as embedder:
            await embedder.embed(["a"])
        assert "sk-stray" not in str(server.requests)

    async def test_the_given_key_is_sent_and_never_shown(self, server):
        server.misbehave(Fault(status=401))
        async with OpenAIEmbedder("m", url=f"{server.url}/v1", api_key="sk-mine") as embedder:
            with pytest.raises(EmbeddingError) as caught:
                await embedder.embed(["a"])
            assert "sk-mine" not in f"{caught.value} {embedder!r}"
        assert server.requests[0].headers["authorization"] == "Bearer sk-mine"

    async def test_without_a_url_openai_settings_count(self, server, monkeypatch):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
        async with OpenAIEmbedder("m") as embedder:
            assert (await embedder.embed(["a"])).any()
        assert server.requests[0].headers["authorization"] == "Bearer sk-mine"

    async def test_a_missing_key_is_named_before_anything_is_sent(self):
        with pytest.raises(InvalidSetting) as caught:
            await OpenAIEmbedder("m").embed(["a"])
        assert caught.value.name == "api_key"

    @pytest.mark.parametrize(("own", "calls"), [(0, 1), (1, 2)])
    async def test_an_injected_client_keeps_its_own_retries_and_stays_open(
        self, server, own, calls
    ):
        server.misbehave(*[Fault(status=503, headers={"Retry-After": "0.001"})] * 5)
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="k", max_retries=own
        ) as client:
            embedder = OpenAIEmbedder("m", client=client)
            with pytest.raises(EmbeddingError):
                await embedder.embed(["a"])
            await embedder.aclose()
            assert not client.is_closed()
        assert len(server.requests) == calls

    async def test_a_text_beyond_the_window_is_cut_before_it_is_sent(self, server):
        sending = Sending(max_tokens=3)
        async with OpenAIEmbedder("m", url=f"{server.url}/v1", sending=sending) as embedder:
            assert embedder.max_tokens == 3
            await embedder.embed(["one two three four five"])
        assert server.requests[0].body["input"] == ["one two three"]

    def test_dimension_and_window_of_openais_models_are_known(self):
        embedder = OpenAIEmbedder("text-embedding-3-small")
        assert (embedder.dimension, embedder.max_tokens) == (1536, 8191)
        assert OpenAIEmbedder("text-embedding-3-large", dimensions=256).dimension == 256
        assert embedder.count_tokens("tiktoken is great!") == 6

    def test_a_client_beside_a_url_is_refused(self):
        with pytest.raises(InvalidSetting):
            OpenAIEmbedder("m", url="http://127.0.0.1", client=object())


class TestOllama:
    """What holds for Ollama's API alone."""

    @pytest.mark.parametrize("path", ["", "/", "/api", "/api/", "/api/embed"])
    async def test_the_url_may_end_at_any_level(self, server, path):
        async with OllamaEmbedder("m", url=server.url + path) as embedder:
            await embedder.embed(["a"])
        assert server.requests[0].path == "/api/embed"

    @pytest.mark.parametrize("url", ["", "localhost:11434", "ftp://127.0.0.1", "http://"])
    def test_a_url_that_is_none_is_refused(self, url):
        with pytest.raises(InvalidSetting):
            OllamaEmbedder("m", url=url)

    async def test_a_redirect_is_not_followed(self, server):
        server.misbehave(Fault(status=302, headers={"location": "/elsewhere"}))
        async with OllamaEmbedder("m", url=server.url) as embedder:
            with pytest.raises(EmbeddingError) as caught:
                await embedder.embed(["a"])
        assert caught.value.status == 302

    async def test_a_reply_without_end_is_not_read(self, server, monkeypatch):
        monkeypatch.setattr("ragchat_retrieval.embedders.ollama._MAX_REPLY", 1_000)
        server.misbehave(Fault(body=b"[" + b"1," * 100_000))
        async with OllamaEmbedder("m", url=server.url) as embedder:
            with pytest.raises(EmbeddingError, match="too large"):
                await embedder.embed(["a"])


@pytest.mark.parametrize("embedder", [OpenAIEmbedder, OllamaEmbedder])
@pytest.mark.parametrize("options", [{"dimension": 0}, {"dimensions": -1}])
def test_a_dimension_below_one_is_refused(embedder, options):
    with pytest.raises(InvalidSetting):
        embedder("m", **options)


@pytest.mark.parametrize("embedder", [OpenAIEmbedder, OllamaEmbedder])
def test_a_blank_model_is_refused(embedder):
    with pytest.raises(InvalidSetting):
        embedder(" ")
