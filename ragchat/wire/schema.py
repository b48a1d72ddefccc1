"""The JSON Schema of the events, as it ships with the package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

SCHEMA_VERSION: Final = 1
"""Changes when a reader of the old form could not read the new one. Fields and types of events may
be added without a new version, so a reader ignores what it does not know."""


def schema() -> dict[str, Any]:
    """Returns the schema (draft 2020-12) of one event, as a fresh value."""
    text = files("ragchat.wire").joinpath("events.schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
