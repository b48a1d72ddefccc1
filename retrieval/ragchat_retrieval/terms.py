"""Analysed terms of many passages, counted and kept in flat arrays.

A dict of counts per passage takes many times the memory of what an index makes of it, and a large
write would spend much of its time on making dicts and giving them back, and on having Python look
through all of them for garbage. Here the passages of a write share arrays, and a revision has one
object that says which part is its own. Whoever takes the whole write takes the arrays as they are
(`joined`, `tabulated`), and everybody else reads mappings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, pairwise
from typing import TYPE_CHECKING, Self, overload

import numpy as np

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, ValuesView

    from numpy.typing import NDArray

    Counts = Sequence[Mapping[str, int]]
    """Terms of each passage with their counts."""


@dataclass(frozen=True, slots=True, eq=False)
class TermTable:
    """Distinct terms of passages with their counts, passage after passage."""

    names: Sequence[str]
    """The distinct terms of all; a term's number is its position."""

    bounds: NDArray[np.int64]
    """Where each passage's terms begin; one more than there are passages."""

    numbers: NDArray[np.int32]
    """Numbers of terms; none twice within one passage."""

    counts: NDArray[np.int32]
    """How often the term occurs in the passage, ≥ 1, aligned with `numbers`."""

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        lengths: NDArray[np.int64],
        numbers: NDArray[np.int32],
        counts: NDArray[np.int32],
    ) -> Self:
        """Makes a table of passages with so many distinct terms each."""
        return cls(names, np.concatenate([[0], np.cumsum(lengths)]), numbers, counts)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Distinct terms of each passage."""
        return np.diff(self.bounds)


class TermCounts(Mapping[str, int]):
    """The terms of one passage with their counts: a read-only slice of a table.

    Args:
        table: Terms of many passages.
        start: Where this passage's begin.
        stop: Where they end.
    """

    __slots__ = ("start", "stop", "table")

    def __init__(self, table: TermTable, start: int, stop: int) -> None:
        self.table = table
        self.start = start
        self.stop = stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[str]:
        numbers = self.table.numbers[self.start : self.stop]
        return map(self.table.names.__getitem__, numbers.tolist())

    def __getitem__(self, term: str) -> int:
        return self._dict()[term]

    def items(self) -> ItemsView[str, int]:
        """Returns terms with their counts."""
        return self._dict().items()

    def values(self) -> ValuesView[int]:
        """Returns the counts, in the order of the terms."""
        return self._dict().values()

    def __repr__(self) -> str:
        return repr(self._dict())

    def _dict(self) -> dict[str, int]:
        return dict(zip(self, self.table.counts[self.start : self.stop].tolist(), strict=True))


class TermSlices(Sequence[Mapping[str, int]]):
    """The terms of passages that stand together in a table, read-only: `TermCounts` of each.

    Args:
        table: Terms of many passages.
        start: The first of these passages.
        stop: The one after the last.
    """

    __slots__ = ("start", "stop", "table")

    def __init__(self, table: TermTable, start: int, stop: int) -> None:
        self.table = table
        self.start = start
        self.stop = stop

    @classmethod
    def of(cls, table: TermTable) -> Self:
        """Returns the terms of all passages of a table."""
        return cls(table, 0, len(table.bounds) - 1)

    @property
    def is_whole(self) -> bool:
        """Whether these are all passages of the table."""
        return self.start == 0 and self.stop == len(self.table.bounds) - 1

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[TermCounts]:
        bounds = self.table.bounds[self.start : self.stop + 1].tolist()
        return (TermCounts(self.table, start, stop) for start, stop in pairwise(bounds))

    @overload
    def __getitem__(self, index: int) -> TermCounts: ...
    @overload
    def __getitem__(self, index: slice) -> Counts: ...
    def __getitem__(self, index: int | slice) -> TermCounts | Counts:
        passages = range(self.start, self.stop)
        if not isinstance(index, slice):
            at = passages[index]
            return TermCounts(self.table, *self.table.bounds[at : at + 2].tolist())
        some = passages[index]
        if some.step == 1:
            return TermSlices(self.table, some.start, max(some.start, some.stop))
        return tuple(self)[index]

    def __repr__(self) -> str:
        return repr(tuple(self))


def joined(parts: Iterable[Counts]) -> Counts:
    """Returns the terms of passages one after another; of neighbours in a table, still there."""
    filled = [part for part in parts if len(part)]
    slices = [part for part in filled if isinstance(part, TermSlices)]
    if slices and len(slices) == len(filled):
        first, last = slices[0], slices[-1]
        if all(a.table is b.table and a.stop == b.start for a, b in pairwise(slices)):
            return TermSlices(first.table, first.start, last.stop)
    return [counts for part in filled for counts in part]


def tabulated(terms: Counts) -> TermTable:
    """Returns the terms of passages as one table; if they are all of one, that very table."""
    if isinstance(terms, TermSlices) and terms.is_whole:
        return terms.table
    lengths = np.fromiter(map(len, terms), np.int64, len(terms))
    total = int(lengths.sum())
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    flat = np.fromiter(map(numbers.__getitem__, chain.from_iterable(terms)), np.int32, total)
    values = chain.from_iterable(counts.values() for counts in terms)
    return TermTable.of(list(numbers), lengths, flat, np.fromiter(values, np.int32, total))
