"""Doubles that work, for the tests of applications and of this library."""

from __future__ import annotations

from ragchat.testing.scripted import ScriptedChatModel, ScriptedStream, ScriptExhausted, tool_call
from ragchat.testing.shapes import Reply, SDKObject, as_object

__all__ = [
    "Reply",
    "SDKObject",
    "ScriptExhausted",
    "ScriptedChatModel",
    "ScriptedStream",
    "as_object",
    "tool_call",
]
