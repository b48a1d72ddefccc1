"""Analysed terms of many passages, counted and kept in flat arrays.

A dict of counts per passage takes many times the memory of what an index makes of it, and a large
write would spend much of its time on making dicts and giving them back. Here a passage's counts are
a slice of arrays that all passages of a write share; whoever takes the whole write takes the arrays
as they are (`tabulated`), and everybody else reads mappings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import ItemsView, Sequence, ValuesView

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class TermTable:
    """Distinct terms of passages with their counts, passage after passage."""

    names: Sequence[str]
    """The distinct terms of all; a term's number is its position."""

    numbers: NDArray[np.int32]
    """Numbers of terms; none twice within one passage."""

    counts: NDArray[np.int32]
    """How often the term occurs in the passage, ≥ 1, aligned with `numbers`."""


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


def sliced(table: TermTable, lengths: NDArray[np.int64]) -> list[TermCounts]:
    """Returns the terms of each passage of a table.

    Args:
        table: Terms of passages.
        lengths: Distinct terms of each passage.
    """
    ends = np.cumsum(lengths)
    bounds = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
    return [TermCounts(table, start, stop) for start, stop in bounds]


def tabulated(terms: Sequence[Mapping[str, int]]) -> tuple[TermTable, NDArray[np.int64]]:
    """Returns the terms of passages as one table, and the distinct terms of each passage.

    Args:
        terms: Terms of each passage with their counts. All slices of one table, in order, give that
            very table.
    """
    lengths = np.fromiter(map(len, terms), np.int64, len(terms))
    table = _shared(terms)
    if table is not None:
        return table, lengths
    total = int(lengths.sum())
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    flat = np.fromiter(map(numbers.__getitem__, chain.from_iterable(terms)), np.int32, total)
    values = chain.from_iterable(counts.values() for counts in terms)
    return TermTable(list(numbers), flat, np.fromiter(values, np.int32, total)), lengths


def _shared(terms: Sequence[Mapping[str, int]]) -> TermTable | None:
    """Returns the table that all of these are slices of, if they are the whole of it, in order."""
    table, end = None, 0
    for counts in terms:
        if not isinstance(counts, TermCounts) or counts.start != end:
            return None
        if table is not None and counts.table is not table:
            return None
        table, end = counts.table, counts.stop
    return table if table is not None and end == len(table.numbers) else None
