"""Arrays that grow at the end without disturbing who reads their beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ragchat_retrieval.pages import room

if TYPE_CHECKING:
    from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


class Growing(Generic[Scalar]):
    """A one-dimensional array with room at its end.

    A view of its first values stays as it is while values are appended behind it.

    Args:
        values: What it starts with. It is not copied, and may be mapped from a file.
    """

    __slots__ = ("_array",)

    def __init__(self, values: NDArray[Scalar]) -> None:
        self._array = values

    def extended(self, at: int, values: NDArray[Any]) -> NDArray[Scalar]:
        """Writes values behind the first `at`, in amortised linear time.

        Args:
            at: How many values count so far. What lies beyond, of a write that failed, is lost.
            values: What comes next.

        Returns:
            A view of the first ``at + len(values)``.
        """
        end = at + len(values)
        if end > len(self._array) or not self._array.flags.writeable:
            grown = room((max(end, at + at // 4, 16),), self._array.dtype)
            grown[:at] = self._array[:at]
            self._array = grown
        self._array[at:end] = values
        return self._array[:end]
