"""Counting the terms of many texts at once: most of what a large write does.

Texts come as UTF-8, with spaces where no term reaches across. Array operations find their chunks
and look them up in a hash table by their bytes, some hundred texts at a time, so that a chunk is a
string only when it is met for the first time and somebody has to say what its terms are. The result
is what asking for every chunk of every text would give.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from itertools import chain, count
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.pages import room
from ragchat_retrieval.terms import TermSlices, TermTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Keys = NDArray[np.uint64]

_TOGETHER = 256
"""Most texts counted at a time: their arrays stay near the processor, and leave small holes."""

_TOGETHER_SIZE = 2**20
"""Characters of texts after which no more are counted together, since a text may be long."""

_KEPT_CHUNKS = 400_000
"""Distinct chunks after which a count begins to forget, since texts may hold endless numbers."""

_HALF = 8
_KEY = 2 * _HALF
"""Bytes of the longest chunk that the hash table takes, as two numbers."""

_KEPT_LENGTH = 32
"""Bytes of the longest chunk that is remembered at all."""

_NUMBER_BITS = 32
_SMALLEST, _LARGEST = 12, 20
"""Logarithms of the places of a hash table; the largest is less than half full of kept chunks."""

_TRIES = 64
"""Places that a chunk may find taken before it goes without, which texts must be made for."""

_BREAK, _JOINER, _ENDING, _WORD = range(4)
_KINDS = bytes(
    {" ": _BREAK, "-": _JOINER, ".": _JOINER, "'": _JOINER, "+": _ENDING, "#": _ENDING}.get(
        chr(byte), _WORD
    )
    for byte in range(256)
)
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_HALF + 1)], np.uint64)
"""What keeps the first bytes of a number, by how many."""

_NO_KEY = np.array([(1 << 64) - 1], np.uint64)
"""Both halves of what stands for chunks that are too long: no UTF-8 has such bytes."""

_NOTHING = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))
"""What a count of no texts gives."""

# Odd numbers with bits all over, as multiplicative hashing wants (Knuth 6.4): 2^64 over the golden
# ratio, and constants of splitmix64.
_MIX_LOW, _MIX_HIGH, _MIX = (
    np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def counted(
    texts: Sequence[str],
    plain: Callable[[Sequence[str]], tuple[bytes, Sequence[int]]],
    expand: Callable[[str], Sequence[str]],
) -> TermSlices:
    """Returns the terms of each text with their counts.

    Args:
        texts: In order.
        plain: Gives texts in their plain form as UTF-8, with a space between two, and the bytes of
            each: chunks with spaces between them. ``-``, ``.`` and ``'`` only join what stands at
            both their sides.
        expand: Gives the terms of a chunk.
    """
    chunks = _Chunks(expand, sum(map(len, texts)))
    parts = [chunks.count(*plain(some)) for some in _batches(texts)]
    lengths, numbers, counts = map(np.concatenate, zip(_NOTHING, *parts, strict=True))
    return TermSlices.of(TermTable.of(list(chunks.names), lengths, numbers, counts))


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields texts, in order, a few at a time."""
    start = size = 0
    for position, text in enumerate(texts):
        if position - start == _TOGETHER or size > _TOGETHER_SIZE:
            yield texts[start:position]
            start, size = position, 0
        size += len(text)
    if start < len(texts):
        yield texts[start:]


class _Chunks:
    """The chunks met so far, with the numbers of their terms.

    Args:
        expand: Gives the terms of a chunk.
        size: Characters of all texts, from which it knows how large a table pays.
    """

    def __init__(self, expand: Callable[[str], Sequence[str]], size: int) -> None:
        self._expand = expand
        self._bits = min(max(_SMALLEST, (size // 4).bit_length()), _LARGEST)
        self.names: defaultdict[str, int] = defaultdict(count().__next__)
        self._forget()

    def count(
        self, texts: bytes, sizes: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """Counts the terms of texts in their plain form.

        Args:
            texts: With a space between two.
            sizes: Bytes of each.

        Returns:
            The distinct terms of each text; their numbers and counts, text after text.
        """
        if max(len(self._codes) + len(self._others), len(self._bounds)) > _KEPT_CHUNKS:
            self._forget()
        data = b"".join((b" ", texts, b" ", bytes(_KEY)))
        starts, ends = _bounds(data[:-_KEY])
        firsts = np.cumsum([1, *(size + 1 for size in sizes)])
        inside = np.diff(starts.searchsorted(firsts))
        owners = np.repeat(np.arange(len(sizes), dtype=np.int64) << _NUMBER_BITS, inside)
        return _tallied(self._owned(self._coded(data, starts, ends), owners), len(sizes))

    def _forget(self) -> None:
        self._table = _Table(self._bits)
        self._table.find(_NO_KEY, _NO_KEY)
        # What each entry of the table stands for: the number of the chunk's only term, −1 if it has
        # none, and less for those of several (see `_owned`). Entries 0 and 1 are no chunks.
        self._codes = array("i", [-1, -1])
        self._others: dict[bytes, int] = {}
        # Numbers of terms of chunks that have several, and where each of these begins and, one
        # further, ends. The first is none, since numpy takes no view of an empty array.
        self._several = array("i", [-1])
        self._bounds = array("q", [1])

    def _coded(
        self, data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Returns what the chunk at each of these places stands for."""
        sizes = ends - starts
        # The eight bytes from each place on, as a number.
        numbers: Keys = np.ndarray((len(data) - _HALF + 1,), "<u8", data, strides=(1,))
        low, high = numbers[starts], numbers[starts + _HALF]
        low &= _MASKS.take(sizes, mode="clip")
        high &= _MASKS.take(sizes - _HALF, mode="clip")
        long = np.flatnonzero(sizes > _KEY)
        low[long] = high[long] = _NO_KEY
        entries = self._table.find(low, high)
        self._codes.frombytes(self._added(self._table.keys(len(self._codes))).tobytes())
        codes = np.frombuffer(self._codes, np.int32).take(entries)
        rest = np.flatnonzero(entries <= 1)
        bounds = zip(starts.take(rest).tolist(), ends.take(rest).tolist(), strict=True)
        chunks = [data[start:end] for start, end in bounds]
        new = [chunk for chunk in dict.fromkeys(chunks) if chunk not in self._others]
        self._others.update(zip(new, self._added(new).tolist(), strict=True))
        codes[rest] = [self._others[chunk] for chunk in chunks]
        for chunk in new:
            if len(chunk) > _KEPT_LENGTH:
                del self._others[chunk]
        return codes

    def _added(self, chunks: Sequence[bytes]) -> NDArray[np.int32]:
        """Takes in chunks that are new, and returns what they stand for."""
        terms = list(map(self._expand, b" ".join(chunks).decode().split()))
        sizes = np.fromiter(map(len, terms), np.int64, len(terms))
        ends = np.cumsum(sizes)
        every = chain.from_iterable(terms)
        numbers = np.fromiter(map(self.names.__getitem__, every), np.int32, sizes.sum())
        codes = np.full(len(terms), -1, np.int32)
        one, several = np.flatnonzero(sizes == 1), np.flatnonzero(sizes > 1)
        codes[one] = numbers[ends[one] - 1]
        codes[several] = -1 - len(self._bounds) - np.arange(len(several))
        self._bounds.frombytes((np.cumsum(sizes[several]) + self._bounds[-1]).tobytes())
        self._several.frombytes(numbers[np.repeat(sizes > 1, sizes)].tobytes())
        return codes

    def _owned(self, codes: NDArray[np.int32], owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the numbers of the chunks' terms, each with its owner, in no order."""
        one, several = np.flatnonzero(codes >= 0), np.flatnonzero(codes < -1)
        which = -2 - codes.take(several)
        bounds = np.frombuffer(self._bounds, np.int64)
        firsts = bounds.take(which)
        sizes = bounds.take(which + 1) - firsts
        skipped = np.cumsum(sizes) - sizes
        at = np.repeat(firsts - skipped, sizes) + np.arange(sizes.sum())
        return np.concatenate(
            [
                owners.take(one) | codes.take(one),
                np.repeat(owners.take(several), sizes)
                | np.frombuffer(self._several, np.int32).take(at),
            ]
        )


class _Table:
    """A hash table of keys of two numbers, with open addressing and linear probing (Knuth 6.4).

    Entries are numbered from 1 as they come. No key is 0, 0.

    Args:
        bits: Logarithm of the number of places. It does not grow: keys that find no place are told.
    """

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._size = 1
        self._entries = room((1 << bits,), np.int32)
        self._entries[...] = 0
        # Entry 0 is none.
        self._low = room((1 + (1 << bits),), np.uint64)
        self._high = room((1 + (1 << bits),), np.uint64)
        self._low[0] = self._high[0] = 0

    def find(self, low: Keys, high: Keys) -> NDArray[np.int64]:
        """Returns the entry of each key; a new key becomes one.

        Args:
            low: First half of each key.
            high: Second half.

        Returns:
            0 for a key that found too many places taken by others.
        """
        mixed = ((low * _MIX_LOW) ^ (high * _MIX_HIGH)) * _MIX
        places = (mixed >> np.uint64(64 - self._bits)).astype(np.int64)
        found, left = self._looked_up(places, low, high)
        waiting = left
        for _ in range(1, _TRIES):
            if not len(waiting):
                break
            places = (places.take(left) + 1) & (len(self._entries) - 1)
            low, high = low.take(left), high.take(left)
            entries, left = self._looked_up(places, low, high)
            found[waiting] = entries
            waiting = waiting.take(left)
        return found

    def _looked_up(
        self, places: NDArray[np.int64], low: Keys, high: Keys
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the entries at places, which new keys take; 0 where another key has the place.

        With them comes where that is so.
        """
        entries = self._entries.take(places).astype(np.int64)
        free = np.flatnonzero(entries == 0)
        if len(free):
            self._take(places.take(free), low.take(free), high.take(free))
            entries[free] = self._entries.take(places.take(free))
        left = np.flatnonzero((self._low.take(entries) != low) | (self._high.take(entries) != high))
        entries[left] = 0
        return entries, left

    def keys(self, start: int) -> list[bytes]:
        """Returns the keys of all entries from `start` on, without the zeros at their ends."""
        both = np.empty((self._size - start, 2), "<u8")
        both[:, 0] = self._low[start : self._size]
        both[:, 1] = self._high[start : self._size]
        keys: list[bytes] = both.view(f"S{_KEY}").ravel().tolist()
        return keys

    def _take(self, places: NDArray[np.int64], low: Keys, high: Keys) -> None:
        """Makes entries at free places; of several keys that want one place, one gets it."""
        asking = np.arange(1, len(places) + 1, dtype=np.int32)
        self._entries[places] = asking
        taken = np.flatnonzero(self._entries[places] == asking)
        end = self._size + len(taken)
        self._entries[places[taken]] = np.arange(self._size, end, dtype=np.int32)
        self._low[self._size : end] = low[taken]
        self._high[self._size : end] = high[taken]
        self._size = end


def _bounds(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns where chunks start and end; joiners that join nothing part them like spaces."""
    kinds = np.frombuffer(data.translate(_KINDS), np.uint8)
    word = kinds == _WORD
    solid = kinds >= _ENDING
    solid[1:-1] |= (kinds[1:-1] == _JOINER) & word[:-2] & word[2:]
    edges = np.flatnonzero(solid[1:] != solid[:-1]) + 1
    return edges[::2], edges[1::2]


def _tallied(
    owned: NDArray[np.int64], texts: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Counts numbered terms by the texts that they stand in."""
    distinct, counts = np.unique(owned, return_counts=True)
    lengths = np.bincount(distinct >> _NUMBER_BITS, minlength=texts).astype(np.int64)
    numbers = (distinct & ((1 << _NUMBER_BITS) - 1)).astype(np.int32)
    return lengths, numbers, counts.astype(np.int32)
