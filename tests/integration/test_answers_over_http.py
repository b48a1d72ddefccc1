"""Events, citations and conversations through the official client, against a server on loopback."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import httpx2
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpx2Client, OpenAI

from ragchat import sync
from ragchat.citations import CitationLedger, Citations
from ragchat.events import Finished, Sources, TextDelta, fold
from ragchat.prepare import Preparer
from ragchat.testing import Gate, Held, LoopbackOpenAI, Reply, tool_call
from ragchat_retrieval.values import Candidate, Passage

GUARD = 30
LEAVE = Passage("25 days of paid leave.", id="leave", source="https://example.org/leave")
CARRY = Passage("Five days carry over.", id="carry", document_id="carry.md", title="Carrying")
DESK = Passage("Desks are booked.", id="desk", source="desk.md")
MESSAGES = [{"role": "user", "content": "How many days of paid leave?"}]
ANSWER = "25 days [1]. Five carry over [2, 9]; 喝茶【1】 `rows[2]` [1](x) 😀 [2]."


def finding(*passages: Passage, **options) -> Preparer:
    async def retrieve(query) -> list[Candidate]:
        return [Candidate(passage, 1.0) for passage in passages]

    return Preparer(retrieve, **options)


@asynccontextmanager
async def client(server: LoopbackOpenAI, **options):
    settings = {"api_key": "k", "base_url": server.base_url, "max_retries": 0, **options}
    async with AsyncOpenAI(**settings) as api:
        yield api


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 100])
async def test_annotations_are_the_same_in_stream_and_call_and_after_a_reload(cut):
    pieces = [ANSWER[at : at + cut] for at in range(0, len(ANSWER), cut)]
    with LoopbackOpenAI(default=Reply(ANSWER, pieces=pieces)) as server:
        async with client(server) as api:
            create = api.chat.completions.create
            prepared = await finding(LEAVE, CARRY).prepare(
                model="m", messages=MESSAGES, stream_options={"include_usage": True}
            )
            called = prepared.answers(await prepared.call(create))
            async with prepared.events(create) as events:
                streamed = fold([event async for event in events])
    citations = Citations.from_json(prepared.retrieval.citations.to_json())
    assert streamed == called
    assert streamed.usage.total_tokens > 0
    (answer,) = streamed.choices
    assert answer.content == ANSWER
    assert list(answer.annotations) == citations.annotate(ANSWER)
    assert [ANSWER[a["start_index"] : a["end_index"]] for a in _places(answer)] == [
        "[1]",
        "[2, 9]",
        "【1】",
        "[2]",
    ]
    assert [a["title"] for a in _places(answer)][:2] == [LEAVE.source, "Carrying"]


def _places(answer) -> list[dict]:
    return [annotation["url_citation"] for annotation in answer.annotations]


@pytest.mark.parametrize("mode", ["strip", "link"])
async def test_rewritten_text_is_the_same_in_stream_and_call(mode):
    pieces = list(ANSWER)
    with LoopbackOpenAI(default=Reply(ANSWER, pieces=pieces)) as server:
        async with client(server) as api:
            create = api.chat.completions.create
            prepared = await finding(LEAVE, CARRY).prepare(model="m", messages=MESSAGES)
            called = prepared.answers(await prepared.call(create), citations=mode)
            async with prepared.events(create, citations=mode) as events:
                streamed = fold([event async for event in events])
    assert streamed.choices == called.choices
    assert list(streamed.choices[0].cited) == [1, 2]


async def test_tool_calls_refusals_and_usage_fold_as_the_call_has_them():
    calls = [tool_call("f", '{"a": 1}', id="c1"), tool_call("g", "{}", id="c2")]
    reply = Reply("x [1]", tool_calls=calls, refusal="I can not.")
    with LoopbackOpenAI(default=reply) as server:
        async with client(server) as api:
            create = api.chat.completions.create
            prepared = await finding(LEAVE).prepare(model="m", messages=MESSAGES)
            response = await prepared.call(create)
            async with prepared.events(create) as events:
                streamed = fold([event async for event in events])
            (answer,) = streamed.choices
            outputs = [{"role": "tool", "tool_call_id": c["id"], "content": "7"} for c in calls]
            again = prepared.with_messages([answer.message, *outputs])
            await again.call(create)
        sent = server.requests[-1].json["messages"]
    assert streamed.usage is None  # a stream sends it only when asked to
    assert streamed.choices == prepared.answers(response).choices
    assert answer.finish_reason == "tool_calls"
    assert sent[1]["tool_calls"] == calls


@pytest.mark.parametrize("leave", ["break", "cancel", "error"])
async def test_leaving_the_events_early_frees_the_only_connection(leave):
    gate = Gate()
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    timeout = httpx2.Timeout(GUARD, pool=5)
    with LoopbackOpenAI(Held("one two three", gate, after=2), default="ok") as server:
        async with (
            asyncio.timeout(GUARD),
            DefaultAsyncHttpx2Client(limits=limits, timeout=timeout) as http,
            client(server, http_client=http) as api,
        ):
            create = api.chat.completions.create
            prepared = await finding(LEAVE).prepare(model="m", messages=MESSAGES)

            async def consume():
                async with prepared.events(create) as events:
                    async for event in events:
                        if isinstance(event, TextDelta) and leave == "break":
                            break
                        if isinstance(event, TextDelta) and leave == "error":
                            raise KeyError("mine")

            task = asyncio.create_task(consume())
            if leave == "cancel":
                assert await asyncio.to_thread(gate.wait_reached)
                task.cancel()
            expected = {"break": None, "cancel": asyncio.CancelledError, "error": KeyError}[leave]
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            assert outcome is None if expected is None else isinstance(outcome, expected)
            reply = await prepared.call(create)
            assert await asyncio.to_thread(server.requests[0].wait_disconnected)
    assert reply.choices[0].message.content == "ok"


def test_the_sync_client_through_the_blocking_face_yields_events():
    with (
        LoopbackOpenAI(default=ANSWER) as server,
        OpenAI(api_key="k", base_url=server.base_url, max_retries=0) as api,
    ):
        create = api.chat.completions.create
        prepared = sync.Preparer(finding(LEAVE, CARRY).retriever).prepare(
            model="m", messages=MESSAGES
        )
        with prepared.events(create) as events:
            got = list(events)
        whole = prepared.answers(prepared.call(create))
    assert isinstance(got[0], Sources)
    assert isinstance(got[-1], Finished)
    assert fold(got).choices == whole.choices


async def test_over_three_turns_a_passage_keeps_its_number_and_can_be_cited_again():
    """The ledger goes through JSON between the turns, as in a web application."""
    turns = [
        ("How many days of paid leave?", (LEAVE,), "25 days [1]."),
        ("Do they carry over?", (DESK, CARRY), "Five do [3]; you have 25 [9]."),
        ("So how many may I take in March?", (CARRY,), "Five [3] beside the new 25 [1]."),
    ]
    stored, messages, presented, cited = CitationLedger().to_json(), [], [], []
    with LoopbackOpenAI(*(reply for *_, reply in turns)) as server:
        async with client(server) as api:
            for question, found, _ in turns:
                messages.append({"role": "user", "content": question})
                preparer = finding(*found, readmit=1).with_options(
                    ledger=CitationLedger.from_json(stored)
                )
                prepared = await preparer.prepare(model="m", messages=messages)
                async with prepared.events(api.chat.completions.create) as events:
                    (answer,) = fold([event async for event in events]).choices
                presented.append(dict(prepared.retrieval.citations))
                cited.append(answer.cited)
                stored = prepared.retrieval.ledger.cite(answer.cited).to_json()
                messages.append(answer.message)
        prompts = [request.json["messages"][-1]["content"] for request in server.requests]
    assert presented == [{1: LEAVE}, {1: LEAVE, 2: DESK, 3: CARRY}, {1: LEAVE, 3: CARRY}]
    assert cited == [{1: LEAVE}, {3: CARRY}, {3: CARRY, 1: LEAVE}]
    for prompt, numbered in zip(prompts, presented, strict=True):
        for number, passage in numbered.items():
            assert f'{{"citation":{number},' in prompt
            assert passage.text in prompt
    ledger = CitationLedger.from_json(stored)
    assert ledger.citations == {1: LEAVE, 2: DESK, 3: CARRY}
    assert ledger.recent() == (LEAVE, CARRY)


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "25 days [1].", "annotations": []}],
        }
    ],
}


async def test_the_request_goes_to_the_responses_api_with_its_evidence_and_citations():
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [tool_call("f", '{"a": 1}')]},
        {"role": "tool", "tool_call_id": "call_1", "content": "7"},
    ]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with LoopbackOpenAI() as server:
        server.script(RESPONSE, path="/responses")
        async with client(server) as api:
            prepared = await finding(LEAVE).prepare(
                model="m",
                messages=[*history, *MESSAGES],
                tools=[tool],
                max_completion_tokens=9,
                temperature=0,
            )
            response = await api.responses.create(**prepared.responses_request)
        (request,) = server.requests
    assert request.path == "/v1/responses"
    question = prepared.request["messages"][-1]["content"]
    assert LEAVE.text in question
    assert request.json == {
        "model": "m",
        "input": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "hello"},
            {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "7"},
            {"role": "user", "content": question},
        ],
        "tools": [
            {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
        ],
        "max_output_tokens": 9,
        "temperature": 0,
        "store": False,
    }
    assert prepared.retrieval.citations.cited(response.output_text) == {1: LEAVE}
