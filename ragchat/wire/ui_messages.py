"""Events as the UI message stream of the Vercel AI SDK: what its ``useChat`` reads.

The protocol is that of ``ai`` 5 and later: https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ragchat.events import (
    Citation,
    Finished,
    ReasoningDelta,
    RefusalDelta,
    Sources,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from ragchat.wire.encoding import DONE, HEADERS, server_sent
from ragchat.wire.form import wire_form
from ragchat.wire.moments import Checked
from ragchat_retrieval.trace import StageEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragchat.wire.moments import Failure, WireEvent

_Part: TypeAlias = dict[str, Any]

_REASONS = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
}


@dataclass(slots=True)
class _Call:
    """A tool call on its way."""

    id: str
    custom: bool
    name: str = ""
    text: list[str] = field(default_factory=list)
    announced: bool = False


class UIMessageEncoder:
    """Writes the parts of one assistant message: that of the first choice; others are left out.

    - Presented passages are ``source-url`` parts, or ``source-document`` where they have no web
      address; ``providerMetadata.ragchat`` has number, id, text and place.
    - ``data-ragchat-sources``, ``data-ragchat-citation`` and ``data-ragchat-verification`` are our
      own events; ``data-ragchat-stage`` is sent as transient data. Offsets of citations count in
      the text of all text parts together.
    - Tool calls are dynamic tool parts. A refusal is a text part marked as one.

    Args:
        message_id: Id of the message; None makes one.
    """

    def __init__(self, *, message_id: str | None = None) -> None:
        self._id = f"msg-{uuid.uuid4().hex}" if message_id is None else message_id
        self._open: tuple[str, str] | None = None
        self._refusing = False
        self._parts = 0
        self._calls: dict[int, _Call] = {}
        self._shown: set[int | None] = {None}  # a passage without a number was not presented
        self._reason: str | None = None
        self._usage: Usage | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        return {**HEADERS, "x-vercel-ai-ui-message-stream": "v1"}

    def start(self) -> list[bytes]:
        """Returns the beginning of the message."""
        return _written([{"type": "start", "messageId": self._id}, {"type": "start-step"}])

    def feed(self, event: WireEvent) -> list[bytes]:
        """Takes the next event."""
        return [] if _choice(event) else _written(self._fed(event))

    def finish(self) -> list[bytes]:
        """Ends a whole turn."""
        end: _Part = {"type": "finish"}
        if self._reason is not None:
            end["finishReason"] = _REASONS.get(self._reason, "other")
        if self._usage is not None:
            form = wire_form(self._usage)
            end["messageMetadata"] = {"usage": {k: v for k, v in form.items() if k != "type"}}
        return [*_written([*self._close(), {"type": "finish-step"}, end]), DONE]

    def fail(self, failure: Failure) -> list[bytes]:
        """Ends a turn that failed."""
        return [*_written([*self._close(), {"type": "error", "errorText": failure.message}]), DONE]

    def _fed(self, event: WireEvent) -> list[_Part]:  # noqa: PLR0911 - one for each kind
        match event:
            case TextDelta():
                return self._delta("text", event.text)
            case RefusalDelta():
                return self._delta("text", event.text, refusing=True)
            case ReasoningDelta():
                return self._delta("reasoning", event.text)
            case ToolCallDelta():
                return self._called(event)
            case Sources():
                form = wire_form(event)
                fresh = [p for p in form["passages"] if p["number"] not in self._shown]
                self._shown.update(p["number"] for p in fresh)
                return [*map(_source, fresh), {"type": "data-ragchat-sources", "data": form}]
            case StageEvent() | Citation() | Checked():
                form = wire_form(event)
                transient = {"transient": True} if isinstance(event, StageEvent) else {}
                return [{"type": f"data-ragchat-{form['type']}", "data": form, **transient}]
            case Usage():
                self._usage = event
            case Finished():
                self._reason = event.finish_reason
                return [*self._close(), *self._ended_calls()]
        return []

    def _delta(
        self, kind: Literal["text", "reasoning"], text: str, *, refusing: bool = False
    ) -> list[_Part]:
        parts: list[_Part] = []
        if self._open is None or self._open[0] != kind or self._refusing != refusing:
            parts = self._close()
            self._parts += 1
            self._open, self._refusing = (kind, f"{kind}-{self._parts}"), refusing
            marked = {"providerMetadata": {"ragchat": {"refusal": True}}} if refusing else {}
            parts.append({"type": f"{kind}-start", "id": f"{kind}-{self._parts}", **marked})
        return [*parts, {"type": f"{kind}-delta", "id": f"{kind}-{self._parts}", "delta": text}]

    def _close(self) -> list[_Part]:
        if self._open is None:
            return []
        kind, id_ = self._open
        self._open = None
        return [{"type": f"{kind}-end", "id": id_}]

    def _called(self, event: ToolCallDelta) -> list[_Part]:
        """Announces a call with its first argument: until then its name may go on."""
        if event.index not in self._calls:
            self._parts += 1
            id_ = event.id or f"{self._id}-call-{self._parts}"
            self._calls[event.index] = _Call(id_, event.type == "custom")
        call = self._calls[event.index]
        call.name += event.name
        if not event.arguments:
            return []
        call.text.append(event.arguments)
        delta = {"toolCallId": call.id, "inputTextDelta": event.arguments}
        return [*_announced(call), {"type": "tool-input-delta", **delta}]

    def _ended_calls(self) -> list[_Part]:
        calls = [self._calls[index] for index in sorted(self._calls)]
        self._calls = {}  # those of a later round are others
        return [part for call in calls for part in [*_announced(call), _input(call)]]


def _choice(event: WireEvent) -> int:
    """Returns the choice that an event is about; 0 if it is about all of them."""
    choice = getattr(event, "choice", None)
    return choice if type(choice) is int else 0


def _announced(call: _Call) -> list[_Part]:
    if call.announced:
        return []
    call.announced = True
    begun = {"toolCallId": call.id, "toolName": call.name, "dynamic": True}
    encoding = {"inputEncoding": "text"} if call.custom else {}
    return [{"type": "tool-input-start", **begun, **encoding}]


def _input(call: _Call) -> _Part:
    """Returns the whole input of a call; a model may write arguments that are no JSON."""
    text = "".join(call.text)
    about = {"toolCallId": call.id, "toolName": call.name, "dynamic": True}
    try:
        given = text if call.custom else json.loads(text or "{}", parse_constant=_no_number)
    except (ValueError, RecursionError):
        problem = "the arguments are no valid JSON"
        return {"type": "tool-input-error", **about, "input": text, "errorText": problem}
    return {"type": "tool-input-available", **about, "input": given}


def _no_number(name: str) -> object:
    raise ValueError(name)


def _source(passage: _Part) -> _Part:
    kept = ("number", "id", "document_id", "headings", "page", "lines", "span", "text")
    about: _Part = {
        "sourceId": f"ragchat-{passage['number']}",
        "title": passage["label"],
        "providerMetadata": {"ragchat": {name: passage[name] for name in kept}},
    }
    if passage["url"] is not None:
        return {"type": "source-url", "url": passage["url"], **about}
    named = {} if passage["source"] is None else {"filename": passage["source"]}
    return {"type": "source-document", "mediaType": "text/plain", **about, **named}


def _written(parts: list[_Part]) -> list[bytes]:
    return [server_sent(part) for part in parts]
