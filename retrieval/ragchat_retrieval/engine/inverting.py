"""Inverting postings: what every passage holds, turned into where every term occurs.

Nearly all of it is numpy's work, which other threads need not wait for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ragchat_retrieval.pages import room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ragchat_retrieval.engine.batch import Postings

_TOGETHER = 2**16
"""Postings put in their places at a time, so that what this takes in memory is small."""

_PASSAGES = 512
"""Passages whose postings are packed at a time, which are about as many."""


@dataclass(frozen=True, slots=True, eq=False)
class Inverted:
    """Terms of many passages, by term. The postings of a term are ascending in position."""

    terms: NDArray[np.int32]
    """Ids of the terms that occur, ascending."""

    offsets: NDArray[np.int64]
    """Where the postings of each of `terms` begin; one more than there are terms."""

    positions: NDArray[np.int32]
    """Positions of passages, from 0."""

    counts: NDArray[np.unsignedinteger[Any]]
    """How often the term occurs in the passage; the smallest unsigned type that holds them."""

    lengths: NDArray[np.int32]
    """Terms of each passage, repetitions included."""

    @classmethod
    def of(cls, postings: Postings) -> Inverted:
        """Inverts postings."""
        size = len(postings.lengths)
        # One sort of packed integers is several times faster than an argsort and three gathers.
        count_bits = int(postings.counts.max(initial=0)).bit_length()
        row_bits = max(size - 1, 0).bit_length()
        packed, lengths = _packed(postings, row_bits, count_bits)
        packed.sort()
        positions = room((len(packed),), np.int32)
        counts = room((len(packed),), _unsigned(count_bits))
        terms, begins = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        last = -1
        for low in range(0, len(packed), _TOGETHER):
            here = slice(low, low + _TOGETHER)
            part = packed[here]
            counts[here] = part & ((1 << count_bits) - 1)
            part >>= count_bits
            positions[here] = part & ((1 << row_bits) - 1)
            part >>= row_bits
            first = np.flatnonzero(np.diff(part, prepend=last))
            terms.append(part[first].astype(np.int32))
            begins.append(first + low)
            last = part[-1]
        offsets = np.concatenate([*begins, [len(packed)]])
        return cls(np.concatenate(terms), offsets, positions, counts, lengths)


def _packed(
    postings: Postings, row_bits: int, count_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Returns term, position of the passage and count of each posting in one integer.

    With them come the lengths of the passages, in terms, repetitions included.
    """
    packed = room((len(postings.term_ids),), np.int64)
    lengths = np.empty(len(postings.lengths), np.int32)
    low = 0
    for first in range(0, len(lengths), _PASSAGES):
        sizes = postings.lengths[first : first + _PASSAGES]
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        high = low + int(bounds[-1])
        part, counts = packed[low:high], postings.counts[low:high]
        part[...] = postings.term_ids[low:high]
        part <<= row_bits
        part |= np.repeat(np.arange(first, first + len(sizes)), sizes)
        part <<= count_bits
        part |= counts
        sums = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        lengths[first : first + len(sizes)] = np.diff(sums[bounds])
        low = high
    return packed, lengths


def _unsigned(bits: int) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32  # noqa: PLR2004
