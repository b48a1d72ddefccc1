"""What happened in one preparation or search: timings, counts, model calls, what was skipped.

A result carries an immutable `Trace`, which holds no text of documents, prompts or queries. It is
made by a `ragchat_retrieval.recording.TraceRecorder` while stages run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Operation = Literal["chat", "embeddings", "rerank"]
Outcome = Literal["ok", "skipped", "failed"]


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

    number: int = 0
    """Which stage of the trace it was to begin, from 1."""

    parent: int | None = None
    """The number of the stage that it ran inside; None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One call of a model before the answer: what its price is made of."""

    operation: Operation
    model: str
    """The model's name; empty where a server has but one."""

    stage: int | None = None
    """The number of the stage that made it; None for none."""

    started: float
    """Seconds since the trace began."""

    seconds: float
    """Wall-clock duration, waits between tries included."""

    outcome: Outcome = "ok"
    items: int = 1
    """Texts embedded, or passages scored; 1 for a chat."""

    requests: int = 0
    """Requests sent by us, batches and further tries included; 0 where none are seen."""

    input_tokens: int | None = None
    """What the provider says it read; None if it said nothing."""

    output_tokens: int | None = None
    """What the provider says it wrote; None if it said nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The record of one search or preparation."""

    stages: tuple[StageTiming, ...] = ()
    """In the order in which they ended."""

    calls: tuple[ModelCall, ...] = ()
    """Calls of chat models, embedders and rerank servers, in the order in which they ended. The
    answer call is not among them."""

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
