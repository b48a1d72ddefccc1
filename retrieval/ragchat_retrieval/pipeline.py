"""The retrieval pipeline: transform → expand → search every wording → fuse → rerank → cut."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.foreign import (
    candidates_of,
    degraded_of,
    facts_of,
    for_foreign,
    may_return,
    queries_of,
    query_of,
    still_held,
)
from ragchat_retrieval.fusion import fuse_candidates
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.kinds import check_callable
from ragchat_retrieval.lexical import DEFAULT_ANALYZER
from ragchat_retrieval.merging import fuse_variants
from ragchat_retrieval.options import SearchOptions
from ragchat_retrieval.policy import Run, carried, started
from ragchat_retrieval.ranking import Bare, finish
from ragchat_retrieval.speculation import Anticipated, searched
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.tasks import each
from ragchat_retrieval.text import corpus_prefix
from ragchat_retrieval.values import Candidate, Query, SearchResult, documents_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any, Unpack

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.options import SearchKeywords
    from ragchat_retrieval.ports import Expander, Retriever, Store
    from ragchat_retrieval.searching import Searcher
    from ragchat_retrieval.speculation import Speculation
    from ragchat_retrieval.values import Passage

    Transformer = Callable[[Query], Query | Awaitable[Query]]


F = TypeVar("F")


class RetrievalPipeline:
    """A retriever made of an index or another retriever and the stages around it. Immutable.

    Args:
        source: A `HybridIndex`, or any retriever: ``(Query) -> candidates``.
        transformers: ``(Query) -> Query`` each, in order.
        expander: ``(Query) -> Sequence[Query]``, other wordings to search beside the original. It
            is not asked when the query brings variants of its own.
        **options: As for `HybridIndex.search`. Over a foreign retriever those that only an index
            can honour (`fusion`, `min_similarity`, `neighbours`) are refused.

    Raises:
        InvalidSetting: An option is out of range or does not fit the source.
    """

    lanes = True
    """It reads `Query.lexical`, `semantic` and `context` itself."""

    def __init__(
        self,
        source: HybridIndex | Retriever,
        *,
        transformers: Sequence[Transformer] = (),
        expander: Expander | None = None,
        **options: Unpack[SearchKeywords],
    ) -> None:
        if not isinstance(source, HybridIndex):
            check_callable("source", source, "an index or a retriever, as index.retriever() is")
        self._source = source
        self._transformers = tuple(transformers)
        self._expander = expander
        self._options = SearchOptions.of(**options)
        if not isinstance(source, HybridIndex):
            defaults = SearchOptions()
            for name in ("fusion", "min_similarity", "neighbours"):
                if getattr(self._options, name) != getattr(defaults, name):
                    raise InvalidSetting(name, "only an index can honour this option")

    @property
    def source(self) -> HybridIndex | Retriever:
        """What is searched."""
        return self._source

    @property
    def options(self) -> SearchOptions:
        """How it is searched."""
        return self._options

    @property
    def data_source(self) -> str | None:
        """The name of the corpus that is searched; None over a foreign retriever."""
        return self._source.store.corpus_name if isinstance(self._source, HybridIndex) else None

    @property
    def revision(self) -> Callable[[], Awaitable[object]] | None:
        """Tells the state of what is searched, another one after each change; None if unknown."""
        if isinstance(self._source, HybridIndex):
            return self._source.revision
        return getattr(self._source, "revision", None)

    @property
    def top_k(self) -> int | None:
        """How many candidates a query gets that does not say."""
        return self._options.top_k

    def admits(self, passage: Passage) -> bool:
        """Says whether a passage lies inside filter and scope of the options and of the source.

        One that several corpora read together have found lies in the index if it reads that corpus.
        """
        if isinstance(source := self._source, HybridIndex) and passage.corpus is not None:
            known = {store.corpus_name for store in _stores(source)}
            if passage.corpus not in known:
                return False
        return may_return(self._source, passage, self._options.filter & self._options.scope)

    async def current(self, passages: Sequence[Passage], bounds: Filter) -> Sequence[Passage]:
        """Returns what the source still holds of earlier passages inside bounds, as stored."""
        bounds = bounds & self._options.filter & self._options.scope
        if not isinstance(self._source, HybridIndex):
            return await still_held(self._source, passages, bounds)
        held: dict[str, Passage] = {}
        for store in _stores(self._source):
            held |= await _held(store, passages, bounds)
        return [held[passage.id] for passage in passages if passage.id in held]

    async def __call__(
        self, query: Query | str, *, early: Speculation | None = None
    ) -> SearchResult:
        """Retrieves candidates for a query.

        Args:
            query: The question.
            early: A search for a provisional wording of it that `anticipate` has begun.

        Raises:
            InvalidQuery: The query is blank.
            Exception: What a stage raised that the policy does not let be skipped, as it came.
        """
        caller = query if isinstance(query, Query) else Query(query)
        asked = self._options.bound(caller)
        if asked.top_k is not None and asked.top_k <= 0:
            return SearchResult(queries=(asked,))
        run = started(self._options.policy)
        queries, found = await carried(
            run,
            "search",
            lambda: self._retrieve(asked, run, early),
            count=lambda result: {"queries": len(result[0]), "candidates": len(result[1])},
            facts=facts_of(self, asked),
            content=lambda result: {"documents": documents_of(result[1])},
        )
        return SearchResult(
            found, queries=queries, degraded=tuple(run.record.degraded), trace=run.record.trace()
        )

    async def anticipate(self, query: Query) -> Anticipated:
        """Ranks passages for a query that may not be the final one, with no stage around it.

        Raises:
            Exception: What a lane raised that the policy does not let be skipped, as it came.
        """
        asked = self._options.bound(query)
        if asked.top_k is not None and asked.top_k <= 0:
            return Anticipated(asked, ())
        run = started(self._options.policy)

        async def rank() -> Sequence[Any]:
            return await self._ranked(run, await self._searcher(), [asked])

        (ranking,) = await carried(run, "search", rank, facts=facts_of(self, asked))
        return Anticipated(asked, ranking, tuple(run.record.degraded))

    async def _retrieve(
        self, asked: Query, run: Run, early: Speculation | None
    ) -> tuple[tuple[Query, ...], tuple[Candidate, ...]]:
        options = self._options
        for transformer in self._transformers:
            asked = await self._transform(transformer, asked, run)
        wordings = await self._wordings(asked, run)
        searcher = await self._searcher()
        search = partial(self._ranked, run, searcher, read=early is None)
        queries, rankings = await searched(wordings, search, early, run)
        if searcher is not None:
            return queries, await searcher.finish(fuse_variants(rankings), options, run)
        merged = rankings[0] if len(rankings) == 1 else fuse_candidates(rankings)
        found = await finish(
            queries[0], merged, options, run, shelf=Bare(), analyzer=DEFAULT_ANALYZER
        )
        return queries, found

    async def _searcher(self) -> Searcher | None:
        """Returns what searches the index as it is now; None over a foreign retriever."""
        return await self._source.searcher() if isinstance(self._source, HybridIndex) else None

    async def _ranked(
        self, run: Run, searcher: Searcher | None, queries: Sequence[Query], *, read: bool = False
    ) -> Sequence[Any]:
        """Returns a ranking per query: of ids for an index, of candidates for a retriever."""
        if searcher is not None:
            return await searcher.rank(queries, self._options, run, read=read)
        ask = cast("Callable[[Query], object]", self._source)

        async def one(query: Query) -> list[Candidate]:
            most = self._options.asked_of(query.top_k)
            asked = query if most == query.top_k else replace(query, top_k=most)
            result = await call_stage(ask, for_foreign(ask, asked))
            for degradation in degraded_of(result):
                run.record.degrade(degradation.stage, degradation.reason)
            return candidates_of(result, query)

        return await each(queries, one)

    async def _transform(self, transformer: Transformer, query: Query, run: Run) -> Query:
        async def transform() -> Query:
            result: object = await call_stage(transformer, query)
            return query_of(result, query, stage="transform")

        return await run.stage("transform", transform, fallback=lambda: query)

    async def _wordings(self, query: Query, run: Run) -> tuple[Query, ...]:
        """Returns the original and its distinct variants, all inside the caller's bounds."""
        original = query.alone()
        variants: Sequence[Query] = [query.with_text(text) for text in query.variants]
        if not variants and self._expander is not None:
            variants = await self._expand(self._expander, original, run)
        wordings = {original.text: original}
        for variant in variants:
            wordings.setdefault(variant.text, variant.alone())
        return tuple(wordings.values())

    async def _expand(self, expander: Expander, query: Query, run: Run) -> Sequence[Query]:
        async def expand() -> Sequence[Query]:
            result: object = await call_stage(expander, query)
            return queries_of(result, query, stage="expand")

        return await run.stage(
            "expand", expand, fallback=list, count=lambda found: {"queries": len(found)}
        )


def _stores(index: HybridIndex) -> Sequence[Store]:
    """Returns the corpora that an index reads."""
    parts: Callable[[], Sequence[Store]] | None = getattr(index.store, "parts", None)
    return [index.store] if parts is None else parts()


async def _held(store: Store, passages: Sequence[Passage], bounds: Filter) -> dict[str, Passage]:
    """Returns what a corpus holds of some passages, by their ids, which may begin with its name."""
    prefix = corpus_prefix(store.corpus_name)
    own = {
        passage.id if passage.corpus is None else passage.id.removeprefix(prefix): passage
        for passage in passages
        if passage.corpus in (None, store.corpus_name)
    }
    stored = await store.get(list(own), scope=bounds)
    return {
        known.id: replace(found, id=known.id, document_id=known.document_id, corpus=known.corpus)
        for known, found in ((own[id_], found) for id_, found in stored.items())
    }
