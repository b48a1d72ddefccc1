"""What a stage that asks a chat model takes as one."""

from __future__ import annotations

import threading

import pytest

from ragchat import (
    ChatModel,
    ClaimJudge,
    CompressionTransformer,
    HydeTransformer,
    LLMReranker,
    MultiQueryExpander,
    QueryPlanner,
    RewriteTransformer,
    TranslationTransformer,
)
from ragchat.errors import InvalidPrompt
from ragchat.testing import ScriptedChatModel
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.values import Query

STAGES = {
    "compress": CompressionTransformer,
    "expand": MultiQueryExpander,
    "hyde": HydeTransformer,
    "judge": ClaimJudge,
    "plan": QueryPlanner,
    "rerank": LLMReranker,
    "rewrite": lambda model: RewriteTransformer(model, "vector store"),
    "translate": lambda model: TranslationTransformer(model, "Finnish"),
}


async def create(**_params) -> None:
    """Stands for a client's method."""


class Client:
    """Stands for an SDK's client."""


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize(
    "model", [None, create, Client(), "gpt-5"], ids=["nothing", "function", "client", "name"]
)
def test_a_stage_says_that_it_wants_a_chat_model_when_it_is_made(stage, model):
    with pytest.raises(InvalidSetting, match="ChatModel"):
        stage(model)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("model", {"model": None}),
        ("model", {"model": " "}),
        ("retries", {"model": "m", "retries": "3"}),
        ("retries", {"model": "m", "retries": True}),
        ("retries", {"model": "m", "retries": -1}),
        ("retries", {"model": "m", "retries": None}),
        ("create", {"model": "m", "create": Client()}),
    ],
)
def test_a_chat_model_that_could_never_answer_is_refused_when_it_is_made(name, options):
    with pytest.raises(InvalidSetting, match=f"^{name}: "):
        ChatModel(**{"create": create, **options})


async def test_objects_that_cannot_be_copied_go_with_every_call_as_they_are():
    client = threading.Lock()  # as in LiteLLM's acompletion(client=AsyncOpenAI())
    headers = {"x-team": ["a"]}
    double = ScriptedChatModel(["one", "two"])
    model = ChatModel(double.create, model="m", client=client, extra_headers=headers)
    headers["x-team"].append("b")
    for _ in range(2):
        await model.complete("q")
    assert all(call["client"] is client for call in double.calls)
    assert [call["extra_headers"] for call in double.calls] == [{"x-team": ["a"]}] * 2


@pytest.mark.parametrize("broken", ["{{ query + 1 }}", "{{ 1 / 0 }}", "{{ range(10**9) | list }}"])
async def test_a_template_that_fails_on_its_values_is_a_typed_error(broken):
    model = ChatModel(ScriptedChatModel("x").create, model="m")
    prompt = broken + "{{ query }}{{ target }}"
    with pytest.raises(InvalidPrompt, match="cannot be rendered"):
        await RewriteTransformer(model, "web", prompt=prompt)(Query("q"))
