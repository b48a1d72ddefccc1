"""Reading what a provider's SDK gives or takes: objects and plain mappings alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Foreign: TypeAlias = Any
"""An object of a provider's SDK (read by attribute), or a mapping in its place (read by key)."""


def read(value: Foreign, name: str, default: object = None) -> Foreign:
    """Returns the field `name` of an object or a mapping, or `default` where there is none."""
    if isinstance(value, (dict, Mapping)):  # a plain dict is told much faster than a Mapping
        return value.get(name, default)
    return getattr(value, name, default)
