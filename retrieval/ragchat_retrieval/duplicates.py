"""Exact and near duplicates of documents, found as they come. Pure.

Four ways, surest first: the same text; the same words, whatever their case, spacing and
punctuation; a simhash within a few bits; a vector with a high cosine.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

import numpy as np

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.lexical import Analyzer
from ragchat_retrieval.vectors import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ragchat_retrieval.values import Document

    Kind = Literal["exact", "text", "near", "vector"]

BITS = 64
NEAR_BITS = 5
"""Bits in which the simhashes of near duplicates differ at most.

Of abstracts of 200 words (SciFact), 83 % are found after a change of one word and 62 % after two;
the closest two of 4.5 million unrelated pairs differ in 12 bits.
"""

_GRAM = 3
_KEY = 16
_CAPACITY = 256


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A document that repeats another one."""

    id: str
    of: str
    """The first document of its group."""

    kind: Kind
    """``exact``: the same text; ``text``: the same words; ``near``: by simhash; ``vector``."""

    similarity: float
    """1 for the same words, the share of equal bits of a simhash, or a cosine."""


def simhash(text: str) -> int:
    """Returns a 64-bit hash that differs in few bits between texts that differ in little.

    Each run of three words votes for its bits, once however often it occurs (Charikar, STOC 2002).
    Words are those of the lexical analysis without stemming and stop words; in scripts without
    spaces they are pairs of characters. It is the same in every process and on every platform.

    Returns:
        0 … 2⁶⁴ − 1; 0 for a text without words.
    """
    return _simhash(_analyzer().terms(text))


def hamming(first: int, second: int) -> int:
    """Returns in how many bits two simhashes differ, 0 … 64."""
    return (first ^ second).bit_count()


class DuplicateFinder:
    """Tells of each document whether it repeats one that came before.

    A simhash is compared with those of first documents alone, so that a group does not drift. A
    vector is compared with all before it: groups are connected components, as far as the links were
    there when a document came (see `ragchat_retrieval.clustering.cluster` for the whole). It keeps
    hashes and vectors, no text.

    Args:
        bits: Most differing bits of a near duplicate, 0 … 15; None leaves simhashes out.
        cosine: Least cosine of documents that repeat each other; None leaves vectors out.

    Raises:
        InvalidSetting: A value lies outside its range.
    """

    def __init__(self, *, bits: int | None = NEAR_BITS, cosine: float | None = None) -> None:
        if bits is not None and not 0 <= bits < _KEY:
            raise InvalidSetting("bits", f"must lie in 0 … {_KEY - 1}")
        if cosine is not None and not 0.0 < cosine <= 1.0:
            raise InvalidSetting("cosine", "must lie in 0 … 1, above 0")
        self._bits = bits
        self._cosine = cosine
        self._exact: dict[bytes, str] = {}
        self._words: dict[bytes, str] = {}
        self._bands = [] if bits is None else _bands(bits + 1)
        self._hashes: dict[tuple[int, int], list[tuple[int, str]]] = {}
        self._vectors = np.zeros((0, 0), dtype=np.float32)
        self._roots: list[str] = []

    def look(
        self, document: Document, vector: NDArray[np.float32] | None = None
    ) -> Duplicate | None:
        """Returns what a document repeats, or None, and remembers it. A blank one repeats nothing.

        Args:
            document: Looked at once; a second look at the same id finds nothing new.
            vector: float32 [d], L2-normalised, for a finder with a cosine.
        """
        if not document.text.strip():
            return None
        terms = _analyzer().terms(document.text)
        found = self._repeated(document, terms, vector)
        if found is not None and found.of == document.id:
            found = None
        root = document.id if found is None else found.of
        self._exact.setdefault(_digest(document.text), root)
        if terms:
            self._words.setdefault(_digest("\0".join(terms)), root)
            if found is None and self._bits is not None:
                self._remember(_simhash(terms), root)
        if self._cosine is not None and vector is not None and vector.any():
            self._append(vector, root)
        return found

    def _repeated(
        self, document: Document, terms: list[str], vector: NDArray[np.float32] | None
    ) -> Duplicate | None:
        if (root := self._exact.get(_digest(document.text))) is not None:
            return Duplicate(document.id, root, "exact", 1.0)
        if terms and (root := self._words.get(_digest("\0".join(terms)))) is not None:
            return Duplicate(document.id, root, "text", 1.0)
        if terms and self._bits is not None:
            near = self._nearest(_simhash(terms))
            if near is not None:
                return Duplicate(document.id, near[1], "near", 1.0 - near[0] / BITS)
        if self._cosine is not None and vector is not None and self._roots:
            cosines = self._vectors[: len(self._roots)] @ vector
            best = int(np.argmax(cosines))
            if cosines[best] >= self._cosine - ROUNDING:
                return Duplicate(
                    document.id, self._roots[best], "vector", min(1.0, float(cosines[best]))
                )
        return None

    def _nearest(self, value: int) -> tuple[int, str] | None:
        """Returns distance and id of the closest simhash within the bits; ties by id.

        With one band more than bits may differ, two that are near agree in one band at least.
        """
        close = {
            seen
            for band, key in enumerate(self._keys(value))
            for seen in self._hashes.get((band, key), ())
        }
        within = [
            (hamming(value, other), root)
            for other, root in close
            if hamming(value, other) <= (self._bits or 0)
        ]
        return min(within, default=None)

    def _remember(self, value: int, root: str) -> None:
        for band, key in enumerate(self._keys(value)):
            self._hashes.setdefault((band, key), []).append((value, root))

    def _keys(self, value: int) -> list[int]:
        return [value >> start & ((1 << width) - 1) for start, width in self._bands]

    def _append(self, vector: NDArray[np.float32], root: str) -> None:
        size = len(self._roots)
        if size == len(self._vectors):
            grown = np.zeros((max(_CAPACITY, 2 * size), len(vector)), dtype=np.float32)
            if size:
                grown[:size] = self._vectors
            self._vectors = grown
        self._vectors[size] = vector
        self._roots.append(root)


def duplicate_groups(
    documents: Iterable[Document], *, bits: int | None = NEAR_BITS
) -> list[tuple[str, ...]]:
    """Returns the ids of documents that repeat each other: by text, by words, by simhash.

    Args:
        documents: In the order in which the first of a group is chosen.
        bits: As for `DuplicateFinder`.

    Returns:
        Groups of two or more, largest first, ties in the order of the documents; in each the first
        document first.
    """
    finder = DuplicateFinder(bits=bits)
    groups: dict[str, list[str]] = {}
    for document in documents:
        found = finder.look(document)
        if found is None:
            groups.setdefault(document.id, [document.id])
        else:
            groups[found.of].append(document.id)
    repeated = [tuple(group) for group in groups.values() if len(group) > 1]
    return sorted(repeated, key=lambda group: -len(group))


@functools.cache
def _analyzer() -> Analyzer:
    return Analyzer(None)


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY).digest()


def _bands(count: int) -> list[tuple[int, int]]:
    """Returns start and width of bands that cover all bits, as even as they can be."""
    edges = [BITS * n // count for n in range(count + 1)]
    return [(start, end - start) for start, end in itertools.pairwise(edges)]


def _simhash(terms: list[str]) -> int:
    if not terms:
        return 0
    words = {term: _word_hash(term) for term in set(terms)}
    row = np.array([words[term] for term in terms], dtype=np.uint64)
    grams = row
    if len(row) >= _GRAM:
        # Each word is turned by its place, so that the order of the three counts.
        grams = _mixed(row[:-2] + _mixed(row[1:-1] + _mixed(row[2:])))
    votes = np.zeros(BITS, dtype=np.int64)
    distinct = np.unique(grams)
    for start in range(0, len(distinct), 1 << 16):  # a bit takes a byte here
        part = distinct[start : start + (1 << 16)].astype("<u8").view(np.uint8)
        bits = np.unpackbits(part.reshape(-1, 8), axis=1, bitorder="little")
        votes += bits.sum(axis=0, dtype=np.int64)
    packed = np.packbits(votes * 2 > len(distinct), bitorder="little")
    return int.from_bytes(packed.tobytes(), "little")


def _word_hash(word: str) -> int:
    data = word.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scrambles 64-bit numbers (the finaliser of SplitMix64, Steele et al., OOPSLA 2014)."""
    mixed = values ^ (values >> np.uint64(30))
    mixed = mixed * np.uint64(0xBF58476D1CE4E5B9)
    mixed = mixed ^ (mixed >> np.uint64(27))
    mixed = mixed * np.uint64(0x94D049BB133111EB)
    scrambled: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return scrambled
