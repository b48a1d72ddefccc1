"""Counting the terms of many texts at once: most of what a large write does.

Texts come as UTF-8, with spaces where no term reaches across. Array operations find their chunks
and look them up in a hash table by their bytes, some hundred texts at a time, so that a chunk is a
string only when it is met for the first time and somebody has to say what its terms are. The result
is what asking for every chunk of every text would give.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from itertools import accumulate, count
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.pages import room
from ragchat_retrieval.terms import TermTable, sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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

# Odd numbers with bits all over, as multiplicative hashing wants (Knuth 6.4): 2^64 over the golden
# ratio, and constants of splitmix64.
_MIX_LOW, _MIX_HIGH, _MIX = (
    np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def counted(
    texts: Sequence[str], spaced: Callable[[str], str], expand: Callable[[str], str]
) -> Sequence[Mapping[str, int]]:
    """Returns the terms of each text with their counts.

    Args:
        texts: In order.
        spaced: Gives a text in its plain form: chunks with spaces between them. ``-``, ``.`` and
            ``'`` only join what stands at both their sides.
        expand: Gives the terms of a chunk, parted by spaces.
    """
    chunks = _Chunks(expand, sum(map(len, texts)))
    parts = [chunks.count([spaced(text).encode() for text in some]) for some in _batches(texts)]
    if not parts:
        return []
    lengths, numbers, counts = map(np.concatenate, zip(*parts, strict=True))
    return sliced(TermTable(list(chunks.names), numbers, counts), lengths)


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
        expand: Gives the terms of a chunk, parted by spaces.
        size: Characters of all texts, from which it knows how large a table pays.
    """

    def __init__(self, expand: Callable[[str], str], size: int) -> None:
        self._expand = expand
        self._bits = min(max(_SMALLEST, (size // 4).bit_length()), _LARGEST)
        self.names: defaultdict[str, int] = defaultdict(count().__next__)
        self._forget()

    def count(
        self, texts: Sequence[bytes]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """Counts the terms of texts in their plain form.

        Returns:
            The distinct terms of each text; their numbers and counts, text after text.
        """
        if len(self._bounds) > _KEPT_CHUNKS:
            self._forget()
        data = b"".join((b" ", b" ".join(texts), b" ", bytes(_KEY)))
        starts, ends = _bounds(data[:-_KEY])
        firsts = np.cumsum([1, *(len(text) + 1 for text in texts)])
        inside = np.diff(np.searchsorted(starts, firsts))
        owners = np.repeat(np.arange(len(texts), dtype=np.int64), inside)
        terms, owners = self._terms(self._numbered(data, starts, ends), owners)
        return _tallied(terms, owners, len(texts))

    def _forget(self) -> None:
        self._table = _Table(self._bits)
        # The chunk of each entry of the table; entry 0 is none.
        self._chunks = array("i", [-1])
        self._others: dict[bytes, int] = {}
        # Where the terms of each chunk begin and, one further, end.
        self._bounds = array("q", [1])
        # The first is none, since numpy takes no view of an empty array.
        self._terms_of = array("i", [-1])

    def _numbered(
        self, data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Returns the number of the chunk at each of these places."""
        sizes = ends - starts
        found = np.full(len(starts), -1, np.int32)
        short = np.flatnonzero(sizes <= _KEY)
        found[short] = self._tabled(data, starts[short], sizes[short])
        rest = np.flatnonzero(found < 0)
        bounds = zip(starts[rest].tolist(), ends[rest].tolist(), strict=True)
        chunks = [data[start:end] for start, end in bounds]
        new = [chunk for chunk in dict.fromkeys(chunks) if chunk not in self._others]
        self._others.update(zip(new, self._added(new), strict=True))
        found[rest] = [self._others[chunk] for chunk in chunks]
        for chunk in new:
            if len(chunk) > _KEPT_LENGTH:
                del self._others[chunk]
        return found

    def _tabled(
        self, data: bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Returns the numbers of chunks that are short enough, −1 where the table has no place."""
        # The eight bytes from each place on, as a number.
        numbers: Keys = np.ndarray((len(data) - _HALF + 1,), "<u8", data, strides=(1,))
        low = numbers[starts] & _MASKS[np.minimum(sizes, _HALF)]
        high = numbers[starts + _HALF] & _MASKS[np.maximum(sizes - _HALF, 0)]
        entries = self._table.find(low, high)
        self._chunks.extend(self._added(self._table.keys(len(self._chunks))))
        return np.frombuffer(self._chunks, np.int32)[entries]

    def _added(self, chunks: Sequence[bytes]) -> range:
        """Takes in chunks that are new, and returns their numbers."""
        terms = list(map(self._expand, b" ".join(chunks).decode().split()))
        self._terms_of.extend(map(self.names.__getitem__, " ".join(terms).split()))
        sizes = (len(each.split()) if " " in each else bool(each) for each in terms)
        first = len(self._bounds) - 1
        self._bounds.extend(accumulate(sizes, initial=self._bounds.pop()))
        return range(first, first + len(terms))

    def _terms(
        self, chunks: NDArray[np.int32], owners: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the numbers of the chunks' terms and the owners of these, in no order."""
        bounds = np.frombuffer(self._bounds, np.int64)
        terms = np.frombuffer(self._terms_of, np.int32)
        firsts = bounds[chunks]
        sizes = bounds[chunks + 1] - firsts
        # Most chunks have one term or none.
        some, many = np.flatnonzero(sizes), np.flatnonzero(sizes > 1)
        more = sizes[many] - 1
        skipped = np.cumsum(more) - more
        others = np.repeat(firsts[many] + 1 - skipped, more) + np.arange(more.sum())
        return (
            np.concatenate([terms[firsts[some]], terms[others]]).astype(np.int64),
            np.concatenate([owners[some], np.repeat(owners[many], more)]),
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

    def find(self, low: Keys, high: Keys) -> NDArray[np.int32]:
        """Returns the entry of each key; a new key becomes one.

        Args:
            low: First half of each key.
            high: Second half.

        Returns:
            0 for a key that found too many places taken by others.
        """
        found = np.zeros(len(low), np.int32)
        waiting = np.arange(len(low))
        mixed = ((low * _MIX_LOW) ^ (high * _MIX_HIGH)) * _MIX
        places = (mixed >> np.uint64(64 - self._bits)).astype(np.int64)
        for _ in range(_TRIES):
            entries = self._entries[places]
            free = np.flatnonzero(entries == 0)
            if len(free):
                self._take(places[free], low[free], high[free])
                entries[free] = self._entries[places[free]]
            same = (self._low[entries] == low) & (self._high[entries] == high)
            found[waiting[same]] = entries[same]
            left = np.flatnonzero(~same)
            if not len(left):
                break
            waiting, low, high = waiting[left], low[left], high[left]
            places = (places[left] + 1) & (len(self._entries) - 1)
        return found

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
    terms: NDArray[np.int64], owners: NDArray[np.int64], texts: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Counts numbered terms by the texts that they stand in."""
    distinct, counts = np.unique(owners << _NUMBER_BITS | terms, return_counts=True)
    lengths = np.bincount(distinct >> _NUMBER_BITS, minlength=texts).astype(np.int64)
    numbers = (distinct & ((1 << _NUMBER_BITS) - 1)).astype(np.int32)
    return lengths, numbers, counts.astype(np.int32)
