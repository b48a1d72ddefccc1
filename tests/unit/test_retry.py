"""Only failures that may pass are tried again, as long as the server and the deadline allow."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.errors import EmbeddingError, InvalidSetting, StageTimeout
from ragchat_retrieval.policy import Policy, Run, running
from ragchat_retrieval.retry import NEVER, Retries, is_transient, retried, retry_after, status_of

REQUEST = httpx2.Request("POST", "http://127.0.0.1/x")


class HTTPError(Exception):
    def __init__(self, status, headers=()):
        self.status_code = status
        self.response = SimpleNamespace(headers=dict(headers))


def openai_error(status, headers=None):
    response = httpx2.Response(status, headers=headers, request=REQUEST)
    return openai.APIStatusError("no", response=response, body=None)


class Failing:
    """Raises the given errors one after the other, then answers; records calls and waits."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0
        self.waits = []

    async def work(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    async def sleep(self, seconds):
        self.waits.append(seconds)

    def run(self, **options):
        return retried(self.work, Retries(sleep=self.sleep, jitter=lambda: 1.0, **options))


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
@pytest.mark.parametrize("make", [HTTPError, openai_error])
async def test_a_transient_status_is_tried_three_times_in_all(status, make):
    errors = [make(status) for _ in range(5)]
    failing = Failing(*errors)
    with pytest.raises(type(errors[0])) as caught:
        await failing.run()
    assert caught.value is errors[2]
    assert failing.calls == 3
    assert failing.waits == [0.5, 1.0]


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422])
async def test_any_other_status_is_tried_once(status):
    failing = Failing(openai_error(status))
    with pytest.raises(openai.APIStatusError):
        await failing.run()
    assert (failing.calls, failing.waits) == (1, [])


@pytest.mark.parametrize(
    "error",
    [
        openai.APIConnectionError(request=REQUEST),
        openai.APITimeoutError(request=REQUEST),
        httpx2.ConnectError("no"),
        httpx2.ReadTimeout("no"),
        ConnectionResetError(),
        TimeoutError(),
    ],
)
async def test_a_lost_connection_is_tried_again(error):
    failing = Failing(error)
    assert await failing.run() == "done"
    assert failing.calls == 2


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        KeyError(),
        StageTimeout("vector", 1),
        EmbeddingError("x", model="m"),
        OSError(),
    ],
)
async def test_a_failure_that_is_no_connection_is_tried_once(error):
    failing = Failing(error)
    with pytest.raises(type(error)):
        await failing.run()
    assert failing.calls == 1


async def test_waits_double_up_to_the_longest():
    failing = Failing(*[HTTPError(500)] * 9)
    assert await failing.run(tries=10) == "done"
    assert failing.waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_jitter_keeps_a_wait_between_half_and_whole(attempt, jitter):
    rule = Retries(jitter=lambda: jitter)
    whole = min(0.5 * 2 ** min(attempt - 1, 100), 30)
    assert whole / 2 <= rule.wait(attempt) <= whole


@pytest.mark.parametrize(("header", "wait"), [("7", 7.0), ("0", 0.0), ("45.5", 45.5), ("-3", 0.0)])
async def test_what_the_server_asks_for_wins(header, wait):
    failing = Failing(HTTPError(429, {"retry-after": header}))
    assert await failing.run() == "done"
    assert failing.waits == [wait]


async def test_the_header_is_read_from_the_clients_own_errors():
    failing = Failing(openai_error(503, {"Retry-After": "2"}))
    assert await failing.run() == "done"
    assert failing.waits == [2.0]


def test_a_date_is_counted_from_now():
    now = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
    assert retry_after(HTTPError(429, {"retry-after": "Mon, 04 May 2026 12:01:30 GMT"}), now) == 90
    assert (
        retry_after(HTTPError(429, {"retry-after": "Mon, 04 May 2026 12:01:30 -0000"}), now) == 90
    )
    assert retry_after(HTTPError(429, {"retry-after": "Mon, 04 May 2026 11:00:00 GMT"}), now) == 0


@given(st.text())
def test_any_header_is_seconds_or_nothing(value):
    seconds = retry_after(HTTPError(429, {"retry-after": value}))
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize("value", ["soon", "", "nan", "inf", "1e999", None, 3])
def test_a_header_that_cannot_be_read_does_not_count(value):
    assert retry_after(HTTPError(429, {"retry-after": value})) is None
    assert retry_after(ValueError()) is None


async def test_a_wait_beyond_the_deadline_raises_at_once():
    failing = Failing(HTTPError(429, {"retry-after": "60"}))
    with running(Run(Policy(deadline=30))), pytest.raises(HTTPError):
        await failing.run()
    assert (failing.calls, failing.waits) == (1, [])


async def test_a_wait_beyond_the_time_of_the_stage_raises_at_once():
    """Waiting until the stage is given up would be for nothing."""
    run = Run(Policy(deadline=60, timeout=10))
    for asked, waits in ((15, []), (5, [5])):
        failing = Failing(HTTPError(429, {"retry-after": str(asked)}))
        with running(run):
            done = await run.stage("vector", failing.run, fallback=lambda: "skipped")
        assert (done, failing.waits) == ("done" if waits else "skipped", waits)
    assert [degradation.reason for degradation in run.record.degraded] == ["HTTPError"]


async def test_a_wait_within_the_deadline_is_kept():
    failing = Failing(HTTPError(429, {"retry-after": "20"}))
    with running(Run(Policy(deadline=30))):
        assert await failing.run() == "done"
    assert failing.waits == [20]


async def test_without_a_deadline_an_absurd_wait_raises_at_once():
    failing = Failing(HTTPError(429, {"retry-after": "86400"}))
    with pytest.raises(HTTPError):
        await failing.run()
    assert failing.waits == []


async def test_cancelling_ends_the_wait_at_once():
    waiting = asyncio.Event()

    async def sleep(seconds):
        waiting.set()
        await asyncio.Event().wait()

    failing = Failing(HTTPError(500))
    task = asyncio.create_task(retried(failing.work, Retries(sleep=sleep)))
    async with asyncio.timeout(10):
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert failing.calls == 1


async def test_a_cancelled_try_is_not_repeated():
    failing = Failing(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await failing.run()
    assert failing.calls == 1


async def test_work_may_be_any_callable_that_gives_an_awaitable():
    failing = Failing(HTTPError(500))

    def plain():
        return failing.work()

    assert await retried(plain, Retries(sleep=failing.sleep)) == "done"


async def test_never_means_one_try():
    failing = Failing(HTTPError(500))
    with pytest.raises(HTTPError):
        await retried(failing.work, NEVER)
    assert failing.calls == 1


@pytest.mark.parametrize(
    "options", [{"tries": 0}, {"first": -1}, {"longest": float("inf")}, {"longest_asked": -0.1}]
)
def test_a_rule_that_cannot_work_is_refused(options):
    with pytest.raises(InvalidSetting) as caught:
        Retries(**options)
    assert caught.value.name in options


def test_a_status_is_found_on_the_error_or_its_response():
    bare = ValueError()
    bare.response = SimpleNamespace(status_code=503)
    assert status_of(bare) == 503
    assert is_transient(bare)
    bare.response = SimpleNamespace(status_code=True)
    assert status_of(bare) is None
