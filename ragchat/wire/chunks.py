"""Events as chunks of a streamed chat completion, for any client of the OpenAI API."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ragchat.events import (
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragchat.wire.moments import Failure, WireEvent


class ChunkEncoder:
    """Writes ``chat.completion.chunk`` objects; annotations are on the last chunk of a choice.

    Citations and checks have no form of their own there. Reasoning is ``reasoning_content``. Tool
    calls are the client's to answer: leave out the events of those that you answer yourself.

    Args:
        model: The model's name, as the client knows it.
        sources: Sends the sources before the first token, as a chunk without choices that has a
            field ``ragchat``. Clients that do not expect a chunk without choices fail on it.
        id: Of the completion; None makes one.
        created: Time of the completion in seconds since 1970; None is now.
    """

    def __init__(
        self,
        model: str,
        *,
        sources: bool = False,
        id: str | None = None,
        created: int | None = None,
    ) -> None:
        self._sources = sources
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}" if id is None else id,
            "object": "chat.completion.chunk",
            "created": int(time.time()) if created is None else created,
            "model": model,
        }
        self._begun: set[int] = set()
        self._held: dict[int, Finished] = {}
        self._usage: Usage | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        return HEADERS

    def start(self) -> list[bytes]:
        """Returns nothing: a choice begins with its own first chunk."""
        return []

    def feed(self, event: WireEvent) -> list[bytes]:  # noqa: PLR0911 - one for each kind
        """Takes the next event."""
        match event:
            case TextDelta():
                return self._chunk(event.choice, {"content": event.text})
            case RefusalDelta():
                return self._chunk(event.choice, {"refusal": event.text})
            case ReasoningDelta():
                return self._chunk(event.choice, {"reasoning_content": event.text})
            case ToolCallDelta():
                return self._chunk(event.choice, {"tool_calls": [_call(event)]})
            case Finished():
                return self._finished(event)
            case Usage():
                self._usage = event
            case Sources() if self._sources:
                return [server_sent({**self._head, "choices": [], "ragchat": wire_form(event)})]
        return []

    def finish(self) -> list[bytes]:
        """Ends a whole turn: the usage, if the provider counted it, then ``[DONE]``."""
        ends = [piece for held in self._held.values() for piece in self._end(held)]
        usage = None if self._usage is None else _usage(self._usage)
        counted = [] if usage is None else [{**self._head, "choices": [], "usage": usage}]
        return [*ends, *map(server_sent, counted), DONE]

    def fail(self, failure: Failure) -> list[bytes]:
        """Ends a turn that failed: clients raise what ``error`` says."""
        error = {"message": failure.message, "type": failure.code, "code": failure.code}
        return [server_sent({"error": {**error, "param": None}})]

    def _finished(self, event: Finished) -> list[bytes]:
        """Ends a choice, unless another round may follow the calls that it ends with."""
        held = self._held.pop(event.choice, None)
        if held is not None:
            event = replace(event, annotations=(*held.annotations, *event.annotations))
        if event.finish_reason in {"tool_calls", "function_call"}:
            self._held[event.choice] = event
            return []
        return self._end(event)

    def _end(self, event: Finished) -> list[bytes]:
        cited = {"annotations": list(event.annotations)} if event.annotations else {}
        return self._chunk(event.choice, cited, event.finish_reason)

    def _chunk(self, index: int, delta: dict[str, Any], reason: str | None = None) -> list[bytes]:
        if index not in self._begun:
            self._begun.add(index)
            delta = {"role": "assistant", **delta}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        return [server_sent({**self._head, "choices": [choice]})]


def _call(event: ToolCallDelta) -> dict[str, Any]:
    kind, text = ("custom", "input") if event.type == "custom" else ("function", "arguments")
    body = {"name": event.name} if event.name else {}
    named = {"id": event.id, "type": event.type or kind} if event.id else {}
    return {"index": event.index, **named, kind: {**body, text: event.arguments}}


def _usage(usage: Usage) -> dict[str, Any] | None:
    """Returns the usage in the provider's form, None if it did not count both sides."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    if prompt is None or completion is None:
        return None
    counted: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion if usage.total_tokens is None else usage.total_tokens,
    }
    if usage.cached_tokens is not None:
        counted["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        counted["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return counted
