"""The servers of ``examples/servers``, run by uvicorn and read by real clients."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import httpx2
import pytest
from jsonschema import Draft202012Validator
from openai import OpenAI

from ragchat.testing import Failure, LoopbackOpenAI
from ragchat.wire import schema

SERVERS = Path(__file__).parents[2] / "examples" / "servers"
ANSWER = "Employees get 25 days of paid leave [1]."
MESSAGES = [{"role": "user", "content": "How many days of paid leave?"}]


@pytest.fixture
def model(monkeypatch):
    """A chat model's server, to which the examples' clients go."""
    with LoopbackOpenAI(default=ANSWER) as running:
        monkeypatch.setenv("OPENAI_API_KEY", "loopback")
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        yield running


def app_of(name: str):
    """An example's application, as somebody finds it who starts it."""
    spec = importlib.util.spec_from_file_location(name, SERVERS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


async def test_starlette_streams_events_that_validate(model, serving):
    app = app_of("starlette_app")
    with serving(app) as url:
        response = httpx2.post(f"{url}/v1/ragchat/answer", json={"messages": MESSAGES})
        script = httpx2.get(f"{url}/component/ragchat-answer.js")
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["x-ragchat-events"] == "1"
    lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    validator = Draft202012Validator(schema())
    for event in events:
        validator.validate(event)
    assert "".join(event["text"] for event in events if event["type"] == "text") == ANSWER
    assert [event["type"] for event in events][-3:] == ["finished", "verification", "end"]
    assert script.headers["content-type"].startswith("text/javascript")
    assert "ragchat-answer" in script.text


async def test_fastapi_serves_any_client_of_the_openai_api(model, serving):
    app = app_of("fastapi_app")
    with serving(app) as url, OpenAI(base_url=f"{url}/v1", api_key="k") as client:
        chunks = list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    (annotation,) = chunks[-1].choices[0].delta.annotations
    cited = annotation["url_citation"]
    assert ANSWER[cited["start_index"] : cited["end_index"]] == "[1]"
    assert cited["url"] == "https://example.org/leave"


async def test_fastapi_tells_a_client_that_the_model_failed(model, serving):
    with LoopbackOpenAI(default=Failure(401)) as broken, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", broken.base_url)
        with serving(app_of("fastapi_app")) as url:
            body = {"messages": [{"role": "user", "parts": [{"type": "text", "text": "Leave?"}]}]}
            response = httpx2.post(f"{url}/api/chat", json=body)
    assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
    parts = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert parts[-1] == "[DONE]"
    error = json.loads(parts[-2])
    assert error == {
        "type": "error",
        "errorText": "the chat model's server answered with status 401",
    }


@pytest.mark.parametrize("name", ["fastapi_app", "starlette_app"])
def test_without_a_key_a_server_says_in_a_sentence_what_it_needs(name, monkeypatch):
    """As uvicorn meets it, which imports the module."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(SystemExit, match="Set OPENAI_API_KEY") as stopped:
        app_of(name)
    assert "\n" not in str(stopped.value)
