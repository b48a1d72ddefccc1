"""The tests' own guard: nothing leaves this machine."""

from __future__ import annotations

import asyncio
import socket

import pytest


async def accept(port_ready: asyncio.Future[int]) -> None:
    """Serves one loopback connection."""
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    async with server:
        port_ready.set_result(server.sockets[0].getsockname()[1])
        await server.serve_forever()


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_a_connection_to_another_machine_is_refused_and_noted(address, network_guard):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as sock, pytest.raises(PermissionError):
        sock.connect((address, 80))
    assert network_guard == [address]
    network_guard.clear()


def test_a_name_of_another_machine_is_not_even_looked_up(network_guard):
    with pytest.raises(PermissionError):
        socket.getaddrinfo("ragchat.invalid", 80)
    assert network_guard == ["ragchat.invalid"]
    network_guard.clear()


async def test_an_attempt_from_a_worker_thread_is_noted_too(network_guard):
    with pytest.raises(PermissionError):
        await asyncio.to_thread(socket.create_connection, ("192.0.2.1", 80))
    assert network_guard == ["192.0.2.1"]
    network_guard.clear()


async def test_loopback_is_open():
    ready = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(accept(ready))
    reader, writer = await asyncio.open_connection("localhost", await ready, family=socket.AF_INET)
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_a_unix_socket_is_open(tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        client.connect(path)
