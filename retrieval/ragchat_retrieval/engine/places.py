"""Where blocks of vectors are kept: in memory, or in a temporary file without a name.

What is in such a file costs a process no memory but for what it reads, and goes away with it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.pages import room

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGE_TEMPORARY = Path("/var/tmp")  # noqa: S108 - a folder to make a file without a name in
"""Where large ones belong: on some systems what is under ``/tmp`` is in memory."""


class Place(Protocol):
    """Room for rows, to be filled from the front."""

    rows: NDArray[np.float32]
    """All of them; those that were not put there yet mean nothing."""

    @property
    def is_ours(self) -> bool:
        """Whether this process may put rows there."""
        ...

    def put(self, first: int, rows: NDArray[np.float32]) -> None:
        """Writes rows from the given one on."""
        ...


class Memory:
    """A place in memory.

    Args:
        size: Rows.
        dimension: Numbers of a row.
    """

    is_ours = True

    def __init__(self, size: int, dimension: int) -> None:
        self.rows: NDArray[np.float32] = room((size, dimension), np.float32)

    def put(self, first: int, rows: NDArray[np.float32]) -> None:
        """As `Place.put`."""
        self.rows[first : first + len(rows)] = rows


class TemporaryFile:
    """A place in a file that no folder lists, gone when neither it nor its rows are used any more.

    It lies in the folder that ``TMPDIR`` names, else in ``/var/tmp``, else where Python puts
    temporary files.

    Args:
        size: Rows, ≥ 1.
        dimension: Numbers of a row, ≥ 1.

    Raises:
        StoreUnavailable: No such file can be made.
    """

    def __init__(self, size: int, dimension: int) -> None:
        length = size * dimension * np.dtype(np.float32).itemsize
        try:
            self._file = tempfile.TemporaryFile(buffering=0, dir=_folder())  # noqa: SIM115 - kept open
            # Takes no room before it is written to.
            self._file.truncate(length)
            mapped = mmap.mmap(self._file.fileno(), length, access=mmap.ACCESS_READ)
        except OSError as error:
            raise _no_room(error) from None
        weakref.finalize(self, self._file.close)
        self.rows: NDArray[np.float32] = np.ndarray((size, dimension), np.float32, buffer=mapped)
        self._process = os.getpid()

    @property
    def is_ours(self) -> bool:
        """False in a process that was forked, which shares the file with its parent."""
        return self._process == os.getpid()

    def read(self, at: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns a copy of rows that were put there.

        Few are read, far apart. A call for each is faster than to map the pages around it, and
        leaves nothing in the process.
        """
        if not hasattr(os, "pread"):
            return self.rows[at]
        file, size = self._file.fileno(), self.rows.strides[0]
        data = b"".join([os.pread(file, size, start) for start in (at * size).tolist()])
        return np.frombuffer(data, np.float32).reshape(len(at), -1)

    def put(self, first: int, rows: NDArray[np.float32]) -> None:
        """As `Place.put`. Written by a call, not through the map: a full disk raises here.

        Raises:
            StoreUnavailable: The file cannot be written, as when the disk is full.
        """
        data = np.ascontiguousarray(rows).view(np.uint8).reshape(-1).data
        try:
            self._file.seek(first * self.rows.strides[0])
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            raise _no_room(error) from None


def _folder() -> str | None:
    if os.environ.get("TMPDIR") or not os.access(_LARGE_TEMPORARY, os.W_OK | os.X_OK):
        return None
    return str(_LARGE_TEMPORARY)


def _no_room(error: OSError) -> StoreUnavailable:
    problem = (
        "vectors='int8' needs a temporary file to keep float32 in, which could not be written "
        f"({error.strerror or type(error).__name__}); set TMPDIR to a folder with room"
    )
    return StoreUnavailable(problem, store="memory", retryable=True)
