"""The graphs of near neighbours of a file's corpora in this process, and on disk.

A graph is derived from the search arrays as these are from the file: saved beside them, stamped
with the state of the file and with how it was built, and built anew when it is missing, damaged or
of another history. It need not be current: passages that came since are compared one by one, and
when they have become many, a new graph takes its place. That is done in a thread of its own;
nobody waits for it, and until there is a graph all vectors are compared.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ragchat_retrieval.engine import DamagedIndex, Graph, Stopped, read_arrays, write_arrays
from ragchat_retrieval.stores.sqlite.mirror import Point

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path
    from typing import Any

    from ragchat_retrieval.engine import Hnsw, Snapshot
    from ragchat_retrieval.stores.sqlite.state import CorpusState

_log = logging.getLogger("ragchat")

FORMAT = 1
"""Version of the stamp on saved graphs."""

_FEW = 1000
"""So many passages outside the graph never matter."""

_MANY = 8
"""One passage in so many outside the graph makes a larger one worth the work."""

_MOST_DEAD = 0.25
"""Share of removed passages in a graph beyond which it is built from nothing."""

_LAG = 500
"""Writes after which a graph is stamped anew: the change log must reach back to its stamp."""

Signature = tuple[int, int, int]


def graph_file(folder: Path, uuid: str) -> Path:
    """Returns where the graph of one life of a corpus is saved."""
    return folder / f"{uuid}.hnsw"


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A graph, the state it was made at, and the latest state that is known to descend from it."""

    graph: Graph
    made: Point
    known: Point


class _Need(NamedTuple):
    """What a better graph would be made of."""

    base: Graph | None
    """The graph to extend; None builds from nothing."""

    snapshot: Snapshot
    point: Point


class CorpusGraph:
    """The graph of one corpus. Safe to use from any thread.

    Args:
        folder: Where graphs are saved; None keeps them in memory only.
        options: How they are built.
        writes: Whether this process may save them.
        stopped: Set when work in progress should be given up.
    """

    def __init__(
        self, folder: Path | None, options: Hnsw, *, writes: bool, stopped: threading.Event
    ) -> None:
        self._folder = folder
        self._options = options
        self._writes = writes
        self._stopped = stopped
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._refused: tuple[str, Signature] | None = None
        self.job: Future[None] | None = None
        """The last making of a better graph, which may be done."""

    def at(
        self, connection: sqlite3.Connection, state: CorpusState, snapshot: Snapshot, point: Point
    ) -> Graph | None:
        """Returns a graph whose passages, where they still exist, are those of the snapshot.

        Args:
            connection: In a read transaction.
            state: The state of the file in it.
            snapshot: The arrays, as the mirror gave them.
            point: The state that the arrays equal.

        Returns:
            The graph; None if there is none, or none is worth while.
        """
        if snapshot.vectors <= self._options.exact_up_to:
            return None
        held = self._held
        if held is None or held.known != point:
            with self._lock:
                held = self._held = self._checked(connection, state, point, snapshot)
        return None if held is None else held.graph

    def need(self, snapshot: Snapshot, point: Point) -> _Need | None:
        """Returns what a better graph would be made of; None if this one, or none, will do."""
        held = self._held
        if snapshot.vectors <= self._options.exact_up_to:
            return None
        if held is None:
            return _Need(None, snapshot, point)
        size = len(held.graph)
        first = held.graph.behind(snapshot)
        outside = len(snapshot.matrix.rows) - first
        live = int(np.count_nonzero(snapshot.alive[snapshot.matrix.rows[:first]]))
        if size - live > max(_FEW, _MOST_DEAD * size):
            return _Need(None, snapshot, point)
        late = point.revision - held.made.revision > _LAG and self._saves
        if outside > max(_FEW, size // _MANY) or late:
            return _Need(held.graph, snapshot, point)
        return None

    def make(self, need: _Need) -> None:
        """Makes a better graph, saves it where that is allowed, and takes it into use.

        Raises:
            Stopped: There is no more use for it.
        """
        stopped = self._stopped.is_set
        if need.base is None:
            graph = Graph.built(need.snapshot, self._options, stopped)
        else:
            graph = need.base.extended(need.snapshot, stopped)
        if self._folder is not None and self._saves:
            graph = self._save(self._folder, graph, need.point)
        with self._lock:
            self._held = _Held(graph, need.point, need.point)

    def forget(self) -> None:
        """Drops the graph from memory."""
        with self._lock:
            self._held = None

    @property
    def is_busy(self) -> bool:
        """Whether a better graph is being made."""
        return self.job is not None and not self.job.done()

    @property
    def _saves(self) -> bool:
        return self._writes and self._folder is not None

    # --- under the lock ---

    def _checked(
        self,
        connection: sqlite3.Connection,
        state: CorpusState,
        point: Point,
        snapshot: Snapshot,
    ) -> _Held | None:
        held = self._held
        if held is not None:
            known = held.known
            if known == point or (known.uuid == point.uuid and known.revision > state.revision):
                return held  # this reader came before the graph, or before the arrays
            if _descends(connection, state, known):
                return _Held(held.graph, held.made, _of(state))
        return self._loaded(connection, state, snapshot)

    def _loaded(
        self, connection: sqlite3.Connection, state: CorpusState, snapshot: Snapshot
    ) -> _Held | None:
        if self._folder is None:
            return None
        path = graph_file(self._folder, state.uuid)
        signature = _signature(path)
        if signature is None or self._refused == (state.uuid, signature):
            return None
        try:
            graph, made = self._opened(path, snapshot)
        except (DamagedIndex, KeyError, TypeError, ValueError):
            self._refused = (state.uuid, signature)
            return None
        if made.revision > state.revision:
            return None  # saved by another process after this reader began
        if not _descends(connection, state, made):
            self._refused = (state.uuid, signature)
            return None
        return _Held(graph, made, _of(state))

    # --- files ---

    def _stamp(self, point: Point, graph: Graph, dimension: int) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "uuid": point.uuid,
            "revision": point.revision,
            "stamp": point.stamp,
            "dimension": dimension,
            "connectivity": self._options.connectivity,
            "expansion_add": self._options.expansion_add,
            "last_key": graph.last_key,
            "size": len(graph),
        }

    def _opened(self, path: Path, snapshot: Snapshot) -> tuple[Graph, Point]:
        arrays, stamp = read_arrays(path)
        point = Point(stamp["uuid"], stamp["revision"], stamp["stamp"])
        graph = Graph.of_bytes(
            arrays["graph"].data,
            self._options,
            dimension=stamp["dimension"],
            last_key=stamp["last_key"],
            size=stamp["size"],
        )
        expected = self._stamp(point, graph, snapshot.dimension or 0)
        if stamp != expected or path.stem != point.uuid:
            raise ValueError("another graph")
        return graph, point

    def _save(self, folder: Path, graph: Graph, point: Point) -> Graph:
        """Saves a graph and returns it mapped from the file; if that fails, as it is."""
        path = graph_file(folder, point.uuid)
        data = np.frombuffer(graph.to_bytes(), np.uint8)
        stamp = self._stamp(point, graph, graph.dimension)
        try:
            folder.mkdir(exist_ok=True)
            write_arrays(path, {"graph": [data]}, stamp=stamp)
            arrays, found = read_arrays(path)
        except (OSError, DamagedIndex) as error:
            _log.warning("graph of near neighbours not saved (%s)", type(error).__name__)
            return graph
        return graph.moved(arrays["graph"].data) if found == stamp else graph


class Graphs:
    """One `CorpusGraph` per corpus, made on demand, and the thread that makes graphs.

    Args:
        folder: Where graphs are saved; None keeps them in memory.
        options: How they are built.
        writes: Whether this process may save them.
    """

    def __init__(self, folder: Path | None, options: Hnsw, *, writes: bool) -> None:
        self._folder = folder
        self._options = options
        self._writes = writes and folder is not None
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._graphs: dict[str, CorpusGraph] = {}
        self._stopped = threading.Event()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def __getitem__(self, corpus: str) -> CorpusGraph:
        with self._lock:
            if self._pid != os.getpid():  # the thread stayed with the parent
                self._start()
            found = self._graphs.get(corpus)
            if found is None:
                found = self._graphs[corpus] = CorpusGraph(
                    self._folder, self._options, writes=self._writes, stopped=self._stopped
                )
            return found

    def improve(self, graph: CorpusGraph, snapshot: Snapshot, point: Point) -> None:
        """Has a better graph made in the background, if one is needed and none is being made."""
        need = None if graph.is_busy else graph.need(snapshot, point)
        if need is None:
            return
        with self._lock:
            if self._closed or graph.is_busy:
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="ragchat-graph")
            graph.job = self._pool.submit(_work, graph, need)

    def settle(self) -> None:
        """Waits until what is being made is done."""
        with self._lock:
            jobs = [graph.job for graph in self._graphs.values()]
        for job in jobs:
            if job is not None:
                job.result()

    def close(self) -> None:
        """Finishes what will be saved, gives up what would be lost, and makes nothing any more."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if not self._writes:
            self._stopped.set()
        if pool is not None:
            pool.shutdown(wait=True)

    def swap(self, corpus: str, other: str) -> None:
        """Lets two corpora that were exchanged take their graphs along."""
        mine, theirs = self[corpus], self[other]
        with self._lock:
            self._graphs |= {corpus: theirs, other: mine}


def _work(graph: CorpusGraph, need: _Need) -> None:
    try:
        graph.make(need)
    except Stopped:
        pass
    except Exception as error:  # noqa: BLE001 - searches go on without; the log says why
        _log.warning("no graph of near neighbours made (%s)", type(error).__name__)


def _of(state: CorpusState) -> Point:
    return Point(state.uuid, state.revision, state.stamp)


def _descends(connection: sqlite3.Connection, state: CorpusState, point: Point) -> bool:
    """Says whether the change log leads from a point to the state of the file."""
    if point.uuid != state.uuid:
        return False
    if point == _of(state):
        return True
    found = connection.execute(
        "SELECT stamp FROM changes WHERE corpus = ? AND revision = ?", (state.key, point.revision)
    ).fetchone()
    return found is not None and found[0] == point.stamp


def _signature(path: Path) -> Signature | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
