"""Events of a streamed answer: what they fold to is what the call returns."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from ragchat import sync
from ragchat.citations import Citations
from ragchat.errors import EmptyResponse, FailedResponse
from ragchat.events import (
    Answers,
    Citation,
    EventFold,
    Finished,
    ReasoningDelta,
    RefusalDelta,
    Sources,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    fold,
)
from ragchat.prepared import PreparedRequest, Retrieval
from ragchat.reading import EventReader
from ragchat.request import ChatRequest
from ragchat.testing import Reply, ScriptedChatModel, as_object, tool_call
from ragchat.wire import ChunkEncoder
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.trace import Degradation
from ragchat_retrieval.values import Candidate, Passage

GUARD = 20
A = Passage("a", id="a", source="https://example.org/a")
B = Passage("b", id="b", title="B")
C = Passage("c", id="c")
KNOWN = Citations([A, B])
RETRIEVAL = Retrieval(
    candidates=tuple(Candidate(p, 1.0) for p in (A, B, C)),
    citations=KNOWN,
    degraded=(Degradation("rerank", "timeout"),),
)
REQUEST = ChatRequest.snapshot(messages=[{"role": "user", "content": "q"}], model="m")
PREPARED = PreparedRequest(REQUEST, "q", RETRIEVAL)
SOURCES = Sources(retrieved=RETRIEVAL.candidates, presented=KNOWN, degraded=RETRIEVAL.degraded)


def read(chunks, **options) -> list:
    """All events of some chunks, without any I/O."""
    reader = EventReader(SOURCES, **options)
    return [*reader.start(), *(e for chunk in chunks for e in reader.feed(chunk)), *reader.finish()]


def delta(choice: int = 0, finish_reason: str | None = None, **fields) -> dict:
    return {"choices": [{"index": choice, "delta": fields, "finish_reason": finish_reason}]}


# The property. A reply is drawn, made into the payload of a call, and cut into the chunks of a
# stream in any way; neither is made by the code under test.

TEXT = st.lists(
    st.sampled_from(
        ["[1]", "[2]", "[1, 2]", "[9]", " ", "claim.", "`[1]`", "\n", "é😀", "[", "]("]
    ),
    max_size=8,
).map("".join)
CALLS = st.lists(
    st.tuples(st.sampled_from(["f", "get_weather"]), st.text('{"a": 1}', max_size=8)), max_size=3
)
CHOICE = st.fixed_dictionaries(
    {
        "content": TEXT,
        "refusal": st.sampled_from(["", "I can not."]),
        "reasoning_content": st.sampled_from(["", "Let me see [1]."]),
        "calls": CALLS,
        "finish_reason": st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
    }
)
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 3,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def completion_of(choices: list[dict], usage: dict | None) -> dict:
    made = []
    for index, choice in enumerate(choices):
        message = {
            "role": "assistant",
            "content": choice["content"] or None,
            "refusal": choice["refusal"] or None,
            "reasoning_content": choice["reasoning_content"],
        }
        if choice["calls"]:
            message["tool_calls"] = [
                tool_call(name, arguments, id=f"call_{index}_{at}")
                for at, (name, arguments) in enumerate(choice["calls"])
            ]
        reason = choice["finish_reason"]
        made.append({"index": index, "message": message, "finish_reason": reason})
    payload = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    return {**payload, "choices": made, "usage": usage}


@st.composite
def chunks_of(draw, choices: list[dict], usage: dict | None) -> list[dict]:
    """Cuts a reply into chunks: choices interleave and share chunks, and every text is cut."""

    def cut(text: str) -> list[str]:
        cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
        return [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]

    queues = []
    for index, choice in enumerate(choices):
        queue = [{"role": "assistant", "content": ""}]
        queue += [{"reasoning_content": piece} for piece in cut(choice["reasoning_content"])]
        queue += [{"content": piece} for piece in cut(choice["content"])]
        queue += [{"refusal": piece} for piece in cut(choice["refusal"])]
        for at, (name, arguments) in enumerate(choice["calls"]):
            head = {"index": at, "id": f"call_{index}_{at}", "type": "function"}
            queue.append({"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]})
            queue += [
                {"tool_calls": [{"index": at, "function": {"arguments": piece}}]}
                for piece in cut(arguments)
            ]
        entries = [{"index": index, "delta": fields, "finish_reason": None} for fields in queue]
        queues.append(
            [*entries, {"index": index, "delta": {}, "finish_reason": choice["finish_reason"]}]
        )
    chunks = []
    while ready := [queue for queue in queues if queue]:
        picked = draw(st.sets(st.integers(0, len(ready) - 1), min_size=1))
        taken = [ready[at].pop(0) for at in sorted(picked)]
        chunks.append({"choices": taken, "x_unknown": {"deep": [1]}})
    if usage is not None:
        chunks.append({"choices": [], "usage": usage})
    envelope = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return [{**envelope, **chunk} for chunk in chunks]


def namespaces(value):
    if isinstance(value, dict):
        return SimpleNamespace(**{key: namespaces(inner) for key, inner in value.items()})
    return [namespaces(item) for item in value] if isinstance(value, list) else value


FORMS = {
    "mappings": lambda payload: payload,
    "namespaces": namespaces,
    "doubles": as_object,
    "SDK": lambda payload: (
        ChatCompletionChunk if payload["object"].endswith("chunk") else ChatCompletion
    ).model_validate(payload),
}


@given(
    st.lists(CHOICE, min_size=1, max_size=3),
    st.sampled_from([None, USAGE]),
    st.sampled_from(sorted(FORMS)),
    st.data(),
)
def test_folding_the_events_equals_the_call_for_every_way_of_cutting(choices, usage, form, data):
    completion = completion_of(choices, usage)
    chunks = data.draw(chunks_of(choices, usage))
    folded = fold(read(map(FORMS[form], chunks)))
    assert folded == PREPARED.answers(FORMS[form](completion))
    assert [answer.choice for answer in folded.choices] == list(range(len(choices)))
    for answer, sent in zip(folded.choices, completion["choices"], strict=True):
        message = sent["message"]
        assert answer.content == (message["content"] or "")
        assert answer.refusal == (message["refusal"] or "")
        assert answer.reasoning == message["reasoning_content"]
        assert answer.finish_reason == sent["finish_reason"]
        assert [call.message for call in answer.tool_calls] == message.get("tool_calls", [])
        assert list(answer.annotations) == KNOWN.annotate(answer.content)
        assert [citation.mention for citation in answer.citations] == list(
            KNOWN.find(answer.content)
        )
        assert answer.cited == KNOWN.cited(answer.content)
    expected = Usage(
        prompt_tokens=9, completion_tokens=3, total_tokens=12, cached_tokens=4, reasoning_tokens=2
    )
    assert folded.usage == (expected if usage else None)
    assert folded.sources == SOURCES


def utf16_pieces(text: str, cuts: list[int]) -> list[str]:
    """Cuts a text as a server does that slices UTF-16, and sends half a character as an escape."""
    units = text.encode("utf-16-le", "surrogatepass")
    bounds = [0, *sorted(2 * (cut % (len(units) // 2 + 1)) for cut in cuts), len(units)]
    return [units[a:b].decode("utf-16-le", "surrogatepass") for a, b in itertools.pairwise(bounds)]


@given(
    st.lists(st.sampled_from(["😀", "👩\u200d🔬", "[1]", " a", "\ud83d"]), max_size=5).map("".join),
    st.lists(st.integers(0, 30), max_size=8),
    st.sampled_from(["keep", "strip", "link"]),
)
def test_a_character_that_was_cut_in_two_is_one_again(text, cuts, mode):
    """In every text that streams; half a character that stays alone is not lost."""
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    chunks = [
        chunk
        for part in utf16_pieces(text, cuts)
        for chunk in (
            delta(content=part),
            delta(refusal=part),
            delta(reasoning=part),
            delta(tool_calls=[piece(part, index=0)]),
        )
    ]
    (answer,) = fold(read(chunks, citations=mode)).choices
    assert answer.content == KNOWN.rewrite(text, mode).text
    assert answer.refusal == answer.reasoning == text
    assert [call.arguments for call in answer.tool_calls] == [text]


@given(TEXT, st.lists(st.integers(0, 60), max_size=6), st.sampled_from(["strip", "link"]))
def test_stripped_and_linked_streams_fold_to_the_rewritten_call(text, cuts, mode):
    bounds = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    chunks = [delta(content=text[a:b]) for a, b in itertools.pairwise(bounds)]
    folded = fold(read(chunks, citations=mode))
    whole = {"choices": [{"index": 0, "message": {"content": text}}]}
    assert folded == PREPARED.answers(whole, citations=mode)
    (answer,) = folded.choices
    assert answer.content == KNOWN.rewrite(text, mode).text
    assert answer.cited == KNOWN.cited(text)
    for note in answer.annotations:
        place = note["url_citation"]
        assert 0 <= place["start_index"] <= place["end_index"] <= len(answer.content)


def test_events_come_in_the_order_in_which_they_become_certain():
    events = read(
        [
            delta(role="assistant", content=""),
            delta(reasoning="hm"),
            delta(content="so [1"),
            delta(content="] it"),
            delta(content=" is [9].", finish_reason="stop"),
            {"choices": [], "usage": {"total_tokens": 3}},
        ]
    )
    known, invented = KNOWN.find("so [1] it is [9].")
    assert events == [
        SOURCES,
        ReasoningDelta(0, "hm"),
        TextDelta(0, "so [1"),
        TextDelta(0, "] it"),
        Citation(0, 3, 6, known, (A,)),
        TextDelta(0, " is [9]."),
        Citation(0, 13, 16, invented),
        Usage(total_tokens=3),
        Finished(0, "stop", tuple(KNOWN.annotate("so [1] it is [9]."))),
    ]
    assert {event.choice for event in events} == {0, None}


def test_what_strip_held_back_comes_before_the_end():
    events = read([delta(content="so [1"), delta(content="")], citations="strip")
    assert events[1:-1] == [TextDelta(0, "so"), TextDelta(0, " [1")]


def test_retrieved_presented_and_cited_are_kept_apart():
    folded = fold(read([delta(content="x [2].", finish_reason="stop")]))
    assert [c.passage.id for c in folded.sources.retrieved] == ["a", "b", "c"]
    assert dict(folded.sources.presented) == {1: A, 2: B}
    assert folded.choices[0].cited == {2: B}


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([{"choices": [], "usage": {"total_tokens": 1}}], {}),
        ([delta(role="assistant")], {0: ""}),
        ([delta(content="")], {0: ""}),
        ([{"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}], {0: ""}),
        (
            [{"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]}],
            {0: "a", 1: "b"},
        ),
        ([delta(1, content="b"), delta(0, content="a"), delta(1, content="B")], {0: "a", 1: "bB"}),
        ([delta(content="a", finish_reason="stop"), delta(content="b")], {0: "ab"}),
        ([{"choices": None}, None, {}, delta(content="a")], {0: "a"}),
        ([delta(content=[{"type": "text", "text": "a"}, {"type": "image"}])], {0: "a"}),
        ([delta(content=["a", {"type": "output_text", "text": "b"}, None])], {0: "ab"}),
        ([delta(content=3, refusal={"x": 1}, tool_calls="no")], {0: ""}),
    ],
)
def test_streams_of_unusual_shape_raise_nothing_and_lose_nothing(chunks, expected):
    folded = fold(read(chunks))
    assert {answer.choice: answer.content for answer in folded.choices} == expected


@pytest.mark.parametrize("chunks", [[], [None]])
def test_a_stream_without_a_chunk_is_an_empty_response(chunks):
    with pytest.raises(EmptyResponse):
        read(chunks)


@pytest.mark.parametrize("said", [[], [delta(content="Half of a se")]])
@pytest.mark.parametrize("error", [{"message": "a secret"}, "a secret"])
@pytest.mark.parametrize("rest", [{}, {"choices": []}, {"choices": [{"finish_reason": "error"}]}])
def test_an_error_in_place_of_a_chunk_is_no_end_of_the_answer(said, error, rest):
    with pytest.raises(FailedResponse) as caught:
        read([*said, {"error": error, **rest}])
    assert "secret" not in str(caught.value)
    assert caught.value.retryable


def test_a_chunk_that_says_it_has_no_error_has_none():
    (answer,) = fold(read([{**delta(content="a"), "error": None}])).choices
    assert answer.content == "a"


def test_the_last_usage_counts_and_comes_once():
    chunks = [{**delta(content="a"), "usage": {"total_tokens": total}} for total in (1, 2)]
    assert [e for e in read(chunks) if isinstance(e, Usage)] == [Usage(total_tokens=2)]


def test_a_stream_that_ends_without_a_reason_says_so():
    assert read([delta(content="a")])[-1] == Finished(0, None)


def test_reasoning_is_found_where_common_providers_put_it_and_once():
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "c"}]}]
    events = read(
        [
            delta(reasoning_content="a"),
            delta(reasoning="b", reasoning_details=[{}]),
            delta(content=thinking),
            delta(reasoning="d", reasoning_content="d"),
        ]
    )
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "abcd"


def pieces(*calls: dict) -> list[tuple]:
    folded = fold(read([delta(tool_calls=[call]) for call in calls]))
    return [(call.id, call.name, call.arguments) for call in folded.choices[0].tool_calls]


def piece(arguments: str, name: str | None = None, **fields) -> dict:
    return {"function": {"name": name, "arguments": arguments}, **fields}


@pytest.mark.parametrize(
    "calls",
    [
        [piece("{", "f", index=0, id="1"), piece("}", index=0), piece("[]", "g", index=1, id="2")],
        [piece("{", "f", index=0, id="1"), piece("[]", "g", index=1, id="2"), piece("}", index=0)],
        [piece("{", "f", id="1"), piece("}"), piece("[]", "g", id="2")],
        [piece("{}", "f", index=0, id="1"), piece("[]", "g", index=0, id="2")],
        [
            piece("{", "f", index=0, id="1"),
            piece("}", index=0, id="1"),
            piece("[]", "g", index=5, id="2"),
        ],
    ],
    ids=["numbered", "interleaved", "without index", "all numbered 0", "with a gap"],
)
def test_pieces_of_tool_calls_find_their_call_however_a_provider_numbers_them(calls):
    assert pieces(*calls) == [("1", "f", "{}"), ("2", "g", "[]")]


def test_calls_without_ids_are_told_apart_by_their_names():
    assert pieces(piece("{}", "f"), piece("[]", "f")) == [(None, "f", "{}"), (None, "f", "[]")]


@pytest.mark.parametrize("name", ["f", "g"])
def test_a_name_behind_arguments_begins_a_call_where_all_have_the_same_number_and_no_id(name):
    first = [piece("{", "f", index=0, id=""), piece("}", index=0, id="")]
    assert pieces(*first, piece("[]", name, index=0, id="")) == [
        (None, "f", "{}"),
        (None, name, "[]"),
    ]


def test_the_calls_of_a_whole_message_are_as_many_as_it_lists():
    calls = [tool_call("f", id="1"), tool_call("f", "[]", id="1")]
    whole = {"choices": [{"index": 0, "message": {"content": None, "tool_calls": calls}}]}
    (answer,) = PREPARED.answers(whole).choices
    assert [call.message for call in answer.tool_calls] == calls


def test_a_last_chunk_that_repeats_the_whole_message_adds_only_what_no_chunk_has_brought():
    call = tool_call("f", "{}")
    message = {"content": "so [1]", "reasoning": "hm", "tool_calls": [call]}
    last = {"choices": [{"index": 0, "delta": None, "message": message, "finish_reason": "stop"}]}
    (answer,) = fold(read([delta(content="so [1"), delta(content="]"), last])).choices
    assert answer.content == "so [1]"
    assert len(answer.citations) == len(answer.annotations) == 1
    assert answer.reasoning == "hm"
    assert [made.message for made in answer.tool_calls] == [call]


def test_a_name_that_comes_with_every_piece_of_its_call_is_one_name():
    again = piece("}", "f", index=0, id="1")
    assert pieces(piece("{", "f", index=0, id="1"), again) == [("1", "f", "{}")]
    without_id = piece("}", "f", index=0)
    assert pieces(piece("{", "f", index=0, id="1"), without_id) == [("1", "f", "{}")]
    cut = piece("", "f", index=0)
    assert pieces(piece("", "f", index=0, id="1"), cut) == [("1", "ff", "")]


def test_arguments_that_a_server_sends_as_an_object_are_its_json():
    call = {"id": "1", "function": {"name": "f", "arguments": {"city": "Łódź"}}}
    whole = {"choices": [{"index": 0, "message": {"content": None, "tool_calls": [call]}}]}
    (answer,) = PREPARED.answers(whole).choices
    assert answer.tool_calls == (ToolCall("1", "f", '{"city": "Łódź"}'),)


def test_a_custom_tools_call_keeps_its_type_and_input():
    call = {"id": "1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    whole = {"choices": [{"index": 0, "message": {"content": None, "tool_calls": [call]}}]}
    (answer,) = PREPARED.answers(whole).choices
    assert answer.tool_calls == (ToolCall("1", "sql", "select 1", "custom"),)
    assert answer.message == {"role": "assistant", "content": None, "tool_calls": [call]}


def test_a_custom_tools_call_is_the_same_in_a_stream_whose_later_pieces_name_no_type():
    call = {"id": "1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    head = {"index": 0, "id": "1", "type": "custom", "custom": {"name": "sql", "input": ""}}
    rest = [{"index": 0, "custom": {"input": text}} for text in ("select", " 1")]
    chunks = [delta(tool_calls=[piece]) for piece in (head, *rest)]
    for given_chunks in (chunks, [ChatCompletionChunk.construct(**c) for c in chunks]):
        events = read(given_chunks)
        (answer,) = fold(events).choices
        assert [made.message for made in answer.tool_calls] == [call]
        encoder = ChunkEncoder("m")
        written = [data for event in events for data in encoder.feed(event)]
        sent = [json.loads(data.removeprefix(b"data: ")) for data in written]
        assert fold(read(sent)).choices == (answer,)


def test_an_answer_is_a_message_for_the_next_round():
    call = tool_call("f", '{"a": 1}')
    chunks = Reply("x", tool_calls=[call], refusal="no").stream({})
    (answer,) = fold(read(chunks)).choices
    assert answer.message == {
        "role": "assistant",
        "content": "x",
        "refusal": "no",
        "tool_calls": [call],
    }


def test_an_answer_without_anything_is_an_empty_message_that_the_api_takes():
    """As of a model that thought up to its limit; null content stands beside a call only."""
    (empty,) = fold(read([delta(reasoning_content="Hm.", finish_reason="length")])).choices
    assert empty.message == {"role": "assistant", "content": ""}
    (refused,) = fold(read([delta(refusal="no")])).choices
    assert refused.message == {"role": "assistant", "content": None, "refusal": "no"}


def test_a_fold_can_be_looked_at_on_the_way():
    folding = EventFold()
    assert folding.answers == Answers()
    folding.add(TextDelta(0, "a")).add(RefusalDelta(1, "b")).add(ToolCallDelta(0, 0, name="f"))
    first, second = folding.answers.choices
    assert (first.content, first.tool_calls, second.refusal) == (
        "a",
        (ToolCall(None, "f", ""),),
        "b",
    )


# The object that is iterated


async def test_sources_come_before_anything_is_sent():
    model = ScriptedChatModel("x [1].")
    async with PREPARED.events(model.create) as events:
        assert model.calls == []
        assert await anext(events) == SOURCES
        assert model.calls == []
        rest = [event async for event in events]
    assert fold(rest).choices[0].content == "x [1]."
    assert model.calls[0]["stream"] is True
    assert model.streams[0].closes == 1


async def test_events_never_iterated_send_nothing():
    model = ScriptedChatModel("x")
    events = PREPARED.events(model.create)
    async with events:
        pass
    assert [event async for event in events] == []
    assert model.calls == []


@pytest.mark.parametrize("reply", [[], None, "text", {"choices": []}])
async def test_no_stream_and_an_empty_stream_are_an_empty_response(reply):
    async def create(**params):
        if reply != []:
            return reply
        return ScriptedChatModel([[]]).create_sync(stream=True)

    events = PREPARED.events(create)
    await anext(events)
    with pytest.raises(EmptyResponse):
        await anext(events)
    assert [event async for event in events] == []


async def test_leaving_early_closes_the_stream_once_and_ends_the_events():
    model = ScriptedChatModel("one two three [1].")
    async with PREPARED.events(model.create) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    await events.aclose()
    assert [event async for event in events] == []
    assert model.streams[0].closes == 1


async def test_an_error_of_the_stream_arrives_and_no_end_is_made_up():
    model = ScriptedChatModel([["so [1]", OSError("cut")]])
    events = PREPARED.events(model.create)
    assert [await anext(events), await anext(events)] == [SOURCES, TextDelta(0, "so [1]")]
    with pytest.raises(OSError, match="cut"):
        await anext(events)
    assert [event async for event in events] == []
    assert model.streams[0].closes == 1


async def test_an_error_of_a_link_function_closes_the_stream():
    model = ScriptedChatModel([["so [1] ", "more", "more"]])

    def link(number, passage):
        raise KeyError(number)

    events = PREPARED.events(model.create, citations="link", link=link)
    with pytest.raises(KeyError):
        _ = [event async for event in events]
    assert model.streams[0].closes == 1
    assert model.streams[0].taken == 1


async def test_a_cancelled_consumer_closes_the_stream_once():
    reached = asyncio.Event()

    async def hold():
        reached.set()
        await asyncio.Event().wait()

    model = ScriptedChatModel([["so", hold]])

    async def consume():
        async with PREPARED.events(model.create) as events:
            return [event async for event in events]

    task = asyncio.create_task(consume())
    async with asyncio.timeout(GUARD):
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert model.streams[0].closes == 1


async def test_dropped_events_close_the_stream_in_the_background():
    closed = asyncio.Event()

    async def create(**params):
        try:
            yield delta(content="so")
            await asyncio.Event().wait()
        finally:
            closed.set()

    async for event in PREPARED.events(create):
        if isinstance(event, TextDelta):
            break
    gc.collect()
    async with asyncio.timeout(GUARD):
        await closed.wait()


async def test_closing_from_another_task_ends_the_events_without_a_finish():
    reached = asyncio.Event()

    async def hold():
        reached.set()
        await asyncio.Event().wait()

    model = ScriptedChatModel([["so", hold]])
    events = PREPARED.events(model.create)

    async def consume():
        return [event async for event in events]

    task = asyncio.create_task(consume())
    async with asyncio.timeout(GUARD):
        await reached.wait()
        await events.aclose()
        assert await task == [SOURCES, TextDelta(0, "so")]


async def test_two_tasks_cannot_ask_for_an_event_at_once():
    reached, go = asyncio.Event(), asyncio.Event()

    async def hold():
        reached.set()
        await go.wait()

    model = ScriptedChatModel([["so", hold, "on"]])
    events = PREPARED.events(model.create)
    assert [await anext(events), await anext(events)] == [SOURCES, TextDelta(0, "so")]
    waiting = asyncio.create_task(anext(events))
    async with asyncio.timeout(GUARD):
        await reached.wait()
        with pytest.raises(RuntimeError, match="another task"):
            await anext(events)
        go.set()
        assert await waiting == TextDelta(0, "on")
        assert [type(event) for event in [e async for e in events]] == [Finished]


def test_an_unknown_mode_is_refused_before_anything_is_sent():
    model = ScriptedChatModel("x")
    with pytest.raises(InvalidSetting):
        PREPARED.events(model.create, citations="remove")
    assert model.calls == []


@pytest.mark.parametrize("name", ["create", "create_sync"])
def test_the_blocking_face_yields_the_same_events(name):
    model = ScriptedChatModel("one [1], two [9].")
    prepared = sync.PreparedRequest(PREPARED)
    with prepared.events(getattr(model, name)) as events:
        assert next(events) == SOURCES
        assert model.calls == []
        rest = list(events)
    whole = prepared.call(getattr(model, name))
    assert fold([SOURCES, *rest]).choices == prepared.answers(whole).choices
    with prepared.events(getattr(model, name), citations="strip") as events:
        assert isinstance([next(events), next(events)][1], TextDelta)
    assert list(events) == []
    assert [stream.closes for stream in model.streams] == [1, 1]
    with pytest.raises(EmptyResponse):
        list(prepared.events(lambda **_: iter(())))
