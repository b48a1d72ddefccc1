"""What a store or retriever declares of itself, asked in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


def as_filterable(store: T) -> T | None:
    """Returns `store` if filters run inside its search, before its limit; else None.

    A store says so by ``capabilities.filterable`` or a ``filterable`` attribute or method. Wrappers
    are looked through by ``unwrap()`` or, as `functools.wraps` leaves it, ``__wrapped__``. A
    composite offers ``parts()`` and is asked each time, since it can only keep the promise while
    every part can.
    """
    return store if _declares(store, "filterable") else None


def is_semantic(retriever: object) -> bool:
    """Says whether a retriever or store declares that it searches by meaning (``semantic``).

    Wrappers and composites are looked through as by `as_filterable`.
    """
    return _declares(retriever, "semantic")


def _declares(target: object, name: str) -> bool:
    seen: set[int] = set()
    while id(target) not in seen:
        seen.add(id(target))
        parts = getattr(target, "parts", None)
        if callable(parts):
            members = tuple(cast("Iterable[object]", parts()))
            return bool(members) and all(_declares(part, name) for part in members)
        declared = getattr(getattr(target, "capabilities", target), name, None)
        if callable(declared):
            declared = declared()
        if declared is not None:
            return declared is True
        unwrap = getattr(target, "unwrap", None)
        target = unwrap() if callable(unwrap) else getattr(target, "__wrapped__", None)
    return False
