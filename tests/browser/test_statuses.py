"""What an answer is at while its events come, told in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from ragchat.events import Finished, TextDelta
from ragchat.wire import wire_form

SCRIPT = Path(__file__).parent / "statuses.mjs"
STATIC = files("ragchat.wire").joinpath("static")


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js on this machine")
def test_an_answer_that_waits_for_a_tool_is_not_being_checked(child_env):
    events = [
        TextDelta(0, "Wait."),
        Finished(0, "tool_calls"),
        TextDelta(0, "Done."),
        Finished(0, "stop"),
    ]
    given = json.dumps([wire_form(event) for event in events] + [{"type": "end"}])
    done = subprocess.run(
        ["node", str(SCRIPT), str(STATIC), given],
        env=child_env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == ["answering", "answering", "answering", "checking", "done"]
