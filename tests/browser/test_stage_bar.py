"""The bar of what took how long, made in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "stage_bar.mjs"
STATIC = files("ragchat.wire").joinpath("static")


def stage(name, seconds):
    return {"stage": name, "seconds": seconds, "outcome": "ok", "running": False}


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js on this machine")
def test_what_is_left_of_the_time_is_the_answer_s(child_env):
    """Stages that ran inside the retrieval are not taken off twice."""
    stages = [stage("retrieve", 2.0), stage("vector", 1.9), stage("keyword", 0.05)]
    stages.append(stage("augment", 0.1))
    done = subprocess.run(
        ["node", str(SCRIPT), str(STATIC), json.dumps(stages), "6"],
        env=child_env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    *parts, answer = json.loads(done.stdout)
    assert parts == [1900, 50, 100]
    assert answer == 6000 - sum(parts)
