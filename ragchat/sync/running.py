"""Waits for what the background loop does."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, TypeVar

from ragchat.portal import portal

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


def run(work: Awaitable[T]) -> T:
    """Runs anything awaitable on the background loop and returns its result.

    Raises:
        RuntimeError: Called on the background loop itself, which cannot wait for itself.
        BaseException: What the work raised.
    """
    door = portal()
    if door.is_here:
        if inspect.iscoroutine(work):
            work.close()
        raise RuntimeError("ragchat.sync was called from ragchat's own event loop; await instead")
    return door.run(work)
