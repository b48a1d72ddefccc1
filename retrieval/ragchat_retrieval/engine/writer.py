"""The writing side of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.engine.batch import Batch
    from ragchat_retrieval.engine.snapshot import Snapshot


class Engine:
    """One corpus in columnar arrays: BM25 postings, vectors, filter columns.

    One writer at a time (the caller holds a lock); readers take `snapshot` at any moment, from any
    thread, and are never blocked.
    """

    @property
    def snapshot(self) -> Snapshot:
        """The current state."""
        raise NotImplementedError

    def apply(
        self,
        *,
        add: Batch | None = None,
        remove: NDArray[np.int64] | None = None,
        remove_keys: Iterable[int] = (),
    ) -> Snapshot:
        """Removes rows and appends passages in one step, and returns the new state.

        Args:
            add: Passages to append.
            remove: Rows of the current snapshot.
            remove_keys: Keys of passages to remove; unknown ones are no error.

        Raises:
            ValueError: A key is not above all earlier ones, or the vectors have another dimension.
        """
        raise NotImplementedError

    def name_terms(self, names: Mapping[str, int]) -> None:
        """Tells the ids of terms, for batches that bring `Postings` with the caller's own ids.

        An engine either gets all its term ids this way or assigns them itself.
        """
        raise NotImplementedError

    def compact(self) -> Snapshot:
        """Drops removed rows from the arrays; `apply` does so by itself when they are many."""
        raise NotImplementedError

    def clear(self) -> Snapshot:
        """Removes everything, dimension and vocabulary included."""
        raise NotImplementedError
