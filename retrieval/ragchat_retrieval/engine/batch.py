"""What is appended to an engine in one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.engine.inverting import Inverted
    from ragchat_retrieval.values import Passage


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """Analysed terms of many passages as flat arrays, for callers that keep their own term ids.

    The caller must have told the engine about new ids first (`Engine.name_terms`).
    """

    lengths: NDArray[np.int64]
    """Distinct terms of each passage."""

    term_ids: NDArray[np.int32]
    """Term ids, passage after passage; no id twice within one passage."""

    counts: NDArray[np.int32]
    """How often the term occurs in the passage, ≥ 1, aligned with `term_ids`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Passages to append, as aligned columns. Passages of one document stand together."""

    keys: Sequence[int] | NDArray[np.int64]
    """The caller's own numbers, strictly ascending and above every key given before."""

    ids: Sequence[str]
    document_ids: Sequence[str]
    titles: Sequence[str | None]
    sources: Sequence[str | None]
    metadata: Sequence[Mapping[str, Any]]
    terms: Sequence[Mapping[str, int]] | Postings | Inverted
    """Analysed terms of each passage with their counts."""

    vectors: NDArray[np.float32] | None = None
    """float32 [passages, dimension], rows L2-normalised; None if no passage has one."""

    has_vector: NDArray[np.bool_] | None = None
    """Which rows of `vectors` count; None means all."""

    @classmethod
    def of_passages(
        cls,
        keys: Sequence[int] | NDArray[np.int64],
        passages: Sequence[Passage],
        terms: Sequence[Mapping[str, int]] | Postings | Inverted,
        *,
        vectors: NDArray[np.float32] | None = None,
        has_vector: NDArray[np.bool_] | None = None,
    ) -> Batch:
        """Makes a batch of passages."""
        return cls(
            keys=keys,
            ids=[passage.id for passage in passages],
            document_ids=[passage.document_id for passage in passages],
            titles=[passage.title for passage in passages],
            sources=[passage.source for passage in passages],
            metadata=[passage.metadata for passage in passages],
            terms=terms,
            vectors=vectors,
            has_vector=has_vector,
        )

    def __len__(self) -> int:
        return len(self.ids)
