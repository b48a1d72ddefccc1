"""Every parameter of the API, in every form that the official client's own types allow."""

from __future__ import annotations

import collections.abc
import types
import typing
from typing import Any, Literal, Union

import pytest
from openai.types.chat import completion_create_params as official
from typing_extensions import is_typeddict

import ragchat

ASKED = {"role": "user", "content": "How many days of leave do I get?"}
PARAMETERS = {
    **typing.get_type_hints(official.CompletionCreateParamsNonStreaming),
    **typing.get_type_hints(official.CompletionCreateParamsStreaming),
}
OURS = {"model", "messages", "stream"}
"""What the server chooses, or what it writes its evidence into."""

SCALARS = {str: "text", int: 2, float: 0.5, bool: True, object: {"type": "object"}, bytes: "AA=="}


def forms(kind: Any) -> list[Any]:  # noqa: PLR0911 - one for each kind of type
    """Returns values of a type, one for each member of a union and each word of a literal."""
    if kind in SCALARS:
        return [SCALARS[kind]]
    if kind is None or kind is type(None):
        return [None]
    if kind is Any:
        return [SCALARS[object]]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if is_typeddict(kind):
        return mappings(typing.get_type_hints(kind))
    if origin is Literal:
        return list(inner)
    if origin in (Union, types.UnionType):
        return [value for each in inner for value in forms(each)]
    if origin in (dict, collections.abc.Mapping):
        return [{"name": value} for value in forms(inner[1])]
    if origin in (list, collections.abc.Iterable, collections.abc.Sequence):
        return [[value] for value in forms(inner[0])]
    if origin in (typing.Required, typing.NotRequired):
        return forms(inner[0])
    raise TypeError(f"no value of {kind} can be made")


def mappings(keys: dict[str, Any]) -> list[Any]:
    """Returns mappings that have every key, one more for each further form of a value."""
    known = {name: forms(kind) for name, kind in keys.items()}
    first = {name: values[0] for name, values in known.items()}
    others = [{**first, name: value} for name, values in known.items() for value in values[1:]]
    return [first, *others]


@pytest.fixture
async def served(serve, upstream):
    index = ragchat.in_memory()
    await index.ingest(ragchat.Document("leave", "Employees get 25 days of paid leave a year."))
    return await serve(index, model="small", upstream=upstream)


@pytest.mark.parametrize("name", sorted(PARAMETERS.keys() - OURS))
async def test_every_parameter_reaches_the_model_as_it_was_given(served, upstream, name):
    """Whole and streamed; options of a stream go with a stream only, as the API wants it."""
    ways = [True] if name == "stream_options" else [False, True]
    given = [(stream, value) for stream in ways for value in forms(PARAMETERS[name])]
    for stream, value in given:
        await ask(served, stream=stream, messages=[ASKED], **{name: value})
    sent = [request.json for request in upstream.requests]
    assert [(body.get("stream", False), body[name]) for body in sent] == given


async def test_every_kind_of_message_reaches_the_model_as_it_was_given(served, upstream):
    """All but the last one of the user."""
    given = [message for (message,) in forms(PARAMETERS["messages"])]
    assert {message["role"] for message in given} >= {"developer", "system", "user", "tool"}
    for message in given:
        await ask(served, stream=False, messages=[message, ASKED])
    sent = [request.json["messages"] for request in upstream.requests]
    assert [first for first, _ in sent] == given
    assert all("25 days" in last["content"] for _, last in sent)


async def ask(served, *, stream, **parameters):
    answer = await served.openai.chat.completions.create(model="any", stream=stream, **parameters)
    if stream:
        assert [chunk async for chunk in answer]
    else:
        assert answer.choices[0].message.content == "You get 25 days [1]."
