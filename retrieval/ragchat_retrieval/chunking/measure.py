"""Measuring text in tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.tokens import count_many, count_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

TokenCounter = Callable[[str], int]
"""Gives the number of tokens of a text, 0 or more. Sync, and called from worker threads."""


class Measure:
    """A token counter, with batches and a name.

    Args:
        count: The caller's counter; None counts exactly in ``o200k_base``.
    """

    __slots__ = ("_count", "one")

    def __init__(self, count: TokenCounter | None) -> None:
        self._count = count
        self.one: TokenCounter = count or count_tokens

    def many(self, texts: Sequence[str]) -> list[int]:
        """Returns the counts of several texts, in order."""
        return count_many(texts) if self._count is None else [self._count(text) for text in texts]

    @property
    def suffix(self) -> str:
        """What a counter of the caller's adds to a splitter's name, as it moves the cuts."""
        if self._count is None:
            return ""
        # A partial or a callable object has no name of its own; its class has one.
        kind = type(self._count).__qualname__
        return f":{getattr(self._count, '__qualname__', kind)}"


def check_size(size: int, overlap: int) -> None:
    """Refuses sizes that a splitter cannot work with.

    Raises:
        InvalidSetting: `size` is below 1, or `overlap` is negative or not below `size`.
    """
    given: dict[str, object] = {"size": size, "overlap": overlap}
    for name, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidSetting(name, "must be an integer")
    if size < 1:
        raise InvalidSetting("size", "must be at least 1")
    if not 0 <= overlap < size:
        raise InvalidSetting("overlap", "must be at least 0 and below size")
