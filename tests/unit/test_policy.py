"""Enhancements may be skipped, visibly; time is bounded; evidence fails loudly."""

from __future__ import annotations

import asyncio
import logging
import math

import pytest

from ragchat_retrieval import policy as policy_module
from ragchat_retrieval.errors import (
    DeadlineExceeded,
    InvalidSetting,
    MalformedRanking,
    RetrievalError,
    StageTimeout,
)
from ragchat_retrieval.policy import Policy, Run, StagePolicy, current_run, running
from ragchat_retrieval.tasks import ended, gather
from ragchat_retrieval.trace import Degradation, StageEvent

GUARD = 60
"""Seconds after which a test that waits has failed."""

STAGES = ("gate", "transform", "expand", "keyword", "vector", "rerank", "augment")
SKIPPABLE = ("gate", "transform", "expand", "vector", "rerank")


async def done() -> str:
    return "done"


async def fail() -> str:
    raise LookupError("with a secret inside")


async def unreachable() -> str:
    raise AssertionError


async def forever() -> str:
    await asyncio.Event().wait()
    return "never"


# Settings


def test_by_default_enhancements_are_skipped_and_evidence_raises():
    rules = {name: Policy().stage(name).on_error for name in STAGES}
    assert rules == {name: "skip" if name in SKIPPABLE else "raise" for name in STAGES}
    assert (Policy().deadline, Policy().timeout) == (30.0, 10.0)


def test_a_strict_policy_raises_everywhere_and_keeps_its_limits():
    strict = Policy.strict(deadline=3, timeout=None)
    assert {strict.stage(name).on_error for name in STAGES} == {"raise"}
    assert (strict.deadline, strict.timeout) == (3, None)


def test_another_deadline_is_another_policy():
    policy = Policy(rerank=StagePolicy("raise"))
    assert policy.with_deadline(5) == Policy(deadline=5, rerank=StagePolicy("raise"))
    assert policy.deadline == 30.0


@pytest.mark.parametrize("seconds", [0, -1, math.nan, -math.inf, "3", True])
def test_a_limit_is_positive_or_none(seconds):
    for build in (
        lambda: Policy(deadline=seconds),
        lambda: Policy(timeout=seconds),
        lambda: StagePolicy("skip", seconds),
        lambda: Policy().with_deadline(seconds),
    ):
        with pytest.raises(InvalidSetting, match="must be positive"):
            build()
    Policy(deadline=None, timeout=None, gate=StagePolicy("skip", None))


@pytest.mark.parametrize("word", ["", "Raise", "ignore", None])
def test_a_misspelt_rule_is_refused_and_means_nothing_by_accident(word):
    with pytest.raises(InvalidSetting, match="on_error"):
        StagePolicy(word)


@pytest.mark.parametrize("rule", ["skip", None, StagePolicy])
def test_a_rule_of_a_stage_is_a_stage_policy(rule):
    with pytest.raises(InvalidSetting, match=r"^gate: must be a StagePolicy"):
        Policy(gate=rule)


# Running a stage


async def test_a_stage_returns_its_result_and_leaves_a_timing_with_counts():
    run = Run(Policy())
    assert await run.stage("keyword", done, count=lambda text: {"letters": len(text)}) == "done"
    (timing,) = run.record.trace().stages
    assert (timing.stage, timing.outcome, timing.counts) == ("keyword", "ok", {"letters": 4})
    assert run.record.degraded == []


@pytest.mark.parametrize("name", SKIPPABLE)
async def test_a_failing_enhancement_is_skipped_visibly_everywhere(name, caplog):
    heard: list[StageEvent] = []
    run = Run(Policy(), on_stage=heard.append)
    with caplog.at_level(logging.WARNING, "ragchat"):
        assert await run.stage(name, fail, fallback=lambda: "fallback") == "fallback"
    assert run.record.degraded == [Degradation(name, "LookupError")]
    assert [timing.outcome for timing in run.record.trace().stages] == ["skipped"]
    assert [(event.phase, event.outcome) for event in heard] == [
        ("start", "ok"),
        ("end", "skipped"),
    ]
    assert caplog.messages == [f"stage {name} skipped (LookupError)"]


async def test_the_reason_of_our_own_errors_is_their_message():
    async def malformed() -> str:
        raise MalformedRanking("3 scores for 4 candidates")

    run = Run(Policy())
    await run.stage("rerank", malformed, fallback=lambda: "")
    assert run.record.degraded == [
        Degradation("rerank", "MalformedRanking: 3 scores for 4 candidates")
    ]


@pytest.mark.parametrize(
    ("policy", "name", "fallback"),
    [
        (Policy(), "keyword", lambda: ""),
        (Policy(), "augment", lambda: ""),
        (Policy(), "rerank", None),
        (Policy.strict(), "rerank", lambda: ""),
        (Policy(rerank=StagePolicy("raise")), "rerank", lambda: ""),
    ],
)
async def test_a_stage_that_may_not_be_skipped_raises_its_own_error(policy, name, fallback):
    run = Run(policy)
    with pytest.raises(LookupError, match="secret"):
        await run.stage(name, fail, fallback=fallback)
    assert [timing.outcome for timing in run.record.trace().stages] == ["failed"]
    assert run.record.degraded == []


async def test_work_that_fails_before_its_first_await_is_a_failure_of_the_stage():
    def refuses():
        raise LookupError

    run = Run(Policy())
    assert await run.stage("expand", refuses, fallback=list) == []
    with pytest.raises(LookupError):
        await run.stage("keyword", refuses)


async def test_a_failing_listener_changes_no_result():
    def listener(event: StageEvent) -> None:
        raise LookupError

    run = Run(Policy(), on_stage=listener)
    assert await run.stage("rerank", done, fallback=lambda: "fallback") == "done"
    assert run.record.degraded == []


# Time


async def test_a_stage_has_its_own_timeout():
    run = Run(Policy(rerank=StagePolicy("raise", 0.001)))
    with pytest.raises(StageTimeout) as caught:
        await run.stage("rerank", forever)
    assert (caught.value.stage, caught.value.timeout) == ("rerank", 0.001)
    assert caught.value.retryable


@pytest.mark.parametrize("spent", [60, 61])
async def test_a_stage_whose_time_an_earlier_try_has_used_up_is_not_begun(spent):
    run = Run(Policy(deadline=None, rerank=StagePolicy("skip", 60)))
    with pytest.raises(StageTimeout) as caught:
        await run.stage("rerank", unreachable, spent=spent)
    assert (caught.value.stage, caught.value.timeout) == ("rerank", 60)
    assert await run.stage("rerank", unreachable, spent=spent, fallback=lambda: "kept") == "kept"
    assert [timing.outcome for timing in run.record.trace().stages] == ["failed", "skipped"]


async def test_a_further_try_of_a_stage_has_the_time_that_is_left():
    async with asyncio.timeout(GUARD):
        for policy in (Policy.strict(timeout=1000.0), Policy.strict(deadline=None, timeout=1000.0)):
            with pytest.raises(StageTimeout) as caught:
                await Run(policy).stage("rerank", asyncio.Event().wait, spent=999.999)
            assert caught.value.timeout == 1000


async def test_where_a_stage_has_no_limit_an_earlier_try_takes_nothing_from_it():
    async def work():
        return "done"

    run = Run(Policy(deadline=None, timeout=None))
    assert await run.stage("rerank", work, spent=1e9) == "done"


async def test_without_its_own_a_stage_has_the_policys_timeout():
    run = Run(Policy.strict(timeout=0.001))
    with pytest.raises(StageTimeout, match=r"0\.001 s"):
        await run.stage("keyword", forever)


async def test_a_timeout_of_an_enhancement_is_a_degradation():
    run = Run(Policy(timeout=0.001))
    assert await run.stage("rerank", forever, fallback=lambda: "as it was") == "as it was"
    (degradation,) = run.record.degraded
    assert degradation.reason.startswith("StageTimeout: ")


async def test_what_remains_of_the_deadline_bounds_every_stage():
    run = Run(Policy.strict(deadline=0.001))
    with pytest.raises(DeadlineExceeded) as caught:
        await run.stage("keyword", forever)
    assert (caught.value.stage, caught.value.deadline) == ("keyword", 0.001)
    assert not caught.value.retryable


async def test_a_stage_that_may_be_skipped_leaves_half_of_what_is_left_of_the_deadline(monkeypatch):
    limits = []

    async def recorded(work, seconds, _late):
        limits.append(seconds)
        return await work()

    monkeypatch.setattr(policy_module, "bounded", recorded)
    for policy, transform, keyword in (
        (Policy(deadline=800, timeout=500), 400, 500),
        (Policy(deadline=800, timeout=None, transform=StagePolicy("skip", 700)), 400, 800),
        (Policy(deadline=8000, timeout=500), 500, 500),
        (Policy(deadline=None, timeout=500), 500, 500),
        (Policy.strict(deadline=800, timeout=500), 500, 500),
    ):
        run = Run(policy)
        for name in ("transform", "keyword"):
            await run.stage(name, done, fallback=lambda: "instead")
        assert limits == [pytest.approx(transform, abs=60), pytest.approx(keyword, abs=60)]
        limits.clear()


async def test_after_the_deadline_no_work_is_started():
    run = Run(Policy(deadline=1e-9))
    started = []

    async def work() -> str:
        started.append(1)
        return "done"

    assert await run.stage("transform", work, fallback=lambda: "as it was") == "as it was"
    with pytest.raises(DeadlineExceeded):
        await run.stage("keyword", work)
    assert started == []
    assert run.remaining <= 0


async def test_without_limits_a_stage_may_take_its_time():
    run = Run(Policy(deadline=None, timeout=None))
    assert run.remaining is None
    assert await run.stage("keyword", done) == "done"


async def test_a_timeout_error_of_the_works_own_stays_what_it_is():
    async def own() -> str:
        raise TimeoutError("the service said so")

    run = Run(Policy.strict())
    with pytest.raises(TimeoutError, match="the service said so") as caught:
        await run.stage("rerank", own)
    assert not isinstance(caught.value, RetrievalError)


async def test_a_timeout_ends_the_work_before_the_stage_returns():
    ended = []

    async def work() -> str:
        try:
            return await forever()
        finally:
            await asyncio.sleep(0)
            ended.append(1)

    await Run(Policy(timeout=0.001)).stage("rerank", work, fallback=lambda: "")
    assert ended == [1]


async def test_a_cancellation_is_never_swallowed():
    run = Run(Policy())
    task = asyncio.create_task(run.stage("rerank", forever, fallback=lambda: "fallback"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.record.degraded == []
    assert [timing.outcome for timing in run.record.trace().stages] == ["failed"]


async def test_a_nested_stage_names_the_stage_whose_time_is_used_up():
    run = Run(Policy(deadline=None, timeout=None, rerank=StagePolicy("raise", 0.001)))

    async def outer() -> str:
        return await run.stage("rerank", forever)

    with pytest.raises(StageTimeout) as caught:
        await run.stage("keyword", outer)
    assert caught.value.stage == "rerank"
    assert [timing.stage for timing in run.record.trace().stages] == ["rerank", "keyword"]


# The current run


async def test_a_run_reaches_everything_called_inside_also_threads_and_tasks():
    assert current_run() is None
    run = Run(Policy())
    with running(run):
        assert current_run() is run
        assert await asyncio.to_thread(current_run) is run

        async def inside() -> Run | None:
            return current_run()

        assert await asyncio.create_task(inside()) is run
        with running(Run(Policy())):
            assert current_run() is not run
        assert current_run() is run
    assert current_run() is None


async def test_concurrent_requests_do_not_see_each_others_runs():
    async def request() -> bool:
        run = Run(Policy())
        with running(run):
            await asyncio.sleep(0)
            return current_run() is run

    assert await asyncio.gather(*(request() for _ in range(5))) == [True] * 5
    with pytest.raises(LookupError), running(Run(Policy())):
        raise LookupError
    assert current_run() is None


# Concurrent work


async def test_gathered_results_are_in_order_and_the_work_runs_concurrently():
    first, second = asyncio.Event(), asyncio.Event()

    async def one() -> int:
        first.set()
        await second.wait()
        return 1

    async def two() -> int:
        second.set()
        await first.wait()
        return 2

    async with asyncio.timeout(10):
        assert await gather(one(), two()) == [1, 2]
    assert await gather() == []


async def test_if_one_fails_the_others_are_cancelled_and_awaited():
    ended = []

    async def sibling() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            ended.append(1)

    with pytest.raises(LookupError, match="secret"):
        await gather(sibling(), fail(), sibling())
    assert ended == [1, 1]


async def test_a_sibling_that_fails_while_it_is_cancelled_does_not_hide_the_first_failure():
    async def stubborn() -> None:
        try:
            await forever()
        finally:
            raise ValueError("second")

    with pytest.raises(LookupError, match="secret"):
        await gather(stubborn(), fail())


async def test_cancelling_the_caller_cancels_and_awaits_all():
    ended = []

    async def work() -> None:
        try:
            await forever()
        finally:
            ended.append(1)

    task = asyncio.create_task(gather(work(), work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [1, 1]


async def test_a_work_that_fails_as_it_is_cancelled_does_not_hide_the_cancellation():
    entered = asyncio.Event()

    async def stubborn():
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise LookupError from None

    task = asyncio.create_task(gather(stubborn(), forever()))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_deadline_is_told_though_a_work_fails_as_it_is_cancelled():
    async def stubborn():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise LookupError from None

    run = Run(Policy.strict(deadline=0.01))
    with pytest.raises(DeadlineExceeded):
        await run.stage("keyword", lambda: gather(stubborn(), forever()))


async def test_who_ends_a_task_waits_for_its_end_however_often_it_is_cancelled():
    entered, may_end = asyncio.Event(), asyncio.Event()

    async def tidies():
        try:
            await asyncio.Event().wait()
        finally:
            entered.set()
            while not may_end.is_set():
                try:
                    await may_end.wait()
                except asyncio.CancelledError:
                    continue

    task = asyncio.create_task(tidies())
    await asyncio.sleep(0)
    ender = asyncio.create_task(ended(task))
    await entered.wait()
    for _ in range(3):
        ender.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not ender.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await ender
    assert task.done()
