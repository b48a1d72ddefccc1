"""Arrays that grow at the end without disturbing who reads their beginning."""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

Scalar = TypeVar("Scalar", bound=np.generic)

_OWN_PAGES = 2**17
"""Bytes from which an array has pages of its own, as in the C library before it adapts."""

_HUGE_PAGES = 2**22
"""Bytes from which numpy asks for huge pages, which a matrix product is faster on."""


def room(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Returns an array to be filled, for values that are kept for long.

    A large one has pages of its own, which go back to the system when nobody uses it any more. The
    C library would keep them, in holes between what is still used.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < _OWN_PAGES or kind.hasobject or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.empty(shape, kind)
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:  # too many mappings, or no memory, which numpy knows how to say
        return np.empty(shape, kind)
    if size >= _HUGE_PAGES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system that has none
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.ndarray(shape, kind, buffer=pages)


def settled(values: NDArray[Scalar]) -> NDArray[Scalar]:
    """Returns values in an array that is meant to be kept for long; see `room`."""
    if values.nbytes < _OWN_PAGES:
        return values
    kept = room(values.shape, values.dtype)
    kept[...] = values
    return kept


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
