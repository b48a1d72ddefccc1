"""The lanes of a store in PostgreSQL: what is asked of a corpus, and how it is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from ragchat_retrieval.ports import Hit, TermCounts
from ragchat_retrieval.stores.answers import query_vector
from ragchat_retrieval.stores.postgres import reading
from ragchat_retrieval.stores.postgres.keyword import KeywordQuery, TermStatistics
from ragchat_retrieval.stores.postgres.semantic import VectorQuery
from ragchat_retrieval.vectors import check_query_vector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.stores.postgres.layout import Catalog, Tables
    from ragchat_retrieval.stores.postgres.sessions import Session
    from ragchat_retrieval.stores.postgres.state import CorpusState

T = TypeVar("T")

_MOST: Final = 2**31 - 1
"""Largest limit that is passed on."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A corpus that exists, in a transaction that sees one state of it."""

    session: Session
    catalog: Catalog
    tables: Tables
    state: CorpusState


class PostgresLanes(ABC):
    """What a store needs no more than to be read for; see `ports.Store` for what it promises."""

    @property
    @abstractmethod
    def _statistics(self) -> TermStatistics:
        """What is remembered of terms."""

    @property
    @abstractmethod
    def _exact_up_to(self) -> int:
        """Number of vectors up to which all are compared."""

    @abstractmethod
    async def _read(
        self,
        work: Callable[[Reading], Awaitable[T]],
        absent: T,
        *,
        otherwise: Callable[[], object] = lambda: None,
    ) -> T:
        """Runs `work` on the corpus; where there is none, `otherwise`, and returns `absent`."""

    async def search_text(
        self,
        terms: Mapping[str, float],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> Sequence[Hit]:
        """Returns the best passages by BM25 over analysed, weighted terms."""
        weights = dict(terms)

        async def work(r: Reading) -> list[Hit]:
            query = await self._keyword_query(r, weights) if limit > 0 else None
            if query is None:
                return []
            return await query.search(r.session, r.tables, min(limit, _MOST), (filter, scope))

        return await self._read(work, [])

    async def score_text(
        self, terms: Mapping[str, float], passage_ids: Sequence[str], *, scope: Filter
    ) -> Mapping[str, float]:
        """Returns the BM25 scores of given passages; 0.0 without a common term."""
        weights, ids = dict(terms), reading.storable(passage_ids)

        async def work(r: Reading) -> dict[str, float]:
            query = await self._keyword_query(r, weights) or KeywordQuery((), (), 1.0)
            return await query.score(r.session, r.tables, ids, scope)

        return await self._read(work, {})

    async def term_counts(self, terms: Collection[str]) -> TermCounts:
        """Returns how common terms are in the corpus."""
        wanted, statistics = reading.storable(terms), self._statistics

        async def work(r: Reading) -> TermCounts:
            known = await statistics.look_up(r.session, r.tables, r.state, wanted)
            return TermCounts(r.state.passages, {t: held for t, (_, held) in known.items()})

        return await self._read(work, TermCounts(0, {}))

    async def search_vector(
        self,
        vector: NDArray[np.float32],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> Sequence[Hit]:
        """Returns the best passages by cosine similarity with a normalised vector.

        Raises:
            InvalidVector: The vector is non-finite, zero or of another length than the corpus's.
        """
        query = query_vector(vector)

        async def work(r: Reading) -> list[Hit]:
            check_query_vector(query, r.state.dimension)
            if limit <= 0 or not r.state.vectors:
                return []
            return await self._vector_query(r, query).search(min(limit, _MOST), (filter, scope))

        return await self._read(work, [], otherwise=lambda: check_query_vector(query, None))

    async def score_vector(
        self, vector: NDArray[np.float32], passage_ids: Sequence[str], *, scope: Filter
    ) -> Mapping[str, float]:
        """Returns the cosine similarities of those given passages that have a vector.

        Raises:
            InvalidVector: As `search_vector`.
        """
        query, ids = query_vector(vector), reading.storable(passage_ids)

        async def work(r: Reading) -> dict[str, float]:
            check_query_vector(query, r.state.dimension)
            if not r.state.vectors:
                return {}
            known, matrix = await reading.vectors(r.session, r.catalog, r.tables, ids, scope)
            scores = self._vector_query(r, query).scores(matrix) if known else ()
            return dict(zip(known, map(float, scores), strict=True))

        return await self._read(work, {}, otherwise=lambda: check_query_vector(query, None))

    # --- inside ---

    async def _keyword_query(self, r: Reading, weights: Mapping[str, float]) -> KeywordQuery | None:
        statistics = self._statistics
        return await KeywordQuery.of(r.session, r.tables, r.state, weights, statistics)

    def _vector_query(self, r: Reading, vector: NDArray[np.float32]) -> VectorQuery:
        return VectorQuery(r.session, r.catalog, r.tables, r.state, vector, self._exact_up_to)
