"""One engine state in one file, opened as memory-mapped arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ragchat_retrieval.engine.writer import Engine


class DamagedIndex(Exception):  # noqa: N818 - a signal to rebuild, never shown to users
    """A saved engine is missing, truncated, damaged or of another format. Rebuild it."""


def save(engine: Engine, path: Path, *, stamp: Mapping[str, Any]) -> None:
    """Writes the current state of an engine to one file, atomically (temporary file and rename).

    Payloads are not saved.

    Args:
        engine: The engine; must not be written to meanwhile.
        path: The file; replaced if it exists.
        stamp: JSON values that `load` gives back, such as the revision of the store.
    """
    raise NotImplementedError


def load(path: Path) -> tuple[Engine, dict[str, Any]]:
    """Opens a saved engine. Arrays are mapped, not read; later writes stay in memory.

    Returns:
        The engine and the stamp.

    Raises:
        DamagedIndex: The file is missing, truncated, damaged or of another format.
    """
    raise NotImplementedError
