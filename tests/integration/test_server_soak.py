"""What `benchmarks/soak.py` asks of a whole server by the thousand, a few rounds of it here."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def soak(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import soak

    yield soak
    for name in ("soak", "server"):
        del sys.modules[name]


async def test_a_server_at_rest_holds_no_file_socket_or_task_of_its_past(soak, upstream, tmp_path):
    """Answers that were taken, left or refused, documents written and removed, uploads."""
    chance = random.Random(7)  # noqa: S311 - the same every time
    async with soak.started(upstream.base_url, tmp_path) as (port, held):
        asked = await soak.mixed(port, range(100), chance)
        warm = await held()
        asked += await soak.mixed(port, range(100, 200), chance)
        now = await held()
        async with asyncio.timeout(30):
            while now["files"] > warm["files"]:  # the chat model, here too, sees an end later
                await asyncio.sleep(0)
                now = await held()
    assert len(asked) == 9
    assert now["tasks"] == warm["tasks"]
