"""The server, asked by the official OpenAI client in Node that has nothing but its ``baseURL``."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ragchat
from ragchat.server import ServerSettings, create_app
from ragchat.testing import Failure, Interrupted, LoopbackOpenAI, Reply, tool_call

sites = sys.modules["browser_site"]  # conftest has loaded it
ASKING = Path(__file__).parent / "ask_openai.mjs"
ANSWER = "You get 25 days [1]."


@pytest.fixture
def model():
    """The chat model behind the server."""
    with LoopbackOpenAI(default=ANSWER) as running:
        yield running


@pytest.fixture
def ask(model, monkeypatch, node_modules, child_env, serving):
    """Lets Node ask the real server in a way that the script knows; returns what it got."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-upstream")
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    index = ragchat.in_memory()
    with ThreadPoolExecutor() as pool:  # a test of the browser may have left a loop in this thread
        pool.submit(lambda: asyncio.run(index.ingest(*sites.DOCUMENTS))).result()

    def asking(way: str):
        done = subprocess.run(
            ["node", str(ASKING), f"{url}/v1", str(node_modules), way],
            env=child_env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    with serving(create_app(index, ServerSettings(model="small"))) as url:
        yield asking


def test_a_call_has_the_models_answer_and_what_it_cites(ask, model):
    answer = ask("call")
    (choice,) = answer["choices"]
    assert (answer["status"], choice["message"]["content"]) == (200, ANSWER)
    (annotation,) = choice["message"]["annotations"]
    cited = annotation["url_citation"]
    assert ANSWER[cited["start_index"] : cited["end_index"]] == "[1]"
    assert answer["ragchat"]["sources"][0]["document_id"] == "handbook.md"
    (sent,) = model.requests
    assert sent.json["model"] == "small"
    assert "25 days of paid leave" in sent.json["messages"][-1]["content"]


def test_a_stream_has_the_same_answer_in_pieces(ask):
    *chunks, counted = ask("stream")
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "stop"
    assert len(deltas[-1]["annotations"]) == 1
    assert chunks[-1]["ragchat"]["sources"][0]["document_id"] == "handbook.md"
    assert counted["choices"] == []
    assert counted["usage"]["completion_tokens"] == len(ANSWER.split())


def test_the_clients_own_stream_helper_folds_the_pieces(ask):
    """It takes the annotations on the last chunk as it takes any field that it does not know."""
    (choice,) = ask("helper")["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (ANSWER, "stop")


@pytest.mark.parametrize("way", ["tools", "streamedTools"])
def test_the_clients_own_tool_runner_goes_its_rounds(ask, model, way):
    model.script(Reply(None, tool_calls=[tool_call("days", '{"who": "me"}')]), ANSWER)
    found = ask(way)
    assert (found["said"], found["handed"]) == (ANSWER, ["me"])
    roles = [message["role"] for message in found["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    one, two = (request.json["messages"] for request in model.requests)
    assert two[: len(one)] == one  # the same evidence in both rounds
    assert two[-1]["content"] == "11"


def test_the_only_model_is_listed(ask):
    assert ask("models") == ["small"]


@pytest.mark.parametrize("way", ["call", "stream"])
@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (429, "RateLimitError"),
        (503, "InternalServerError"),
    ],
)
def test_an_error_is_raised_as_the_one_that_its_status_means(ask, model, way, status, raised):
    model.script(Failure(status, "scripted", code="odd"))
    assert ask(way) == {
        "raised": raised,
        "status": status,
        "code": "odd",
        "type": "scripted_error",
        "param": None,
        "message": f"{status} scripted",
    }


def test_an_error_in_the_midst_of_a_stream_is_raised_too(ask, model):
    model.script(Interrupted(ANSWER, "cut", after=2))
    found = ask("stream")
    assert (found["raised"], found["code"]) == ("APIError", "upstream")
