"""Trying again, for whoever opens the connection: which failures, how often, how long apart.

The decisions are pure (`is_transient`, `retry_after`, `Retries.wait`); the loop is tenacity's.
Errors are read by shape, so that those of openai, httpx, httpx2 and of other clients with a
``status_code`` are understood without importing any of them.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from ragchat_retrieval.errors import InvalidSetting, RagchatError
from ragchat_retrieval.policy import time_left
from ragchat_retrieval.recording import current_call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_STATUSES = frozenset({408, 409, 429})
_SERVER_ERRORS = range(500, 600)

# What says "no answer came" in clients that may be in use, found only if they are loaded.
_CONNECTION_ERRORS = (
    ("aiohttp", "ClientConnectionError"),
    ("httpx", "TransportError"),
    ("httpx2", "TransportError"),
    ("openai", "APIConnectionError"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and how long apart.

    Raises:
        InvalidSetting: Fewer than one try, or a wait that is negative or not finite.
    """

    tries: int = 3
    """Calls in all, the first one included; 1 never tries again."""

    first: float = 0.5
    """Seconds before the second try, before jitter; doubled for each further one."""

    longest: float = 30.0
    """Upper bound of a wait of our own, in seconds."""

    longest_asked: float = 300.0
    """Upper bound of a wait that a server asks for; if it asks for more, the failure is final."""

    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep, compare=False)
    """Waits; tests put another one here."""

    jitter: Callable[[], float] = field(default=random.random, compare=False)
    """Gives numbers in [0, 1); 0 halves a wait, 1 leaves it whole."""

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise InvalidSetting("tries", "must be 1 or more")
        for name in ("first", "longest", "longest_asked"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InvalidSetting(name, "must be a number of seconds, 0 or more")

    def wait(self, attempt: int, error: BaseException | None = None) -> float:
        """Returns the seconds to wait after a failed try: what the server asks for, or our own.

        Args:
            attempt: The number of the try that failed, from 1.
            error: Its error.
        """
        asked = None if error is None else retry_after(error)
        if asked is not None:
            return asked
        whole = min(self.first * 2.0 ** min(attempt - 1, 64), self.longest)
        return whole * (0.5 + 0.5 * self.jitter())

    def is_final(self, attempt: int, wait: float) -> bool:
        """Says whether a failed try was the last one.

        It was if there are no more tries, or if the wait is longer than what is left of the
        current stage's time and run's deadline or than a server may ask for.
        """
        late = wait >= time_left()
        return attempt >= self.tries or late or wait > max(self.longest_asked, self.longest)


DEFAULT = Retries()
"""Three tries, 0.5 s doubling to 30 s, with jitter."""

NEVER = Retries(tries=1)
"""One try; for clients that do their own retries."""


async def retried(work: Callable[[], Awaitable[T]], retries: Retries = DEFAULT) -> T:
    """Calls `work` again after transient failures.

    Cancellation ends a wait at once.

    Args:
        work: Makes one try.
        retries: The rule.

    Returns:
        What the first successful try returned.

    Raises:
        Exception: The last try's own error, or at once one that is not transient.
    """

    async def attempt() -> T:  # tenacity awaits coroutine functions only
        if (call := current_call()) is not None:
            call.requests += 1
        return await work()

    if retries.tries == 1:
        return await attempt()

    def wait(state: RetryCallState) -> float:
        return retries.wait(state.attempt_number, _error(state))

    def stop(state: RetryCallState) -> bool:
        return retries.is_final(state.attempt_number, state.upcoming_sleep)

    loop = AsyncRetrying(
        retry=retry_if_exception(is_transient),
        wait=wait,
        stop=stop,
        sleep=retries.sleep,
        reraise=True,
    )
    return await loop(attempt)


def is_transient(error: BaseException) -> bool:
    """Says whether the same call may succeed soon: no answer, 408, 409, 429 or a server error."""
    status = status_of(error)
    if status is not None:
        return status in _STATUSES or status in _SERVER_ERRORS
    if isinstance(error, RagchatError):
        return False
    return isinstance(error, (ConnectionError, TimeoutError, *_loaded_connection_errors()))


def status_of(error: BaseException) -> int | None:
    """Returns the HTTP status that an error carries, if any."""
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int) and not isinstance(status, bool):
            return status
    return None


def retry_after(error: BaseException, now: datetime | None = None) -> float | None:
    """Returns the seconds that a server asked to wait, from its ``Retry-After`` header.

    Args:
        error: An error with ``response.headers``.
        now: The present, for a header that gives a date; aware.

    Returns:
        Seconds, 0 or more (a past date is 0); None without a header that can be read.
    """
    headers = getattr(getattr(error, "response", None), "headers", None)
    value = None if headers is None else headers.get("retry-after")
    if not isinstance(value, str):
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = _seconds_until(value, now or datetime.now(UTC))
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _seconds_until(date: str, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return math.nan
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()


def _error(state: RetryCallState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()


def _loaded_connection_errors() -> tuple[type[BaseException], ...]:
    found: list[Any] = [
        getattr(sys.modules.get(module), name, None) for module, name in _CONNECTION_ERRORS
    ]
    return tuple(error for error in found if isinstance(error, type))
