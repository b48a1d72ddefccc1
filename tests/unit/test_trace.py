"""A trace tells what ran, for how long, with what outcome, and what was left out."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ragchat_retrieval.trace import Degradation, StageEvent, Trace, TraceRecorder


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
