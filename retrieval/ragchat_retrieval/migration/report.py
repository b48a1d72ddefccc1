"""What a migration did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """Counts of one call of `migrate_index`."""

    documents: int = 0
    """Documents written, each time one was."""

    passages: int = 0
    """Passages written."""

    skipped: int = 0
    """Documents that the new index had already, from an earlier run."""

    removed: int = 0
    """Documents removed from the new index, because the old one has them no more."""

    kept_vectors: int = 0
    """Vectors that were copied."""

    embedded: int = 0
    """Passages that were embedded anew."""

    revision: int = 0
    """Revision of the old corpus up to which the new one holds everything; later writes may be
    in it too."""

    verified: bool = False
    """Whether the two were compared, and found equal."""
