"""An immutable state of an engine: what readers work on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter


class Found(NamedTuple):
    """Rows of a snapshot with their scores: score descending, ties by passage id."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]


class Mask:
    """The live rows that a filter selects."""

    flags: NDArray[np.bool_]
    """bool [rows of the snapshot]; dead rows are False."""

    @property
    def rows(self) -> NDArray[np.int64]:
        """The selected rows, ascending."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


class Snapshot:
    """One immutable state of an engine. Safe to use from any thread; a later write makes another.

    A row is a position in this snapshot's arrays and means nothing in another snapshot; a key is the
    caller's own number for a passage and lasts. Rows passed in must come from this snapshot.
    """

    rows: int
    """Length of the arrays, removed rows included."""

    live: int
    """Passages that are there."""

    vectors: int
    """Live passages with a vector."""

    dimension: int | None
    """Length of the vectors; None before the first vector."""

    # --- passages ---

    def find(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Returns the live row of each passage id, −1 for unknown ones."""
        raise NotImplementedError

    def find_keys(self, keys: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the live row of each key, −1 for unknown ones."""
        raise NotImplementedError

    def document_rows(self, document_ids: Iterable[str]) -> NDArray[np.int64]:
        """Returns all live rows of these documents, ascending."""
        raise NotImplementedError

    def live_rows(self, mask: Mask | None = None) -> NDArray[np.int64]:
        """Returns the live rows that `mask` selects, ascending; None is all."""
        raise NotImplementedError

    def ids(self, rows: NDArray[np.int64]) -> list[str]:
        """Returns the passage ids of rows."""
        raise NotImplementedError

    def keys(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the keys of rows."""
        raise NotImplementedError

    def document_ids(self, rows: NDArray[np.int64]) -> list[str]:
        """Returns the document ids of rows."""
        raise NotImplementedError

    def payload(self, rows: NDArray[np.int64]) -> list[object]:
        """Returns the payload of rows; None where there is none."""
        raise NotImplementedError

    def has_vector(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Says which rows have a vector."""
        raise NotImplementedError

    def vectors_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns a copy of the vectors of rows that all have one, float32 [rows, dimension]."""
        raise NotImplementedError

    # --- filters ---

    def mask(self, *filters: Filter) -> Mask | None:
        """Returns the live rows that all these filters select; None if all filters are empty."""
        raise NotImplementedError

    # --- keyword lane ---

    def search_text(
        self, terms: Mapping[str, float], limit: int, mask: Mask | None = None
    ) -> Found:
        """Returns the best rows by BM25; rows without any of the terms are left out."""
        raise NotImplementedError

    def score_text(
        self, terms: Mapping[str, float], rows: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Returns the BM25 scores of rows, equal to those of `search_text`; 0 without a term."""
        raise NotImplementedError

    # --- vector lane ---

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, mask: Mask | None = None
    ) -> Found:
        """Returns the best rows by inner product; rows without a vector are left out."""
        raise NotImplementedError

    def search_vectors(
        self, vectors: NDArray[np.float32], limit: int, mask: Mask | None = None
    ) -> list[Found]:
        """Returns `search_vector` of each row of float32 [queries, dimension], in one product."""
        raise NotImplementedError

    def score_vector(
        self, vector: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Returns the inner products of rows, equal to those of `search_vector`; NaN without one."""
        raise NotImplementedError
