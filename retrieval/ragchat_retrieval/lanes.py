"""The lanes of a hybrid search: from queries to fused rankings of passage ids.

For a batch of queries there is one embedding call. A store that can (`ports.SearchesBoth`) then
answers both lanes in one step. With any other, the keyword lanes run beside the embedding and the
vector lanes; while vectors are searched, which usually takes longest, they also score what the
keyword lanes found; then the keyword lanes score what only the vectors found. At last comes fusion
(`merging`). Ids and scores are enough to rank; passages are read here only for a query on its own,
of one lane or both, whose store can do it in the same step (`ports.SearchesAndReads`).
"""

from __future__ import annotations

import asyncio
import time
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar, cast

from ragchat_retrieval.asking import analysed, blended, semantic_text, semantic_texts
from ragchat_retrieval.embedders.checks import embed_checked, legibility
from ragchat_retrieval.errors import IdentityMismatch
from ragchat_retrieval.fusion import LaneResult, Weighted
from ragchat_retrieval.merging import Ranking, ranked
from ragchat_retrieval.ports import (
    LaneQuery,
    SearchesVectors,
    stands_for,
    term_counts,
)
from ragchat_retrieval.stages import beside
from ragchat_retrieval.tasks import each, gather
from ragchat_retrieval.titles import title_shares

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.fusion import Fusion
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.policy import Run, StageName
    from ragchat_retrieval.ports import (
        BothLanes,
        Embedder,
        Identity,
        SearchesAndReads,
        SearchesBoth,
        Store,
    )
    from ragchat_retrieval.values import Query

    Terms = Mapping[str, float]
    Vector = NDArray[np.float32]
    Asked = tuple[Query, Terms]
    Lane = LaneResult | None
    Lanes = list[Lane]
    Titles = Mapping[str, float] | None

T = TypeVar("T")

MANY = 2_000
"""Beyond so many hits or candidates, lists of them are worked on beside the event loop."""

_LANES = ("search_text", "search_vector", "search_vectors", "score_text", "score_vector")
"""What a store is asked for where it does not answer both lanes in one step."""

_FEW_TITLES = 200
"""So many titles, a few milliseconds, are analysed on the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSearch:
    """Everything that stays the same over a batch of queries."""

    store: Store
    analyzer: Analyzer
    embedder: Embedder | None
    """None when the vector lane is not to be had."""

    stored: Identity
    """What the corpus was written with."""

    fusion: Fusion
    limit: Callable[[Query], int]
    """How many hits each lane is asked for."""

    min_similarity: float | None
    run: Run
    depth: Callable[[Query], int | None] | None = None
    """How many of the best are wanted with their passages, where the store reads them in the same
    step (None: all of them); None if no passages are wanted yet."""

    legible: dict[str, float] = field(default_factory=dict, compare=False, repr=False)
    """How well the model reads what it has embedded, where words were asked, too."""

    spent: float = 0.0
    """Seconds of each lane's timeout that asking both in one step has used in vain."""

    async def rank(self, queries: Sequence[Query]) -> list[Ranking]:
        """Ranks the passages for each query, in the order given.

        A lane that is all the fusion asks for and that the policy lets be skipped is stood in for
        by the keyword lane, so that the evidence does not seem to be missing.
        """
        wants_keyword, wants_vector = self.fusion.lanes
        can_keyword = self.store.capabilities.keyword
        vector_on = self.embedder is not None and self.store.capabilities.semantic and wants_vector
        keyword_on = can_keyword and (wants_keyword or not vector_on)
        asked = list(zip(queries, await analysed(queries, self.analyzer), strict=True))
        both = vector_on and keyword_on
        completes = both and self.fusion.completes
        at_once = (keyword_on or vector_on) and self._reads(queries)
        if at_once or (both and self._answers_both(queries)):
            # Embedder and store may answer at once: others have their turn between two searches.
            await asyncio.sleep(0)
            vectors = await self._embed(queries, words=keyword_on) if vector_on else None
            pairs = zip(asked, vectors or [None] * len(asked), strict=True)
            whole = [
                LaneQuery(terms if keyword_on else None, vector)
                for (_, terms), vector in pairs
                if (vector is not None if vector_on else terms)
            ]
            lanes, began = None, time.monotonic()
            if len(whole) == len(asked):
                found = await (self._read if at_once else self._together)(queries[0], whole)
                if isinstance(found, Ranking):
                    return [found]
                lanes = found
            if lanes is None:
                again = replace(self, spent=time.monotonic() - began)
                lanes = await again.one_by_one(
                    asked, _same(vectors), keyword_on=keyword_on, completes=completes
                )
        else:
            embedding = self._embed(queries, words=keyword_on) if vector_on else _same(None)
            lanes = await self.one_by_one(
                asked, embedding, keyword_on=keyword_on, completes=completes
            )
        keyword, vector = lanes
        if vector_on and not keyword_on and can_keyword:
            skipped = [position for position, lane in enumerate(vector) if lane is None]
            stand_ins = await each([asked[position] for position in skipped], self._keyword)
            for position, lane in zip(skipped, stand_ins, strict=True):
                keyword[position] = lane
        titles: list[Titles] = [None] * len(queries)
        if self._by_title:
            titles = await each(list(zip(asked, keyword, vector, strict=True)), self._titles)
        size = sum(len(lane.hits) for lane in (*keyword, *vector) if lane is not None)
        rows = (queries, keyword, vector, titles)
        return await beside(size > MANY, lambda: list(map(self._ranked, *rows)))

    def _answers_both(self, queries: Sequence[Query]) -> bool:
        """Whether the store answers both lanes of all queries in one step."""
        return self._share_bounds(queries) and stands_for(self.store, "search_both", *_LANES)

    def _reads(self, queries: Sequence[Query]) -> bool:
        """Whether the store also reads in that step what is wanted of the best."""
        return (
            self.depth is not None
            and len(queries) == 1
            and not self._by_title
            and stands_for(self.store, "search_and_read", "search_both", "get", *_LANES)
        )

    @property
    def _by_title(self) -> bool:
        """Whether titles count, too; they are read before anything is ranked."""
        return isinstance(self.fusion, Weighted) and self.fusion.title > 0

    async def _together(
        self, query: Query, asked: Sequence[LaneQuery]
    ) -> tuple[Lanes, Lanes] | None:
        """Asks both lanes, within the bounds of `query`, in one step; None if that fails."""
        store = cast("SearchesBoth", self.store)
        limit = self.limit(query)
        rows = await self._in_one_step(
            asked[0],
            lambda: store.search_both(
                asked,
                limit,
                filter=query.filter,
                scope=query.scope,
                complete=self.fusion.completes,
            ),
        )
        return None if rows is None else ([r.keyword for r in rows], [r.vector for r in rows])

    async def _read(self, query: Query, asked: Sequence[LaneQuery]) -> Ranking | None:
        """Asks one or both lanes and reads the best of a query in one step; None as `_together`."""
        store, depth = cast("SearchesAndReads", self.store), self.depth
        assert depth is not None  # noqa: S101 - `rank` asks for no passages without it
        limit = self.limit(query)
        rankings: list[Ranking] = []

        def choose(rows: Sequence[BothLanes]) -> Sequence[str]:
            ((keyword, vector),) = rows
            rankings.append(self._ranked(query, keyword, vector))
            return rankings[-1].ids[: depth(query)]

        context = copy_context()  # a rule of the caller's may run in a thread of the store's
        passages = await self._in_one_step(
            asked[0],
            lambda: store.search_and_read(
                asked,
                limit,
                filter=query.filter,
                scope=query.scope,
                complete=self.fusion.completes,
                choose=lambda rows: context.run(choose, rows),
            ),
        )
        return None if passages is None else replace(rankings[-1], passages=passages)

    async def _in_one_step(self, asked: LaneQuery, work: Callable[[], Awaitable[T]]) -> T | None:
        """Does the work of the lanes that are asked; None if it fails."""
        stage, here = self.run.stage, copy_context()

        async def vector() -> T:
            return await stage("vector", work)

        try:
            if asked.terms is None:
                return await vector()
            if asked.vector is None:
                return await stage("keyword", work)
            # A task in the context from here, so that neither stage is inside the other.
            return await stage("keyword", lambda: asyncio.create_task(vector(), context=here))
        except Exception:  # noqa: BLE001 - each lane fails for itself now, under its own rule
            return None

    async def one_by_one(
        self,
        asked: Sequence[Asked],
        embedding: Awaitable[Sequence[Vector | None] | None],
        *,
        completes: bool,
        keyword_on: bool,
    ) -> tuple[Lanes, Lanes]:
        """Asks each lane for itself; then each scores what only the other one found.

        Args:
            asked: The queries with their terms.
            embedding: Gives their vectors; the keyword lane does not wait for it.
            completes: Whether each lane scores what only the other one found.
            keyword_on: Whether there is a keyword lane.
        """
        queries = [query for query, _ in asked]
        # In this order: the longest work is begun first.
        embedded = asyncio.ensure_future(embedding)
        semantic = asyncio.ensure_future(self._vectors(queries, embedded))
        nothing: Lanes = [None] * len(asked)
        lexical = asyncio.ensure_future(
            each(asked, self._keyword) if keyword_on else _same(nothing)
        )
        scores = self._score(queries, embedded, lexical) if completes else _same([])
        vector: Lanes
        keyword: Lanes
        _, vector, keyword, known = await gather(embedded, semantic, lexical, scores)
        if completes:
            vector = [lane and lane.completed_by(k) for lane, k in zip(vector, known, strict=True)]
            keyword = await each(list(zip(asked, keyword, vector, strict=True)), self._completed)
        return keyword, vector

    def _ranked(self, query: Query, keyword: Lane, vector: Lane, titles: Titles = None) -> Ranking:
        least, trust = self.min_similarity, self.legible.get(semantic_text(query), 1.0)
        if vector is not None and trust < 1.0:
            vector = replace(vector, trust=trust)
        return ranked(query, self.fusion, keyword, vector, titles, min_similarity=least)

    async def _keyword(self, asked: Asked) -> Lane:
        query, terms = asked
        if not terms:
            return LaneResult(())
        hits = await self._stage(
            "keyword",
            lambda: self.store.search_text(
                terms,
                self.limit(query),
                filter=query.filter,
                scope=query.scope,
            ),
        )
        return None if hits is None else LaneResult(hits)

    async def _embed(self, queries: Sequence[Query], *, words: bool) -> list[Vector | None] | None:
        """Embeds the queries and their contexts in one call; None if the lane was skipped.

        Args:
            queries: The queries.
            words: Whether the keyword lane answers, too. Then it counts for more the less the
                model can read the question, and alone where the model cannot at all, so that
                nothing meaningless is merged with what it finds.

        Raises:
            IdentityMismatch: The model's vectors have another length than the corpus's.
        """
        embedder = self.embedder
        assert embedder is not None  # noqa: S101 - `rank` asks for vectors only with an embedder
        texts = semantic_texts(queries)
        sent = texts
        if words:  # a blank text is not sent, and has no direction
            self.legible.update((text, legibility(embedder, text, self.run)) for text in texts)
            sent = [text if self.legible[text] else "" for text in texts]
            if not any(sent):
                return None
        rows = await self._stage("vector", lambda: embed_checked(embedder, sent, "query"))
        if rows is None:
            return None
        if rows.shape[1] != self.stored.dimension:  # a served model may tell it only now
            mine = replace(self.stored, model=embedder.model, dimension=rows.shape[1])
            raise IdentityMismatch(str(self.stored), str(mine), store=self.store.name)
        return blended(queries, dict(zip(texts, rows, strict=True)))

    async def _score(
        self,
        queries: Sequence[Query],
        embedded: Awaitable[Sequence[Vector | None] | None],
        lexical: Awaitable[Lanes],
    ) -> list[Mapping[str, float]]:
        """Has the vector lane score what the keyword lane found."""

        async def one(asked: tuple[Query, Vector | None, Lane]) -> Mapping[str, float]:
            query, vector, other = asked
            if vector is None or other is None or not other.hits:
                return {}
            ids = [hit.passage_id for hit in other.hits]
            scores = await self._stage(
                "vector", lambda: self.store.score_vector(vector, ids, scope=query.scope)
            )
            return scores or {}

        vectors = await embedded or [None] * len(queries)
        return await each(list(zip(queries, vectors, await lexical, strict=True)), one)

    async def _vectors(
        self, queries: Sequence[Query], embedded: Awaitable[Sequence[Vector | None] | None]
    ) -> Lanes:
        """Searches for all queries: at once where the store can and their bounds are the same."""
        vectors = await embedded
        if vectors is None:
            return [None] * len(queries)
        pairs = list(zip(queries, vectors, strict=True))
        known = [vector for vector in vectors if vector is not None]
        store, first = self.store, queries[0]
        if not (
            len(known) > 1
            and self._share_bounds(queries)
            and isinstance(store, SearchesVectors)
            and stands_for(store, "search_vectors", "search_vector")
        ):
            return await each(pairs, self._vector)
        rows = await self._stage(
            "vector",
            lambda: store.search_vectors(
                known, self.limit(first), filter=first.filter, scope=first.scope
            ),
        )
        if rows is None:
            return [None] * len(queries)
        found = iter(rows)
        return [None if vector is None else LaneResult(next(found)) for vector in vectors]

    def _share_bounds(self, queries: Sequence[Query]) -> bool:
        """Whether limit, filter and scope of all queries are the same."""
        first, *others = [(self.limit(query), query.filter, query.scope) for query in queries]
        return all(bounds == first for bounds in others)

    async def _vector(self, pair: tuple[Query, Vector | None]) -> Lane:
        query, vector = pair
        if vector is None:
            return None
        hits = await self._stage(
            "vector",
            lambda: self.store.search_vector(
                vector,
                self.limit(query),
                filter=query.filter,
                scope=query.scope,
            ),
        )
        return None if hits is None else LaneResult(hits)

    async def _completed(self, found: tuple[Asked, Lane, Lane]) -> Lane:
        """Has the keyword lane score what only the vector lane returned."""
        (query, terms), lane, other = found
        if lane is None or other is None or not terms:
            return lane
        mine = {id_ for id_, _ in lane.hits}
        ids = [id_ for id_, _ in other.hits if id_ not in mine]
        if not ids:
            return lane
        scores = await self._stage(
            "keyword", lambda: self.store.score_text(terms, ids, scope=query.scope)
        )
        return lane.completed_by(scores or {})

    async def _titles(self, found: tuple[Asked, Lane, Lane]) -> Titles:
        """Returns how much of a query stands in the titles of what was found for it."""
        (query, terms), *lanes = found
        ids = list(dict.fromkeys(id_ for lane in lanes if lane for id_, _ in lane.hits))
        if not ids or not terms:
            return {}

        async def work() -> dict[str, float]:
            counts = await term_counts(self.store, terms)
            passages = await self.store.get(ids, scope=query.scope)
            much = len(passages) > _FEW_TITLES
            return await beside(much, title_shares, terms, passages, counts, self.analyzer)

        return await self._stage("keyword", work)

    async def _stage(self, name: StageName, work: Callable[[], Awaitable[T]]) -> T | None:
        async def start() -> T | None:
            return await work()

        return await self.run.stage(name, start, spent=self.spent, fallback=lambda: None)


async def _same(value: T) -> T:
    return value
