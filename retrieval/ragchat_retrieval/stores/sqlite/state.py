"""What the file says of a corpus: read before every search and raised by every write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragchat_retrieval.ports import Identity


@dataclass(frozen=True, slots=True)
class CorpusState:
    """One row of table ``corpora``."""

    key: int
    name: str
    uuid: str
    """Names one life of the corpus; a reset begins another."""

    revision: int
    """Raised by every write."""

    stamp: int
    """Random number, above 0, of the write that made this revision; 0 before the first."""

    identity: Identity | None
    documents: int = 0
    passages: int = 0
    vectors: int = 0

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written in this life: no write gives the stamp 0."""
        return self.stamp == 0
