"""What happened in one preparation or search: timings, counts, and what was skipped.

A `TraceRecorder` collects while stages run; a result carries the immutable `Trace`. Nothing here
holds text of documents, prompts or queries.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Outcome = Literal["ok", "skipped", "failed"]

_log = logging.getLogger("ragchat")


@dataclass(frozen=True, slots=True)
class Degradation:
    """An enhancement that was left out, visibly."""

    stage: str
    """The stage: ``gate``, ``transform``, ``expand``, ``keyword``, ``vector``, ``rerank``, …"""

    reason: str
    """Why, in words without content: an error's class name, or our own message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTiming:
    """One run of one stage."""

    stage: str
    started: float
    """Seconds since the trace began."""

    seconds: float
    """Wall-clock duration."""

    outcome: Outcome = "ok"
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Numbers worth knowing: ``candidates``, ``queries``, ``tokens``, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The record of one search or preparation."""

    stages: tuple[StageTiming, ...] = ()
    """In the order in which they ended."""

    seconds: float = 0.0
    """Wall-clock duration of the whole."""

    notes: tuple[str, ...] = ()
    """Facts about the result that are no failure, such as ``tokens estimated``."""

    def of(self, stage: str) -> tuple[StageTiming, ...]:
        """Returns the runs of one stage, in order."""
        return tuple(timing for timing in self.stages if timing.stage == stage)


@dataclass(frozen=True, slots=True)
class StageEvent:
    """What an ``on_stage`` listener hears at the start and the end of a stage."""

    stage: str
    phase: Literal["start", "end"]
    seconds: float = 0.0
    """Duration of the stage at its end, 0 at its start."""

    outcome: Outcome = "ok"


class TraceRecorder:
    """Collects timings, notes and degradations while stages run.

    Args:
        listener: Called with a `StageEvent` at the start and the end of every stage. It must not
            block. What it raises is logged and changes nothing else: it only watches.
    """

    def __init__(self, listener: Callable[[StageEvent], object] | None = None) -> None:
        self._began = time.perf_counter()
        self._listener = listener
        self._timings: list[StageTiming] = []
        self._notes: list[str] = []
        self.degraded: list[Degradation] = []

    @contextmanager
    def stage(self, name: str, *, failure: Outcome = "failed") -> Iterator[dict[str, int]]:
        """Times a stage; the yielded dict takes its counts.

        Args:
            name: The stage.
            failure: The outcome that an `Exception` means. A cancellation means ``failed``.
        """
        start = time.perf_counter()
        counts: dict[str, int] = {}
        self._tell(StageEvent(name, "start"))
        outcome: Outcome = "failed"
        try:
            yield counts
            outcome = "ok"
        except Exception:
            outcome = failure
            raise
        finally:
            seconds = time.perf_counter() - start
            self._timings.append(
                StageTiming(
                    stage=name,
                    started=start - self._began,
                    seconds=seconds,
                    outcome=outcome,
                    counts=dict(counts),
                )
            )
            self._tell(StageEvent(name, "end", seconds, outcome))

    def note(self, fact: str) -> None:
        """Records a fact once."""
        if fact not in self._notes:
            self._notes.append(fact)

    def degrade(self, stage: str, reason: str) -> None:
        """Records that a stage was left out; the same fact counts once."""
        degradation = Degradation(stage, reason)
        if degradation not in self.degraded:
            self.degraded.append(degradation)

    def trace(self) -> Trace:
        """Returns what was recorded so far."""
        return Trace(
            stages=tuple(self._timings),
            seconds=time.perf_counter() - self._began,
            notes=tuple(self._notes),
        )

    def _tell(self, event: StageEvent) -> None:
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception as error:  # noqa: BLE001 - a listener is foreign code and may raise anything
            _log.warning("the stage listener failed (%s)", type(error).__name__)
