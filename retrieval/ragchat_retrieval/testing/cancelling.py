"""Cancelling a piece of work at every point where it can be cancelled.

Whatever takes long can be cancelled while it waits, and it may wait in many places: in tasks of its
own, for threads, for a server. `cancelled_everywhere` finds them all by counting the steps of all
tasks, and leaves none out because nobody thought of it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_MOST = 20_000
"""So many steps are more than any work that is worth cancelling at each."""


async def cancelled_everywhere(
    work: Callable[[], Coroutine[Any, Any, object]],
    after: Callable[[], Awaitable[object]] | None = None,
    *,
    stride: int = 1,
    again: bool = False,
) -> int:
    """Runs work again and again, cancelled before it begins, after 1 step, after 2, and so on.

    A step is what any task does between two waits. It ends with the first run that is over before
    its turn to be cancelled.

    Args:
        work: Makes the work anew.
        after: Looks at the state after each run, once no task is left.
        stride: Leaves out all but every so many steps, where each run takes long.
        again: Cancels a second time, at the step after the first.

    Returns:
        How often the work was cancelled.

    Raises:
        AssertionError: A task outlived the work, or the work swallowed a cancellation.
    """
    for run, steps in enumerate(range(0, _MOST, stride)):
        finished = await _run(work, steps, again=again)
        if after is not None:
            await after()
        if finished:
            return run
    raise AssertionError("the work never ends")


async def _run(work: Callable[[], Coroutine[Any, Any, object]], steps: int, *, again: bool) -> bool:
    """Runs work, cancelled at a step; says whether it was over before."""
    loop = asyncio.get_running_loop()
    before, factory = asyncio.all_tasks(), loop.get_task_factory()
    clock = _Clock(steps, 2 if again else 1)

    def counted(
        loop: asyncio.AbstractEventLoop,
        coroutine: Any,  # noqa: ANN401 - what a task factory is given
        **options: Any,
    ) -> asyncio.Task[Any]:
        return asyncio.Task(_Counted(coroutine, clock.tick), loop=loop, **options)

    loop.set_task_factory(counted)
    try:
        clock.task = loop.create_task(work())
        clock.tick()
        try:
            await asyncio.wait([clock.task])
        except BaseException:
            clock.task.cancel()
            raise
    finally:
        loop.set_task_factory(factory)
    if not clock.cancelled:
        await clock.task
        return True
    left = await _without_finalisers(asyncio.all_tasks() - before)
    assert not left, f"cancelled at step {steps}, it left {sorted(map(repr, left))}"
    if not clock.task.cancelled():
        # The last step may return before the cancellation arrives; any other end is an error.
        error = clock.task.exception()
        assert error is None, f"cancelled at step {steps}, it raised {error!r}"
    return False


async def _without_finalisers(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Leaves out tasks in which the loop closes async generators that were dropped, at their end.

    Clients drop theirs as soon as a response is closed; nobody else can close them.
    """
    closing = {task for task in tasks if not inspect.iscoroutine(_coroutine_of(task))}
    if closing:
        await asyncio.wait(closing)
    return tasks - closing


def _coroutine_of(task: asyncio.Task[Any]) -> object:
    coroutine = task.get_coro()
    return coroutine.inner if isinstance(coroutine, _Counted) else coroutine


class _Clock:
    """Counts steps, and cancels the work when its time has come."""

    def __init__(self, steps: int, times: int) -> None:
        self.cancelled = 0
        self.task: asyncio.Task[object]
        self._left = steps
        self._times = times

    def tick(self) -> None:
        if self._left > 0:
            self._left -= 1
        elif self.cancelled < self._times and not self.task.done():
            self.cancelled += 1
            self.task.cancel()


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that tells each of its steps."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], tick: Callable[[], None]) -> None:
        self.inner = coroutine
        self._tick = tick
        self.__name__ = self.__qualname__ = getattr(coroutine, "__qualname__", "async generator")

    def send(self, value: Any) -> Any:  # noqa: ANN401 - the protocol of coroutines
        """Does a step."""
        self._tick()
        return self.inner.send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - as above
        """Does a step that begins with an error."""
        self._tick()
        return self.inner.throw(*error)

    def close(self) -> None:
        """Ends it."""
        self.inner.close()

    def __await__(self) -> Any:  # noqa: ANN401 - as above
        return self.inner.__await__()
