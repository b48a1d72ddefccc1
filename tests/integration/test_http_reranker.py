"""Reranking by a server: three shapes, failures, retries; with a real one on loopback."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ragchat import Document, Policy, Preparer, Query, quickstart
from ragchat_retrieval.errors import InvalidSetting, MalformedRanking, RerankError
from ragchat_retrieval.policy import Run, running
from ragchat_retrieval.rerank import Rerank
from ragchat_retrieval.rerankers import HttpReranker
from ragchat_retrieval.retry import Retries
from ragchat_retrieval.testing.rerank_server import Fault, RerankServer, relevance
from ragchat_retrieval.trace import Degradation
from ragchat_retrieval.values import Candidate, Passage

TEXTS = ["green tea", "a kettle boils", "how tea is grown in the hills", "nothing of it", "tea"]
QUESTION = Query("how is tea grown")
EXPECTED = [relevance(QUESTION.text, text) for text in TEXTS]
SHAPES = ["tei", "vllm", "cohere"]


def pool(texts=TEXTS):
    return [Candidate(Passage(text, id=f"p{n}"), 1.0 - n / 100) for n, text in enumerate(texts)]


class Waits(list):
    """Records waits instead of waiting."""

    async def __call__(self, seconds):
        self.append(seconds)


@pytest.fixture
def waits():
    return Waits()


@pytest.fixture
async def make(waits):
    """Gives a maker of rerankers, closed at the end."""
    made = []

    def build(url, model="m", **options):
        options.setdefault("retries", Retries(sleep=waits, jitter=lambda: 1.0))
        made.append(HttpReranker(url, model, **options))
        return made[-1]

    yield build
    for reranker in made:
        await reranker.aclose()


@pytest.fixture(params=SHAPES)
def server(request):
    with RerankServer(request.param) as server:
        yield server


async def test_every_shape_gives_one_score_per_candidate_in_their_order(make, server):
    reranker = make(server.url, shape=server.shape)
    assert await reranker(QUESTION, pool()) == pytest.approx(EXPECTED)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("shape", "path", "model"),
    [
        ("tei", "", "m"),
        ("tei", "/rerank", ""),
        ("vllm", "", "m"),
        ("vllm", "/v1", "m"),
        ("vllm", "/v1/rerank/", "m"),
        ("cohere", "/v2", "m"),
        ("cohere", "/v2/rerank", "m"),
    ],
)
async def test_the_shape_is_found_out(make, shape, path, model):
    with RerankServer(shape) as server:
        reranker = make(server.url + path, model)
        for _ in range(2):
            assert await reranker(QUESTION, pool()) == pytest.approx(EXPECTED)
        assert reranker.shape == shape
        assert len(server.requests) <= 3  # the wrong guess is made once


async def test_if_no_shape_is_understood_the_first_refusal_is_told(make):
    with RerankServer("vllm") as server:
        reranker = make(server.url, "another")
        with pytest.raises(RerankError) as caught:
            await reranker(QUESTION, pool())
        assert (caught.value.status, caught.value.retryable) == (404, False)
        assert reranker.shape is None


async def test_a_pool_beyond_the_servers_batch_goes_in_parts(make, server):
    texts = [f"tea number {n}" if n % 3 else "how is it" for n in range(70)]
    reranker = make(server.url, shape=server.shape)
    expected = [relevance(QUESTION.text, text) for text in texts]
    assert await reranker(QUESTION, pool(texts)) == pytest.approx(expected)
    assert len(server.requests) == 3


async def test_logits_are_spread_over_the_whole_pool(make):
    with RerankServer("vllm", logits=True) as server:
        reranker = make(server.url, shape="vllm", batch_size=2)
        scores = await reranker(QUESTION, pool())
    assert (min(scores), max(scores)) == (0.0, 1.0)
    assert [scores[a] < scores[b] for a in range(5) for b in range(5)] == [
        EXPECTED[a] < EXPECTED[b] for a in range(5) for b in range(5)
    ]


@pytest.mark.parametrize("shape", ["tei", "cohere"])
async def test_scores_outside_a_promised_range_are_a_fault(make, shape):
    with RerankServer(shape, logits=True) as server:
        with pytest.raises(MalformedRanking, match="outside"):
            await make(server.url, shape=shape)(QUESTION, pool())
        spread = await make(server.url, shape=shape, normalise=True)(QUESTION, pool())
        assert max(spread) == 1.0


async def test_the_title_and_headings_are_read_with_the_text_and_blank_ones_are_not_sent(
    make, server
):
    candidates = [
        Candidate(Passage("It is.", title="Tea", headings=("How", "grown"), id="a"), 1.0),
        Candidate(Passage(" ", id="b"), 0.9),
        Candidate(Passage("lone \ud800 mark", id="c"), 0.8),
    ]
    scores = await make(server.url, shape=server.shape)(QUESTION, candidates)
    assert scores == [1.0, 0.0, 0.0]
    sent = server.requests[0].body
    assert sent["texts" if server.shape == "tei" else "documents"][1:] == ["lone \ufffd mark"]


async def test_nothing_is_sent_for_nothing(make, server):
    reranker = make(server.url, shape=server.shape)
    assert await reranker(QUESTION, []) == []
    assert await reranker(QUESTION, pool(["", "\n"])) == [0.0, 0.0]
    assert server.requests == []


async def test_parameters_of_the_callers_go_with_every_request(make):
    with RerankServer("vllm") as server:
        await make(server.url, shape="vllm", truncate_prompt_tokens=-1)(QUESTION, pool())
        assert server.requests[0].body["truncate_prompt_tokens"] == -1


async def test_a_busy_server_is_asked_again_when_it_says(make, server, waits):
    server.misbehave(Fault(status=429, headers={"Retry-After": "7"}), Fault(status=503))
    reranker = make(server.url, shape=server.shape)
    assert await reranker(QUESTION, pool()) == pytest.approx(EXPECTED)
    assert waits == [7.0, 1.0]


async def test_a_cut_connection_is_tried_again(make, server, waits):
    server.misbehave(Fault(drop=True))
    assert await make(server.url, shape=server.shape)(QUESTION, pool()) == pytest.approx(EXPECTED)


async def test_a_failure_that_stays_is_typed_and_retryable_and_tells_no_content(make, server):
    server.misbehave(*[Fault(status=500, body=b"how is tea grown, you ask?")] * 3)
    with pytest.raises(RerankError) as caught:
        await make(server.url, shape=server.shape)(QUESTION, pool())
    assert (caught.value.status, caught.value.retryable) == (500, True)
    assert "tea" not in f"{caught.value}{caught.value.__cause__}"
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
async def test_a_refusal_is_tried_once(make, server, waits, status):
    server.misbehave(Fault(status=status))
    with pytest.raises(RerankError) as caught:
        await make(server.url, shape=server.shape)(QUESTION, pool())
    assert (caught.value.status, caught.value.retryable) == (status, False)
    assert (len(server.requests), waits) == (1, [])


async def test_a_refusal_that_says_nothing_of_the_shape_is_not_tried_in_another(make):
    with RerankServer("tei") as server:
        server.misbehave(Fault(status=401))
        with pytest.raises(RerankError):
            await make(server.url)(QUESTION, pool())
        assert len(server.requests) == 1


async def test_a_wait_beyond_the_deadline_raises_at_once(make, server, waits):
    server.misbehave(Fault(status=429, headers={"Retry-After": "120"}))
    with running(Run(Policy(deadline=30))), pytest.raises(RerankError):
        await make(server.url, shape=server.shape)(QUESTION, pool())
    assert waits == []


async def test_a_server_that_is_not_there_is_typed_and_retryable(make, waits):
    with RerankServer() as gone:
        url = gone.url
    with pytest.raises(RerankError) as caught:
        await make(url)(QUESTION, pool())
    assert (caught.value.status, caught.value.retryable) == (None, True)
    assert len(waits) == 2


def _results(reply):
    return reply if isinstance(reply, list) else reply["results"]


def _edited(change):
    def edit(reply):
        change(_results(reply))
        return reply

    return edit


def _first(**values):
    return _edited(lambda items: items[0].update(values))


def _score(value):
    return _first(score=value, relevance_score=value)


@pytest.mark.parametrize(
    "fault",
    {
        "one score less": Fault(edit=_edited(lambda items: items.pop())),
        "one score more": Fault(edit=_edited(lambda items: items.append(dict(items[0])))),
        "no index": Fault(edit=_edited(lambda items: items[0].pop("index"))),
        "an index too large": Fault(edit=_first(index=5)),
        "a negative index": Fault(edit=_first(index=-1)),
        "an index that is a boolean": Fault(edit=_first(index=True)),
        "a score that is text": Fault(edit=_score("0.5")),
        "a score that is a boolean": Fault(edit=_score(value=True)),
        "a score that is NaN": Fault(edit=_score(float("nan"))),
        "a score without end": Fault(edit=_score(float("inf"))),
        "a score beyond floats": Fault(edit=_score(10**400)),
        "no score": Fault(edit=_score(None)),
        "an item that is none": Fault(edit=_edited(lambda items: items.append("x"))),
        "an object without results": Fault(body=b"{}"),
        "null": Fault(body=b"null"),
    }.items(),
    ids=lambda case: case[0],
)
async def test_a_reply_that_ranks_not_every_candidate_once_is_malformed(make, server, fault):
    server.misbehave(fault[1])
    with pytest.raises(MalformedRanking):
        await make(server.url, shape=server.shape)(QUESTION, pool())


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"results": [', b"[" * 100_000])
async def test_a_reply_that_is_no_json_is_a_typed_error(make, server, body):
    server.misbehave(Fault(body=body))
    with pytest.raises(RerankError, match="JSON"):
        await make(server.url, shape=server.shape)(QUESTION, pool())


async def test_a_reply_without_end_is_not_read(make, server, monkeypatch):
    monkeypatch.setattr("ragchat_retrieval.rerankers.http._MAX_REPLY", 1_000)
    server.misbehave(Fault(body=b"[" + b"1," * 100_000))
    with pytest.raises(RerankError, match="too large"):
        await make(server.url, shape=server.shape)(QUESTION, pool())


async def test_a_redirect_is_not_followed(make, server):
    server.misbehave(Fault(status=302, headers={"location": "/elsewhere"}))
    with pytest.raises(RerankError) as caught:
        await make(server.url, shape=server.shape)(QUESTION, pool())
    assert caught.value.status == 302


async def test_the_key_is_sent_and_never_shown(make):
    with RerankServer("cohere", key="sk-mine") as server:
        reranker = make(server.url, shape="cohere", api_key="sk-mine")
        assert await reranker(QUESTION, pool()) == pytest.approx(EXPECTED)
        wrong = make(server.url, shape="cohere", api_key="sk-other")
        with pytest.raises(RerankError) as caught:
            await wrong(QUESTION, pool())
        assert caught.value.status == 401
        assert "sk-other" not in f"{caught.value} {wrong!r}"


def test_what_an_address_hides_is_not_shown():
    reranker = HttpReranker("http://user:sk-mine@127.0.0.1:1/rerank?key=sk-mine")
    assert "sk-mine" not in repr(reranker)


async def test_cancelling_ends_a_call_at_once(make, server, cancel_midway):
    await cancel_midway(server, make(server.url, shape=server.shape)(QUESTION, pool()))


def test_one_reranker_serves_several_loops(server):
    reranker = HttpReranker(server.url, "m", shape=server.shape)

    async def use():
        async with reranker:
            return await reranker(QUESTION, pool())

    assert asyncio.run(use()) == asyncio.run(use())


# In the blend


async def test_it_brings_its_own_weight_margin_and_pool(make, server):
    """Defaults .7, .2 and max(top_k, 10), each of which a `Rerank` may replace."""
    texts = [f"tea {n}" for n in range(30)]
    reranker = make(server.url, shape=server.shape)
    found = await Rerank(reranker)(QUESTION, pool(texts), top_k=3)
    assert found.scored == 10
    assert found.candidates[0].score == pytest.approx(0.7 * 0.25 + 0.3)
    assert (await Rerank(reranker)(QUESTION, pool(texts), top_k=20)).scored == 20
    sure = [Candidate(Passage("a"), 1.0), Candidate(Passage("b"), 0.75)]
    assert (await Rerank(reranker)(QUESTION, sure)).scored == 0
    assert (await Rerank(reranker, margin=0.3)(QUESTION, sure)).scored == 2
    never = make(server.url, shape=server.shape, margin=None, weight=1.0)
    assert (await Rerank(never)(QUESTION, sure)).scored == 2


# In a Preparer


async def filled():
    index = quickstart()
    await index.ingest(
        Document("a", "Tea is grown in the hills of the north."),
        Document("b", "Tea is grown in the hills of the south."),
        Document("c", "Tea is grown in the hills of the west."),
    )
    return index


def asked(preparer):
    return preparer.prepare(messages=[{"role": "user", "content": "Where is tea grown in hills?"}])


def order(prepared):
    return [c.passage.document_id for c in prepared.retrieval.candidates]


async def test_if_the_endpoint_answers_500_the_order_stands_and_one_warning_says_so(make, caplog):
    index = await filled()
    before = order(await asked(Preparer(index.retriever())))
    with RerankServer() as server, caplog.at_level(logging.WARNING, "ragchat"):
        server.misbehave(*[Fault(status=500)] * 3)
        prepared = await asked(Preparer(index.retriever(rerank=make(server.url))))
        assert len(server.requests) == 3
    assert order(prepared) == before
    assert len(before) == 3
    [record] = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "500" in record.getMessage()
    [degradation] = prepared.retrieval.degraded
    assert isinstance(degradation, Degradation)
    assert (degradation.stage, "500" in degradation.reason) == ("rerank", True)
    assert "tea" not in caplog.text


async def test_if_the_endpoint_answers_500_a_strict_policy_raises(make):
    index = await filled()
    with RerankServer() as server:
        server.misbehave(*[Fault(status=500)] * 6)
        reranker = make(server.url)
        with pytest.raises(RerankError):
            await asked(Preparer(index.retriever(rerank=reranker), policy=Policy.strict()))
        with pytest.raises(RerankError):
            await index.search("Where is tea grown in hills?", rerank=reranker)


async def test_a_malformed_ranking_is_skipped_whole(make):
    index = await filled()
    before = order(await asked(Preparer(index.retriever())))
    with RerankServer() as server:
        server.misbehave(Fault(edit=_edited(lambda items: items.pop())))
        prepared = await asked(Preparer(index.retriever(rerank=make(server.url, ""))))
    assert order(prepared) == before
    assert [d.stage for d in prepared.retrieval.degraded] == ["rerank"]


# Settings


def from_env(**settings):
    return HttpReranker.from_env({f"RAGCHAT_RERANK_{k.upper()}": v for k, v in settings.items()})


def test_without_a_url_there_is_none():
    assert from_env() is None
    assert from_env(url=" ") is None
    assert HttpReranker.from_env({"COHERE_API_KEY": "sk-stray"}) is None


def test_the_environment_gives_all_settings(monkeypatch):
    reranker = from_env(url="http://127.0.0.1:1/v1", model="m", weight=".5", margin=".1")
    assert (reranker.model, reranker.shape) == ("m", "vllm")
    defaults = reranker.rerank_defaults
    assert (defaults.weight, defaults.margin, defaults.least_pool) == (0.5, 0.1, 10)
    assert from_env(url="http://127.0.0.1:1", margin="none").rerank_defaults.margin is None
    monkeypatch.setenv("RAGCHAT_RERANK_URL", "http://127.0.0.1:1")
    plain = HttpReranker.from_env()
    assert (plain.rerank_defaults.weight, plain.rerank_defaults.margin) == (0.7, 0.2)


async def test_the_key_of_the_environment_is_sent():
    with RerankServer("vllm", key="sk-env") as server:
        async with from_env(url=f"{server.url}/v1", model="m", api_key="sk-env") as reranker:
            assert await reranker(QUESTION, pool()) == pytest.approx(EXPECTED)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "m"},
        {"api_key": "k"},
        {"url": "127.0.0.1:8080"},
        {"url": "ftp://127.0.0.1"},
        {"url": "http://127.0.0.1", "weight": "2"},
        {"url": "http://127.0.0.1", "weight": "x"},
        {"url": "http://127.0.0.1", "margin": "-1"},
        {"url": "http://127.0.0.1", "margin": "nan"},
    ],
    ids=str,
)
def test_a_setting_that_cannot_work_is_named(settings):
    with pytest.raises(InvalidSetting) as caught:
        from_env(**settings)
    assert caught.value.name == f"RAGCHAT_RERANK_{list(settings)[-1].upper()}"


@pytest.mark.parametrize(
    "options",
    [
        {"shape": "jina"},
        {"weight": 1.5},
        {"weight": float("nan")},
        {"margin": -0.1},
        {"least_pool": 0},
        {"batch_size": 0},
        {"concurrency": 0},
        {"timeout": 0},
        {"timeout": float("inf")},
    ],
    ids=str,
)
def test_an_option_outside_its_range_is_refused(options):
    with pytest.raises(InvalidSetting) as caught:
        HttpReranker("http://127.0.0.1", **options)
    assert caught.value.name == next(iter(options))
