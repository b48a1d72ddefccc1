"""What `benchmarks/soak.py` asks of a whole server by the thousand, a few rounds of it here."""

from __future__ import annotations

import random
import sys
from collections import Counter
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
    """Answers that were taken, left or refused, documents written and removed, uploads.

    A store opens connections to its file while it has more to read at a time than before, so
    that a round may add one; what is left open by requests is added by every round.
    """
    chance = random.Random(7)  # noqa: S311 - the same every time
    asked, rounds = Counter(), []
    async with soak.started(upstream.base_url, tmp_path) as (port, held):
        while len(rounds) < 2 or (len(rounds) < 6 and grows(rounds)):
            asked += await soak.mixed(
                port, range(100 * len(rounds), 100 * len(rounds) + 100), chance
            )
            rounds.append(await held())
    assert len(asked) == 9
    assert not grows(rounds)
    assert {told["tasks"] for told in rounds} == {rounds[0]["tasks"]}


def grows(rounds):
    """Whether more files are open after the last round than after the one before."""
    return rounds[-1]["files"] > rounds[-2]["files"]
