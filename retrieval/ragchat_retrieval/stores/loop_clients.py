"""One client of a server for each event loop, because a client's connections belong to one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

Client = TypeVar("Client")

_PATIENCE = 5.0  # seconds


class _Kept(NamedTuple, Generic[Client]):
    client: Client
    lifetime: AsyncGenerator[None, None]


class LoopClients(Generic[Client]):
    """Makes a client when a loop first asks for one. Safe to use from any thread.

    Each is closed on its loop: by `aclose`, or when the loop shuts down its asynchronous
    generators, as `asyncio.run` does before a loop ends.

    Args:
        make: Makes a client; called on the loop that it is for.
        close: Closes one. What it raises is dropped: there is nothing left to do about it.
    """

    def __init__(
        self, make: Callable[[], Client], close: Callable[[Client], Awaitable[object]]
    ) -> None:
        self._make = make
        self._close = close
        self._kept: dict[asyncio.AbstractEventLoop, _Kept[Client]] = {}
        self._lock = threading.Lock()

    async def get(self) -> Client:
        """Returns the running loop's client."""
        loop = asyncio.get_running_loop()
        with self._lock:
            for known in [known for known in self._kept if known.is_closed()]:
                del self._kept[known]
            if loop in self._kept:
                return self._kept[loop].client
            client = self._make()
            lifetime = _lifetime(client, self._close)
            self._kept[loop] = _Kept(client, lifetime)
        await anext(lifetime)  # from now on the loop knows of it
        return client

    async def aclose(self) -> None:
        """Closes them all, waiting a few seconds for other loops; `get` makes new ones."""
        here = asyncio.get_running_loop()
        with self._lock:
            kept, self._kept = self._kept, {}
        for loop, (_, lifetime) in kept.items():
            if loop is here:
                await lifetime.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(_end(lifetime), loop)
                # A loop that ends meanwhile closes its client itself, and may never answer.
                await asyncio.wait({asyncio.wrap_future(closing)}, timeout=_PATIENCE)


async def _end(lifetime: AsyncGenerator[None, None]) -> None:
    # A task of `aclose` itself would end the generator without running it if it is cancelled early.
    await lifetime.aclose()


async def _lifetime(
    client: Client, close: Callable[[Client], Awaitable[object]]
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            try:
                await close(client)
            except asyncio.CancelledError:  # as a loop that ends does to all its tasks
                await close(client)
                raise
