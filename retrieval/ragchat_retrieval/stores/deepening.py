"""Asking an engine for ever more rows, until the best of them are certain.

What an engine says of its rows is near the exact score, and ties it breaks as it likes. So a lane
reads more rows than are wanted and scores them itself, until no row that was not read can be better
than those that are returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ragchat_retrieval.stores.manifest import Row

ROUNDING = 1e-5
"""Above what an engine's scores lose in single precision."""

_SLACK = 16
"""How many more than wanted are read at first, for ties at the limit."""


async def deepened(
    limit: int, read: Callable[[int], Awaitable[tuple[Iterable[Row], float | None]]]
) -> list[Row]:
    """Returns the best rows, ties by passage id.

    Args:
        limit: How many are wanted, 1 or more.
        read: Reads so many of the best rows by the engine's own scores. It returns those that
            count, with their exact scores, and a bound that no row beyond them is above; None if
            there are no more.
    """
    n = limit + _SLACK
    while True:
        found, bound = await read(n)
        rows = sorted(found, key=lambda row: (-row.score, row.passage_id))
        if bound is None:
            return rows[:limit]
        if len(rows) >= limit and (rows[limit - 1].score > bound or n >= _ceiling(limit)):
            return rows[:limit]
        n *= 2


def _ceiling(limit: int) -> int:
    """Returns how many rows are read at most to prove the order of so many."""
    return 8 * limit + 1_000
