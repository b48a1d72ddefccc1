"""Choosing what fits a token budget, for any counter."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SLACK = 8
"""Tokens by which a joined text may count less than its parts before a part is given up unmeasured.
A sixteenth of the part comes on top."""

_MOST_MISSES = 16
"""How many items that looked as if they fit may turn out not to, before the rest is left out."""


def pack(
    size: int,
    limit: int,
    *,
    measure: Callable[[Sequence[int]], int],
    cost: Callable[[int], int],
) -> list[int]:
    """Chooses whole items, in order, whose finished block is at most `limit` tokens.

    Items are taken as long as they fit; one that does not fit is skipped, and later ones may fit.
    The block of the result was measured as one string, so the limit holds for any counter. An item
    that would fit may be skipped with a counter that is far from additive, and after 16 later items
    that looked as if they fit and did not.

    The whole is measured at most ``36 * (log2(size) + 2)`` times, a dozen times as a rule, and each
    item by itself at most once.

    Args:
        size: How many items there are.
        limit: Most tokens of the finished block.
        measure: Counts the finished block of the items with these indices.
        cost: Counts one item's text by itself; its part of a block is not expected to be much less.

    Returns:
        Indices in ascending order; empty if no item fits.
    """
    if size == 0 or measure(range(size)) <= limit:
        return list(range(size))
    own = functools.cache(cost)
    fitting, used = _longest([], range(size), (0, 0), size, limit=limit, measure=measure)
    chosen = list(range(fitting))
    waiting = list(range(fitting + 1, size))
    joints: list[int] = []  # what items were seen to cost beside the others, beyond their own text
    for _ in range(_MOST_MISSES):
        room = limit - used - min(joints, default=0) + _SLACK
        waiting = [index for index in waiting if own(index) - own(index) // 16 <= room]
        if not waiting:
            break
        tokens, run = measure([*chosen, waiting[0]]), 0
        if tokens <= limit:
            too_many = len(waiting) + 1
            run, used = _longest(
                chosen, waiting, (1, tokens), too_many, limit=limit, measure=measure
            )
        elif chosen:
            joints.append(max(0, tokens - used - own(waiting[0])))
        chosen += waiting[:run]
        waiting = waiting[run + 1 :]
    return chosen


def _longest(
    before: Sequence[int],
    items: Sequence[int],
    fitting: tuple[int, int],
    too_many: int,
    *,
    limit: int,
    measure: Callable[[Sequence[int]], int],
) -> tuple[int, int]:
    """Returns how many of the first `items` fit after `before`, and the measure of all those.

    Args:
        before: Indices that are taken already.
        items: Further indices, in order.
        fitting: How many of them are known to fit, and the measure with them.
        too_many: How many are known not to fit; more than there are if that is not known.
        limit: Most tokens.
        measure: Counts the block.
    """
    fits, used = fitting
    while too_many - fits > 1:
        probe = (fits + too_many) // 2 if too_many <= len(items) else min(2 * fits, len(items))
        tokens = measure([*before, *items[:probe]])
        if tokens <= limit:
            fits, used = probe, tokens
        else:
            too_many = probe
    return fits, used
