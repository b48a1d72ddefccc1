"""What the demo reads, asks, and where it keeps its index."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]

CORPUS = Path(__file__).with_name("corpus")
"""Pages written for this demo, of a bicycle hire, a kitchen magazine and a library."""

QUESTIONS = (
    "Which bikes can carry two small children?",
    "And what does the second one cost for a day?",
    "And if we keep it for a whole week?",
)
"""The user's turns. The second and third mean nothing without what was said before."""

EVIDENCE_TOKENS = 600
"""Most tokens of evidence in the prompt of a turn."""


def pages() -> Path | None:
    """Returns the folder of the project's own documentation; None where it is not to be had.

    It ships inside the package; beside a ``pyproject.toml`` the checkout's own folder is used.
    """
    packaged = _PACKAGE / "_docs"
    if packaged.is_dir():
        return packaged
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "docs").is_dir():
        return checkout / "docs"
    return None


def default_index() -> Path:
    """Returns the file in this user's cache folder that holds the demo's index."""
    if sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ragchat" / "demo.sqlite"
