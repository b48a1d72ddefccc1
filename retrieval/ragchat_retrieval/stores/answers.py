"""From rows of an engine's snapshot to the answers of a store."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

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


class Visible(NamedTuple):
    """Passages that a caller may see."""

    ids: list[str]
    """Ids, each once."""

    rows: NDArray[np.int64]
    """Rows of the snapshot, aligned with `ids`."""


def visible(
    snapshot: Snapshot, passage_ids: Sequence[str], scope: Filter, *, vectors: bool = False
) -> Visible:
    """Returns those passages that exist and that the scope shows, in the order given.

    Args:
        snapshot: Where to look.
        passage_ids: Any ids; repeated ones count once.
        scope: What the caller may see.
        vectors: Whether only passages with a vector count.
    """
    ids = list(dict.fromkeys(passage_ids))
    rows = snapshot.find(ids)
    shown = rows >= 0
    if (mask := snapshot.mask(scope)) is not None:
        shown[shown] = mask.flags[rows[shown]]
    if vectors:
        shown[shown] = snapshot.has_vector(rows[shown])
    if not shown.all():
        ids, rows = list(compress(ids, shown.tolist())), rows[shown]
    return Visible(ids, rows)


def query_vector(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns a private float32 copy of a query's vector.

    Raises:
        InvalidVector: It is no array of numbers.
    """
    try:
        return np.array(vector, dtype=np.float32)
    except (TypeError, ValueError):
        raise InvalidVector("is no array of numbers") from None
