"""Doubles that work, for the tests of applications and of this library."""

from __future__ import annotations

from ragchat.testing.loopback import LoopbackOpenAI
from ragchat.testing.loopback_http import RecordedRequest
from ragchat.testing.loopback_plan import Failure, Gate, Held, Interrupted, Raw, Reset
from ragchat.testing.scripted import ScriptedChatModel, ScriptedStream, ScriptExhausted, tool_call
from ragchat.testing.shapes import Reply, SDKObject, as_object

__all__ = [
    "Failure",
    "Gate",
    "Held",
    "Interrupted",
    "LoopbackOpenAI",
    "Raw",
    "RecordedRequest",
    "Reply",
    "Reset",
    "SDKObject",
    "ScriptExhausted",
    "ScriptedChatModel",
    "ScriptedStream",
    "as_object",
    "tool_call",
]
