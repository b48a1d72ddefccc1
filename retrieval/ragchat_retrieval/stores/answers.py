"""From rows of an engine's snapshot to the answers of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.errors import InvalidVector
from ragchat_retrieval.ports import Hit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine import Found, Snapshot
    from ragchat_retrieval.filters import Filter


def hits(snapshot: Snapshot, found: Found) -> list[Hit]:
    """Returns what a lane found as passage ids with scores."""
    return [*map(Hit, snapshot.ids(found.rows), found.scores.tolist())]


def visible_rows(
    snapshot: Snapshot, passage_ids: Sequence[str], scope: Filter
) -> NDArray[np.int64]:
    """Returns the rows of those passages that exist and that the scope shows, each once."""
    rows = snapshot.find(list(dict.fromkeys(passage_ids)))
    rows = rows[rows >= 0]
    mask = snapshot.mask(scope)
    return rows if mask is None else rows[mask.flags[rows]]


def query_vector(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns a private float32 copy of a query's vector.

    Raises:
        InvalidVector: It is no array of numbers.
    """
    try:
        return np.array(vector, dtype=np.float32)
    except (TypeError, ValueError):
        raise InvalidVector("is no array of numbers") from None
