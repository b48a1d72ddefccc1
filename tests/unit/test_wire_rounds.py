"""Rounds of tool calls on the wire: several calls of the chat model, and one answer."""

from __future__ import annotations

import json

from ragchat.citations import Citations, verify
from ragchat.events import Finished, Sources, TextDelta, ToolCallDelta, Usage
from ragchat.reading import EventReader
from ragchat.wire import Checked, ChunkEncoder, EventEncoder, UIMessageEncoder, encoded
from ragchat_retrieval.values import Candidate, Passage

A = Passage("25 days.", id="a", source="https://example.org/leave")
B = Passage("Ask again.", id="b", source="b.md")
C = Passage("c", id="c")
SOURCES = Sources(retrieved=(Candidate(C, 2.0), Candidate(A, 1.0)), presented=Citations([A, B]))


async def sent(events, encoder) -> list:
    """The data of what is sent, as text where it is no JSON."""

    async def stream():
        for event in events:
            yield event

    body = b"".join([piece async for piece in encoded(stream(), encoder)]).decode()
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def round_of(text: str, *, sources: Sources = SOURCES, reason: str = "stop") -> list[object]:
    """The events of one call, read as every other is."""
    reader = EventReader(sources)
    message = {"role": "assistant", "content": text}
    call = {"id": "call", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    if reason == "tool_calls":
        message["tool_calls"] = [call]
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return [*reader.start(), *reader.feed({"choices": [choice]}), *reader.finish()]


async def test_places_in_later_rounds_are_those_of_the_whole_answer():
    """Citations, annotations and claims count in all that the reader was shown."""
    checked = Checked(0, await verify("Ask again [2].", SOURCES.presented))
    events = [
        *round_of("25 days [1]. 🛶 Wait.", reason="tool_calls"),
        *round_of("", reason="tool_calls"),
        *round_of("Ask again [2]."),
        checked,
    ]
    forms = await sent(events, EventEncoder())
    text = "".join(form["text"] for form in forms if form["type"] == "text")
    assert text == "25 days [1]. 🛶 Wait.\n\nAsk again [2]."
    cited = [text[f["start"] : f["end"]] for f in forms if f["type"] == "citation"]
    assert cited == ["[1]", "[2]"]
    finished = [form["annotations"] for form in forms if form["type"] == "finished"]
    places = [[one["url_citation"] for one in annotations] for annotations in finished]
    spans = [[text[p["start_index"] : p["end_index"]] for p in place] for place in places]
    assert spans == [["[1]"], [], ["[2]"]]
    [[claim]] = [form["claims"] for form in forms if form["type"] == "verification"]
    assert text[claim["start"] : claim["end"]] == "Ask again [2]."
    assert claim["text"] == "Ask again."


async def test_a_round_may_begin_with_a_marker_that_is_taken_out():
    """Its place is the empty range where the round's own text begins."""
    reader = EventReader(SOURCES, citations="strip")
    events = [*round_of("Wait.", reason="tool_calls"), *reader.start()]
    for piece in "[2] Ask again.":
        events += reader.feed({"choices": [{"delta": {"content": piece}}]})
    events += reader.finish()
    forms = await sent(events, EventEncoder())
    text = "".join(form["text"] for form in forms if form["type"] == "text")
    assert text == "Wait.\n\nAsk again."
    [place] = [(form["start"], form["end"]) for form in forms if form["type"] == "citation"]
    *_, [annotation] = [form["annotations"] for form in forms if form["type"] == "finished"]
    cited = annotation["url_citation"]
    assert place == (cited["start_index"], cited["end_index"]) == (7, 7)


async def test_a_client_of_the_api_hears_of_one_end_with_all_citations():
    """The official client cannot join two lists of annotations."""
    events = [*round_of("25 days [1].", reason="tool_calls"), *round_of("Ask again [2].")]
    shown = [event for event in events if not isinstance(event, ToolCallDelta)]
    choices = [body["choices"][0] for body in (await sent(shown, ChunkEncoder("m")))[:-1]]
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["stop"]
    [annotations] = [c["delta"]["annotations"] for c in choices if "annotations" in c["delta"]]
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    places = [one["url_citation"] for one in annotations]
    assert [text[p["start_index"] : p["end_index"]] for p in places] == ["[1]", "[2]"]


async def test_a_client_of_the_api_that_is_to_call_tools_is_told_so():
    """Before the usage, which has no choice."""
    counted = Usage(prompt_tokens=9, completion_tokens=3)
    events = [*round_of("25 days [1].", reason="tool_calls"), counted]
    *_, last, usage, done = await sent(events, ChunkEncoder("m"))
    [choice] = last["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert len(choice["delta"]["annotations"]) == 1
    assert (usage["choices"], done) == ([], "[DONE]")


async def test_sources_are_sent_again_only_if_they_changed():
    """What tools have shown meanwhile may be cited from then on."""
    more = Sources(presented=Citations([A, B, C]))
    events = [
        *round_of("", reason="tool_calls"),
        *round_of("", reason="tool_calls"),
        *round_of("Done [3].", sources=more),
    ]
    forms = await sent(events, EventEncoder())
    numbers = [
        [passage["number"] for passage in form["passages"]]
        for form in forms
        if form["type"] == "sources"
    ]
    assert numbers == [[1, 2, None], [1, 2, 3]]


async def test_tokens_are_those_of_all_rounds_together():
    """What no round tells stays untold."""
    events = [
        SOURCES,
        Usage(prompt_tokens=9, completion_tokens=3),
        Finished(0, "tool_calls"),
        SOURCES,
        TextDelta(0, "Noon."),
        Usage(prompt_tokens=20, completion_tokens=5, cached_tokens=9),
        Finished(0, "stop"),
    ]
    forms = await sent(events, EventEncoder())
    *_, usage = [form for form in forms if form["type"] == "usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (29, 8)
    assert (usage["cached_tokens"], usage["total_tokens"]) == (9, None)
    *_, finish, _ = await sent(events, UIMessageEncoder())
    assert finish["messageMetadata"]["usage"]["completion_tokens"] == 8


async def test_each_round_has_tool_parts_of_its_own():
    """The first call of a round is not that of the round before."""
    events = [
        SOURCES,
        ToolCallDelta(0, 0, id="a", name="weather", arguments="{}"),
        Finished(0, "tool_calls"),
        SOURCES,
        ToolCallDelta(0, 0, id="b", name="time", arguments="[]"),
        Finished(0, "tool_calls"),
        SOURCES,
        TextDelta(0, "Noon."),
        Finished(0, "stop"),
    ]
    bodies = (await sent(events, UIMessageEncoder()))[:-1]
    inputs = [
        (body["toolCallId"], body["toolName"], body["input"])
        for body in bodies
        if body["type"] == "tool-input-available"
    ]
    assert inputs == [("a", "weather", {}), ("b", "time", [])]
    assert sum(body["type"] == "source-url" for body in bodies) == 1


async def test_calls_without_an_id_are_told_apart_over_all_rounds():
    call = ToolCallDelta(0, 0, name="f", arguments="{}")
    events = [SOURCES, call, Finished(0, "tool_calls")] * 2
    bodies = (await sent(events, UIMessageEncoder()))[:-1]
    ids = [body["toolCallId"] for body in bodies if body["type"] == "tool-input-available"]
    assert len(set(ids)) == len(ids) == 2
