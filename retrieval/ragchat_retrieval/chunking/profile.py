"""Which passage size suits an embedding model."""

from __future__ import annotations

from typing import NamedTuple

from ragchat_retrieval.errors import InvalidSetting


class Profile(NamedTuple):
    """Size and overlap of passages, in tokens."""

    size: int
    overlap: int


DEFAULT_PROFILE = Profile(512, 64)
"""Without an embedding model, or with one whose window has room for it."""

_WINDOWS = {"all-MiniLM-L6-v2-int8": 256}
_SMALLEST_WINDOW = 8


def recommended_profile(model: str | None = None, *, window: int | None = None) -> Profile:
    """Returns the passage size and overlap recommended for an embedding model.

    An eighth of the model's window is left free, for its special tokens, for the title and headings
    that are embedded with the text, and because its tokens are not ours. Another eighth is the
    overlap. A window of 256 tokens gives 224 and 32. Both are capped at 512 and 64.

    Args:
        model: The model's name; None is keyword search alone.
        window: Most tokens the model reads, where the caller knows; else it is looked up by name,
            and an unknown model is taken to have room.

    Raises:
        InvalidSetting: The window is smaller than 8.
    """
    if window is None:
        window = _WINDOWS.get(model or "")
    if window is None:
        return DEFAULT_PROFILE
    if window < _SMALLEST_WINDOW:
        raise InvalidSetting("window", f"must be at least {_SMALLEST_WINDOW}")
    size = min(DEFAULT_PROFILE.size, window * 7 // 8)
    return Profile(size, min(DEFAULT_PROFILE.overlap, window // 8))
