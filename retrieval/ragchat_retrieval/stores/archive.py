"""Where the memory store keeps documents: packed, one after another, in pieces of memory.

An archive only grows at its end, so that who reads an earlier state is not disturbed. What is
removed stays until so much is wasted that the rest is put together anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ragchat_retrieval.engine.growing import Growing
from ragchat_retrieval.metadata import sameness
from ragchat_retrieval.pages import room
from ragchat_retrieval.stores.packed import PackedDocument, run_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.stores.packed import Extra
    from ragchat_retrieval.values import Revision

_OFFSET_BITS = 40
"""A place is the number of a piece, and behind it the offset there."""

_SMALLEST, _LARGEST = 2**14, 2**21
"""Bytes of pieces, each twice as large as the last; a longer run has a piece of its own."""

_WASTED = 2**20
"""So many bytes of removed documents never matter."""

_MOST_WASTED = 0.25
"""Share of removed documents, in bytes, beyond which the archive is worth putting together."""


@dataclass(frozen=True, slots=True, eq=False)
class Archive:
    """Documents in ascending order of the keys of their passages. Immutable."""

    firsts: NDArray[np.int64]
    """Engine key of each document's first passage; the others follow."""

    places: NDArray[np.int64]
    """Where each document's run begins."""

    labels: NDArray[np.int32]
    """Which of `metadata` each document has."""

    pieces: Sequence[memoryview]
    """May be longer than this state reaches, as the two that follow."""

    metadata: Sequence[Mapping[str, Any]]
    extras: Mapping[int, Extra]
    """What runs do not hold, by the key of the first passage."""

    held: int = 0
    """Bytes of all runs."""

    wasted: int = 0
    """Bytes of removed documents' runs."""

    def numbers(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns which document each passage belongs to, by the engine keys of passages."""
        return self.firsts.searchsorted(keys, "right") - 1

    def documents(self, numbers: NDArray[np.int64]) -> list[PackedDocument]:
        """Returns documents by their numbers."""
        pieces, metadata, extras = self.pieces, self.metadata, self.extras
        places = self.places[numbers]
        columns = (
            (places >> _OFFSET_BITS).tolist(),
            (places & ((1 << _OFFSET_BITS) - 1)).tolist(),
            self.firsts[numbers].tolist(),
            self.labels[numbers].tolist(),
        )
        return [
            PackedDocument(pieces[piece], start, first, metadata[label], extras.get(first))
            for piece, start, first, label in zip(*columns, strict=True)
        ]

    def without(self, documents: Iterable[PackedDocument]) -> Archive:
        """Returns the archive after the removal of documents, which it still holds."""
        return replace(self, wasted=self.wasted + sum(entry.nbytes for entry in documents))

    @property
    def is_wasteful(self) -> bool:
        """Whether `Archivist.compacted` is worth its while."""
        return self.wasted > max(_WASTED, _MOST_WASTED * self.held)


class Archivist:
    """Appends to an archive; states returned before stay as they are."""

    def __init__(self) -> None:
        self._pieces: list[memoryview] = []
        self._used = 0
        self._metadata: list[Mapping[str, Any]] = []
        self._extras: dict[int, Extra] = {}
        nothing = np.zeros(0, np.int64)
        self._firsts = Growing[np.int64](nothing)
        self._places = Growing[np.int64](nothing)
        self._labels = Growing[np.int32](np.zeros(0, np.int32))
        self.empty = Archive(
            nothing, nothing, np.zeros(0, np.int32), self._pieces, self._metadata, self._extras
        )

    def appended(self, archive: Archive, revisions: Sequence[Revision], first_key: int) -> Archive:
        """Returns the archive with revisions, which were checked, behind the rest.

        Args:
            archive: What the last call returned, or `empty`.
            revisions: Each with passages.
            first_key: Engine key of the first passage of all.
        """
        known: dict[object, int] = {}
        firsts, places, labels = [], [], []
        held = archive.held
        for revision in revisions:
            run, extra = run_of(revision)
            metadata = revision.document.metadata
            label = known.setdefault(sameness(metadata), len(self._metadata))
            if label == len(self._metadata):
                self._metadata.append(metadata)
            self._extras.pop(first_key, None)  # of a write that failed
            if extra is not None:
                self._extras[first_key] = extra
            firsts.append(first_key)
            places.append(self._placed(run))
            labels.append(label)
            held += len(run)
            first_key += len(revision.passages)
        return self._extended(archive, firsts, places, labels, held)

    @classmethod
    def compacted(cls, archive: Archive, numbers: NDArray[np.int64]) -> tuple[Archivist, Archive]:
        """Returns an archive of only these documents, ascending, and what appends to it."""
        writer = cls()
        kept = archive.labels[numbers]
        used, labels = np.unique(kept, return_inverse=True)
        writer._metadata += [archive.metadata[label] for label in used.tolist()]
        places = []
        held = 0
        for entry in archive.documents(numbers):
            places.append(writer._placed(entry.run))
            held += entry.nbytes
            extra = archive.extras.get(entry.first_key)
            if extra is not None:
                writer._extras[entry.first_key] = extra
        firsts = archive.firsts[numbers]
        return writer, writer._extended(writer.empty, firsts, places, labels, held)

    def _extended(
        self,
        archive: Archive,
        firsts: Sequence[int] | NDArray[np.int64],
        places: Sequence[int],
        labels: Sequence[int] | NDArray[np.int64],
        held: int,
    ) -> Archive:
        at = len(archive.firsts)
        return replace(
            archive,
            firsts=self._firsts.extended(at, np.asarray(firsts, np.int64)),
            places=self._places.extended(at, np.asarray(places, np.int64)),
            labels=self._labels.extended(at, np.asarray(labels, np.int32)),
            held=held,
        )

    def _placed(self, run: bytes | memoryview) -> int:
        """Keeps a run and returns its place."""
        size = len(run)
        if not self._pieces or self._used + size > len(self._pieces[-1]):
            last = len(self._pieces[-1]) if self._pieces else 0
            usual = min(max(2 * last, _SMALLEST), _LARGEST)
            self._pieces.append(room((max(usual, size),), np.uint8).data)
            self._used = 0
        start = self._used
        self._used += size
        self._pieces[-1][start : self._used] = run
        return (len(self._pieces) - 1) << _OFFSET_BITS | start
