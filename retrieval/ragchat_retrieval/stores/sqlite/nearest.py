"""How the embedded store searches vectors: all of them, rounded ones first, or along a graph."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

from ragchat_retrieval.engine import Coded, Graph, Hnsw
from ragchat_retrieval.errors import InvalidSetting, MissingExtra
from ragchat_retrieval.stores.sqlite.graphs import Graphs

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from ragchat_retrieval.engine import Snapshot
    from ragchat_retrieval.stores.questions import Nearby
    from ragchat_retrieval.stores.sqlite.mirror import Point
    from ragchat_retrieval.stores.sqlite.state import CorpusState

T = TypeVar("T")

VectorKeeping = Literal["float32", "int8", "hnsw"]


class Standing(NamedTuple):
    """The arrays of a corpus as one reader sees them."""

    corpus: str
    connection: sqlite3.Connection
    """In a read transaction."""

    state: CorpusState
    """The state of the file in it."""

    snapshot: Snapshot
    point: Point
    """The state that the snapshot equals."""


class Nearest(Protocol):
    """A way to search vectors. Safe to use from any thread."""

    name: str

    def answer(self, at: Standing, question: Nearby[T]) -> T:
        """Answers a question about vectors, with exact scores of what it finds."""
        ...

    def prepare(self, at: Standing) -> None:
        """Does now, or begins, what a later search would begin."""
        ...

    def swap(self, corpus: str, other: str) -> None:
        """Lets two corpora that were exchanged take along what is derived from them."""
        ...

    def forget(self, corpus: str) -> None:
        """Drops from memory what is derived from a corpus."""
        ...

    def close(self) -> None:
        """Finishes what is worth it. May take a while."""
        ...


class Exact:
    """Compares all vectors."""

    name = "float32"

    def answer(self, at: Standing, question: Nearby[T]) -> T:
        """As `Nearest.answer`."""
        return question.answer(at.snapshot)

    def prepare(self, at: Standing) -> None:
        """Nothing is derived."""

    def swap(self, corpus: str, other: str) -> None:
        """Nothing is derived."""

    def forget(self, corpus: str) -> None:
        """Nothing is derived."""

    def close(self) -> None:
        """Nothing is under way."""


class Rounded(Exact):
    """Compares all vectors in eight bits, and those that can be the best as they are."""

    name = "int8"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coded: dict[str, Coded] = {}

    def answer(self, at: Standing, question: Nearby[T]) -> T:
        """As `Nearest.answer`."""
        return question.answer_rounded(at.snapshot, self._of(at))

    def forget(self, corpus: str) -> None:
        """As `Nearest.forget`."""
        with self._lock:
            self._coded.pop(corpus, None)

    def _of(self, at: Standing) -> Coded:
        matrix = at.snapshot.matrix
        known = self._coded.get(at.corpus)
        if known is None or known.matrix is not matrix:
            with self._lock:
                known = self._coded.get(at.corpus)
                if known is None or known.matrix is not matrix:
                    known = self._coded[at.corpus] = Coded(matrix, known)
        return known


class Graphed:
    """Asks a graph of near neighbours, and compares all vectors where there is none."""

    name = "hnsw"

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs

    def answer(self, at: Standing, question: Nearby[T]) -> T:
        """As `Nearest.answer`, with nearly the best where a graph is asked."""
        graph = self._ready(at)
        if graph is None:
            return question.answer(at.snapshot)
        limit, mask = question.limit, at.snapshot.mask(question.filter, question.scope)
        found = [graph.search(at.snapshot, vector, limit, mask) for vector in question.vectors]
        return question.told(at.snapshot, found)

    def prepare(self, at: Standing) -> None:
        """Has a graph made if one is needed."""
        self._ready(at)

    def swap(self, corpus: str, other: str) -> None:
        """As `Nearest.swap`."""
        self._graphs.swap(corpus, other)

    def forget(self, corpus: str) -> None:
        """As `Nearest.forget`."""
        self._graphs[corpus].forget()

    def close(self) -> None:
        """As `Graphs.close`."""
        self._graphs.close()

    def settle(self) -> None:
        """As `Graphs.settle`."""
        self._graphs.settle()

    def _ready(self, at: Standing) -> Graph | None:
        kept = self._graphs[at.corpus]
        graph = kept.at(at.connection, at.state, at.snapshot, at.point)
        self._graphs.improve(kept, at.snapshot, at.point)
        return graph


def nearest_of(vectors: VectorKeeping | Hnsw, folder: Path | None, *, writes: bool) -> Nearest:
    """Returns the way of searching that a store was told to take.

    Args:
        vectors: The way; ``hnsw`` is `Hnsw` with its defaults.
        folder: Where derived files are kept; None for a database in memory.
        writes: Whether they may be written.

    Raises:
        InvalidSetting: There is no such way, or it makes no sense for a database in memory.
        MissingExtra: The extra ``hnsw`` is not installed.
    """
    if vectors == "float32":
        return Exact()
    if vectors == "int8":
        if folder is None:
            problem = "int8 needs a file to keep float32 in, as MemoryStore(vectors='int8') has"
            raise InvalidSetting("vectors", problem)
        return Rounded()
    options = Hnsw() if vectors == "hnsw" else vectors
    if not isinstance(options, Hnsw):
        raise InvalidSetting("vectors", "must be float32, int8, hnsw, or a Hnsw(…)")
    if not Graph.is_available():
        raise MissingExtra("hnsw", "SQLiteStore(vectors='hnsw')")
    return Graphed(Graphs(folder, options, writes=writes))
