"""The annotations of a streamed answer, whatever its chunks are like."""

from __future__ import annotations

import json

import pytest

import ragchat
from ragchat.prepared import PreparedRequest, Retrieval
from ragchat.request import ChatRequest
from ragchat.server.annotating import Annotator, about, annotated
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
    (last,) = annotator.feed([chunk("", finish_reason="stop")])
    found = json.loads(last)["choices"][0]["delta"]["annotations"]
    at = [place for place in range(len(text)) if text.startswith("[1]", place)]
    assert places(found) == [(place, place + 3) for place in at]


async def test_a_chunk_that_only_a_lenient_reader_takes_is_read_too(retrieval):
    """Half a surrogate pair, which some models' servers cut an emoji into, and great depth."""
    annotator = Annotator(retrieval)
    deep = b'{"choices":[{"delta":{"content":"[1]"}}],"x":' + b"[" * 300 + b"]" * 300 + b"}"
    given = [b'{"choices":[{"index":0,"delta":{"content":"\\ud83d [1]"}}]}', deep, b"no JSON"]
    assert annotator.feed(given) == given
    (ended,) = annotator.feed([chunk("", finish_reason="stop")])
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
    (last,) = annotator.feed([chunk(None, finish_reason="stop")])
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
    last = annotator.feed([chunk("", finish_reason="stop")]) if finished else annotator.finish()
    [found] = [json.loads(data)["choices"][0]["delta"]["annotations"] for data in last]
    assert found[0] == theirs
    assert places(found) == [(0, 2), (8, 11)]
