"""The writing side of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.engine.columns import Columns
from ragchat_retrieval.engine.growing import Growing
from ragchat_retrieval.engine.matrix import MatrixWriter, empty_matrix
from ragchat_retrieval.engine.segment import Segment, tidied
from ragchat_retrieval.engine.snapshot import Snapshot
from ragchat_retrieval.engine.strings import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from ragchat_retrieval.engine.batch import Batch

_MOST_DEAD = 0.25
"""Share of removed rows beyond which a write compacts."""

_FEW_ROWS = 256
"""So many removed rows never matter."""


class Engine:
    """One corpus in columnar arrays: BM25 postings, vectors, filter columns.

    One writer at a time (the caller holds a lock); readers take `snapshot` at any moment, from any
    thread, and are never blocked. A write that raises leaves the state as it was.

    Args:
        snapshot: A state to go on from; None starts empty.
        spilled: Whether an engine that starts empty keeps vectors in temporary files.
    """

    _snapshot: Snapshot

    def __init__(self, snapshot: Snapshot | None = None, *, spilled: bool = False) -> None:
        self._adopt(_empty(spilled=spilled) if snapshot is None else snapshot)

    @property
    def snapshot(self) -> Snapshot:
        """The current state."""
        return self._snapshot

    def apply(
        self,
        *,
        add: Batch | None = None,
        remove: NDArray[np.int64] | None = None,
        remove_keys: Iterable[int] = (),
    ) -> Snapshot:
        """Removes rows and appends passages in one step, and returns the new state.

        Args:
            add: Passages to append. Arrays of vectors may be kept, not copied.
            remove: Rows of the current snapshot.
            remove_keys: Keys of passages to remove; unknown ones are no error.

        Raises:
            ValueError: The batch's columns differ in length, a key is not above all earlier ones,
            or
                the vectors have another dimension.
            StoreUnavailable: A temporary file cannot be written.
        """
        now = self._snapshot
        if add is not None and len(add):
            self._check(add)
        else:
            add = None
        alive = self._removed(remove, remove_keys)
        gone = now.alive & ~alive[: now.rows]
        total = now.total - int(now.lengths[gone].sum())
        segments, columns, matrix = now.segments, now.columns, now.matrix
        keys, lengths = now.all_keys, now.lengths
        if add is not None:
            segment, added = Segment.of(add, now.rows, now.vocabulary)
            matrix = self._matrix.appended(matrix, len(add), add.vectors, add.has_vector)
            columns = columns.appended(add)
            keys = self._keys.extended(now.rows, np.asarray(add.keys, np.int64))
            lengths = self._lengths.extended(now.rows, added)
            alive = np.concatenate([alive, np.ones(len(add), np.bool_)])
            total += int(added.sum())
            segments = tidied((*segments, segment))
        after = Snapshot(
            segments=segments,
            vocabulary=now.vocabulary,
            columns=columns,
            matrix=matrix,
            all_keys=keys,
            lengths=lengths,
            alive=alive,
            live=int(np.count_nonzero(alive)),
            total=total,
        )
        dead = after.rows - after.live
        if dead > max(_FEW_ROWS, _MOST_DEAD * after.rows) or (dead and not after.live):
            self._adopt(_compacted(after))
        else:
            self._snapshot = after
        return self._snapshot

    def name_terms(self, names: Mapping[str, int]) -> None:
        """Tells the ids of terms, for batches that bring `Postings` with the caller's own ids.

        An engine either gets all its term ids this way or assigns them itself.
        """
        self._snapshot.vocabulary.name(names)

    def compact(self) -> Snapshot:
        """Drops removed rows and merges all segments; `apply` does so by itself when it pays."""
        now = self._snapshot
        if now.live < now.rows or len(now.segments) > 1:
            self._adopt(_compacted(now))
        return self._snapshot

    def clear(self) -> Snapshot:
        """Removes everything, dimension and vocabulary included."""
        self._adopt(_empty(spilled=self._snapshot.matrix.spilled))
        return self._snapshot

    def _adopt(self, snapshot: Snapshot) -> None:
        self._keys = Growing(snapshot.all_keys)
        self._lengths = Growing(snapshot.lengths)
        self._matrix = MatrixWriter(snapshot.matrix)
        self._snapshot = snapshot

    def _check(self, add: Batch) -> None:
        now, size = self._snapshot, len(add)
        columns = (add.keys, add.document_ids, add.titles, add.sources, add.metadata)
        vectors = add.vectors
        if any(len(column) != size for column in columns):
            raise ValueError("the columns of a batch have one entry per passage")
        keys = np.asarray(add.keys, np.int64)
        last = now.all_keys[-1] if now.rows else keys[0] - 1
        if not (np.diff(keys, prepend=last) > 0).all():
            raise ValueError("keys ascend")
        if vectors is not None and (
            vectors.ndim != 2  # noqa: PLR2004 - a matrix
            or len(vectors) != size
            or vectors.shape[1] != (now.dimension or vectors.shape[1])
        ):
            raise ValueError("vectors are a matrix with a row per passage, as long as those before")

    def _removed(
        self, remove: NDArray[np.int64] | None, remove_keys: Iterable[int]
    ) -> NDArray[np.bool_]:
        now = self._snapshot
        alive = now.alive.copy()
        if remove is not None:
            alive[remove] = False
        rows = now.find_keys(np.fromiter(remove_keys, np.int64))
        alive[rows[rows >= 0]] = False
        return alive


def _empty(*, spilled: bool) -> Snapshot:
    return Snapshot(
        segments=(),
        vocabulary=Vocabulary(),
        columns=Columns({}, 0),
        matrix=empty_matrix(spilled=spilled),
        all_keys=np.zeros(0, np.int64),
        lengths=np.zeros(0, np.int32),
        alive=np.zeros(0, np.bool_),
        live=0,
        total=0,
    )


def _compacted(now: Snapshot) -> Snapshot:
    """Returns the same passages in one segment, without removed rows."""
    kept = np.flatnonzero(now.alive)
    renumbered = np.full(now.rows, -1, np.int32)
    renumbered[kept] = np.arange(len(kept))
    segments = now.segments
    if len(kept) < now.rows:
        starts = [int(np.count_nonzero(now.alive[: segment.start])) for segment in segments]
        pairs = zip(segments, starts, strict=True)
        segments = tuple(segment.compacted(renumbered, start) for segment, start in pairs)
    segments = tuple(segment for segment in segments if len(segment))
    if len(segments) > 1:
        segments = (Segment.merged(segments),)
    used = np.unique(np.concatenate([np.zeros(0, np.int32), *(s.terms for s in segments)]))
    return Snapshot(
        segments=segments,
        vocabulary=now.vocabulary.pruned(used),
        columns=now.columns if len(kept) == now.rows else now.columns.compacted(kept),
        matrix=MatrixWriter.compacted(now.matrix, kept),
        all_keys=now.all_keys[kept],
        lengths=now.lengths[kept],
        alive=np.ones(len(kept), np.bool_),
        live=len(kept),
        total=now.total,
    )
