"""The keyword arguments of ``chat.completions.create`` as those of ``responses.create``.

What both APIs can say is said in the form of the second, with the defaults of the first: tools are
not strict unless they say so, and the response is not stored. What the Responses API cannot say is
an error, never left out. Parameters that this module does not know pass as they are.

The form is that of OpenAI's guide for moving from Chat Completions to Responses, and of the types
in the ``openai`` package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ragchat.errors import InvalidRequest
from ragchat.request import as_mapping

if TYPE_CHECKING:
    from ragchat.access import Foreign

_Item: TypeAlias = dict[str, Any]

_UNSAYABLE = (
    "audio",
    "function_call",
    "functions",
    "logit_bias",
    "prediction",
    "seed",
    "stop",
    "web_search_options",
)
"""Parameters that the Responses API has no word for."""

_OUTPUT_ONLY = ("annotations", "reasoning", "reasoning_content", "reasoning_details")
"""Members of an assistant message that Chat Completions sends and does not read."""

_NO_PARAMETERS: Mapping[str, object] = {"type": "object", "properties": {}}


def responses_kwargs(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keyword arguments for ``client.responses.create``.

    Args:
        params: Those for ``client.chat.completions.create``. They are not changed, and what passes
            as it is is not copied.

    Raises:
        InvalidRequest: The Responses API cannot say something of it.
    """
    given = {name: value for name, value in params.items() if not _is_unset(value)}
    for name in _UNSAYABLE:
        if name in given:
            raise _unsayable(name)
    made: dict[str, Any] = {}
    for name, value in given.items():
        _merge(made, _said(name, value))
    made.setdefault("store", False)
    return made


def _said(name: str, value: Foreign) -> dict[str, Any]:
    if name not in _PARAMETERS:
        return {name: value}
    try:
        return _PARAMETERS[name](value)
    except (AttributeError, KeyError, TypeError):
        raise InvalidRequest(f"{name} is not of the form of Chat Completions") from None


def _merge(made: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Adds parameters; two may fill the same mapping, or ask for more to be included."""
    for name, value in more.items():
        before = made.get(name)
        if isinstance(before, dict) and isinstance(value, dict) and not before.keys() & value:
            made[name] = {**before, **value}
        elif name == "include" and isinstance(before, list) and isinstance(value, list):
            made[name] = [*before, *value]
        elif name in made:
            raise InvalidRequest(f"{name} is given twice, in the words of both APIs")
        else:
            made[name] = value


def _is_unset(value: object) -> bool:
    """Says whether a parameter has its default: None, or the SDK's mark of one not given."""
    # By name, so that openai is not imported for it.
    return value is None or type(value).__name__ in ("NotGiven", "Omit")


def _unsayable(name: str) -> InvalidRequest:
    return InvalidRequest(f"{name} cannot be said in the Responses API")


# Parameters


def _input(messages: Iterable[object]) -> _Item:
    items: list[_Item] = []
    custom: set[str] = set()
    for position, message in enumerate(messages):
        at = f"messages[{position}]"
        said = {name: v for name, v in as_mapping(message).items() if v is not None}
        role, content = said.pop("role"), said.pop("content", None)
        if "name" in said and role != "tool":
            raise _unsayable(f"{at}.name")
        match role:
            case "assistant":
                items += _assistant(said, content, custom, at)
            case "tool":
                items.append(_output(said, content, custom, at))
            case "system" | "developer" | "user":
                role = "developer" if role == "system" else role
                items.append({"role": role, "content": _content(content, at), **said})
            case _:
                raise _unsayable(f"{at}.role")
    return {"input": items}


def _assistant(said: _Item, content: object, custom: set[str], at: str) -> Iterator[_Item]:
    """One item for each text and each call; more members than these pass with the texts."""
    calls = said.pop("tool_calls", ())
    refusal = said.pop("refusal", None)
    for name in ("audio", "function_call"):
        if name in said:
            raise _unsayable(f"{at}.{name}")
    more = {name: value for name, value in said.items() if name not in _OUTPUT_ONLY}
    texts = [content] if isinstance(content, str) else [*_texts(content, at)]
    for text in filter(None, [*texts, refusal]):
        yield {"role": "assistant", "content": text, **more}
    for call in calls:
        yield _call(call, custom, at)


def _texts(content: object, at: str) -> Iterator[str]:
    for part in _parts(content):
        kind = part.get("type")
        if kind not in ("text", "refusal"):
            raise _unsayable(f"{at}: a part of type {kind!r} of the assistant's")
        yield part[kind]


def _call(call: Mapping[str, Any], custom: set[str], at: str) -> _Item:
    kind = call.get("type", "function")
    if kind == "custom":
        custom.add(call["id"])
        body = call["custom"]
        said = {"type": "custom_tool_call", "name": body["name"], "input": body["input"]}
    elif kind == "function":
        body = call["function"]
        said = {"type": "function_call", "name": body["name"], "arguments": body["arguments"]}
    else:
        raise _unsayable(f"{at}: a tool call of type {kind!r}")
    return {**said, "call_id": call["id"]}


def _output(said: _Item, content: object, custom: set[str], at: str) -> _Item:
    call = said.pop("tool_call_id")
    said.pop("name", None)  # the tool's, which the call has said already
    kind = "custom_tool_call_output" if call in custom else "function_call_output"
    return {"type": kind, "call_id": call, "output": _content(content, at), **said}


def _content(content: object, at: str) -> str | list[_Item]:
    if isinstance(content, str):
        return content
    return [_part(part, at) for part in _parts(content)]


def _parts(content: object) -> list[Mapping[str, Any]]:
    return [as_mapping(part) for part in content] if isinstance(content, Sequence) else []


def _part(part: Mapping[str, Any], at: str) -> _Item:
    more = {name: value for name, value in part.items() if value is not None}
    match more.pop("type", None):
        case "text":
            return {"type": "input_text", **more}
        case "image_url":
            image = more.pop("image_url")
            detail = image.get("detail") or "auto"
            return {"type": "input_image", "image_url": image["url"], "detail": detail, **more}
        case "file":
            file = {name: value for name, value in more.pop("file").items() if value is not None}
            return {"type": "input_file", **file, **more}
        case kind:
            raise _unsayable(f"{at}: a part of type {kind!r}")


def _tools(tools: Iterable[object]) -> _Item:
    return {"tools": [_tool(as_mapping(tool)) for tool in tools]}


def _tool(tool: Mapping[str, Any]) -> _Item:
    match tool.get("type"):
        case "function":
            body = {name: v for name, v in tool["function"].items() if v is not None}
            defaults = {"parameters": dict(_NO_PARAMETERS), "strict": False}
            return {"type": "function", **defaults, **body}
        case "custom":
            body = dict(tool["custom"])
            if (body.get("format") or {}).get("type") == "grammar":
                body["format"] = {"type": "grammar", **body["format"]["grammar"]}
            return {"type": "custom", **body}
        case _:
            return dict(tool)


def _named(tool: Mapping[str, Any]) -> _Item:
    """A tool that is only named: ``{"type": "function", "function": {"name": …}}``, flattened."""
    for kind in ("function", "custom"):
        if tool.get("type") == kind and kind in tool:
            return {"type": kind, **tool[kind]}
    return dict(tool)


def _tool_choice(choice: Foreign) -> _Item:
    if isinstance(choice, str):
        return {"tool_choice": choice}
    chosen = as_mapping(choice)
    if chosen.get("type") == "allowed_tools" and "allowed_tools" in chosen:
        allowed = chosen["allowed_tools"]
        tools = [_named(tool) for tool in allowed["tools"]]
        return {"tool_choice": {"type": "allowed_tools", "mode": allowed["mode"], "tools": tools}}
    return {"tool_choice": _named(chosen)}


def _format(form: Foreign) -> _Item:
    if isinstance(form, type):
        raise _unsayable("a class as response_format")
    said = as_mapping(form)
    if said.get("type") == "json_schema":
        said = {"type": "json_schema", **said["json_schema"]}
    return {"text": {"format": dict(said)}}


def _stream_options(options: Foreign) -> _Item:
    """Usage always comes with the last event, so that nobody has to ask for it."""
    kept = {name: v for name, v in as_mapping(options).items() if name != "include_usage"}
    return {"stream_options": kept} if kept else {}


def _only(name: str, default: object) -> Callable[[Foreign], _Item]:
    """A parameter that may be left out where it has its default, and not said otherwise."""

    def said(value: Foreign) -> _Item:
        if value != default:
            raise _unsayable(f"{name} other than {default!r}")
        return {}

    return said


_PARAMETERS: Mapping[str, Callable[[Foreign], _Item]] = {
    "messages": _input,
    "tools": _tools,
    "tool_choice": _tool_choice,
    "response_format": _format,
    "verbosity": lambda level: {"text": {"verbosity": level}},
    "max_completion_tokens": lambda limit: {"max_output_tokens": limit},
    "max_tokens": lambda limit: {"max_output_tokens": limit},
    "reasoning_effort": lambda effort: {"reasoning": {"effort": effort}},
    "logprobs": lambda wanted: {"include": ["message.output_text.logprobs"]} if wanted else {},
    "stream_options": _stream_options,
    "n": _only("n", 1),
    "frequency_penalty": _only("frequency_penalty", 0),
    "presence_penalty": _only("presence_penalty", 0),
    "modalities": _only("modalities", ["text"]),
}
