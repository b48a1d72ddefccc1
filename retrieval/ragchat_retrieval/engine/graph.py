"""A graph of near neighbours (HNSW) that proposes passages, for exact scores to choose from.

Hierarchical navigable small worlds (Malkov and Yashunin, arXiv:1603.09320), as usearch builds them.
The graph keeps one byte a number of a vector: it only proposes, and what it proposes is scored
again from the vectors themselves, so that rounding costs no recall to speak of and the graph is a
quarter of its size in float32. Nodes are named by the keys of passages, which last; what was
removed since is dropped from each answer, what was added since is compared one by one.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from ragchat_retrieval.engine.columns import Mask
from ragchat_retrieval.engine.select import ranked
from ragchat_retrieval.engine.snapshot import Found
from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from usearch.index import Index

    from ragchat_retrieval.engine.snapshot import Snapshot

    Rows = tuple[NDArray[np.int64], NDArray[np.float64]]

_CHUNK = 500
"""Vectors added at once; between two chunks a build can be stopped."""

_WIDER = 4
"""By how much the next try looks further when filters left too few."""

_GATHERED = 16
"""How many rows of a pass over all vectors a gathered row costs; as in the matrix."""

_COMPARED = 1.0
"""What comparing one vector in a pass over all costs, in steps of the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hnsw:
    """How the graph of near neighbours is built and searched.

    More of each is better recall: `connectivity` for memory and time to build, `expansion_add` for
    time to build, `expansion_search` for time to search. The last may differ between processes;
    with other values of the first two a saved graph is built anew.

    Raises:
        InvalidSetting: A value lies outside its range.
    """

    connectivity: int = 32
    """Neighbours that each passage is linked to, 2 … 512; twice as many on the lowest level."""

    expansion_add: int = 128
    """Candidates looked at to link a new passage, 1 … 100,000."""

    expansion_search: int = 256
    """Candidates looked at by a search, 1 … 100,000; never fewer than twice its limit."""

    exact_up_to: int = 10_000
    """Number of vectors, 0 or more, up to which all are compared and there is no graph."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("connectivity", 2, 512),
            ("expansion_add", 1, 100_000),
            ("expansion_search", 1, 100_000),
            ("exact_up_to", 0, None),
        ):
            value = getattr(self, name)
            if type(value) is not int or value < low or (high is not None and value > high):
                span = f"{low} or more" if high is None else f"{low} … {high:,}"
                raise InvalidSetting(name, f"must be a whole number, {span}")


class Stopped(Exception):
    """A build was told to stop."""


class Graph:
    """Passages up to a key, linked to their near neighbours. Safe to search from any thread.

    Never changed once made: `extended` makes another.
    """

    def __init__(
        self, index: Index, options: Hnsw, last_key: int, data: memoryview | None = None
    ) -> None:
        self._index = index
        self._options = options
        self._data = data
        # The library keeps one scratch space a thread number, and every caller here is number 0.
        self._lock = threading.Lock()
        self.last_key = last_key
        """Passages with greater keys are not in the graph."""

    @staticmethod
    def is_available() -> bool:
        """Says whether the library for graphs is installed."""
        return find_spec("usearch") is not None

    @classmethod
    def built(
        cls, snapshot: Snapshot, options: Hnsw, stopped: Callable[[], bool] = lambda: False
    ) -> Graph:
        """Links all passages of a snapshot that have a vector.

        Args:
            snapshot: With at least one vector.
            options: How.
            stopped: Asked now and then; True gives up.

        Raises:
            Stopped: `stopped` said so.
        """
        assert snapshot.dimension is not None  # noqa: S101 - there are vectors
        index = _new(snapshot.dimension, options)
        return cls._filled(index, options, snapshot, 0, stopped)

    def extended(self, snapshot: Snapshot, stopped: Callable[[], bool] = lambda: False) -> Graph:
        """Returns a graph with those passages of a later snapshot too that came since."""
        index = _new(self._index.ndim, self._options)
        index.load(self.to_bytes())
        return self._filled(index, self._options, snapshot, self.behind(snapshot), stopped)

    @classmethod
    def of_bytes(
        cls, data: memoryview, options: Hnsw, *, dimension: int, last_key: int, size: int
    ) -> Graph:
        """Opens what `to_bytes` gave, in place.

        Args:
            data: Unaltered: the library trusts what it reads.
            options: Those that it was built with.
            dimension: Length of the vectors.
            last_key: As `Graph.last_key`.
            size: Number of passages.

        Raises:
            ValueError: It is of another version of the library, or not what the arguments say.
        """
        index = _new(dimension, options)
        try:
            index.view(data)
        except RuntimeError as error:
            raise ValueError("no graph of this version") from error
        if len(index) != size or index.ndim != dimension:
            raise ValueError("another graph")
        return cls(index, options, last_key, data)

    def to_bytes(self) -> memoryview:
        """Returns the graph as bytes."""
        if self._data is not None:
            return self._data
        saved = self._index.save()
        assert saved is not None  # noqa: S101 - no path was given
        return memoryview(saved)

    def moved(self, data: memoryview) -> Graph:
        """Returns the graph opened in place in a copy of its bytes, such as a mapped file."""
        return self.of_bytes(
            data,
            self._options,
            dimension=self.dimension,
            last_key=self.last_key,
            size=len(self),
        )

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return self._index.ndim

    def __len__(self) -> int:
        return len(self._index)

    def behind(self, snapshot: Snapshot) -> int:
        """Returns the first position of the snapshot's matrix that is not in the graph."""
        row = np.searchsorted(snapshot.all_keys, self.last_key, "right")
        return int(np.searchsorted(snapshot.matrix.rows, row))

    def search(
        self, snapshot: Snapshot, vector: NDArray[np.float32], limit: int, mask: Mask | None
    ) -> Found:
        """Returns about the best rows by inner product, with exact scores, ties by passage id.

        As many rows come back as an exact search gives, all of them allowed. Where the graph
        cannot save work, because few rows are allowed or very many are wanted, and where the last
        place is tied, all are compared.

        Args:
            snapshot: A state of the corpus that the graph was made of, at any time.
            vector: float32 [dimension], L2-normalised.
            limit: Most rows to return.
            mask: The rows that may be returned; None for all.
        """
        if limit <= 0 or not len(snapshot.matrix.rows) or (mask is not None and not len(mask)):
            return Found(np.zeros(0, np.int64), np.zeros(0))
        flags = snapshot.alive if mask is None else mask.flags
        first = self.behind(snapshot)
        near = self._near(snapshot, vector, limit, flags, first)
        if near is None:
            return snapshot.search_vector(vector, limit, mask)
        parts = [near]
        if first < len(snapshot.matrix.rows):
            later = flags.copy()
            later[: snapshot.matrix.rows[first]] = False
            parts += snapshot.matrix.search(vector[np.newaxis], limit, Mask(later))
        rows, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Found(*ranked(rows, scores, limit, snapshot.ids))

    def _near(
        self,
        snapshot: Snapshot,
        vector: NDArray[np.float32],
        limit: int,
        flags: NDArray[np.bool_],
        first: int,
    ) -> Rows | None:
        """Returns rows of the graph that hold the best; None if comparing all is cheaper."""
        positions = snapshot.matrix.rows
        aligned = len(positions) == len(flags)
        allowed = int(np.count_nonzero(flags[:first] if aligned else flags[positions[:first]]))
        wanted = min(limit, allowed)
        if not wanted:
            return np.zeros(0, np.int64), np.zeros(0)
        breadth = max(self._options.expansion_search, 2 * wanted)
        count = math.ceil(breadth * len(self) / allowed)
        all_steps = _COMPARED * min(first, _GATHERED * allowed)
        while count * self._options.connectivity <= all_steps:
            rows = snapshot.find_keys(self._nearest(vector, count))
            rows = rows[rows >= 0]
            rows = rows[flags[rows]]
            if len(rows) >= wanted:
                scores = snapshot.score_vector(vector, rows)
                cut = np.partition(scores, len(scores) - wanted)[len(scores) - wanted]
                # Of equal vectors the graph may not know all, and the lowest ids come first.
                tied = len(rows) < allowed and np.count_nonzero(scores == cut) > 1
                return None if tied else (rows, scores)
            if count >= len(self):
                break
            count *= _WIDER
        return None

    def _nearest(self, vector: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Returns keys of about the nearest nodes."""
        with self._lock:
            found = self._index.search(vector, min(count, len(self)), threads=1)
        return np.asarray(found.keys).astype(np.int64)

    @classmethod
    def _filled(
        cls,
        index: Index,
        options: Hnsw,
        snapshot: Snapshot,
        first: int,
        stopped: Callable[[], bool],
    ) -> Graph:
        matrix = snapshot.matrix
        rows = matrix.rows[first:].astype(np.int64)
        rows = rows[snapshot.alive[rows]]
        for low in range(0, len(rows), _CHUNK):
            if stopped():
                raise Stopped
            part = rows[low : low + _CHUNK]
            index.add(snapshot.keys(part), snapshot.vectors_of(part))
        return cls(index, options, int(snapshot.all_keys[-1]))


def _new(dimension: int, options: Hnsw) -> Index:
    if sys.platform == "linux":
        # The library holds a C++ runtime of its own, parts of which the loader then hands to every
        # library that comes later: onnxruntime crashed the process. With the system's runtime
        # there before it, for all, there is only one.
        with contextlib.suppress(OSError):  # a system that has none
            ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
    from usearch.index import Index  # noqa: PLC0415 - an extra, and loading it takes a while

    settings: dict[str, Any] = {"metric": "ip", "dtype": "i8", "enable_key_lookups": False}
    return Index(
        ndim=dimension,
        connectivity=options.connectivity,
        expansion_add=options.expansion_add,
        expansion_search=options.expansion_search,
        **settings,
    )
