"""The UI message stream, read by the real `ai` package in Node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

READER = Path(__file__).parent / "read_ui_stream.mjs"


@pytest.fixture
def read(url, node_modules, child_env):
    def reading(question: str) -> dict:
        done = subprocess.run(
            ["node", str(READER), f"{url}/ui", str(node_modules), question],
            env=child_env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return reading


def parts(message: dict, kind: str) -> list[dict]:
    return [part for part in message["parts"] if part["type"] == kind]


def test_the_sdk_reads_text_sources_and_our_own_data(read):
    found = read("How many days of paid leave?")
    message = found["message"]
    assert found["errors"] == []
    assert message["id"] == "m1"
    (text,) = parts(message, "text")
    assert text["text"].startswith("You get **25 days of paid leave** a year [1]")
    assert text["state"] == "done"
    documents = parts(message, "source-document")
    assert {part["filename"] for part in documents if "filename" in part} == {"handbook.md"}
    (web,) = parts(message, "source-url")
    assert web["url"] == "https://example.org/rules/travel"
    assert documents[0]["providerMetadata"]["ragchat"]["number"] == 1
    assert len(parts(message, "data-ragchat-citation")) == 6
    assert len(parts(message, "data-ragchat-verification")) == 1
    assert "data-ragchat-stage" in found["types"]
    assert parts(message, "data-ragchat-stage") == []  # transient: it passes


def test_the_sdk_reads_reasoning_and_tool_calls(read):
    message = read("How is the weather?")["message"]
    (reasoning,) = parts(message, "reasoning")
    assert reasoning["text"] == "It asks for the weather."
    (call,) = parts(message, "dynamic-tool")
    assert (call["toolName"], call["state"]) == ("weather", "input-available")
    assert call["input"] == {"city": "Lima"}


def test_the_sdk_is_told_of_a_failure(read):
    found = read("Say half of it")
    assert found["errors"] == ["the chat model's server answered with status 503"]
    (text,) = parts(found["message"], "text")
    assert text["text"] == "Half of an ans"
