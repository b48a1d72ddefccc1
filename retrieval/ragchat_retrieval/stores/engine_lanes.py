"""The lanes of a store on the engine, which asks its snapshots the questions of `questions`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from ragchat_retrieval.stores.answers import query_vector
from ragchat_retrieval.stores.questions import (
    AtOnce,
    BothSearch,
    Commonness,
    PassageIDs,
    TextScores,
    TextSearch,
    Vectors,
    VectorScores,
    VectorSearch,
    WordRows,
    WordSearch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.ports import BothLanes, Hit, LaneQuery, TermCounts
    from ragchat_retrieval.stores.questions import Question
    from ragchat_retrieval.values import Passage

    Read = Callable[[Sequence[str]], dict[str, Passage]]

T = TypeVar("T")


class EngineLanes(ABC):
    """What a store needs no more than a snapshot for; see `ports.Store` for what it promises."""

    @property
    @abstractmethod
    def vector_search(self) -> str:
        """How vectors are searched; ``float32`` compares a question with each of them."""

    async def ids(self, *, scope: Filter) -> Sequence[str]:
        """Returns all passage ids in ascending order."""
        return await self._ask(PassageIDs(scope))

    async def get(self, passage_ids: Sequence[str], *, scope: Filter) -> dict[str, Passage]:
        """Returns the known ones among these passages, by id."""
        return await self._get(tuple(passage_ids), scope)

    async def vectors(
        self, passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, NDArray[np.float32]]:
        """Returns the vectors of the known ones that have one, float32 [dimension]."""
        return await self._ask(Vectors(tuple(passage_ids), scope))

    async def search_text(
        self,
        terms: Mapping[str, float],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> list[Hit]:
        """Returns the best passages by BM25 over analysed, weighted terms."""
        return await self._ask(TextSearch(dict(terms), limit, filter, scope))

    async def score_text(
        self, terms: Mapping[str, float], passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, float]:
        """Returns the BM25 scores of given passages; 0.0 without a common term."""
        return await self._ask(TextScores(dict(terms), tuple(passage_ids), scope))

    async def term_counts(self, terms: Collection[str]) -> TermCounts:
        """Returns how common terms are in the corpus."""
        return await self._ask(Commonness(tuple(terms)))

    async def search_vector(
        self,
        vector: NDArray[np.float32],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> list[Hit]:
        """Returns the best passages by cosine similarity with a normalised vector.

        Raises:
            InvalidVector: The vector is non-finite, zero or of another length than the corpus's.
        """
        return (await self.search_vectors([vector], limit, filter=filter, scope=scope))[0]

    async def search_vectors(
        self,
        vectors: Sequence[NDArray[np.float32]],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> list[list[Hit]]:
        """Returns what `search_vector` does for each vector; the corpus is read once for all.

        Raises:
            InvalidVector: As `search_vector`, for any of them.
        """
        queries = [query_vector(vector) for vector in vectors]
        return await self._ask(VectorSearch(queries, limit, filter, scope), vectors=queries)

    async def search_both(
        self,
        queries: Sequence[LaneQuery],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
        complete: bool,
    ) -> list[BothLanes]:
        """Returns what both lanes find for each question; may complete each with the other's hits.

        Raises:
            InvalidVector: As `search_vector`, for any of them.
        """
        question = _of_lanes(queries, limit, filter, scope, complete=complete)
        if self.vector_search == "float32":  # any other store may have a way of its own
            told = await self._ask(AtOnce(question), vectors=question.vectors)
            if told is not None:
                return told
        return await self._ask_and_read(question, lambda told, _: told)

    async def search_and_read(
        self,
        queries: Sequence[LaneQuery],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
        complete: bool,
        choose: Callable[[Sequence[BothLanes]], Sequence[str]],
    ) -> dict[str, Passage]:
        """Returns the passages that are chosen from what `search_both` returns.

        Raises:
            InvalidVector: As `search_vector`, for any of them.
        """
        question = _of_lanes(queries, limit, filter, scope, complete=complete)
        return await self._ask_and_read(question, lambda told, read: read(choose(told)))

    async def score_vector(
        self, vector: NDArray[np.float32], passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, float]:
        """Returns the cosine similarities of those given passages that have a vector.

        Raises:
            InvalidVector: As `search_vector`.
        """
        query = query_vector(vector)
        return await self._ask(VectorScores(query, tuple(passage_ids), scope), vectors=[query])

    @abstractmethod
    async def _ask(
        self, question: Question[T], *, vectors: Sequence[NDArray[np.float32]] = ()
    ) -> T:
        """Answers a question from a state that holds everything committed before the call.

        Args:
            question: The question.
            vectors: Queries' vectors, to be checked first.
        """

    @abstractmethod
    async def _ask_and_read(
        self, question: BothSearch | WordSearch, then: Callable[[list[BothLanes], Read], T]
    ) -> T:
        """Answers a question to the lanes and goes on from there, in one state of the corpus.

        Args:
            question: The question. Its vectors are to be checked first.
            then: Gets the answer and what reads passages of that state, in whichever thread.
        """

    @abstractmethod
    async def _get(self, passage_ids: Sequence[str], scope: Filter) -> dict[str, Passage]:
        """Returns the known ones among these passages, by id."""


def _of_lanes(
    queries: Sequence[LaneQuery], limit: int, filter: Filter, scope: Filter, *, complete: bool
) -> BothSearch | WordSearch:
    """Returns questions to the same lanes as the arrays take them.

    Raises:
        InvalidVector: A vector is no array of numbers.
    """
    vectors = [query_vector(query.vector) for query in queries if query.vector is not None]
    terms = [dict(query.terms) for query in queries if query.terms is not None]
    words = None
    if terms:
        both = complete and bool(vectors)
        words = WordRows(terms, vectors, limit, filter, scope, complete=both)
    if words is not None and not vectors:
        return WordSearch(words)
    return BothSearch(vectors, limit, filter, scope, words)
