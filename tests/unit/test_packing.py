"""What is packed into a limit, and how often the whole is counted for it."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat.packing import pack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Counted:
    """A way of measuring that knows how often it was asked."""

    def __init__(self, measure: Callable[[Sequence[int]], int]) -> None:
        self._measure = measure
        self.seen: dict[tuple[int, ...], int] = {}
        self.times = 0

    def __call__(self, indices: Sequence[int]) -> int:
        self.times += 1
        return self.seen.setdefault(tuple(indices), self._measure(indices))


def greedy(size: int, limit: int, measure) -> list[int]:
    """The rule in its plainest form: take each item whose block still fits."""
    chosen: list[int] = []
    for index in range(size):
        if measure([*chosen, index]) <= limit:
            chosen.append(index)
    return chosen


@given(
    st.lists(st.integers(0, 40), max_size=12),
    st.integers(0, 120),
    st.integers(0, 9),
    st.integers(0, 5),
)
def test_packing_takes_what_the_plain_greedy_rule_takes(
    costs: list[int], limit: int, fixed: int, joint: int
):
    """For additive counters with fixed costs per block and per joint."""

    def measure(indices: Sequence[int]) -> int:
        return fixed + sum(costs[i] for i in indices) + joint * max(0, len(indices) - 1)

    assert pack(len(costs), limit, measure=measure, cost=costs.__getitem__) == greedy(
        len(costs), limit, measure
    )


def bound(size: int) -> float:
    return 36 * (math.log2(size) + 2)


COSTS = st.lists(st.integers(0, 400), min_size=1, max_size=60)


@given(COSTS, st.integers(0, 3000), st.binary(max_size=4))
def test_for_a_counter_without_any_rule_what_is_chosen_was_measured_and_fits(
    costs: list[int], limit: int, seed: bytes
):
    """Non-monotone, neither super- nor subadditive, and unlike the items' own costs."""

    def erratic(indices: Sequence[int]) -> int:
        digest = hashlib.sha256(repr((seed, list(indices))).encode()).digest()
        return int.from_bytes(digest[:2], "big") % (sum(costs[i] for i in indices) + 1)

    measure = Counted(erratic)
    chosen = pack(len(costs), limit, measure=measure, cost=costs.__getitem__)
    assert chosen == sorted(set(chosen))
    assert not chosen or measure.seen[tuple(chosen)] <= limit
    assert measure.times <= bound(len(costs))


LAWS: dict[str, Callable[[int, int], int]] = {
    "additive": lambda total, _: total,
    "each joint costs thirty": lambda total, items: total + 30 * items,
    "superadditive": lambda total, items: total + items * items,
    "subadditive": lambda total, _: math.isqrt(100 * total),
    "rounded up": lambda total, _: -(-total // 64) * 64,
}


@pytest.mark.parametrize("law", LAWS)
@given(
    costs=st.lists(st.integers(1, 300), min_size=500, max_size=500), limit=st.integers(1, 20_000)
)
def test_five_hundred_candidates_are_never_recounted_one_by_one(law, costs: list[int], limit: int):
    measure = Counted(lambda indices: LAWS[law](sum(costs[i] for i in indices), len(indices)))
    asked: list[int] = []

    def cost(index: int) -> int:
        asked.append(index)
        return costs[index]

    chosen = pack(500, limit, measure=measure, cost=cost)
    assert not chosen or measure.seen[tuple(chosen)] <= limit
    assert measure.times <= bound(500)
    assert len(asked) == len(set(asked))


def test_small_items_after_a_large_one_are_taken_in_a_few_steps():
    costs = [10, 10_000, *[10] * 400, 10_000, *[10] * 98]
    measure = Counted(lambda indices: sum(costs[i] for i in indices))
    chosen = pack(len(costs), 4_500, measure=measure, cost=costs.__getitem__)
    assert chosen == [0, *range(2, 402), *range(403, 452)]
    assert measure.times <= 40


def test_many_candidates_need_few_measurements_of_the_whole():
    costs = [10] * 1000
    measure = Counted(lambda indices: sum(costs[i] for i in indices))
    assert len(pack(1000, 5005, measure=measure, cost=costs.__getitem__)) == 500
    assert measure.times <= 30
