"""Replies of a chat model as data: what the doubles say, in the shapes of ``chat.completions``.

`Reply` builds the payloads of one reply, whole or streamed; `as_object` gives them the attribute
names of the official SDK's objects without importing it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeAlias

Foreign: TypeAlias = Any
"""An object of a provider's SDK, or plain data in its place."""

CREATED = 1_700_000_000
"""The time stamp of every scripted reply: equal scripts give equal objects."""

_PIECES = re.compile(r"\S+\s*|\s+")
_DEFAULTS: Mapping[str, Mapping[str, None]] = {
    "message": dict.fromkeys(
        ("content", "refusal", "tool_calls", "function_call", "annotations", "audio")
    ),
    "delta": dict.fromkeys(("role", "content", "refusal", "tool_calls", "function_call")),
}


class SDKObject(SimpleNamespace):
    """Plain data behind attributes, with the SDK's ``model_dump`` and ``to_dict``."""

    def model_dump(self, *, exclude_none: bool = False, **_options: object) -> dict[str, Any]:
        """Returns the data as fresh plain dicts and lists."""
        items = (
            (key, _plain(value, exclude_none=exclude_none)) for key, value in vars(self).items()
        )
        return {key: value for key, value in items if not (exclude_none and value is None)}

    def to_dict(self, **_options: object) -> dict[str, Any]:
        """Returns the data without its null fields."""
        return self.model_dump(exclude_none=True)


def _plain(value: object, *, exclude_none: bool) -> object:
    if isinstance(value, SDKObject):
        return value.model_dump(exclude_none=exclude_none)
    if isinstance(value, list):
        return [_plain(item, exclude_none=exclude_none) for item in value]
    return value


def as_object(data: object, *, kind: str = "") -> Foreign:
    """Returns `data` with attributes for keys, at every level.

    Args:
        data: Mappings become objects and sequences lists; anything else stays.
        kind: ``message`` or ``delta`` adds the attributes that these always have in the SDK.
    """
    if isinstance(data, Mapping):
        fields = {**_DEFAULTS.get(kind, {}), **data}
        return SDKObject(**{key: as_object(value, kind=key) for key, value in fields.items()})
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return [as_object(item) for item in data]
    return data


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a chat model, whole or streamed."""

    text: str | None = ""
    """Without any, it is what `pieces` are of."""

    tool_calls: Sequence[Mapping[str, Any]] = field(default=(), kw_only=True)
    """Each ``{"id", "type": "function", "function": {"name", "arguments"}}``, or ``{"id", "type":
    "custom", "custom": {"name", "input"}}``."""

    refusal: str | None = field(default=None, kw_only=True)
    finish_reason: str | None = field(default=None, kw_only=True)
    """None means ``tool_calls`` where there are any, else ``stop``."""

    usage: Mapping[str, Any] | None = field(default=None, kw_only=True)
    """None counts words, which is no real tokeniser but deterministic."""

    pieces: Sequence[str] | None = field(default=None, kw_only=True)
    """How a stream cuts the text; None cuts after each word."""

    chunks: Sequence[Mapping[str, Any]] | None = field(default=None, kw_only=True)
    """Exact payloads of a stream, in place of those made from the other fields."""

    def __post_init__(self) -> None:
        if self.pieces and not self.text:
            object.__setattr__(self, "text", "".join(self.pieces))

    def completion(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the payload of a whole ``chat.completion``."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        message["refusal"] = self.refusal
        if self.tool_calls:
            message["tool_calls"] = [dict(call) for call in self.tool_calls]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self._finish_reason,
        }
        return {
            **_envelope("chat.completion", params),
            "choices": [choice],
            "usage": self._usage(params),
        }

    def stream(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns the payloads of the ``chat.completion.chunk`` objects, in order.

        The last one holds the usage and no choice, where ``stream_options`` asks for it.
        """
        if self.chunks is not None:
            return [dict(chunk) for chunk in self.chunks]
        envelope = _envelope("chat.completion.chunk", params)
        payloads = [{**envelope, "choices": [_choice(delta)]} for delta in self._deltas()]
        payloads.append({**envelope, "choices": [_choice({}, self._finish_reason)]})
        if (params.get("stream_options") or {}).get("include_usage"):
            payloads.append({**envelope, "choices": [], "usage": self._usage(params)})
        return payloads

    @property
    def _finish_reason(self) -> str:
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    def _deltas(self) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        pieces = _PIECES.findall(self.text or "") if self.pieces is None else self.pieces
        deltas += [{"content": piece} for piece in pieces]
        deltas += [{"refusal": piece} for piece in _PIECES.findall(self.refusal or "")]
        for index, call in enumerate(self.tool_calls):
            kind, name = ("custom", "input") if "custom" in call else ("function", "arguments")
            text = call[kind][name]
            head = {**call, "index": index, kind: {**call[kind], name: ""}}
            deltas.append({"tool_calls": [head]})
            middle = len(text) // 2
            for part in filter(None, (text[:middle], text[middle:])):
                deltas.append({"tool_calls": [{"index": index, kind: {name: part}}]})
        return deltas

    def _usage(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if self.usage is not None:
            return dict(self.usage)
        prompt = len(str(params.get("messages", "")).split())
        completion = len((self.text or "").split())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }


def _envelope(kind: str, params: Mapping[str, Any]) -> dict[str, Any]:
    model = params.get("model", "scripted")
    return {"id": "chatcmpl-scripted", "object": kind, "created": CREATED, "model": model}


def _choice(delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {
        "index": 0,
        "delta": dict(delta),
        "logprobs": None,
        "finish_reason": finish_reason,
    }
