"""Chat requests in the words of the Responses API."""

from __future__ import annotations

import copy

import openai
import pytest
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ResponseInputParam
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter, ValidationError

from ragchat import sync
from ragchat.errors import InvalidRequest
from ragchat.prepared import PreparedRequest, Retrieval
from ragchat.request import ChatRequest
from ragchat.responses import responses_kwargs
from ragchat.testing import tool_call

INPUT = TypeAdapter(ResponseInputParam)
PARAMS = TypeAdapter(ResponseCreateParamsNonStreaming)
QUESTION = {"role": "user", "content": "q"}
PNG = "data:image/png;base64,AA=="
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_the_sdks_types_refuse_what_is_not_of_the_responses_api():
    """The oracle of these tests would notice."""
    for wrong in ({**QUESTION, "name": "x"}, {"role": "user", "content": [{"type": "text"}]}):
        with pytest.raises(ValidationError):
            INPUT.validate_python([wrong], strict=True, extra="forbid")
    with pytest.raises(ValidationError):
        PARAMS.validate_python({"model": "m", "input": "q", "seed": 1}, extra="forbid")


def mapped(**params) -> dict:
    """The mapped request, checked against the SDK's own types."""
    before = copy.deepcopy(params)
    made = responses_kwargs({"messages": [QUESTION], **params})
    assert params == before
    INPUT.validate_python(made["input"], strict=True, extra="forbid")
    PARAMS.validate_python({"model": "m", **made}, extra="forbid")
    return made


def items(*messages) -> list[dict]:
    return mapped(messages=list(messages))["input"]


def test_messages_become_items_in_their_order():
    calls = [tool_call("f", '{"a": 1}', id="c1"), tool_call("g", "{}", id="c2")]
    assert items(
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "In English."}]},
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "12 C"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "ok"}]},
        {"role": "assistant", "content": "12 C."},
        QUESTION,
    ) == [
        {"role": "developer", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "input_text", "text": "In English."}]},
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "12 C"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "ok"}],
        },
        {"role": "assistant", "content": "12 C."},
        QUESTION,
    ]


def test_parts_of_every_kind_keep_their_order():
    parts = [
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "text", "text": "which part?"},
        {"type": "image_url", "image_url": {"url": "https://e.org/a.png", "detail": "low"}},
        {"type": "file", "file": {"file_id": "f1"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a"}},
    ]
    (item,) = items({"role": "user", "content": parts})
    assert item["content"] == [
        {"type": "input_image", "image_url": PNG, "detail": "auto"},
        {"type": "input_text", "text": "which part?"},
        {"type": "input_image", "image_url": "https://e.org/a.png", "detail": "low"},
        {"type": "input_file", "file_id": "f1"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AA", "filename": "a"},
    ]


def test_an_assistants_message_of_the_sdk_is_taken_as_it_came():
    """Its nulls say nothing, and what the API does not read of it is left out."""
    message = ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [tool_call("f")],
            "annotations": [],
            "reasoning_content": "hm",
        }
    )
    assert items(message, {"role": "tool", "tool_call_id": "call_1", "content": "7"})[0] == {
        "type": "function_call",
        "call_id": "call_1",
        "name": "f",
        "arguments": "{}",
    }


def test_an_assistants_texts_and_refusals_are_messages_of_its_own():
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    assert items(
        {"role": "assistant", "content": parts},
        {"role": "assistant", "content": None, "refusal": "c"},
    ) == [{"role": "assistant", "content": text} for text in "abc"]


def test_a_custom_tools_call_and_output_keep_their_kind():
    call = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    assert items(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ) == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select 1"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
    ]


def test_tools_are_flattened_and_strict_only_if_they_say_so():
    grammar = {"type": "grammar", "grammar": {"definition": "a+", "syntax": "regex"}}
    tools = [
        {"type": "function", "function": {"name": "f", "description": "F", "parameters": SCHEMA}},
        {"type": "function", "function": {"name": "g", "strict": True, "parameters": SCHEMA}},
        {"type": "function", "function": {"name": "h"}},
        {"type": "custom", "custom": {"name": "c", "format": grammar}},
    ]
    assert mapped(tools=tools)["tools"] == [
        {
            "type": "function",
            "name": "f",
            "description": "F",
            "parameters": SCHEMA,
            "strict": False,
        },
        {"type": "function", "name": "g", "parameters": SCHEMA, "strict": True},
        {
            "type": "function",
            "name": "h",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
        {
            "type": "custom",
            "name": "c",
            "format": {"type": "grammar", "definition": "a+", "syntax": "regex"},
        },
    ]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ({"type": "function", "function": {"name": "f"}}, {"type": "function", "name": "f"}),
        ({"type": "custom", "custom": {"name": "c"}}, {"type": "custom", "name": "c"}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            },
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        ),
    ],
)
def test_a_choice_of_tools_is_flattened(choice, said):
    assert mapped(tool_choice=choice)["tool_choice"] == said


def test_parameters_with_another_name_or_place_are_moved():
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}}
    made = mapped(
        response_format=form,
        verbosity="low",
        max_completion_tokens=9,
        reasoning_effort="low",
        logprobs=True,
        top_logprobs=2,
        stream_options={"include_usage": True, "include_obfuscation": False},
        n=1,
        modalities=["text"],
        frequency_penalty=0.0,
        presence_penalty=0,
    )
    made.pop("input")
    assert made == {
        "text": {
            "format": {"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True},
            "verbosity": "low",
        },
        "max_output_tokens": 9,
        "reasoning": {"effort": "low"},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
        "stream_options": {"include_obfuscation": False},
        "store": False,
    }
    assert mapped(max_tokens=5)["max_output_tokens"] == 5
    assert mapped(response_format={"type": "json_object"})["text"] == {
        "format": {"type": "json_object"}
    }


def test_parameters_of_both_apis_and_unknown_ones_pass_as_they_are():
    same = {
        "model": "m",
        "temperature": 0,
        "top_p": 0.5,
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "safety_identifier": "s",
    }
    assert mapped(**same) == {**same, "input": [QUESTION]}
    foreign = {"extra_body": {"x": 1}, "timeout": 3.0, "x_unknown": [1], "stream": True}
    assert responses_kwargs({"messages": [QUESTION], **foreign}) == {
        **foreign,
        "input": [QUESTION],
        "store": False,
    }


def test_words_of_the_responses_api_join_those_that_are_moved():
    made = mapped(reasoning={"summary": "auto"}, reasoning_effort="low", include=[], logprobs=True)
    assert made["reasoning"] == {"summary": "auto", "effort": "low"}
    assert made["include"] == ["message.output_text.logprobs"]


@pytest.mark.parametrize(
    "params",
    [
        {"stop": ["x"]},
        {"seed": 1},
        {"n": 2},
        {"logit_bias": {"1": 1}},
        {"presence_penalty": 0.5},
        {"frequency_penalty": -0.5},
        {"modalities": ["text", "audio"]},
        {"audio": {"voice": "a"}},
        {"functions": []},
        {"response_format": dict},
        {"max_tokens": 1, "max_completion_tokens": 2},
        {"reasoning": {"effort": "low"}, "reasoning_effort": "low"},
        {"input": [QUESTION]},
        {"messages": [{**QUESTION, "name": "ann"}]},
        {"messages": [{"role": "function", "name": "f", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        {"messages": [{"role": "assistant", "content": None, "audio": {"id": "a"}}]},
        {"messages": [{"role": "assistant", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"type": "other", "id": "1"}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"type": "function"}]}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"tools": [{"type": "function"}]},
        {"tool_choice": 3},
        {"logprobs": True, "include": True},
    ],
    ids=str,
)
def test_what_cannot_be_said_is_an_error_and_never_left_out(params):
    with pytest.raises(InvalidRequest):
        responses_kwargs({"messages": [QUESTION], **params})


@pytest.mark.parametrize("unset", [None, openai.NOT_GIVEN, openai.omit])
def test_a_parameter_that_is_not_given_says_nothing(unset):
    unsaid = dict.fromkeys(["stop", "seed", "tools", "max_tokens", "temperature", "n"], unset)
    assert responses_kwargs({"messages": [QUESTION], **unsaid}) == {
        "input": [QUESTION],
        "store": False,
    }


def test_a_prepared_request_maps_afresh_each_time():
    messages = [{"role": "system", "content": "s"}, QUESTION]
    request = ChatRequest.snapshot(model="m", messages=messages, tools=[])
    prepared = PreparedRequest(request, "q", Retrieval())
    first = prepared.responses_request
    first["input"].clear()
    again = prepared.responses_request
    assert [item["role"] for item in again["input"]] == ["developer", "user"]
    assert sync.PreparedRequest(prepared).responses_request == again
