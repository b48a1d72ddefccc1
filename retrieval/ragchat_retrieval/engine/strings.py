"""An immutable table of strings that is searched by hash: ids and vocabularies without objects.

Strings stand one after another as UTF-8, with offsets. Beside them stand their CRC-32 values in
ascending order and the positions these belong to. All are plain arrays, so that a table can be
mapped from a file and used at once, however large it is. UTF-8 orders bytes as Unicode orders code
points.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np

from ragchat_retrieval.pages import room, settled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_MOST_KEPT = 2**14
"""Strings up to which a table is small: so many ids take one or two megabytes as objects."""


@dataclass(frozen=True, slots=True, eq=False)
class StringTable:
    """Strings by position, and positions by string. The same string may stand at several."""

    text: NDArray[np.uint8]
    """UTF-8 of all strings."""

    offsets: NDArray[np.int64]
    """Where each string begins in `text`; one more than there are strings."""

    hashes: NDArray[np.uint32]
    """CRC-32 of the strings' UTF-8, ascending."""

    order: NDArray[np.int32]
    """Position of the string that each of `hashes` belongs to."""

    _kept: dict[int, str] = field(default_factory=dict, init=False, repr=False)
    """Strings of a small table that were asked for already, by position."""

    @classmethod
    def of(cls, strings: Sequence[str]) -> StringTable:
        """Makes a table; a string's position is its position in `strings`."""
        encoded = [string.encode() for string in strings]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=offsets[1:])
        hashes = np.fromiter(map(crc32, encoded), np.uint32, len(encoded))
        order = np.argsort(hashes, kind="stable").astype(np.int32)
        text = np.frombuffer(b"".join(encoded), np.uint8)
        return cls(text, offsets, hashes[order], order)

    @classmethod
    def joined(cls, tables: Sequence[StringTable]) -> StringTable:
        """Puts tables one after another; positions of later ones move up."""
        sizes = [len(table.text) for table in tables]
        text, size = room((sum(sizes),), np.uint8), sum(map(len, tables))
        offsets = room((size + 1,), np.int64)
        hashes, order = np.empty(size, np.uint32), np.empty(size, np.int32)
        base = first = 0
        for table, length in zip(tables, sizes, strict=True):
            there = slice(first, first + len(table))
            text[base : base + length] = table.text
            np.add(table.offsets[:-1], base, out=offsets[there])
            hashes[there] = table.hashes
            np.add(table.order, first, out=order[there])
            base, first = base + length, first + len(table)
        offsets[-1] = base
        # Stable, so that equal strings stay in ascending position.
        ascending = np.argsort(hashes, kind="stable")
        return cls(text, offsets, settled(hashes[ascending]), settled(order[ascending]))

    def find(self, encoded: Sequence[bytes]) -> list[list[int]]:
        """Returns all positions of each of these UTF-8 strings, ascending."""
        wanted = np.fromiter(map(crc32, encoded), np.uint32, len(encoded))
        lows = np.searchsorted(self.hashes, wanted, "left")
        lengths = np.searchsorted(self.hashes, wanted, "right") - lows
        found: list[list[int]] = [[] for _ in encoded]
        for position in np.flatnonzero(lengths).tolist():
            low, string = int(lows[position]), encoded[position]
            same_hash = self.order[low : low + int(lengths[position])]
            stored = self._slices(same_hash)
            found[position] = [
                at for at, text in zip(same_hash.tolist(), stored, strict=True) if text == string
            ]
        return found

    def first(self, encoded: Sequence[bytes]) -> NDArray[np.int64]:
        """Returns the first position of each of these UTF-8 strings, −1 for unknown ones."""
        result = np.full(len(encoded), -1, np.int64)
        if not len(self):
            return result
        wanted = np.fromiter(map(crc32, encoded), np.uint32, len(encoded))
        lows = self.hashes.searchsorted(wanted)
        at = np.flatnonzero(self.hashes.take(lows, mode="clip") == wanted)
        guesses = self.order[lows[at]]
        result[at] = guesses
        for position, text in zip(at.tolist(), self._slices(guesses), strict=True):
            if text != encoded[position]:  # another string of the same hash comes first
                result[position] = next(iter(self.find([encoded[position]])[0]), -1)
        return result

    def get(self, positions: NDArray[np.int64]) -> list[str]:
        """Returns the strings at positions; a small table gives the same objects again."""
        if len(self) > _MOST_KEPT:
            return [text.decode() for text in self._slices(positions)]
        kept, wanted = self._kept, positions.tolist()
        try:
            return [*map(kept.__getitem__, wanted)]
        except KeyError:
            new = [at for at in wanted if at not in kept]
            # Nothing is ever taken out, so that threads may do this at the same time.
            kept.update(zip(new, map(bytes.decode, self._slices(np.array(new))), strict=True))
            return [*map(kept.__getitem__, wanted)]

    def all(self) -> list[str]:
        """Returns all strings, in order of position."""
        text = self.text.tobytes()
        ends = self.offsets.tolist()
        return [text[a:b].decode() for a, b in pairwise(ends)]

    def take(self, positions: NDArray[np.int64]) -> StringTable:
        """Returns a table of only these positions, renumbered in the order given."""
        starts, ends = self.offsets[positions], self.offsets[positions + 1]
        lengths = ends - starts
        offsets = np.zeros(len(positions) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # Byte i of the result comes from where its string began, plus how far into it i lies.
        source = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        hashes = np.empty(len(self), np.uint32)
        hashes[self.order] = self.hashes
        kept = hashes[positions]
        order = np.argsort(kept, kind="stable").astype(np.int32)
        return StringTable(self.text[source], offsets, kept[order], order)

    def _slices(self, positions: NDArray[np.integer[Any]]) -> list[bytes]:
        view = self.text.data
        starts = self.offsets[positions].tolist()
        ends = self.offsets[positions + 1].tolist()
        return [bytes(view[start:end]) for start, end in zip(starts, ends, strict=True)]

    def __len__(self) -> int:
        return len(self.offsets) - 1


EMPTY = StringTable.of(())

_MOST_OWN = 2**15
"""Terms in the dict beyond which it goes into the table, which takes a sixth of the memory."""


class Vocabulary:
    """Terms and their ids. Grows at its end; readers of older states see ids without postings.

    Most terms stand in a table. A dict before it holds the newest, and those of the table that
    lately were written again, which are most of what the next write has.

    Args:
        base: A table to start from; its positions index `base_ids`.
        base_ids: Their ids.
        named: Whether the ids are the caller's, who may use any of them again.
    """

    __slots__ = ("_next", "_parts", "_tabled", "named")

    def __init__(
        self,
        base: StringTable = EMPTY,
        base_ids: NDArray[np.int32] | None = None,
        *,
        named: bool = False,
    ) -> None:
        ids = np.zeros(0, np.int32) if base_ids is None else base_ids
        # Replaced as one, so that a reader finds a term in the table or in the dict.
        self._parts = _Parts({}, base, ids)
        # Ids that were assigned ascend: those below this are in the table.
        self._next = self._tabled = int(ids.max()) + 1 if len(ids) else 0
        self.named = named

    def lookup(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """Returns the ids of terms, −1 for unknown ones."""
        own, base, base_ids = self._parts
        found = np.array([own.get(term, -1) for term in terms], np.int64)
        if len(base):
            missing = np.flatnonzero(found < 0)
            at = base.first([_utf8(terms[position]) for position in missing.tolist()])
            found[missing[at >= 0]] = base_ids[at[at >= 0]]
        return found

    def assign(self, terms: Sequence[str]) -> NDArray[np.int32]:
        """Returns the ids of terms, giving new ids to unknown ones."""
        own, base, base_ids = self._parts
        new = [term for term in dict.fromkeys(terms) if term not in own]
        if len(base) and new:
            at = base.first([_utf8(term) for term in new])
            known = np.flatnonzero(at >= 0)
            own.update(
                zip([new[n] for n in known.tolist()], base_ids[at[known]].tolist(), strict=True)
            )
            new = [new[n] for n in np.flatnonzero(at < 0).tolist()]
        own.update(zip(new, range(self._next, self._next + len(new)), strict=True))
        self._next += len(new)
        ids = np.fromiter(map(own.__getitem__, terms), np.int32, len(terms))
        if len(own) > _MOST_OWN:
            self.table()
        return ids

    def name(self, names: Mapping[str, int]) -> None:
        """Takes ids that the caller has given to terms."""
        self.named = True
        self._parts.own.update(names)
        self._next = max(self._next, max(names.values(), default=-1) + 1)
        if len(self._parts.own) > _MOST_OWN:
            self.table()

    def pruned(self, used: NDArray[np.int32]) -> Vocabulary:
        """Returns a vocabulary of only these ids, or itself if most are used or the caller's own.

        Args:
            used: Ids that occur, ascending.
        """
        if self.named:
            return self
        names, ids = self.table()
        if len(names) <= 2 * len(used) + 1024:
            return self
        kept = np.flatnonzero(np.isin(ids, used))
        result = Vocabulary(names.take(kept), ids[kept])
        result._next = result._tabled = self._next  # ids are never given twice
        return result

    def table(self) -> tuple[StringTable, NDArray[np.int32]]:
        """Puts all terms into the table, and returns it with their ids."""
        own, base, base_ids = self._parts
        if not self.named:
            own = {term: id_ for term, id_ in own.items() if id_ >= self._tabled}
        elif len(base) and (base.first([_utf8(term) for term in own]) >= 0).any():
            # The dict knows better.
            own = dict(zip(base.all(), base_ids.tolist(), strict=True)) | own
            base, base_ids = EMPTY, base_ids[:0]
        if own:
            base = StringTable.joined([base, StringTable.of(list(own))])
            ids = np.fromiter(own.values(), np.int32, len(own))
            base_ids = settled(np.concatenate([base_ids, ids]))
        self._parts = _Parts({}, base, base_ids)
        self._tabled = self._next
        return base, base_ids


def _utf8(text: str) -> bytes:
    # A lone surrogate gives bytes that no stored string has.
    return text.encode("utf-8", "surrogatepass")


class _Parts(NamedTuple):
    """Where a vocabulary has its terms; what the dict says of one counts."""

    own: dict[str, int]
    base: StringTable
    base_ids: NDArray[np.int32]
