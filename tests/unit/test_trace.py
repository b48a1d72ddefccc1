"""A trace tells what ran, for how long, with what outcome, and what was left out."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ragchat_retrieval.recording import TraceRecorder, current_call
from ragchat_retrieval.trace import Degradation, StageEvent, Trace


def test_stages_are_recorded_in_the_order_in_which_they_end():
    record = TraceRecorder()
    with record.stage("outer"), record.stage("inner") as counts:
        counts["candidates"] = 7
    trace = record.trace()
    assert [(s.stage, s.outcome, s.counts) for s in trace.stages] == [
        ("inner", "ok", {"candidates": 7}),
        ("outer", "ok", {}),
    ]


def test_times_are_seconds_since_the_beginning_and_fit_into_the_whole():
    record = TraceRecorder()
    with record.stage("keyword"):
        pass
    with record.stage("vector"):
        pass
    trace = record.trace()
    first, second = trace.stages
    assert 0 <= first.started <= first.started + first.seconds <= second.started
    assert second.started + second.seconds <= trace.seconds


@pytest.mark.parametrize(
    ("failure", "error", "outcome"),
    [
        ("failed", ValueError, "failed"),
        ("skipped", ValueError, "skipped"),
        ("skipped", asyncio.CancelledError, "failed"),
        ("skipped", KeyboardInterrupt, "failed"),
    ],
)
def test_an_error_passes_through_and_marks_the_stage(failure, error, outcome):
    record = TraceRecorder()

    def work() -> None:
        with record.stage("rerank", failure=failure) as counts:
            counts["queries"] = 1
            raise error

    with pytest.raises(error):
        work()
    (timing,) = record.trace().stages
    assert (timing.outcome, timing.counts) == (outcome, {"queries": 1})


def test_a_trace_is_a_snapshot():
    record = TraceRecorder()
    before = record.trace()
    with record.stage("keyword") as counts:
        counts["hits"] = 1
    record.note("tokens estimated")
    after = record.trace()
    counts["hits"] = 2
    assert before.stages == before.notes == ()
    assert after.stages[0].counts == {"hits": 1}
    assert before.seconds <= after.seconds


def test_the_same_note_and_the_same_degradation_count_once():
    record = TraceRecorder()
    for _ in range(2):
        record.note("tokens estimated")
        record.degrade("rerank", "StageTimeout")
    record.degrade("rerank", "MalformedRanking")
    assert record.trace().notes == ("tokens estimated",)
    assert record.degraded == [
        Degradation("rerank", "StageTimeout"),
        Degradation("rerank", "MalformedRanking"),
    ]


def test_the_runs_of_one_stage_are_found_by_name():
    record = TraceRecorder()
    for name in ("keyword", "vector", "keyword"):
        with record.stage(name):
            pass
    assert len(record.trace().of("keyword")) == 2
    assert record.trace().of("rerank") == ()
    assert Trace().of("keyword") == ()


def test_a_listener_hears_the_start_and_the_end_of_every_stage():
    heard: list[StageEvent] = []
    record = TraceRecorder(heard.append)
    with record.stage("keyword"):
        assert heard == [StageEvent("keyword", "start")]
    with pytest.raises(ValueError, match="no"), record.stage("rerank", failure="skipped"):
        raise ValueError("no")
    assert [(e.stage, e.phase, e.outcome) for e in heard] == [
        ("keyword", "start", "ok"),
        ("keyword", "end", "ok"),
        ("rerank", "start", "ok"),
        ("rerank", "end", "skipped"),
    ]
    assert heard[1].seconds == record.trace().stages[0].seconds


def test_a_listener_that_fails_is_logged_without_content_and_disturbs_nothing(caplog):
    def listener(event: StageEvent) -> None:
        raise ValueError("a secret")

    record = TraceRecorder(listener)
    with caplog.at_level(logging.WARNING, "ragchat"), record.stage("keyword") as counts:
        counts["hits"] = 1
    assert record.trace().stages[0].outcome == "ok"
    assert caplog.messages == ["the stage listener failed (ValueError)"] * 2


# Which stage runs in which, and what models took


async def test_a_stage_knows_the_stage_that_it_runs_in_also_in_tasks_and_threads():
    record = TraceRecorder()

    def in_a_thread():
        with record.stage("rerank"):
            pass

    async def in_a_task():
        with record.stage("vector"):
            await asyncio.to_thread(in_a_thread)

    with record.stage("search"):
        await asyncio.gather(in_a_task(), in_a_task())
    with record.stage("augment"):
        pass
    trace = record.trace()
    stage_of = {timing.number: timing for timing in trace.stages}
    assert sorted(stage_of) == [1, 2, 3, 4, 5, 6]

    def path(timing):
        above = () if timing.parent is None else path(stage_of[timing.parent])
        return (*above, timing.stage)

    assert sorted(map(path, trace.stages)) == [
        ("augment",),
        ("search",),
        ("search", "vector"),
        ("search", "vector"),
        ("search", "vector", "rerank"),
        ("search", "vector", "rerank"),
    ]


def test_the_stages_of_another_trace_are_no_parents():
    outer, inner = TraceRecorder(), TraceRecorder()
    with outer.stage("transform"), inner.stage("search"), inner.stage("keyword"):
        pass
    assert [(t.stage, t.parent) for t in inner.trace().stages] == [("keyword", 1), ("search", None)]


def test_a_call_adds_up_what_the_provider_says():
    record = TraceRecorder()
    with record.stage("vector"), record.call("embeddings", "m", items=3) as meter:
        assert current_call() is meter
        meter.requests += 2
        meter.add(input_tokens=5)
        meter.add(input_tokens=7, output_tokens=0)
    assert current_call() is None
    (call,) = record.trace().calls
    assert (call.operation, call.model, call.stage, call.outcome) == ("embeddings", "m", 1, "ok")
    assert (call.items, call.requests, call.input_tokens, call.output_tokens) == (3, 2, 12, 0)
    assert 0 <= call.started <= call.started + call.seconds <= record.trace().seconds


@pytest.mark.parametrize("told", [None, -1, True, 1.5, "12", [3]])
def test_what_is_no_count_of_tokens_is_not_known(told):
    record = TraceRecorder()
    with record.call("chat", "m") as meter:
        meter.add(input_tokens=told, output_tokens=told)
    (call,) = record.trace().calls
    assert (call.input_tokens, call.output_tokens) == (None, None)


def test_a_call_that_fails_keeps_what_it_took():
    record = TraceRecorder()

    def fail():
        with record.call("chat", "m") as meter:
            meter.add(output_tokens=3)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    (call,) = record.trace().calls
    assert (call.outcome, call.output_tokens, call.stage) == ("failed", 3, None)
