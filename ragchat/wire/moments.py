"""What happens in a turn beside the events of its answer, and the union of all of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

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
from ragchat_retrieval.trace import StageEvent

if TYPE_CHECKING:
    from ragchat.citations import Verification


@dataclass(frozen=True, slots=True)
class Checked:
    """What checking the citations of a choice found; comes after all choices have finished."""

    choice: int
    """Index of the choice, from 0."""

    verification: Verification
    """Its claims, each with what supports it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a turn ended without an answer, or in the middle of one; see `failure_of`."""

    code: str
    """Name of the error's class if it is ours, ``upstream`` if it came from the chat model's
    client, else ``internal``."""

    message: str
    """For a person; without content of prompts, documents or replies."""

    status: int | None = field(default=None, kw_only=True)
    """HTTP status of the chat model's server, where it gave one."""

    retryable: bool = field(default=False, kw_only=True)
    """Whether the same request may succeed later without a change."""


WireEvent: TypeAlias = (
    StageEvent
    | Sources
    | TextDelta
    | Citation
    | RefusalDelta
    | ReasoningDelta
    | ToolCallDelta
    | Usage
    | Finished
    | Checked
)
"""What a turn yields, in this order: stages, then sources, then the answer, then checks."""
