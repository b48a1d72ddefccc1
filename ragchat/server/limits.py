"""Limits of rate, of concurrency and of a body's size."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

from ragchat.server.errors import Problem
from ragchat_retrieval.tasks import ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Message, Receive

_MINUTE = 60.0


class Rates:
    """A bucket of requests for each key, which fills up evenly over a minute.

    Args:
        per_minute: Requests a minute, and most at once.
        clock: Seconds from any beginning.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = float(per_minute)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> None:
        """Takes one request out of a key's bucket.

        Raises:
            Problem: 429, with the seconds until there is one again.
        """
        now = self._clock()
        left, since = self._buckets.get(name, (self._most, now))
        left = min(self._most, left + (now - since) * self._most / _MINUTE)
        if left < 1:
            self._buckets[name] = left, now
            wait = int((1 - left) * _MINUTE / self._most) + 1
            raise Problem(
                429,
                f"more than {self._most:.0f} requests a minute",
                code="rate_limit_exceeded",
                headers={"retry-after": str(wait)},
            )
        self._buckets[name] = left - 1, now


class Slots:
    """Counts the requests of each key that run now.

    Args:
        most: Most of one key.
        most_of_all: Most of all keys.
    """

    def __init__(self, most: int, most_of_all: int) -> None:
        self._most = most
        self._most_of_all = most_of_all
        self._running: Counter[str] = Counter()

    @property
    def running(self) -> int:
        """How many run, of all keys."""
        return self._running.total()

    def take(self, name: str) -> Callable[[], None]:
        """Takes one slot of a key; returns what gives it back, once however often it is called.

        Raises:
            Problem: 429: all of this key are taken; 503: those of the server are.
        """
        if self._running[name] >= self._most:
            raise Problem(
                429,
                f"more than {self._most} requests at the same time",
                code="too_many_requests",
                headers={"retry-after": "1"},
            )
        if self.running >= self._most_of_all:
            raise Problem(
                503,
                "the server is busy with other requests",
                code="server_busy",
                headers={"retry-after": "1"},
            )
        self._running[name] += 1
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self._running[name] -= 1
                if not self._running[name]:
                    del self._running[name]

        return release


class Incoming:
    """What a client sends: a bounded body, then, some time, its leaving.

    It stands in for ASGI's ``receive``. Once the body is whole it waits for the client to leave, so
    that whoever does the work can be stopped.

    Args:
        receive: ASGI's own.
        most: Most bytes of the body.
        patience: Seconds to wait for each piece of it.
        declared: The header ``Content-Length``, where there is one.

    Raises:
        Problem: 413: the body is declared to be too large.
    """

    def __init__(
        self, receive: Receive, most: int, patience: float, *, declared: str | None = None
    ) -> None:
        self._receive = receive
        self._most = most
        self._patience = patience
        self._size = 0
        self._whole = False
        self._watching: asyncio.Task[None] | None = None
        self.gone = asyncio.Event()
        """Set when the client has left."""
        if declared is not None and declared.isascii() and declared.isdigit():
            self._grow(int(declared[:20]), counted=False)

    async def __call__(self) -> Message:
        """Returns the next piece of the body; after the last, ``http.disconnect`` when it is due.

        Raises:
            Problem: 413 or 408: the body is too large, or too slow.
        """
        if self._whole:
            await self.gone.wait()
            return {"type": "http.disconnect"}
        try:
            async with asyncio.timeout(self._patience):
                message = await self._receive()
        except TimeoutError:
            raise Problem(408, "the body did not come in time", code="request_timeout") from None
        if message["type"] != "http.request":
            self._whole = True
            self.gone.set()
            return message
        self._grow(len(message.get("body", b"")), counted=True)
        if not message.get("more_body", False):
            self._whole = True
            self._watching = asyncio.create_task(self._watch())
        return message

    async def aclose(self) -> None:
        """Stops waiting for the client to leave."""
        if self._watching is not None:
            await ended(self._watching)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    def _grow(self, size: int, *, counted: bool) -> None:
        if self._size + size > self._most:
            raise Problem(413, f"the body has more than {self._most} bytes", code="body_too_large")
        self._size += size if counted else 0
