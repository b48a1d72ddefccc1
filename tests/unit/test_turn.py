"""A whole turn as events: stages, sources, the answer, its checks."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from ragchat.errors import NoFinalUserMessage
from ragchat.events import Citation, EventFold, Finished, Sources, TextDelta
from ragchat.extractive import NO_SUPPORT
from ragchat.prepare import Preparer
from ragchat.testing import ScriptedChatModel
from ragchat.wire import Checked, turn
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.trace import StageEvent
from ragchat_retrieval.values import Candidate, Passage

GUARD = 20
LEAVE = Passage("Employees get 25 days of paid leave. The office closes at six.", id="leave")
MESSAGES = [{"role": "user", "content": "How many days of paid leave?"}]


async def find(query) -> list[Candidate]:
    return [Candidate(LEAVE, 1.0)]


async def collected(events) -> list:
    async with asyncio.timeout(GUARD), aclosing(events) as running:
        return [event async for event in running]


async def test_stages_come_before_sources_and_checks_after_the_answer():
    heard = []
    preparer = Preparer(find, on_stage=heard.append)
    model = ScriptedChatModel(
        "Employees get 25 days of paid leave [1]. The moon is made of old green cheese."
    )
    events = await collected(turn(preparer, model.create, model="m", messages=MESSAGES))
    kinds = [type(event) for event in events]
    begun = kinds.index(Sources)
    assert set(kinds[:begun]) == {StageEvent}
    assert events[:begun] == heard
    assert kinds[-2:] == [Finished, Checked]
    assert [claim.status for claim in events[-1].verification.claims] == ["supported", "uncited"]


async def test_a_client_in_place_of_its_create_is_refused_before_anything_is_prepared():
    heard = []
    preparer = Preparer(find, on_stage=heard.append)
    with pytest.raises(InvalidSetting, match="create"):
        await collected(turn(preparer, object(), model="m", messages=MESSAGES))
    assert heard == []


@pytest.mark.parametrize("steps", range(4))
async def test_cancelling_again_and_again_leaves_no_preparation_behind(steps):
    """As anyio does, under which Starlette runs a response."""
    begun = asyncio.Event()

    async def stubborn(query) -> list[Candidate]:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(6):
                await asyncio.sleep(0)

    events = turn(Preparer(stubborn), None, messages=MESSAGES)
    reading = asyncio.create_task(collected(events))
    await begun.wait()
    reading.cancel()
    for _ in range(steps):
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_stage_is_heard_while_it_runs():
    gate = asyncio.Event()

    async def slow(query) -> list[Candidate]:
        await gate.wait()
        return await find(query)

    events = turn(Preparer(slow), ScriptedChatModel().create, model="m", messages=MESSAGES)
    async with asyncio.timeout(GUARD), aclosing(events) as running:
        async for event in running:
            if event == StageEvent("retrieve", "start"):
                gate.set()
    assert gate.is_set()


async def test_without_a_chat_model_the_answer_is_made_of_the_evidence():
    events = await collected(turn(Preparer(find), None, model="m", messages=MESSAGES))
    folding = EventFold()
    for event in events:
        if not isinstance(event, StageEvent | Checked):
            folding.add(event)
    (answer,) = folding.answers.choices
    assert answer.content == "Employees get 25 days of paid leave. [1]"
    assert [type(event) for event in events].count(Citation) == 1
    assert events[-1].verification.supported


async def test_without_evidence_nothing_is_checked():
    def nothing(query) -> list[Candidate]:
        return []

    events = await collected(turn(Preparer(nothing), None, model="m", messages=MESSAGES))
    assert TextDelta(0, NO_SUPPORT) in events
    assert not any(isinstance(event, Checked) for event in events)


async def test_closing_it_cancels_a_search_that_runs():
    ended = asyncio.Event()

    async def endless(query) -> list[Candidate]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    events = turn(Preparer(endless), None, model="m", messages=MESSAGES)
    async with asyncio.timeout(GUARD):
        async for event in events:
            if event == StageEvent("retrieve", "start"):
                break
        await events.aclose()
    assert ended.is_set()


async def test_closing_it_closes_the_chat_model_s_stream():
    async def wait() -> None:
        await asyncio.Event().wait()

    model = ScriptedChatModel([["one ", wait]])
    events = turn(Preparer(find), model.create, model="m", messages=MESSAGES)
    async with asyncio.timeout(GUARD):
        async for event in events:
            if isinstance(event, TextDelta):
                break
        await events.aclose()
    assert model.streams[0].closes == 1


async def test_errors_of_the_preparation_arrive_as_they_are():
    messages = [{"role": "assistant", "content": "hello"}]
    with pytest.raises(NoFinalUserMessage):
        await collected(turn(Preparer(find), None, model="m", messages=messages))
