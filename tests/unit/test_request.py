from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel

from ragchat.errors import InvalidAugmentation, InvalidRequest, NoFinalUserMessage
from ragchat.request import ChatRequest
from ragchat.testing import tool_call

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
HISTORY = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "weather?", "name": "ann"},
    {"role": "assistant", "content": None, "tool_calls": [tool_call("weather")]},
    {"role": "tool", "tool_call_id": "call_1", "content": "12 C"},
    {"role": "assistant", "x_unknown": [1, {"deep": True}]},
]


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def test_the_callers_objects_are_never_mutated_and_later_changes_have_no_effect():
    params = {"model": "m", "messages": [*copy.deepcopy(HISTORY), user("and tomorrow?")]}
    before = copy.deepcopy(params)
    request = ChatRequest.snapshot(**params)
    changed = request.with_question("new")
    assert params == before
    params["messages"][2]["tool_calls"].clear()
    params["messages"].pop()
    assert request.kwargs() == before
    assert changed.kwargs()["messages"][:-1] == before["messages"][:-1]


def test_what_is_handed_out_is_a_fresh_copy_each_time():
    request = ChatRequest.snapshot(messages=[*HISTORY, user("q")])
    request.kwargs()["messages"][2]["tool_calls"].clear()
    request.history[4]["x_unknown"].clear()
    assert request.kwargs()["messages"][:-1] == HISTORY
    assert list(request.history) == HISTORY


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(
        st.dictionaries(st.text(), JSON, max_size=4).map(
            lambda extra: {"role": "user", **extra, "role_": 1}
        ),
        max_size=4,
    ),
    st.text(),
)
def test_all_messages_before_the_last_are_byte_identical(
    history: list[dict[str, object]], new: str
):
    history = [{**message, "role": "assistant"} for message in history]
    request = ChatRequest.snapshot(messages=[*history, user("q")]).with_question(new)
    messages = request.kwargs()["messages"]
    assert json.dumps(messages[:-1]) == json.dumps(history)
    assert messages[-1] == user(new)


def test_parameters_are_kept_and_other_objects_stay_the_same_object():
    timeout = object()
    request = ChatRequest.snapshot(
        messages=[user("q")],
        model="m",
        temperature=0,
        timeout=timeout,
        tools=({"type": "function"},),
    )
    kwargs = request.kwargs()
    assert kwargs["timeout"] is timeout
    assert (kwargs["model"], kwargs["temperature"], kwargs["tools"]) == (
        "m",
        0,
        [{"type": "function"}],
    )
    assert request.model == "m"
    assert ChatRequest.snapshot(messages=[user("q")]).model is None


def test_a_request_may_be_given_as_a_mapping_a_model_or_another_request_and_parameters_win():
    class Body(BaseModel):
        model: str
        messages: list[dict[str, str]]
        temperature: float = 1.0

    given = {"model": "a", "messages": [user("q")]}
    expected = {**given, "model": "b"}
    assert ChatRequest.snapshot(given, model="b").kwargs() == expected
    assert ChatRequest.snapshot(MappingProxyType(given), model="b").kwargs() == expected
    assert ChatRequest.snapshot(ChatRequest.snapshot(given), model="b").kwargs() == expected
    assert ChatRequest.snapshot(Body(**given), model="b").kwargs() == expected


def test_messages_tools_and_content_may_be_iterators():
    request = ChatRequest.snapshot(
        messages=iter([user(iter([text("q"), IMAGE]))]), tools=iter([{"a": 1}])
    )
    assert request.question == "q"
    assert (
        request.kwargs()
        == request.kwargs()
        == {
            "messages": [user([text("q"), IMAGE])],
            "tools": [{"a": 1}],
        }
    )


def test_an_iterator_anywhere_in_a_message_is_read_once_and_sent_every_time():
    """The SDK types tool calls and their like as plain iterables too."""
    calls = [tool_call("weather")]
    request = ChatRequest.snapshot(
        messages=(
            {"role": "assistant", "content": (text("a"),), "tool_calls": iter(calls)},
            user(x for x in [text("q")]),
        ),
        tools=({"type": "function", "function": {"x": iter("ab")}} for _ in range(1)),
        stop=("a", "b"),
    )
    extended = request.with_messages(iter([{"role": "assistant", "tool_calls": iter(calls)}]))
    sent = [{"role": "assistant", "content": [text("a")], "tool_calls": calls}, user([text("q")])]
    for _ in range(2):
        assert request.history[0]["tool_calls"] == calls
        assert request.kwargs() == {
            "messages": sent,
            "tools": [{"type": "function", "function": {"x": ["a", "b"]}}],
            "stop": ("a", "b"),
        }
        assert extended.kwargs()["messages"][-1]["tool_calls"] == calls


def test_a_parameter_may_have_any_name():
    given = {"request": 1, "cls": 2, "stage": 3, "self": 4}
    request = ChatRequest.snapshot(messages=[user("q")], **given)
    assert request.kwargs() == {"messages": [user("q")], **given}


def test_pydantic_messages_are_copied_and_kept_and_read_as_mappings_in_the_history():
    message = ChatCompletionMessage(role="assistant", content=None, tool_calls=None)
    request = ChatRequest.snapshot(messages=[user("a"), message, user("q")])
    message.content = "changed later"
    (first, kept, _last) = request.kwargs()["messages"]
    assert first == user("a")
    assert isinstance(kept, ChatCompletionMessage)
    assert kept.content is None
    assert isinstance(request.history[1], Mapping)
    assert request.history[1]["role"] == "assistant"


def test_a_pydantic_user_message_takes_new_text():
    class Message(BaseModel):
        role: str
        content: str | list[dict[str, object]]
        name: str = "ann"

    given = Message(role="user", content=[text("q"), IMAGE])
    (message,) = ChatRequest.snapshot(messages=[given]).with_question("new").kwargs()["messages"]
    assert message == Message(role="user", content=[text("new"), IMAGE])
    assert given.content[0] == text("q")


def test_a_model_that_keeps_its_text_elsewhere_is_refused():
    """Another library's message would keep its old text, and the evidence would be lost."""

    class Message(BaseModel):
        role: str
        blocks: list[str]

        @property
        def content(self) -> str:
            return self.blocks[0]

    request = ChatRequest.snapshot(messages=[Message(role="user", blocks=["q"])])
    with pytest.raises(InvalidRequest, match="a Message cannot be replaced"):
        request.with_question("new")


def test_a_model_that_takes_any_field_takes_new_text():
    class Message(BaseModel, extra="allow"):
        role: str

    given = Message(role="user", content="q")
    (message,) = ChatRequest.snapshot(messages=[given]).with_question("new").kwargs()["messages"]
    assert message.model_dump() == {"role": "user", "content": "new"}


def test_a_message_object_that_is_neither_mapping_nor_model_is_refused():
    odd = SimpleNamespace(role="assistant", content="hi")
    request = ChatRequest.snapshot(messages=[odd, user("q")])
    with pytest.raises(InvalidRequest, match="SimpleNamespace"):
        _ = request.history
    with pytest.raises(InvalidRequest, match="SimpleNamespace"):
        ChatRequest.snapshot(messages=[SimpleNamespace(role="user", content="q")]).with_question(
            "x"
        )


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("a"), {"role": "assistant", "content": "b"}],
        [user("a"), {"role": "tool", "tool_call_id": "1", "content": "b"}],
        [{"role": "system", "content": "a"}],
    ],
)
def test_the_last_message_must_be_from_the_user_and_nothing_searches_backwards(messages):
    with pytest.raises(NoFinalUserMessage):
        ChatRequest.snapshot(messages=messages)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"messages": None},
        {"messages": "hi"},
        {"messages": 3},
        {"messages": ["hi"]},
        {"messages": user("a")},
    ],
)
def test_messages_must_be_messages(params):
    with pytest.raises(InvalidRequest):
        ChatRequest.snapshot(**params)


@pytest.mark.parametrize("request_", ["text", [user("q")], {1: 2}, 5])
def test_a_request_of_another_kind_is_refused(request_):
    with pytest.raises(InvalidRequest):
        ChatRequest.snapshot(request_)


@pytest.mark.parametrize(
    ("content", "question"),
    [
        ("q", "q"),
        (" q \n", " q \n"),
        ([text("a"), IMAGE, text("b")], "a\nb"),
        ([IMAGE], ""),
        ([], ""),
        (None, ""),
        ([{"type": "text", "text": None}], ""),
    ],
)
def test_the_question_is_the_text_parts_of_the_last_message_joined_by_newlines(content, question):
    assert ChatRequest.snapshot(messages=[user(content)]).question == question


@pytest.mark.parametrize("before", [[], [IMAGE]])
@pytest.mark.parametrize("after", [[], [IMAGE, {"type": "file", "file": {"file_id": "f"}}]])
def test_the_one_text_part_is_replaced_in_place_and_all_others_keep_value_and_position(
    before, after
):
    content = [*before, {**text("q"), "cache_control": {"type": "ephemeral"}}, *after]
    request = ChatRequest.snapshot(messages=[user(content)])
    request.check_takes_text()
    (message,) = request.with_question("new").kwargs()["messages"]
    assert message["content"] == [
        *before,
        {"type": "text", "text": "new", "cache_control": {"type": "ephemeral"}},
        *after,
    ]


@pytest.mark.parametrize(
    "content", [[text("a"), text("b")], [text("a"), IMAGE, text("a")], [IMAGE], None]
)
def test_several_text_parts_or_none_cannot_be_replaced(content):
    request = ChatRequest.snapshot(messages=[user(content)])
    with pytest.raises(InvalidAugmentation):
        request.check_takes_text()
    with pytest.raises(InvalidAugmentation):
        request.with_question("new")


def test_appended_messages_follow_the_active_one_and_leave_it_active():
    rounds = [
        {"role": "assistant", "content": None, "tool_calls": [tool_call("f")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "12"},
    ]
    request = ChatRequest.snapshot(messages=[*HISTORY, user("q")]).with_messages(iter(rounds))
    assert request.kwargs()["messages"] == [*HISTORY, user("q"), *rounds]
    assert request.question == "q"
    assert list(request.history) == HISTORY
    assert request.with_question("new").kwargs()["messages"][-3] == user("new")
    for bad in ("text", [3], None):
        with pytest.raises(InvalidRequest):
            request.with_messages(bad)


def test_what_holds_itself_or_is_nested_without_end_is_refused():
    inside: dict[str, object] = {}
    inside["again"] = inside
    request = ChatRequest.snapshot(messages=[user("q")])
    for params in ({"metadata": inside}, {"tools": [inside]}):
        with pytest.raises(InvalidRequest, match="nested"):
            ChatRequest.snapshot(messages=[user("q")], **params)
    with pytest.raises(InvalidRequest, match="nested"):
        request.with_messages([{"role": "tool", "content": [inside]}])
