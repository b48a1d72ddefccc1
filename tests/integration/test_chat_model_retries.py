"""Helper calls over real connections: what is sent, what is tried again, what is raised."""

from __future__ import annotations

import asyncio

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from ragchat import ChatModel
from ragchat.reranking import LLMReranker
from ragchat.testing import (
    Failure,
    Gate,
    Held,
    Interrupted,
    LoopbackOpenAI,
    Raw,
    Reset,
    ScriptedChatModel,
)
from ragchat.transforms import RewriteTransformer
from ragchat_retrieval.errors import DeadlineExceeded, InvalidSetting
from ragchat_retrieval.policy import Policy, Run, running
from ragchat_retrieval.retry import Retries
from ragchat_retrieval.values import Candidate, Passage, Query


class Clock:
    """Waits that are noted and take no time."""

    def __init__(self):
        self.waits = []

    async def sleep(self, seconds):
        self.waits.append(seconds)


def client(server, **options):
    return AsyncOpenAI(api_key="k", base_url=server.base_url, max_retries=0, **options)


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
async def test_other_4xx_are_tried_once_and_raised_as_they_are(status):
    clock = Clock()
    with LoopbackOpenAI(default=Failure(status)) as server:
        async with client(server) as api:
            model = ChatModel(
                api.chat.completions.create,
                model="m",
                retries=Retries(tries=4, sleep=clock.sleep),
            )
            with pytest.raises(openai.APIStatusError) as caught:
                await RewriteTransformer(model, "x")(Query("q"))
        assert len(server.requests) == 1
    assert caught.value.status_code == status
    assert clock.waits == []


@pytest.mark.parametrize(
    "fault", [Failure(408), Failure(409), Failure(429), Failure(500), Failure(503), Reset()]
)
async def test_transient_failures_are_tried_again_when_asked(fault):
    clock = Clock()
    with LoopbackOpenAI(fault, fault, "rewritten") as server:
        async with client(server) as api:
            model = ChatModel(
                api.chat.completions.create,
                model="m",
                retries=Retries(tries=3, sleep=clock.sleep),
            )
            assert await model.complete("hello") == "rewritten"
        assert len(server.requests) == 3
        assert len({request.body for request in server.requests}) == 1
    assert len(clock.waits) == 2


@pytest.mark.parametrize("fault", [Failure(429), Failure(500), Reset()])
async def test_calls_are_not_tried_again_by_default(fault):
    with LoopbackOpenAI(default=fault) as server:
        async with client(server) as api:
            model = ChatModel(api.chat.completions.create, model="m")
            with pytest.raises(openai.APIError):
                await model.complete("hello")
        assert len(server.requests) == 1


async def test_the_last_failure_is_raised_itself():
    clock = Clock()
    with LoopbackOpenAI(default=Failure(503, "busy")) as server:
        async with client(server) as api:
            model = ChatModel(
                api.chat.completions.create,
                model="m",
                retries=Retries(tries=2, sleep=clock.sleep),
            )
            with pytest.raises(openai.InternalServerError, match="busy"):
                await model.complete("hello")
        assert len(server.requests) == 2


async def test_retry_after_is_obeyed_and_one_beyond_the_deadline_raises_at_once():
    clock = Clock()
    with LoopbackOpenAI(Failure(429, retry_after=7), "a", Failure(429, retry_after=60)) as server:
        async with client(server) as api:
            model = ChatModel(
                api.chat.completions.create,
                model="m",
                retries=Retries(tries=3, sleep=clock.sleep),
            )
            assert await model.complete("hello") == "a"
            with running(Run(Policy(deadline=30.0))), pytest.raises(openai.RateLimitError):
                await model.complete("hello")
        assert len(server.requests) == 3
    assert clock.waits == [7.0]


async def test_cancelling_ends_a_back_off_at_once():
    waiting = asyncio.Event()

    async def for_ever(seconds):
        waiting.set()
        await asyncio.Event().wait()

    with LoopbackOpenAI(default=Failure(429)) as server:
        async with client(server) as api:
            rule = Retries(tries=3, sleep=for_ever)
            model = ChatModel(api.chat.completions.create, model="m", retries=rule)
            call = asyncio.ensure_future(model.complete("hello"))
            await waiting.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert len(server.requests) == 1


async def test_a_stage_timeout_drops_the_call_and_the_server_sees_it_go():
    with LoopbackOpenAI(default=Held("late", Gate())) as server:
        async with client(server) as api:
            model = ChatModel(api.chat.completions.create, model="m")
            for deadline in (0.05, 0.5, 5.0):  # a busy machine may not even send it so soon
                run = Run(Policy.strict(deadline=deadline))
                with pytest.raises(DeadlineExceeded):
                    await run.stage("transform", lambda: model.complete("hello"))
                if server.requests:
                    break
            assert await asyncio.to_thread(server.requests[0].wait_disconnected)


@pytest.mark.parametrize(
    "fault", [Raw(b'{"id": "chatcmpl-1", "choices": ['), Interrupted("a b", "cut")]
)
async def test_a_broken_body_is_an_error_and_no_reply(fault):
    with LoopbackOpenAI(fault) as server:
        async with client(server) as api:
            model = ChatModel(api.chat.completions.create, model="m")
            with pytest.raises((openai.APIError, ValueError)):
                await model.complete("hello")


@pytest.mark.parametrize("kind", [AsyncOpenAI, OpenAI])
async def test_sync_and_async_clients_serve_alike_and_parameters_pass_as_named(kind):
    with LoopbackOpenAI(default='{"scores": [{"index": 0, "score": 1}]}') as server:
        api = kind(api_key="k", base_url=server.base_url, max_retries=0)
        plain = ChatModel(api.chat.completions.create, model="m")
        tuned = ChatModel(
            api.chat.completions.create,
            model="m",
            structured=True,
            max_completion_tokens=50,
            temperature=0,
        )
        for model in (plain, tuned):
            scores = await LLMReranker(model)(Query("q"), [Candidate(Passage("p"), 1.0)])
            assert scores == [1.0]
        closing = api.close()
        if closing is not None:
            await closing
        first, second = (request.json for request in server.requests)
    assert set(first) == {"model", "messages"}
    assert set(second) == {
        "model",
        "messages",
        "response_format",
        "max_completion_tokens",
        "temperature",
    }
    assert first["messages"] == second["messages"]


async def test_parameters_are_copied_and_cannot_be_changed_by_a_call():
    extra = {"tags": ["a"]}

    def spoil(kwargs):
        kwargs["extra_body"]["tags"].append("b")
        return "ok"

    double = ScriptedChatModel(spoil)

    async def create(**kwargs):
        return await double.create(**kwargs)

    model = ChatModel(create, model="m", extra_body=extra)
    extra["tags"].append("later")
    await model.complete("one")
    await model.complete("two")
    assert [call["extra_body"] for call in double.calls] == [{"tags": ["a"]}] * 2
    with pytest.raises(TypeError):
        model.params["x"] = 1


def test_a_chat_model_is_a_value_and_refuses_what_the_call_sets():
    create = ScriptedChatModel().create
    assert ChatModel(create, model="m", seed=1) == ChatModel(create, model="m", seed=1)
    assert ChatModel(create, model="m") != ChatModel(create, model="m", seed=1)
    assert hash(ChatModel(create, model="m", stop=["x"])) is not None
    for bad in ({"stream": True}, {"messages": []}, {"retries": -1}, {"model": " "}):
        with pytest.raises(InvalidSetting):
            ChatModel(create, **{"model": "m", **bad})
    with pytest.raises(InvalidSetting):
        ChatModel("gpt", model="m")
