"""One background event loop per process, for callers that have none."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import inspect
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")

_SECONDS_TO_STOP = 5.0
"""How long an interrupted caller, or the end of the process, waits for work to stop."""


class Portal:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="ragchat-loop", daemon=True)
        self._thread.start()

    @property
    def usable(self) -> bool:
        """Whether its thread runs in this process."""
        return self.pid == os.getpid() and self._thread.is_alive() and not self._loop.is_closed()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on the loop, where waiting for it would never end."""
        return threading.current_thread() is self._thread

    def run(self, work: Awaitable[T]) -> T:
        """Runs `work` on the loop, in the caller's context variables, and returns its result.

        If the caller is interrupted (Ctrl-C), the work is cancelled and awaited before the
        interruption goes on.
        """
        outcome: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []
        context = contextvars.copy_context()

        def start() -> None:
            task = self._loop.create_task(_awaited(work), context=context)
            tasks.append(task)
            task.add_done_callback(lambda done: _hand_over(done, outcome))

        def cancel() -> None:
            if tasks:
                tasks[0].cancel()
            else:  # interrupted before it was even scheduled
                if inspect.iscoroutine(work):
                    work.close()
                outcome.set_exception(asyncio.CancelledError())

        try:
            self._loop.call_soon_threadsafe(start)
            return outcome.result()
        except BaseException:
            if not outcome.done():
                self._loop.call_soon_threadsafe(cancel)
                with contextlib.suppress(Exception):
                    outcome.exception(_SECONDS_TO_STOP)
            raise

    def stop(self) -> None:
        """Cancels what is left, closes the loop and ends the thread."""
        if self.usable:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_SECONDS_TO_STOP)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


_current: Portal | None = None
_lock = threading.Lock()


def portal() -> Portal:
    """Returns this process's portal, started if need be."""
    global _current  # noqa: PLW0603 - one per process, by design
    with _lock:
        if _current is None or not _current.usable:
            _current = Portal()
            atexit.register(_current.stop)
        return _current


def current_portal() -> Portal | None:
    """Returns this process's portal if it is running."""
    return _current if _current is not None and _current.usable else None


def _after_fork() -> None:
    # Another thread of the parent may have held the lock, and the loop's thread is not here.
    global _current, _lock
    _current, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def _hand_over(done: asyncio.Task[T], outcome: Future[T]) -> None:
    if done.cancelled():
        outcome.set_exception(asyncio.CancelledError())
    elif (error := done.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(done.result())
