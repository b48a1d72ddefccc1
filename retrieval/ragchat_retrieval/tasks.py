"""Several pieces of work at once, and the clean end of one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

A = TypeVar("A")
T = TypeVar("T")

CONCURRENT = 4
"""How many pieces of one kind are worked on at a time, such as the queries of a batch."""


async def gather(*works: Awaitable[Any]) -> list[Any]:
    """Awaits all concurrently, results in order; if one fails, cancels and awaits the others.

    Raises:
        Exception: The first failure, itself and not a group.
        CancelledError: The caller was cancelled, whatever the works made of that.
    """
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 - coroutines run in tasks
    earlier = caller.cancelling()
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException as error:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if caller.cancelling() > earlier and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError from error
        raise


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancels a task and waits for its end; a caller who is cancelled meanwhile waits too.

    Raises:
        CancelledError: The caller was cancelled while it waited.
    """
    interrupted = False
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            interrupted = True
    if interrupted:
        raise asyncio.CancelledError


async def each(items: Sequence[A], work: Callable[[A], Awaitable[T]]) -> list[T]:
    """Runs `work` on all items, a few at a time, results in order; a failure cancels the others."""
    if len(items) == 1:
        return [await work(items[0])]
    gate = asyncio.Semaphore(CONCURRENT)

    async def one(item: A) -> T:
        async with gate:
            return await work(item)

    return await gather(*(one(item) for item in items))
