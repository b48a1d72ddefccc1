"""Choosing what fits a token budget, for any counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SLACK = 8
"""Tokens by which a joined text may count less than its parts before a part is given up unmeasured.
A sixteenth of the part comes on top."""


def pack(
    size: int,
    limit: int,
    *,
    measure: Callable[[Sequence[int]], int],
    cost: Callable[[int], int],
) -> list[int]:
    """Chooses whole items, in order, whose finished block is at most `limit` tokens.

    Items are taken as long as they fit; one that does not fit is skipped, and later ones may fit.
    The block of the result was measured as one string, so the limit holds for any counter. Work is
    a few measurements of the whole, and one for each later item that could still fit.

    Args:
        size: How many items there are.
        limit: Most tokens of the finished block.
        measure: Counts the finished block of the items with these indices.
        cost: Counts one item's text by itself; its part of a block is not expected to be much less.
            With a counter that is far from additive, an item that would fit may be skipped.

    Returns:
        Indices in ascending order; empty if no item fits.
    """
    if size == 0 or measure(range(size)) <= limit:
        return list(range(size))
    chosen, used = _longest_prefix(size, limit, measure)
    for index in range(len(chosen) + 1, size):
        least = cost(index)
        if used + least - _SLACK - least // 16 > limit:
            continue
        tokens = measure([*chosen, index])
        if tokens <= limit:
            chosen.append(index)
            used = tokens
    return chosen


def _longest_prefix(
    size: int, limit: int, measure: Callable[[Sequence[int]], int]
) -> tuple[list[int], int]:
    """Returns the longest prefix that fits, short of all items, and its measure; by bisection."""
    fits, used, too_long = 0, 0, size
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        tokens = measure(range(middle))
        if tokens <= limit:
            fits, used = middle, tokens
        else:
            too_long = middle
    return list(range(fits)), used
