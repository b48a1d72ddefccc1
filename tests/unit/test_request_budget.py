"""Budgets of whole requests: what is counted, what is trimmed, and that the window holds."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel

from ragchat.augment import Augmentation, ContextualAugmenter, IdentityAugmenter
from ragchat.budget import RequestBudget
from ragchat.errors import ContextBudgetExceeded, InvalidContextBudget, WindowExceeded
from ragchat.images import patch_tokens
from ragchat.prepare import Preparer
from ragchat.request import ChatRequest
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.tokens import count_tokens
from ragchat_retrieval.values import Candidate, Passage, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ragchat.budget import Allowance
    from ragchat.prepared import PreparedRequest

QUESTION = {"role": "user", "content": "What is it?"}

COOKBOOK = [
    {
        "role": "system",
        "content": "You are a helpful, pattern-following assistant that translates corporate"
        " jargon into plain English.",
    },
    {
        "role": "system",
        "name": "example_user",
        "content": "New synergies will help drive top-line growth.",
    },
    {
        "role": "system",
        "name": "example_assistant",
        "content": "Things working well together will increase revenue.",
    },
    {
        "role": "system",
        "name": "example_user",
        "content": "Let's circle back when we have more bandwidth to touch base on opportunities"
        " for increased leverage.",
    },
    {
        "role": "system",
        "name": "example_assistant",
        "content": "Let's talk later when we're less busy about how to do better.",
    },
    {
        "role": "user",
        "content": "This late pivot means we don't have time to boil the ocean for the client"
        " deliverable.",
    },
]
"""The example of OpenAI's cookbook, with what the API reported for it."""


def allowance(*messages: Any, budget: RequestBudget | None = None, **params: Any) -> Allowance:
    request = ChatRequest.snapshot(messages=list(messages), **{"model": "gpt-4o", **params})
    return (budget or RequestBudget(8_000, 1_000)).allowance(request)


@pytest.mark.parametrize(("model", "tokens"), [("gpt-4o", 124), ("gpt-4", 129)])
def test_messages_count_as_the_api_reported_them(model, tokens):
    counted = allowance(*COOKBOOK, model=model)
    assert (counted.messages, counted.estimated) == (tokens, 0)
    assert counted.evidence == 8_000 - 1_000 - tokens


def cookbook_tools(functions: Sequence[dict[str, Any]]) -> int:
    """Tokens of tools by the cookbook's rule for gpt-4o ("Extended: tool calls")."""
    tokens = 0
    for tool in functions:
        function = tool["function"]
        properties = function["parameters"]["properties"]
        tokens += 7 + count_tokens(f"{function['name']}:{function['description'].rstrip('.')}")
        tokens += 3 if properties else 0
        for name, described in properties.items():
            tokens += 3
            for item in described.get("enum", ()):
                tokens += 3 + count_tokens(item)
            tokens -= 3 if "enum" in described else 0
            description = described["description"].rstrip(".")
            tokens += count_tokens(f"{name}:{described['type']}:{description}")
    return tokens + 12


WORD = st.sampled_from(["city", "unit", "weather", "forecast_day", "a longer phrase of words."])
PROPERTY = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "number"]), "description": WORD},
    optional={"enum": st.lists(WORD, min_size=1, max_size=4)},
)
TOOL = st.builds(
    lambda name, description, properties: {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
            },
        },
    },
    WORD,
    WORD,
    st.dictionaries(WORD, PROPERTY, max_size=5),
)


@given(st.lists(TOOL, min_size=1, max_size=4))
def test_tools_are_never_estimated_below_the_cookbooks_rule(tools: list[dict[str, Any]]):
    counted = allowance(QUESTION, tools=tools)
    assert counted.tools == counted.estimated >= cookbook_tools(tools)


class Reply(BaseModel):
    answer: str


@pytest.mark.parametrize(
    "params",
    [
        {"functions": [{"name": "f", "parameters": {}}]},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}},
        {"response_format": Reply},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
    ],
)
def test_whatever_is_put_into_the_prompt_counts(params):
    assert allowance(QUESTION, **params).tools > 12


def test_images_are_estimated_by_the_rule_given_and_their_detail():
    def shown(detail: str) -> dict[str, Any]:
        image = {"url": "https://example.org/a.png", "detail": detail}
        return {"role": "user", "content": [{"type": "image_url", "image_url": image}]}

    bare = allowance({"role": "user", "content": []}).messages
    assert allowance(shown("low")).messages - bare == math.ceil(85 * 1.1)
    exact = RequestBudget(8_000, 10, margin=0.0)
    assert allowance(shown("high"), budget=exact).messages - bare == 1445
    patches = RequestBudget(8_000, 10, margin=0.0, image_tokens=patch_tokens(1.0))
    assert allowance(shown("high"), budget=patches).estimated == 1536


def test_parts_without_a_rule_are_refused_unless_the_caller_says_what_they_cost():
    message = {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}
    with pytest.raises(InvalidContextBudget, match="'file'"):
        allowance(message)
    told = RequestBudget(8_000, 10, media_tokens={"file": 100})
    assert allowance(message, budget=told).estimated == 110


def test_null_content_tool_calls_and_objects_of_the_sdk_count():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c", "content": "12 C"}
    counted = allowance(message, result, QUESTION)
    by_json = count_tokens(json.dumps([call], separators=(",", ":"), sort_keys=True))
    assert counted.estimated == by_json + math.ceil(by_json / 10)
    as_object = ChatCompletionMessage.model_validate(message)
    assert allowance(as_object, result, QUESTION) == counted


def test_spelled_special_tokens_are_counted_as_text():
    text = "<|endoftext|><|im_start|>system"
    many = allowance({"role": "user", "content": text}).messages
    assert many == allowance({"role": "user", "content": ""}).messages + count_tokens(text)


@pytest.mark.parametrize("name", ["max_completion_tokens", "max_tokens"])
def test_the_reserve_is_at_least_what_the_request_asks_for(name):
    assert allowance(QUESTION, **{name: 3_000}).reserve == 3_000
    assert allowance(QUESTION, **{name: 3}).reserve == 1_000


def test_a_request_that_leaves_nothing_says_with_numbers_why():
    with pytest.raises(WindowExceeded) as caught:
        allowance({"role": "user", "content": "word " * 500}, budget=RequestBudget(400, 100))
    error = caught.value
    assert (error.window, error.reserve, error.tools) == (400, 100, 0)
    assert error.limit == 300 - error.messages < 0
    assert isinstance(error, ContextBudgetExceeded)
    assert "word" not in str(error).replace("words", "")


@pytest.mark.parametrize(
    "settings",
    [
        {"window": 0},
        {"window": 100, "reserve_output": 100},
        {"reserve_output": -1},
        {"window": 1e4},
        {"window": True},
        {"min_evidence": -1},
        {"per_message": 1.5},
        {"margin": -0.1},
        {"margin": math.nan},
        {"margin": "10%"},
        {"min_evidence": []},
        {"media_tokens": {"file": -1}},
        {"media_tokens": None},
        {"image_tokens": 765},
        {"image_tokens": asyncio.sleep},
        {"trim_history": "yes"},
        {"count_tokens": None},
        {"count_tokens": "gpt-5"},
    ],
)
def test_settings_that_cannot_work_are_refused_at_construction(settings):
    with pytest.raises(InvalidContextBudget):
        RequestBudget(**{"window": 8_000, "reserve_output": 1_000, **settings})


@pytest.mark.parametrize("given", [-5, 1.5, None, True])
def test_a_rule_for_images_that_gives_no_count_cannot_widen_the_window(given):
    budget = RequestBudget(8_000, 10, image_tokens=lambda size, detail: given)
    part = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    with pytest.raises(InvalidContextBudget, match="rule for images"):
        allowance({"role": "user", "content": [part]}, budget=budget)


@pytest.mark.parametrize("content", [5, {"a": "word " * 50}, b"word"])
def test_content_of_no_known_kind_counts_by_its_json(content):
    counted = allowance({"role": "user", "content": content})
    assert counted.messages > allowance({"role": "user", "content": ""}).messages


def test_what_is_no_json_is_refused_and_not_left_uncounted():
    with pytest.raises(InvalidContextBudget):
        allowance(QUESTION, tools=[{"a": 1, 2: "b"}])


# Trimming


def call_of(*ids: str) -> dict[str, Any]:
    calls = [
        {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


CALLS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "one " * 40},
    call_of("a", "b"),
    {"role": "tool", "tool_call_id": "a", "content": "result " * 40},
    {"role": "tool", "tool_call_id": "b", "content": "result " * 40},
    {"role": "assistant", "content": "answer " * 40},
    {"role": "user", "content": "two " * 40},
    {"role": "assistant", "content": "answer " * 40},
    QUESTION,
]


def test_whole_turns_go_the_oldest_first_and_only_as_many_as_needed():
    full = allowance(*CALLS).messages
    for missing, trimmed in ((0, ()), (1, (1, 2, 3, 4, 5)), (full - 80, (1, 2, 3, 4, 5, 6, 7))):
        budget = RequestBudget(full + 100 - missing, 100, trim_history=True, min_evidence=0)
        assert allowance(*CALLS, budget=budget).trimmed == trimmed
    with pytest.raises(WindowExceeded):
        allowance(*CALLS, budget=RequestBudget(full + 99, 100))


def test_trimming_makes_room_for_evidence():
    full = allowance(*CALLS).messages
    tight = RequestBudget(full + 150, 100, trim_history=True, min_evidence=60)
    assert allowance(*CALLS, budget=tight).evidence > 60
    assert allowance(*CALLS, budget=tight).trimmed == (1, 2, 3, 4, 5)
    default = RequestBudget(full + 150, 100, trim_history=True)
    assert allowance(*CALLS, budget=default).evidence >= (full + 50) // 4


ROLES = st.sampled_from(["system", "developer", "user", "assistant", "calls"])


def history_of(roles: Sequence[str]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for n, role in enumerate(roles):
        if role == "calls":
            messages += [
                call_of(f"{n}a", f"{n}b"),
                {"role": "tool", "tool_call_id": f"{n}a", "content": "r " * n},
                {"role": "tool", "tool_call_id": f"{n}b", "content": "r"},
            ]
        else:
            messages.append({"role": role, "content": f"{role} {n} " * (n + 1)})
    return messages


@given(st.lists(ROLES, max_size=12), st.integers(20, 600))
def test_no_trimming_orphans_a_tool_result_or_drops_an_instruction(roles: list[str], window: int):
    messages = [*history_of(roles), QUESTION]
    budget = RequestBudget(window, 10, trim_history=True, count_tokens=lambda t: len(t.split()))
    try:
        made = allowance(*messages, budget=budget)
    except WindowExceeded:
        return
    sent = ChatRequest.snapshot(messages=messages).without(made.trimmed).kwargs()["messages"]
    assert sent[-1] == QUESTION
    kept = [m for m in messages if m in sent]
    assert sent == kept
    assert [m for m in messages if m["role"] in ("system", "developer")] == [
        m for m in sent if m["role"] in ("system", "developer")
    ]
    called = {call["id"] for m in sent for call in m.get("tool_calls", ())}
    assert called == {m["tool_call_id"] for m in sent if m["role"] == "tool"}
    spoken = [m for m in sent[:-1] if m["role"] not in ("system", "developer")]
    if made.trimmed and spoken:
        assert spoken[0]["role"] == "user"
    again = allowance(*sent, budget=budget)
    assert (again.messages, again.trimmed) == (made.messages, ())


def test_each_text_is_counted_once_whatever_is_trimmed():
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text.split())

    messages = [*history_of(["user", "assistant"] * 200), QUESTION]
    budget = RequestBudget(700, 10, trim_history=True, count_tokens=count)
    assert allowance(*messages, budget=budget).trimmed
    assert len(asked) == 2 * len(messages)  # role and content


# In a Preparer


def words(text: str) -> int:
    return len(text.split())


def pairs(text: str) -> int:
    return words(text) ** 2 // 8


def root(text: str) -> int:
    return math.isqrt(100 * len(text))


def by_the_dozen(text: str) -> int:
    return -(-len(text) // 12) * 12


def erratic(text: str) -> int:
    return hash(text) % 50


def retriever(*texts: str) -> Callable[[Query], list[Candidate]]:
    return lambda query: [
        Candidate(Passage(text, id=f"p{n}", title="A title"), 1.0 / (n + 1))
        for n, text in enumerate(texts)
    ]


@pytest.mark.parametrize("counter", [len, words, pairs, root, by_the_dozen, erratic, count_tokens])
@settings(max_examples=25, deadline=None)
@given(
    texts=st.lists(st.text("abc d\n<", min_size=1).filter(str.strip), max_size=6),
    roles=st.lists(ROLES, max_size=6),
    limit=st.sampled_from([0, 80, 400]),
    budget=st.builds(
        RequestBudget, st.integers(11, 3_000), st.just(10), trim_history=st.booleans()
    ),
)
async def test_the_finished_request_is_never_over_the_window(
    counter, texts: list[str], roles: list[str], limit: int, budget: RequestBudget
):
    """For counters of any kind, and counted anew as a whole."""
    budget = replace(budget, count_tokens=counter)
    augmenter = ContextualAugmenter(max_context_tokens=limit)
    preparer = Preparer(retriever(*texts), augmenter=augmenter, budget=budget)
    messages = [*history_of(roles), QUESTION]
    try:
        prepared = await preparer.prepare(model="gpt-4o", messages=messages)
    except ContextBudgetExceeded:
        return
    anew = replace(budget, window=10**9, trim_history=False)
    sent = allowance(*prepared.request["messages"], budget=anew)
    assert sent.messages + 10 <= budget.window
    assert budget.trim_history or not prepared.retrieval.budget.trimmed


async def test_the_prepared_request_and_its_trace_say_how_the_window_was_divided():
    budget = RequestBudget(700, 100, trim_history=True, min_evidence=300)
    preparer = Preparer(retriever("It is a bicycle."), budget=budget)
    prepared = await preparer.prepare(model="gpt-4o", messages=CALLS)
    made = prepared.retrieval.budget
    assert made.trimmed == (1, 2, 3, 4, 5)
    assert [m["role"] for m in prepared.request["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    (stage,) = prepared.retrieval.trace.of("budget")
    assert stage.counts == {
        "window": 700,
        "messages": made.messages,
        "tools": 0,
        "reserve": 100,
        "estimated": made.estimated,
        "evidence": made.evidence,
        "trimmed": 5,
    }
    assert len(prepared.retrieval.citations) == 1


async def test_without_trimming_every_earlier_message_goes_out_as_it_came():
    preparer = Preparer(retriever("It is a bicycle."), budget=RequestBudget(4_000, 100))
    prepared = await preparer.prepare(model="gpt-4o", messages=CALLS)
    assert prepared.request["messages"][:-1] == CALLS[:-1]


async def test_retrieval_sees_the_whole_history_though_less_of_it_is_sent():
    seen = []

    def transform(turn):
        seen.append(len(turn.history))
        return turn.query

    budget = RequestBudget(700, 100, trim_history=True, min_evidence=300)
    preparer = Preparer(retriever("It is."), query_transformer=transform, budget=budget)
    await preparer.prepare(model="gpt-4o", messages=CALLS)
    assert seen == [8]


async def test_a_request_that_does_not_fit_costs_no_retrieval():
    def retrieve(query):
        raise AssertionError

    preparer = Preparer(retrieve, budget=RequestBudget(200, 100))
    with pytest.raises(WindowExceeded):
        await preparer.prepare(model="gpt-4o", messages=CALLS)


async def test_a_turn_without_retrieval_is_trimmed_too():
    budget = RequestBudget(400, 100, trim_history=True)
    preparer = Preparer(retriever("x"), gate=lambda turn: False, budget=budget)
    prepared = await preparer.prepare(model="gpt-4o", messages=CALLS)
    assert prepared.retrieval.skipped == "gate"
    assert len(prepared.request["messages"]) == 9 - len(prepared.retrieval.budget.trimmed) < 9


@pytest.mark.parametrize(
    "options", [{"gate": lambda turn: False}, {"query_transformer": lambda turn: None}]
)
async def test_a_turn_without_retrieval_needs_no_room_for_evidence(options):
    budget = RequestBudget(700, 100, trim_history=True, min_evidence=300)
    searching = Preparer(retriever("It is."), budget=budget)
    trimmed = (await searching.prepare(model="gpt-4o", messages=CALLS)).retrieval.budget.trimmed
    assert trimmed
    prepared = await Preparer(retriever("It is."), budget=budget, **options).prepare(
        model="gpt-4o", messages=CALLS
    )
    assert prepared.request["messages"] == CALLS
    assert prepared.retrieval.budget.trimmed == ()
    assert prepared.retrieval.budget.evidence < 300


async def test_an_augmenter_that_knows_no_budget_is_held_to_it():
    def augment(question, candidates, context):
        return Augmentation(f"{'word ' * 500}{question}")

    preparer = Preparer(retriever("x"), augmenter=augment, budget=RequestBudget(400, 100))
    with pytest.raises(ContextBudgetExceeded) as caught:
        await preparer.prepare(model="gpt-4o", messages=[QUESTION])
    assert caught.value.smallest > caught.value.limit


async def test_options_give_one_request_its_own_budget():
    preparer = Preparer(retriever("x"), augmenter=IdentityAugmenter())
    narrow = preparer.with_options(budget=RequestBudget(50, 49))
    with pytest.raises(WindowExceeded):
        await narrow.prepare(model="gpt-4o", messages=[QUESTION])
    with pytest.raises(InvalidSetting):
        preparer.with_options(budget=4_000)


def rounds(tokens: int) -> list[dict[str, Any]]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "word " * tokens},
    ]


def sent_tokens(prepared: PreparedRequest) -> int:
    """Counts the messages of a request anew, whatever it ends with."""
    *sent, last = prepared.request["messages"]
    request = ChatRequest.snapshot(model="gpt-4o", messages=[QUESTION]).with_messages([*sent, last])
    whole = RequestBudget(10**9, 10).allowance(request).messages
    return whole - allowance(QUESTION).messages + 3


async def test_later_rounds_are_held_to_the_window_too():
    preparer = Preparer(retriever("It is a bicycle."), budget=RequestBudget(700, 100))
    prepared = await preparer.prepare(model="gpt-4o", messages=[QUESTION])
    longer = prepared.with_messages(rounds(100))
    left = longer.retrieval.budget
    assert left.messages == sent_tokens(longer)
    assert left.messages + left.evidence == 600
    with pytest.raises(WindowExceeded) as caught:
        longer.with_messages(rounds(500))
    assert caught.value.messages > 600
    assert longer.retrieval.citations == prepared.retrieval.citations


async def test_a_later_round_trims_as_few_turns_as_have_to_go_and_names_them_all():
    turns = [{"role": role, "content": "word " * 60} for role in ("user", "assistant") * 4]
    budget = RequestBudget(900, 100, trim_history=True, min_evidence=300)
    preparer = Preparer(retriever("It is a bicycle."), budget=budget)
    system = {"role": "system", "content": "Be brief."}
    given = [system, *turns, QUESTION]
    prepared = await preparer.prepare(model="gpt-4o", messages=given)
    assert prepared.retrieval.budget.trimmed == (1, 2)
    longer = prepared.with_messages(rounds(10))
    assert longer.retrieval.budget.trimmed == (1, 2)
    longer = longer.with_messages(rounds(300))
    assert longer.retrieval.budget.trimmed == (1, 2, 3, 4)
    sent = longer.request["messages"]
    assert sent[:-5] == [system, *given[5:-1]]
    assert sent[-5] == prepared.request["messages"][-1]
    assert 0 <= longer.retrieval.budget.evidence < 300


async def test_without_a_budget_rounds_are_held_to_nothing():
    preparer = Preparer(retriever("It is a bicycle."))
    prepared = await preparer.prepare(model="gpt-4o", messages=[QUESTION])
    longer = prepared.with_messages(rounds(5_000))
    assert longer.retrieval is prepared.retrieval


@settings(max_examples=50, deadline=None)
@given(
    roles=st.lists(ROLES, max_size=6),
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=4),
    window=st.integers(60, 1_500),
    trims=st.booleans(),
)
async def test_no_round_is_ever_over_the_window(
    roles: list[str], sizes: list[int], window: int, *, trims: bool
):
    budget = RequestBudget(window, 10, trim_history=trims)
    given = [*history_of(roles), QUESTION]
    try:
        made = await Preparer(retriever("It is."), budget=budget).prepare(
            model="gpt-4o", messages=given
        )
        for size in sizes:
            made = made.with_messages(rounds(size))
            sent = made.request["messages"]
            assert sent_tokens(made) + 10 <= window
            trimmed = made.retrieval.budget.trimmed
            kept = [m for at, m in enumerate(given[:-1]) if at not in trimmed]
            assert sent[: len(kept)] == kept
    except ContextBudgetExceeded:
        return
