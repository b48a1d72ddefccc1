"""OpenTelemetry: a span for each preparation, search, stage and helper call of a model.

Names follow the conventions for generative AI, github.com/open-telemetry/semantic-conventions-genai
v0.1.0, which are still in development; what they have no name for is under ``ragchat.``.

`opentelemetry-api` is imported here and nowhere else, and only when `instrument` asks for it. Where
an application has imported it and set a tracer provider itself, spans go there unasked. Otherwise
nothing is made. Errors are told by their class; texts of queries, documents, prompts and replies
only on request, because they may be private.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import TracerProvider

    from ragchat_retrieval.recording import Facts
    from ragchat_retrieval.trace import Outcome

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable that asks for texts in spans; read when spans are first made for a provider."""

_CAPTURING = frozenset({"true", "1", "span_only", "span_and_event"})

_RETRIEVALS = frozenset({"retrieve", "search"})

_NAMES = {
    "operation": "gen_ai.operation.name",
    "model": "gen_ai.request.model",
    "provider": "gen_ai.provider.name",
    "data_source": "gen_ai.data_source.id",
    "top_k": "gen_ai.retrieval.top_k",
    "query": "gen_ai.retrieval.query.text",
    "documents": "gen_ai.retrieval.documents",
    "input": "gen_ai.input.messages",
    "output": "gen_ai.output.messages",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}
_CONTENT = frozenset({"query", "documents", "input", "output"})


def _message(role: str, text: object, **more: str) -> str:
    parts = [{"type": "text", "content": text}]
    return json.dumps([{"role": role, "parts": parts, **more}], ensure_ascii=False)


_FORMS: Mapping[str, Callable[[Any], object]] = {
    "documents": json.dumps,
    "input": lambda text: _message("user", text),
    "output": lambda text: _message("assistant", text, finish_reason="stop"),
}
"""Attributes that the conventions want as JSON."""

_chosen: Spans | None = None
_found: Spans | None = None


def instrument(
    tracer_provider: TracerProvider | None = None, *, capture_content: bool | None = None
) -> Callable[[], None]:
    """Makes spans from now on, for the whole process.

    Args:
        tracer_provider: Where they go; None is OpenTelemetry's global provider.
        capture_content: Whether spans hold the texts of queries, prompts and replies and the ids of
            what was found; None does what the variable `CAPTURE` says, by default not.

    Returns:
        What ends it again.

    Raises:
        MissingExtra: `opentelemetry-api` is not installed.
    """
    global _chosen
    try:
        api = import_module("opentelemetry.trace")
    except ImportError:
        raise MissingExtra("otel", "instrument()") from None
    before, _chosen = _chosen, Spans(api, tracer_provider, capture_content=capture_content)

    def undo() -> None:
        global _chosen  # noqa: PLW0603 - as above
        _chosen = before

    return undo


def observer() -> Spans | None:
    """Returns what makes spans, if anybody wants them; imports nothing."""
    global _found  # noqa: PLW0603 - made once for the process's provider
    if _chosen is not None:
        return _chosen
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None or not hasattr(api, "get_tracer_provider"):  # or still being imported
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None  # nobody has set one
    if _found is None or _found.provider is not provider:
        _found = Spans(api, provider)
    return _found


class Spans:
    """Makes spans of stages and calls; an `Observer`.

    Args:
        api: The module ``opentelemetry.trace``.
        provider: Where spans go; None is the global provider.
        capture_content: As for `instrument`.
    """

    def __init__(
        self,
        api: Any,  # noqa: ANN401 - a module that may not be there
        provider: TracerProvider | None,
        *,
        capture_content: bool | None = None,
    ) -> None:
        if capture_content is None:
            capture_content = os.environ.get(CAPTURE, "").strip().lower() in _CAPTURING
        self.api = api
        self.provider = provider
        self.captures = capture_content
        self._tracer = api.get_tracer("ragchat", tracer_provider=provider)

    def begin(self, name: str, facts: Facts) -> Open:
        """Starts a span inside the current one and makes it the current one."""
        kind = self.api.SpanKind.INTERNAL
        if "operation" in facts:
            name = f"{name} {facts['model']}".rstrip()
            kind = self.api.SpanKind.CLIENT
        elif name in _RETRIEVALS:
            facts = {"operation": "retrieval", **facts}
            name = f"retrieval {facts.get('data_source') or ''}".rstrip()
        else:
            name = f"ragchat.{name}"
        attributes = self.attributes(facts)
        return Open(self, self._tracer.start_span(name, kind=kind, attributes=attributes))

    def tell(self, facts: Facts) -> None:
        """Adds to the current span."""
        self.api.get_current_span().set_attributes(self.attributes(facts))

    def attributes(self, facts: Facts) -> dict[str, Any]:
        """Returns facts under their conventional names, without texts unless they are wanted."""
        return {
            _NAMES.get(name, f"ragchat.{name}"): _FORMS[name](value) if name in _FORMS else value
            for name, value in facts.items()
            if value not in (None, "", []) and (self.captures or name not in _CONTENT)
        }


class Open:
    """A span that has begun and is the current one."""

    def __init__(self, spans: Spans, span: OtelSpan) -> None:
        self._spans = spans
        self._span = span
        # An error's message and stack may hold content, so neither is left to OpenTelemetry.
        self._use = spans.api.use_span(
            span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )
        self._use.__enter__()

    def event(self, name: str, facts: Facts) -> None:
        """Adds an event."""
        self._span.add_event(f"ragchat.{name}", self._spans.attributes(facts))

    def end(self, outcome: Outcome, facts: Facts, error: type[BaseException] | None) -> None:
        """Ends the span with its outcome, and with the class of the error if there was one."""
        span, api = self._span, self._spans.api
        self._use.__exit__(None, None, None)
        span.set_attributes(self._spans.attributes(facts))
        if outcome == "skipped":
            span.set_attribute("ragchat.skipped", True)
        if error is not None:
            span.set_attribute("error.type", _name(error))
            span.set_status(api.StatusCode.ERROR)
        span.end()


def _name(error: type[BaseException]) -> str:
    module = error.__module__
    return error.__qualname__ if module == "builtins" else f"{module}.{error.__qualname__}"
