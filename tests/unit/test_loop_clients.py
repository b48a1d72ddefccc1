"""One client of a server for each event loop, closed on that loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Self

import pytest

from ragchat_retrieval.stores import loop_clients
from ragchat_retrieval.stores.loop_clients import LoopClients


class Client:
    """Knows the loop that it was made on, and the one that it was closed on."""

    def __init__(self) -> None:
        self.made = asyncio.get_running_loop()
        self.closed: list[asyncio.AbstractEventLoop] = []

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed.append(asyncio.get_running_loop())


def new() -> LoopClients[Client]:
    return LoopClients(Client, Client.close)


async def test_a_loop_has_one_client_until_it_is_closed() -> None:
    clients = new()
    one, *others = await asyncio.gather(*(clients.get() for _ in range(5)))
    assert all(other is one for other in others)
    await clients.aclose()
    await clients.aclose()
    assert one.closed == [asyncio.get_running_loop()]
    assert await clients.get() is not one
    await clients.aclose()


def test_loops_that_end_close_their_own_and_are_forgotten() -> None:
    """Though nobody closes anything, as when a program runs one call after another."""
    clients = new()
    used = [asyncio.run(clients.get()) for _ in range(3)]
    assert len(set(map(id, used))) == 3
    assert [client.closed for client in used] == [[client.made] for client in used]
    assert list(clients._kept) == [used[-1].made]


class Elsewhere:
    """A loop that runs in another thread, with its client."""

    def __init__(self, clients: LoopClients[Client], *, answers: bool = True) -> None:
        self._ready, self._over = threading.Event(), threading.Event()
        self._answers = answers
        self._thread = threading.Thread(target=asyncio.run, args=[self._run(clients)])

    async def _run(self, clients: LoopClients[Client]) -> None:
        self.client = await clients.get()
        self._ready.set()
        if self._answers:
            await asyncio.to_thread(self._over.wait)
        else:
            self._over.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


async def test_another_loop_that_runs_closes_its_client_there() -> None:
    clients = new()
    mine = await clients.get()
    with Elsewhere(clients) as other:
        assert other.client is not mine
        await clients.aclose()
        assert other.client.closed == [other.client.made]
    assert other.client.closed == [other.client.made]  # once


async def test_a_loop_that_does_not_answer_holds_nobody_up(monkeypatch) -> None:
    """It closes its client itself when it ends."""
    monkeypatch.setattr(loop_clients, "_PATIENCE", 0.01)
    clients = new()
    with Elsewhere(clients, answers=False) as other:
        await clients.aclose()
        assert not other.client.closed
    assert other.client.closed == [other.client.made]


async def test_what_closing_raises_stops_nothing() -> None:
    async def broken(client: Client) -> None:
        await client.close()
        raise ConnectionError

    clients = LoopClients(Client, broken)
    client = await clients.get()
    await clients.aclose()
    assert client.closed


async def test_a_client_that_cannot_be_made_leaves_nothing_behind() -> None:
    problems = [ConnectionError()]

    def make() -> Client:
        if problems:
            raise problems.pop()
        return Client()

    clients = LoopClients(make, Client.close)
    with pytest.raises(ConnectionError):
        await clients.get()
    assert isinstance(await clients.get(), Client)
    await clients.aclose()
