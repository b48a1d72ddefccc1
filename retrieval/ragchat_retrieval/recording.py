"""Recording what happens while stages run, and showing it to an observer.

A `TraceRecorder` makes a `Trace`. An `Observer`, such as `ragchat_retrieval.telemetry`, sees the
same as it happens. Which stage runs inside which is known across tasks and threads, because it is
kept in a context variable.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeGuard

from ragchat_retrieval.trace import (
    Degradation,
    ModelCall,
    Operation,
    Outcome,
    StageEvent,
    StageTiming,
    Trace,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Facts = Mapping[str, object]

_log = logging.getLogger("ragchat")
_stage: ContextVar[tuple[TraceRecorder, int] | None] = ContextVar("ragchat_stage", default=None)
_call: ContextVar[Meter | None] = ContextVar("ragchat_call", default=None)
_heard: ContextVar[list[Degradation] | None] = ContextVar("ragchat_degradations", default=None)


class Span(Protocol):
    """What an observer makes of one stage or call."""

    def event(self, name: str, facts: Facts) -> None:
        """Sees something that happened inside."""
        ...

    def end(self, outcome: Outcome, facts: Facts, error: type[BaseException] | None) -> None:
        """Sees the end, in the context in which it began."""
        ...


class Observer(Protocol):
    """Sees stages and calls begin and end. It must not raise."""

    @property
    def captures(self) -> bool:
        """Whether it wants texts of queries, documents, prompts and replies too."""
        ...

    def begin(self, name: str, facts: Facts) -> Span:
        """Sees the beginning of a stage, or of a call, whose facts have an ``operation``."""
        ...

    def tell(self, facts: Facts) -> None:
        """Sees more of the stage or call that the caller is in."""
        ...


class Meter:
    """Adds up what one call of a model takes; see `ModelCall` for the fields."""

    __slots__ = ("captures", "content", "input_tokens", "items", "output_tokens", "requests")

    def __init__(self, items: int, *, captures: bool) -> None:
        self.items = items
        self.requests = 0
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.captures = captures
        self.content: dict[str, object] = {}
        """Texts for an observer that captures them; they never get into the trace."""

    def used(self) -> dict[str, Any]:
        """Returns what was added up, by the names of `ModelCall`."""
        return {
            "items": self.items,
            "requests": self.requests,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
        }

    def add(self, *, input_tokens: object = None, output_tokens: object = None) -> None:
        """Adds tokens as a provider's usage says; what is no count is not known."""
        if _is_count(input_tokens):
            self.input_tokens = (self.input_tokens or 0) + input_tokens
        if _is_count(output_tokens):
            self.output_tokens = (self.output_tokens or 0) + output_tokens


class TraceRecorder:
    """Collects timings, calls, notes and degradations while stages run.

    Args:
        listener: Called with a `StageEvent` at the start and the end of every stage. It must not
            block. What it raises is logged and changes nothing else: it only watches.
        observer: Sees stages, calls and degradations as they happen.
    """

    def __init__(
        self,
        listener: Callable[[StageEvent], object] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._began = time.perf_counter()
        self._listener = listener
        self._observer = observer
        self._outermost: Span | None = None
        self._numbers = 0
        self._timings: list[StageTiming] = []
        self._calls: list[ModelCall] = []
        self._notes: list[str] = []
        self.degraded: list[Degradation] = []

    @property
    def captures(self) -> bool:
        """Whether the observer wants texts."""
        return self._observer is not None and self._observer.captures

    @contextmanager
    def stage(
        self, name: str, *, failure: Outcome = "failed", facts: Facts | None = None
    ) -> Iterator[dict[str, int]]:
        """Times a stage; the yielded dict takes its counts.

        Args:
            name: The stage.
            failure: The outcome that an `Exception` means. A cancellation means ``failed``.
            facts: What an observer is told at the start.
        """
        start = time.perf_counter()
        counts: dict[str, int] = {}
        parent = self._inside()
        self._numbers += 1
        number = self._numbers
        inside = _stage.set((self, number))
        self._tell(name, "start")
        outcome: Outcome = "failed"
        try:
            if self._observer is None:
                yield counts
            else:
                with self.observed(name, facts, counts, failure=failure):
                    yield counts
            outcome = "ok"
        except Exception:
            outcome = failure
            raise
        finally:
            _stage.reset(inside)
            seconds = time.perf_counter() - start
            self._timings.append(
                StageTiming(
                    stage=name,
                    started=start - self._began,
                    seconds=seconds,
                    outcome=outcome,
                    counts=dict(counts),
                    number=number,
                    parent=parent,
                )
            )
            self._tell(name, "end", seconds, outcome)

    @contextmanager
    def call(
        self, operation: Operation, model: str, *, items: int = 1, provider: str | None = None
    ) -> Iterator[Meter]:
        """Times a call of a model; the yielded meter takes what it used.

        Args:
            operation: What is asked of the model.
            model: Its name.
            items: Texts or passages; 1 for a chat.
            provider: Whose API it is, in the words of OpenTelemetry, where that is known.
        """
        start = time.perf_counter()
        meter = Meter(items, captures=self.captures)
        facts = {"operation": operation, "model": model, "provider": provider}
        current = _call.set(meter)
        outcome: Outcome = "failed"
        ending: dict[str, object] = {}
        try:
            if self._observer is None:
                yield meter
            else:
                with self.observed(operation, facts, ending):
                    try:
                        yield meter
                    finally:
                        ending |= {**meter.used(), **meter.content}
            outcome = "ok"
        finally:
            _call.reset(current)
            self._calls.append(
                ModelCall(
                    operation=operation,
                    model=model,
                    stage=self._inside(),
                    started=start - self._began,
                    seconds=time.perf_counter() - start,
                    outcome=outcome,
                    **meter.used(),
                )
            )

    @contextmanager
    def observed(
        self,
        name: str,
        facts: Facts | None = None,
        ending: Facts | None = None,
        *,
        failure: Outcome = "failed",
    ) -> Iterator[None]:
        """Shows the observer, if there is one, a piece of work that the trace has no row for.

        Args:
            name: What it is called.
            facts: What is known at the start.
            ending: What is known at the end, read then.
            failure: The outcome that an `Exception` means.
        """
        if self._observer is None:
            yield
            return
        span = self._observer.begin(name, facts or {})
        outermost = self._outermost is None
        if outermost:
            self._outermost = span
        outcome: Outcome = "failed"
        raised: type[BaseException] | None = None
        try:
            yield
            outcome = "ok"
        except BaseException as error:
            raised = type(error)
            if isinstance(error, Exception):
                outcome = failure
            raise
        finally:
            more: dict[str, object] = {}
            if outermost:
                self._outermost = None
                more["degraded"] = [f"{d.stage}: {d.reason}" for d in self.degraded]
            span.end(outcome, {**(ending or {}), **more}, raised)

    def tell(self, facts: Facts) -> None:
        """Tells the observer more of the stage that the caller is in."""
        if self._observer is not None:
            self._observer.tell(facts)

    def note(self, fact: str) -> None:
        """Records a fact once."""
        if fact not in self._notes:
            self._notes.append(fact)

    def degrade(self, stage: str, reason: str) -> None:
        """Records that a stage was left out; the same fact counts once."""
        degradation = Degradation(stage, reason)
        if (heard := _heard.get()) is not None:
            heard.append(degradation)
        if degradation not in self.degraded:
            self.degraded.append(degradation)
            if self._outermost is not None:
                self._outermost.event("degraded", {"stage": stage, "reason": reason})

    def trace(self) -> Trace:
        """Returns what was recorded so far."""
        return Trace(
            stages=tuple(self._timings),
            calls=tuple(self._calls),
            seconds=time.perf_counter() - self._began,
            notes=tuple(self._notes),
        )

    def _inside(self) -> int | None:
        """Returns the number of the stage of this trace that runs around the caller."""
        around = _stage.get()
        return around[1] if around is not None and around[0] is self else None

    def _tell(
        self,
        stage: str,
        phase: Literal["start", "end"],
        seconds: float = 0.0,
        outcome: Outcome = "ok",
    ) -> None:
        if self._listener is None:
            return
        try:
            self._listener(StageEvent(stage, phase, seconds, outcome))
        except Exception as error:  # noqa: BLE001 - a listener is foreign code and may raise anything
            _log.warning("the stage listener failed (%s)", type(error).__name__)


@contextmanager
def degradations() -> Iterator[list[Degradation]]:
    """Yields a list of what is left out by the work inside, and by no other of the same run."""
    heard: list[Degradation] = []
    around = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(around)


def current_call() -> Meter | None:
    """Returns the meter of the model call that the caller works for, if any."""
    return _call.get()


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
