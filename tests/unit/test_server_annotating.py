"""The annotations of a streamed answer, whatever its chunks are like."""

from __future__ import annotations

import json

import pytest

import ragchat
from ragchat.prepared import PreparedRequest, Retrieval
from ragchat.request import ChatRequest
from ragchat.server.annotating import Annotator, about, annotated
from ragchat.server.server_sent import END
from ragchat_retrieval.trace import StageTiming, Trace

ASKED = [{"role": "user", "content": "How many days of leave?"}]


@pytest.fixture
async def retrieval():
    index = ragchat.in_memory()
    await index.ingest(ragchat.Document("leave", "Employees get 25 days of leave a year."))
    return (await ragchat.Preparer(index.retriever()).prepare(messages=ASKED)).retrieval


def chunk(text, **further):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **further}
    return json.dumps({"id": "c", "choices": [choice]}).encode()


def places(annotations):
    return [
        (each["url_citation"]["start_index"], each["url_citation"]["end_index"])
        for each in annotations
    ]


def test_the_seconds_of_a_stage_are_those_of_all_its_runs():
    """The vector lane runs twice for a question: it is embedded, then vectors are compared."""
    runs = [("vector", 0.5), ("keyword", 0.125), ("vector", 0.25)]
    stages = tuple(StageTiming(stage=stage, started=0, seconds=s) for stage, s in runs)
    told = about(Retrieval(trace=Trace(stages=stages, seconds=1)))
    assert told["timings"] == {"vector": 0.75, "keyword": 0.125, "prepare": 1}


@pytest.mark.parametrize("size", [1, 7, 4095, 4096, 4097, 100_000])
async def test_a_long_answer_has_the_annotations_of_its_whole_text(retrieval, size):
    """However it was cut, also in the middle of a marker."""
    text = "25 days [1]. " * 900 + "So it is [1]."
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    annotator = Annotator(retrieval)
    given = [chunk(piece) for piece in pieces]
    assert annotator.feed(given) == given
    (last,) = annotator.feed([chunk("", finish_reason="stop"), END])
    found = json.loads(last)["choices"][0]["delta"]["annotations"]
    at = [place for place in range(len(text)) if text.startswith("[1]", place)]
    assert places(found) == [(place, place + 3) for place in at]


async def test_a_chunk_that_only_a_lenient_reader_takes_is_read_too(retrieval):
    """Half a surrogate pair, which some models' servers cut an emoji into, and great depth."""
    annotator = Annotator(retrieval)
    deep = b'{"choices":[{"delta":{"content":"[1]"}}],"x":' + b"[" * 300 + b"]" * 300 + b"}"
    given = [b'{"choices":[{"index":0,"delta":{"content":"\\ud83d [1]"}}]}', deep, b"no JSON"]
    assert annotator.feed(given) == given
    (ended,) = annotator.feed([chunk("", finish_reason="stop"), END])
    assert places(json.loads(ended)["choices"][0]["delta"]["annotations"]) == [(2, 5), (5, 8)]


@pytest.mark.parametrize(
    "pieces",
    [
        ["So \ud83d", "\ude00 it is [", "1]."],
        [[{"type": "output_text", "text": "So 😀 it is [1]."}]],
    ],
    ids=["a character in two halves", "parts of the other API"],
)
async def test_a_stream_has_the_annotations_of_the_call(retrieval, pieces):
    prepared = PreparedRequest(ChatRequest.snapshot(messages=ASKED), "q", retrieval)
    message = {"role": "assistant", "content": "So 😀 it is [1]."}
    whole = annotated({"choices": [{"index": 0, "message": message}]}, prepared)
    annotator = Annotator(retrieval)
    annotator.feed([chunk(piece) for piece in pieces])
    (last,) = annotator.feed([chunk(None, finish_reason="stop"), END])
    told = json.loads(last)["choices"][0]["delta"]["annotations"]
    assert told == whole["choices"][0]["message"]["annotations"]
    assert places(told) == [(11, 14)]


@pytest.mark.parametrize("finished", [True, False])
async def test_annotations_of_the_provider_come_with_ours_in_one_list(retrieval, finished):
    """The official client cannot join two; those of a web search come in a chunk of their own."""
    cited = {"start_index": 0, "end_index": 2, "title": "w", "url": "https://w"}
    theirs = {"type": "url_citation", "url_citation": cited}
    annotator = Annotator(retrieval)
    given = [chunk("25 days [1]."), chunk("", delta={"annotations": [theirs]})]
    first, bare = annotator.feed(given)
    assert first == given[0]
    assert json.loads(bare) == json.loads(chunk("", delta={}))
    last = (
        annotator.feed([chunk("", finish_reason="stop"), END]) if finished else annotator.finish()
    )
    [found] = [json.loads(data)["choices"][0]["delta"]["annotations"] for data in last]
    assert found[0] == theirs
    assert places(found) == [(0, 2), (8, 11)]


WEB = {
    "type": "url_citation",
    "url_citation": {"start_index": 0, "end_index": 2, "title": "w", "url": "https://w"},
}


def lists(chunks):
    """Returns the reason of its end and the annotations of each chunk that has either."""
    choices = [choice for data in chunks for choice in json.loads(data)["choices"]]
    told = [(each["finish_reason"], each["delta"].get("annotations")) for each in choices]
    return [each for each in told if any(each)]


@pytest.mark.parametrize("ending", [[END], []])
async def test_annotations_behind_the_last_chunk_are_in_its_list(retrieval, ending):
    """What counts as the last is known at the end of the stream; usage stays behind it."""
    annotator = Annotator(retrieval)
    usage = json.dumps({"id": "c", "choices": [], "usage": {"total_tokens": 9}}).encode()
    assert annotator.feed([chunk("25 days [1].")]) == [chunk("25 days [1].")]
    late = chunk("", delta={"role": "assistant", "content": "", "annotations": [WEB]})
    given = [chunk("", finish_reason="stop"), late, usage, *ending]
    passed = [each for data in given for each in annotator.feed([data])] + annotator.finish()
    [(reason, found)] = lists(passed)
    assert reason == "stop"
    assert found[0] == WEB
    assert places(found) == [(0, 2), (8, 11)]
    assert passed[-1] == usage
    assert annotator.whole


async def test_a_choice_that_goes_on_behind_an_end_has_one_list_at_the_last(retrieval):
    """A provider that runs tools itself ends a choice once a round, and nothing waits for it."""
    annotator = Annotator(retrieval)
    annotator.feed([chunk("", delta={"annotations": [WEB]}), chunk("", finish_reason="tool_calls")])
    going_on = annotator.feed([chunk("25 days [1].")])
    assert [json.loads(each)["choices"][0]["delta"].get("content") for each in going_on] == [
        "",
        "25 days [1].",
    ]
    last = annotator.feed([chunk("", finish_reason="stop"), END])
    assert [reason for reason, _ in lists(going_on)] == ["tool_calls"]
    assert lists(going_on)[0][1] is None
    [(reason, found)] = lists(last)
    assert (reason, places(found)) == ("stop", [(0, 2), (8, 11)])


async def test_no_choice_waits_for_the_end_of_another(retrieval):
    annotator = Annotator(retrieval)
    second = json.dumps({"id": "c", "choices": [{"index": 1, "delta": {"content": "a"}}]}).encode()
    assert annotator.feed([chunk("[1]"), chunk("", finish_reason="stop")]) == [chunk("[1]")]
    assert annotator.feed([second, second]) == [second, second]
    [(reason, found)] = lists(annotator.feed([END]))
    assert (reason, places(found)) == ("stop", [(0, 3)])
