"""Arrays with pages of their own.

The C library keeps what is given back to it, for the next who asks, and raises the size from which
it does so to the largest that it ever got back. Arrays of a write would stay as holes between what
is still used.
"""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

Scalar = TypeVar("Scalar", bound=np.generic)

_OWN_PAGES = 2**17
"""Bytes from which an array has pages of its own, as in the C library before it adapts."""

_HUGE_PAGES = 2**22
"""Bytes from which numpy asks for huge pages, which a matrix product is faster on."""


def room(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Returns an array to be filled, for values that are large or kept for long.

    A large one has pages of its own, which go back to the system when nobody uses it any more, and
    take no memory before they are written to.
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


def release(array: NDArray[Any]) -> None:
    """Lets the system take back the memory of the mapped file that an array lies in.

    What is read again comes back from the file. An array that is not mapped stays as it is, and so
    does one with pages of its own, whose values are nowhere else.
    """
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    if memoryview(owner).readonly:
        owner.madvise(mmap.MADV_DONTNEED)
