"""What tests against servers on loopback share."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ragchat_retrieval.testing.loopback_server import Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from ragchat_retrieval.testing.loopback_server import LoopbackServer

    Cancel = Callable[[LoopbackServer, Coroutine[Any, Any, object]], Awaitable[None]]


@pytest.fixture
def cancel_midway() -> Cancel:
    """Cancels a call while the server holds its answer back; it must end at once."""

    async def cancel(server: LoopbackServer, call: Coroutine[Any, Any, object]) -> None:
        hold = threading.Event()
        server.misbehave(Fault(hold=hold))
        task = asyncio.create_task(call)
        try:
            async with asyncio.timeout(30):
                while not server.requests:  # noqa: ASYNC110 - the server lives in another thread
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
        finally:
            hold.set()

    return cancel
