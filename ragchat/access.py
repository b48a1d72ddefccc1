"""Reading what a provider's SDK gives or takes: objects and plain mappings alike."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from ragchat_retrieval.errors import InvalidSetting

Foreign: TypeAlias = Any
"""An object of a provider's SDK (read by attribute), or a mapping in its place (read by key)."""

C = TypeVar("C")

Streaming: TypeAlias = Callable[..., Awaitable[AsyncIterable[C]] | AsyncIterable[C] | Iterator[C]]
"""Returns a stream of chunks, as a client's ``create`` does when asked to."""


def read(value: Foreign, name: str, default: object = None) -> Foreign:
    """Returns the field `name` of an object or a mapping, or `default` where there is none."""
    if isinstance(value, (dict, Mapping)):  # a plain dict is told much faster than a Mapping
        return value.get(name, default)
    return getattr(value, name, default)


def reader(value: Foreign) -> Callable[..., Foreign]:
    """Returns `read` for several fields of the same object or mapping: call it with their names."""
    if isinstance(value, (dict, Mapping)):
        return value.get
    return lambda name, default=None: getattr(value, name, default)


def checked_create(create: Callable[..., Foreign]) -> Callable[..., Foreign]:
    """Returns the function that makes a chat model's calls.

    Raises:
        InvalidSetting: It is none, as a client in place of its method is not.
    """
    if not callable(create):
        raise InvalidSetting("create", "must be callable, as client.chat.completions.create is")
    return create
