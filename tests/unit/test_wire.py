"""Events on the wire: each validates against the schema, and nothing is lost or leaked."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openai.types.chat import ChatCompletionChunk

from ragchat.citations import CheckedClaim, Citations, Mention, Support, Verification
from ragchat.errors import EmptyResponse
from ragchat.events import (
    Citation,
    Finished,
    ReasoningDelta,
    RefusalDelta,
    Sources,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from ragchat.wire import (
    SCHEMA_VERSION,
    Checked,
    ChunkEncoder,
    EventEncoder,
    Failure,
    UIMessageEncoder,
    encoded,
    encoding,
    failure_of,
    schema,
    wire_form,
)
from ragchat_retrieval.errors import StageTimeout
from ragchat_retrieval.explain import (
    Explanation,
    KeywordExplanation,
    LaneExplanation,
    MMRExplanation,
    RerankExplanation,
    TitleExplanation,
)
from ragchat_retrieval.trace import Degradation, StageEvent
from ragchat_retrieval.values import Candidate, Passage

EXPLANATION = Explanation(
    keyword=KeywordExplanation(rank=1, score=7.5, contribution=0.4, overlap=0.5),
    vector=LaneExplanation(rank=2, score=0.7, contribution=0.3),
    title=TitleExplanation(share=0.5, contribution=0.1),
    fused_score=0.8,
    fused_rank=1,
    rerank=RerankExplanation(rank_in=1, score=0.9, rank_out=2),
    mmr=MMRExplanation(relevance=0.9, max_similarity=0.1, score=0.4),
    final_rank=2,
)
A = Passage(
    "25 days.",
    id="a",
    document_id="leave.md",
    title="Leave",
    source="https://example.org/leave",
    headings=("Handbook", "Leave"),
    page=3,
    lines=(4, 5),
    span=(10, 18),
    metadata={"secret": "payroll"},
)
B = Passage("b", id="b", source="javascript:alert(1)")
C = Passage("c", id="c", corpus="hr")
SUPPORT = Support(
    citation=1, level="strong", score=0.5, lead=-0.5, sentence="25 days.", span=A.span
)
CLAIM = CheckedClaim(
    text="25 days", span=A.span, level="strong", score=1.0, supports=(SUPPORT,), best=SUPPORT
)
SOURCES = Sources(
    retrieved=(Candidate(C, 2.0), Candidate(A, 1.0, explain=EXPLANATION)),
    presented=Citations([A, B]),
    degraded=(Degradation("rerank", "timeout"),),
)
MENTION = Mention(3, 6, "[1, 9]", numbers=(1,), unknown=(9,))
ANNOTATIONS = tuple(Citations([A, B]).annotate("25 days [1]."))
EVENTS = [
    StageEvent("vector", "start"),
    StageEvent("vector", "end", 0.25, "skipped"),
    SOURCES,
    Sources(presented=Citations(), skipped="gate"),
    TextDelta(0, "25 days"),
    RefusalDelta(1, "no"),
    ReasoningDelta(0, "well"),
    Citation(0, 8, 11, MENTION, (A,)),
    ToolCallDelta(0, 0, id="call_1", type="function", name="f", arguments="{}"),
    ToolCallDelta(0, 0),
    Usage(prompt_tokens=9, completion_tokens=3),
    Finished(0, "stop", ANNOTATIONS),
    Finished(1, None),
    Checked(0, Verification((CLAIM,), degraded=(Degradation("verify", "timeout"),))),
    Failure("upstream", "no answer", status=503, retryable=True),
]


def strict(form: object) -> object:
    """The schema with every object closed, so that what is sent is documented."""
    if isinstance(form, list):
        return [strict(item) for item in form]
    if not isinstance(form, dict):
        return form
    closed = {key: strict(value) for key, value in form.items()}
    return {**closed, "additionalProperties": False} if "required" in form else closed


VALIDATOR = Draft202012Validator(strict(schema()))


def parsed(body: bytes) -> list[tuple[str, object]]:
    """Server-sent events by the rules of the standard, as far as these streams use them."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        data = fields["data"]
        found.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found


async def sent(events, encoder) -> list[tuple[str, object]]:
    async def stream():
        for event in events:
            if isinstance(event, BaseException):
                raise event
            yield event

    return parsed(b"".join([piece async for piece in encoded(stream(), encoder)]))


@pytest.mark.parametrize("encoder", [EventEncoder(), ChunkEncoder("m"), UIMessageEncoder()])
async def test_a_long_silence_is_filled_with_comments(encoder, monkeypatch):
    """A proxy takes a connection for dead on which nothing comes for a minute."""
    monkeypatch.setattr(encoding, "_SILENCE", 0.01)
    heard = asyncio.Event()

    async def slow():
        await heard.wait()
        yield TextDelta(0, "25 days")
        heard.clear()
        await heard.wait()

    pieces = []
    async for piece in encoded(slow(), encoder):
        pieces.append(piece)
        if piece.startswith(b":"):
            heard.set()
    comments = [piece for piece in pieces if piece.startswith(b":")]
    assert len(comments) >= 2
    assert all(piece.endswith(b"\n\n") for piece in pieces)
    assert any(b"25 days" in piece for piece in pieces)


async def test_a_stream_that_is_not_silent_has_no_comments():
    """Whether or not anything happens behind its last event."""

    async def events():
        yield TextDelta(0, "25 days")
        for _ in range(9):
            await asyncio.sleep(0)

    pieces = [piece async for piece in encoded(events(), EventEncoder())]
    assert not any(piece.startswith(b":") for piece in pieces)


async def test_a_format_that_knows_no_comments_gets_none(monkeypatch):
    """Whatever is no stream of server-sent events keeps its silence."""
    monkeypatch.setattr(encoding, "_SILENCE", 0.001)

    class Lines(EventEncoder):
        headers = {"content-type": "application/x-ndjson"}  # noqa: RUF012 - as users write it

    async def slow():
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, later.set)
        await later.wait()
        yield TextDelta(0, "25 days")

    assert not any([piece.startswith(b":") async for piece in encoded(slow(), Lines())])


async def test_events_are_read_by_one_task_that_ends_with_their_reader():
    """What a generator opened in one task, such as a timeout, cannot be closed in another."""
    tasks = []

    async def events():
        try:
            async with asyncio.timeout(60):
                for _ in range(3):
                    tasks.append(asyncio.current_task())
                    yield TextDelta(0, "a")
        finally:
            tasks.append(asyncio.current_task())

    body = encoded(events(), EventEncoder())
    await anext(body)
    await anext(body)
    await body.aclose()
    assert len(tasks) >= 2
    assert len(set(tasks)) == 1
    assert tasks[0].done()


async def test_events_that_are_cancelled_from_within_end_their_reader():
    async def events():
        yield TextDelta(0, "a")
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        [piece async for piece in encoded(events(), EventEncoder())]


def test_the_schema_itself_is_valid_and_has_the_version():
    Draft202012Validator.check_schema(schema())
    assert schema()["$id"].endswith(f":{SCHEMA_VERSION}")


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_validates_and_has_no_field_that_is_not_described(event):
    VALIDATOR.validate(wire_form(event))


def test_every_described_event_is_one_that_is_sent():
    named = {option["$ref"].rpartition("/")[2] for option in schema()["oneOf"]}
    assert {wire_form(event)["type"] for event in EVENTS} | {"start", "end"} == named


async def test_a_turn_begins_with_the_version_and_ends_with_an_end():
    events = await sent(EVENTS[:-1], EventEncoder())
    assert events[0] == ("start", {"type": "start", "version": SCHEMA_VERSION})
    assert events[-1] == ("end", {"type": "end"})
    for name, data in events:
        VALIDATOR.validate(data)
        assert name == data["type"]


async def test_a_turn_that_fails_ends_with_the_error_and_no_end():
    events = await sent([TextDelta(0, "25"), StageTimeout("rerank", 2.0)], EventEncoder())
    assert [name for name, _ in events] == ["start", "text", "error"]
    VALIDATOR.validate(events[-1][1])
    assert events[-1][1]["code"] == "StageTimeout"
    assert events[-1][1]["retryable"] is True


def test_retrieved_and_presented_passages_are_told_apart():
    passages = wire_form(SOURCES)["passages"]
    told = [(passage["id"], passage["number"], passage["rank"]) for passage in passages]
    assert told == [("a", 1, 2), ("b", 2, None), ("c", None, 1)]
    assert passages[0]["explain"]["keyword"]["rank"] == 1
    assert passages[0]["lines"] == {"start": 4, "end": 5}


def test_only_web_addresses_are_addresses_and_metadata_stays():
    passages = wire_form(SOURCES)["passages"]
    assert [passage["url"] for passage in passages] == [A.source, None, None]
    assert "payroll" not in json.dumps(passages)


class SDKError(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__("key sk-123 and the prompt")
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "code", "status", "retryable"),
    [
        (EmptyResponse(), "EmptyResponse", None, EmptyResponse.retryable),
        (SDKError(401), "upstream", 401, False),
        (SDKError(429), "upstream", 429, True),
        (SDKError(503), "upstream", 503, True),
        (ConnectionResetError("sk-123"), "upstream", None, True),
        (ValueError("sk-123"), "internal", None, False),
    ],
)
def test_a_failure_says_what_a_client_may_know_and_never_what_another_library_said(
    error, code, status, retryable
):
    failure = failure_of(error)
    assert (failure.code, failure.status, failure.retryable) == (code, status, retryable)
    assert "sk-123" not in failure.message


async def test_a_fault_is_logged_by_its_class_and_place_without_what_it_says(caplog):
    """What another library says may repeat prompts and keys, and so may what made it fail."""

    async def broken():
        yield TextDelta(0, "a")
        raise ValueError("key sk-123") from KeyError("the prompt")

    body = b"".join([piece async for piece in encoded(broken(), EventEncoder())])
    assert b"internal" in body
    (record,) = caplog.records
    told = logging.Formatter().format(record)
    assert "ValueError" in told
    assert "test_wire.py:" in told
    assert "sk-123" not in told
    assert "the prompt" not in told


@given(st.text(min_size=1))
def test_any_text_arrives_as_it_is(text):
    """Line breaks do not end an event, and half a surrogate does not end the stream."""
    (piece,) = EventEncoder().feed(TextDelta(0, text))
    ((_, data),) = parsed(piece)
    assert data["text"] == text


@pytest.mark.parametrize("encoder", [EventEncoder(), ChunkEncoder("m"), UIMessageEncoder()])
def test_readers_that_break_lines_at_every_separator_of_unicode_read_the_same(encoder):
    """Python's `str.splitlines` does, and with it ``iter_lines`` of its HTTP clients."""
    body = b"".join(encoder.feed(TextDelta(0, "a\u2028b\u2029c\x85d"))).decode()
    assert body.splitlines() == body.split("\n")[:-1]
    written = json.dumps([data for _, data in parsed(body.encode())], ensure_ascii=False)
    assert '"a\u2028b\u2029c\x85d"' in written


# Chunks.


async def test_chunks_are_what_a_strict_client_accepts():
    events = [e for e in EVENTS if not isinstance(e, Failure)]
    encoder = ChunkEncoder("m", sources=True, id="chatcmpl-1", created=1)
    bodies = [data for _, data in await sent(events, encoder)]
    assert bodies.pop() == "[DONE]"
    chunks = [ChatCompletionChunk.model_validate(body, strict=True) for body in bodies]
    assert {chunk.id for chunk in chunks} == {"chatcmpl-1"}
    assert chunks[0].ragchat["type"] == "sources"
    first, *_, last = [c.choices[0] for c in chunks if c.choices and c.choices[0].index == 0]
    assert first.delta.role == "assistant"
    assert last.finish_reason == "stop"
    assert last.delta.annotations == list(ANNOTATIONS)
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 12
    assert sum(bool(chunk.usage) for chunk in chunks) == 1


async def test_without_being_asked_no_chunk_is_without_a_choice():
    events = [SOURCES, TextDelta(0, "a"), Usage(prompt_tokens=9), Finished(0, "stop")]
    bodies = [data for _, data in await sent(events, ChunkEncoder("m"))]
    assert all(body["choices"] for body in bodies[:-1])


async def test_a_failed_stream_of_chunks_ends_with_an_error_object():
    bodies = [d for _, d in await sent([TextDelta(0, "a"), SDKError(503)], ChunkEncoder("m"))]
    assert bodies[-1]["error"]["code"] == "upstream"
    assert "[DONE]" not in bodies


# UI messages; `tests/browser` has the real reader of these.


async def test_text_and_reasoning_parts_open_and_close_in_order():
    events = [
        ReasoningDelta(0, "hm"),
        TextDelta(0, "a"),
        TextDelta(0, "b"),
        TextDelta(1, "another choice"),
        RefusalDelta(0, "no"),
        Finished(0, "content_filter"),
    ]
    bodies = [data for _, data in await sent(events, UIMessageEncoder(message_id="m"))]
    assert [(body["type"], body.get("id")) for body in bodies[:-1]] == [
        ("start", None),
        ("start-step", None),
        ("reasoning-start", "reasoning-1"),
        ("reasoning-delta", "reasoning-1"),
        ("reasoning-end", "reasoning-1"),
        ("text-start", "text-2"),
        ("text-delta", "text-2"),
        ("text-delta", "text-2"),
        ("text-end", "text-2"),
        ("text-start", "text-3"),
        ("text-delta", "text-3"),
        ("text-end", "text-3"),
        ("finish-step", None),
        ("finish", None),
    ]
    assert bodies[-2]["finishReason"] == "content-filter"
    assert bodies[-1] == "[DONE]"


async def test_sources_without_a_web_address_are_documents():
    bodies = [data for _, data in await sent([SOURCES], UIMessageEncoder())]
    kinds = {b["sourceId"]: b["type"] for b in bodies[:-1] if "sourceId" in b}
    assert kinds == {"ragchat-1": "source-url", "ragchat-2": "source-document"}


@pytest.mark.parametrize("arguments", ['{"city": "Lima"}', "", '{"city": NaN}', '{"city'])
async def test_a_tool_call_ends_with_its_input_or_says_that_it_is_broken(arguments):
    pieces = [ToolCallDelta(0, 0, arguments=piece) for piece in arguments]
    events = [ToolCallDelta(0, 0, id="c", name="weather"), *pieces, Finished(0, "tool_calls")]
    bodies = [data for _, data in await sent(events, UIMessageEncoder())][:-1]
    calls = [body for body in bodies if body.get("toolCallId") == "c"]
    assert calls[0]["type"] == "tool-input-start"
    assert "".join(call.get("inputTextDelta", "") for call in calls) == arguments
    try:
        whole = json.loads(arguments.replace("NaN", "") or "{}")
    except ValueError:
        assert calls[-1]["type"] == "tool-input-error"
    else:
        assert (calls[-1]["type"], calls[-1]["input"]) == ("tool-input-available", whole)
