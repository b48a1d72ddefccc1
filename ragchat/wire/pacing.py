"""Telling silence in a stream of events, so that something can be sent meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Generic, TypeVar

from ragchat_retrieval.tasks import ended

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator

T = TypeVar("T")

_AHEAD = 100
"""Events that are read ahead of a reader who is slower."""


async def paced(events: AsyncIterable[T], silence: float) -> AsyncGenerator[T | None]:
    """Yields the events, and None after every so many seconds without one.

    One task iterates the events from beginning to end: what a generator opens in one task, such as
    a timeout, cannot be closed in another. They are closed at the end, also if the reader leaves.

    Args:
        events: Any.
        silence: The seconds.
    """
    intake = _Intake(events, silence)
    try:
        while await intake.filled():
            while intake.arrived:
                yield intake.arrived.popleft()
        await intake.reading
    finally:
        await intake.aclose()


class _Intake(Generic[T]):
    """What a task has read of the events and nobody has taken yet."""

    def __init__(self, events: AsyncIterable[T], silence: float) -> None:
        self.arrived: deque[T | None] = deque()
        self._silence = silence
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        """When the reader began to wait."""
        self._timer = self._loop.call_later(silence, self._tick)
        self.reading = asyncio.create_task(self._read(events))
        self.reading.add_done_callback(self._end)

    async def filled(self) -> bool:
        """Waits for something to take; False if nothing more comes."""
        self._room.set()
        while not self.arrived and not self.reading.done():
            self._news.clear()
            self._since = self._loop.time()
            await self._news.wait()
        return bool(self.arrived)

    async def aclose(self) -> None:
        """Closes the events, wherever they are."""
        self._timer.cancel()
        await ended(self.reading)

    async def _read(self, events: AsyncIterable[T]) -> None:
        async with aclosing(iterated(events)) as running:
            async for event in running:
                self.arrived.append(event)
                self._news.set()
                if len(self.arrived) >= _AHEAD:
                    self._room.clear()
                    await self._room.wait()

    def _end(self, reading: asyncio.Task[None]) -> None:
        if not reading.cancelled():
            reading.exception()  # a reader who left before does not ask for it
        self._news.set()

    def _tick(self) -> None:
        left = self._since + self._silence - self._loop.time()
        if left <= 0:
            left = self._silence
            if not self._news.is_set():  # the reader waits
                self.arrived.append(None)
                self._news.set()
        self._timer = self._loop.call_later(left, self._tick)


async def iterated(events: AsyncIterable[T]) -> AsyncGenerator[T]:
    """Iterates anything, and closes it as far as it can be closed."""
    iterator: AsyncIterator[T] = aiter(events)
    try:
        async for event in iterator:
            yield event
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()
