"""What `benchmarks/hostile.py` sends by the ten thousand, a few hundred of it here."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from ragchat.server import ServerSettings
from ragchat.testing import LoopbackOpenAI

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def hostile(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import hostile

    yield hostile
    for name in ("hostile", "hostile_requests", "hostile_values"):
        del sys.modules[name]


async def test_hostile_requests_find_no_fault_and_no_way_out_of_their_scope(serve, hostile, caplog):
    """Nothing of others is told or changed, nothing of anybody is logged, and the server lives."""
    caplog.set_level(logging.DEBUG)
    world = await hostile.world()
    settings = [ServerSettings(model=model, **hostile.SETTINGS) for model in ("m", None)]
    with LoopbackOpenAI(default=hostile.repeated) as upstream:
        running = [await serve(world.index, s, upstream, keys=world.keys) for s in settings]
        ports = tuple(each.port for each in running)
        got, faults = await hostile.attacked(ports, world, requests=400, seed=7)
    assert not faults
    assert {status for _, status in got} >= {200, 201, 400, 401, 404, 405, 415}
    told = [r.getMessage() for r in caplog.records if r.name.startswith(("ragchat", "uvicorn"))]
    assert not any("heliotrope" in line or "leave" in line for line in told)


async def test_what_is_wrong_with_an_answer_is_found(hostile):
    """A check that finds nothing wrong in anything would let every request pass."""
    attack = hostile.Attack("form", b"")
    refused = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    assert hostile.fault_of(attack, b"HTTP/1.1 200 OK\r\n\r\n{}") == ""
    assert hostile.fault_of(attack, b"HTTP/1.1 200 OK\r\n\r\n" + hostile.PLANTED.encode())
    assert hostile.fault_of(attack, b"HTTP/1.1 500 Internal Server Error\r\n\r\n{}")
    assert hostile.fault_of(attack, b'HTTP/1.1 200 OK\r\n\r\ndata: {"code":"internal"}')
    assert hostile.fault_of(attack, refused + b"Invalid")
    assert hostile.fault_of(attack, None)
    assert hostile.fault_of(hostile.Attack("keys", b""), b"HTTP/1.1 200 OK\r\n\r\n{}")
