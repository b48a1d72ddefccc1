"""Searching one corpus: rank by the lanes, read the passages, finish.

A `Searcher` is what `HybridIndex` and `RetrievalPipeline` share. It checks every passage that it
reads against filter and scope, whatever the store promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidSetting, ScopeViolation
from ragchat_retrieval.explain import (
    Explanation,
    KeywordExplanation,
    LaneExplanation,
    TitleExplanation,
)
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.identity import check_identity
from ragchat_retrieval.lanes import MANY, LaneSearch
from ragchat_retrieval.lexical import Analyzer
from ragchat_retrieval.merging import Ranking
from ragchat_retrieval.policy import carried
from ragchat_retrieval.ranking import finish
from ragchat_retrieval.stages import beside
from ragchat_retrieval.tasks import each
from ragchat_retrieval.values import Candidate, Lines, Span, documents_of, indexed_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.fusion import Fusion
    from ragchat_retrieval.options import SearchOptions
    from ragchat_retrieval.policy import Run
    from ragchat_retrieval.ports import Embedder, Identity, Store
    from ragchat_retrieval.values import Passage, Query

_WORDS = Analyzer(language=None)
"""Words as they stand, for the overlap in explanations."""

_FEW = 20
"""So many passages are analysed for their explanations on the event loop."""

_ALL = 2**31 - 1
"""Ordinals around a passage that take in its whole document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searcher:
    """Searches a corpus under given settings."""

    store: Store
    stored: Identity | None
    """What the corpus was written with; None if nothing was ever written."""

    keyword_only: Sequence[str]
    """Names of the corpora in it that were written without vectors."""

    identity: Identity
    """What the caller works with."""

    analyzer: Analyzer
    embedder: Embedder | None
    fusion: Fusion
    """The rule where the options name none."""

    async def rank(
        self, queries: Sequence[Query], options: SearchOptions, run: Run, *, read: bool = False
    ) -> list[Ranking]:
        """Ranks passages for each query; bounds and top_k are the queries' own.

        Args:
            queries: The questions.
            options: How to search.
            run: Policy, trace and degradations.
            read: Whether `finish` follows at once, so that the store may read the best in the same
                step.

        Raises:
            IdentityMismatch: The corpus was written with other settings.
            InvalidSetting: The store has no keyword lane and there is no embedder.
        """
        stored = self.stored
        if stored is None or not queries:
            return [Ranking(query) for query in queries]
        check_identity(stored, self.identity, store=self.store.name)
        fusion = options.fusion or self.fusion
        read = read and run.watcher is None  # who watches sees the whole order
        search = LaneSearch(
            store=self.store,
            analyzer=self.analyzer,
            embedder=self._usable_embedder(stored, fusion, run),
            stored=stored,
            fusion=fusion,
            limit=lambda query: options.lane_limit_of(query.top_k),
            min_similarity=options.min_similarity,
            run=run,
            depth=(lambda query: options.depth_of(query.top_k)) if read else None,
        )
        return await search.rank(queries)

    async def finish(
        self, ranking: Ranking, options: SearchOptions, run: Run
    ) -> tuple[Candidate, ...]:
        """Reads the passages of a ranking and runs the steps after fusion."""
        query = ranking.query
        depth = options.depth_of(query.top_k)
        if run.watcher is not None:
            run.watcher.lanes(ranking, self.store)
            depth = depth if options.rerank is None else None  # it sees the whole order after that
        passages = await self._read(ranking, depth)
        much = len(passages) > MANY or (options.explain and len(passages) > _FEW)
        candidates = await beside(much, _candidates, ranking, passages, options.explain)
        shelf = StoreShelf(self.store, query.scope)
        return await finish(query, candidates, options, run, shelf=shelf, analyzer=self.analyzer)

    def _usable_embedder(self, stored: Identity, fusion: Fusion, run: Run) -> Embedder | None:
        """Returns the embedder if there is a vector lane to use it for, and tells what is missing.

        Raises:
            InvalidSetting: The store has no keyword lane, and there is no vector lane either.
        """
        can, embedder = self.store.capabilities, self.embedder
        wants_keyword, wants_vector = fusion.lanes
        if embedder is not None and not can.semantic:
            if wants_vector:
                run.record.degrade("vector", f"the store {self.store.name} has no vector lane")
            embedder = None
        if embedder is not None and stored.model is None:
            run.record.degrade("vector", "the corpus has no vectors; embed() fills them in")
            embedder = None
        if embedder is not None and wants_vector and self.keyword_only:
            bare = ", ".join(self.keyword_only)
            run.record.degrade("vector", f"without vectors: {bare}; embed() fills them in")
        if not can.keyword:
            if embedder is None:
                raise InvalidSetting("embedder", f"the store {self.store.name} needs one")
            if wants_keyword:
                run.record.degrade("keyword", f"the store {self.store.name} has no keyword lane")
        return embedder

    async def _read(self, ranking: Ranking, depth: int | None) -> list[Passage]:
        """Fetches the best passages of a ranking, checking each against filter and scope."""
        query, ids = ranking.query, ranking.ids
        bounds = query.filter & query.scope
        read: list[Passage] = []
        position = 0
        while position < len(ids) and (depth is None or len(read) < depth):
            batch = ids[position : None if depth is None else position + depth - len(read)]
            known = ranking.passages
            if missing := [id_ for id_ in batch if id_ not in known]:
                known = {**known, **await self.store.get(missing, scope=query.scope)}
            read += await beside(len(batch) > MANY, _checked, batch, known, bounds)
            position += len(batch)
        return read


async def searched(
    searcher: Callable[[], Awaitable[Searcher]],
    queries: Sequence[Query],
    options: SearchOptions,
    run: Run,
    source: str,
) -> Sequence[tuple[Candidate, ...]]:
    """Searches for each query and returns what was found, in order.

    Args:
        searcher: Gives the searcher, inside the run.
        queries: May be none; bounds and top_k are their own.
        options: How to search.
        run: Policy, trace and degradations.
        source: What the record calls the corpus.
    """
    if not queries:
        return ()

    async def work() -> list[tuple[Candidate, ...]]:
        searches = await searcher()
        rankings = await searches.rank(queries, options, run, read=True)
        return await each(rankings, lambda ranking: searches.finish(ranking, options, run))

    facts = {
        "data_source": source,
        "top_k": options.top_k,
        "query": "\n".join(query.text for query in queries),
    }
    return await carried(run, "search", work, count=_counts, facts=facts, content=_documents)


def _counts(rows: Sequence[Sequence[Candidate]]) -> dict[str, int]:
    return {"queries": len(rows), "candidates": sum(map(len, rows))}


def _documents(rows: Sequence[Sequence[Candidate]]) -> Mapping[str, object]:
    return {"documents": [document for row in rows for document in documents_of(row)]}


@dataclass(frozen=True, slots=True)
class StoreShelf:
    """What a store knows of found passages, as far as the scope shows it.

    Made for one result, whose hits share what was read of their document.
    """

    store: Store
    scope: Filter
    _texts: dict[str, str | None] = field(default_factory=dict, init=False)
    _passages: dict[str, Sequence[Passage]] = field(default_factory=dict, init=False)

    async def vectors(self, passages: Sequence[Passage]) -> Mapping[str, NDArray[np.float32]]:
        """Returns the vectors of those passages that have one, by passage id."""
        return await self.store.vectors([passage.id for passage in passages], scope=self.scope)

    async def widen(self, passage: Passage, n: int) -> Passage:
        """Returns a passage joined with its n neighbours on either side."""
        around = unbroken(
            await self.store.neighbours(passage.document_id, passage.ordinal, n, scope=self.scope),
            passage,
        )
        if len(around) < 2:  # noqa: PLR2004 - nothing beside the passage itself
            return passage
        whole = await self._text(passage.document_id)
        span = None if whole is None else covered(around, whole)
        if whole is None or span is None or await self._hides(passage, span):
            text = "\n\n".join(p.text for p in around)
            return replace(passage, text=text, span=None, lines=None)
        lines = [p.lines for p in around if p.lines is not None]
        return replace(
            passage,
            text=whole[span.start : span.end],
            span=span,
            lines=Lines(lines[0].start, max(line.end for line in lines)) if lines else None,
        )

    async def _text(self, document_id: str) -> str | None:
        if document_id not in self._texts:
            document = await self.store.document(document_id, scope=self.scope)
            self._texts[document_id] = None if document is None else document.text
        return self._texts[document_id]

    async def _hides(self, passage: Passage, span: Span) -> bool:
        """Says whether text in a span of a document belongs to a passage out of scope."""
        if not self.scope:
            return False
        id_, known = passage.document_id, self._passages
        if id_ not in known:
            # A window that shows no gap may still reach over passages whose ordinals lie elsewhere.
            known[id_] = await self.store.neighbours(id_, passage.ordinal, _ALL, scope=Filter())
        return any(
            p.span is not None
            and p.span.start < span.end
            and span.start < p.span.end
            and not self.scope.matches_passage(p)
            for p in known[id_]
        )


def unbroken(passages: Sequence[Passage], middle: Passage) -> list[Passage]:
    """Returns the passages that stand next to one another around a passage, itself included.

    A gap is a passage that the reader may not see. Nothing is returned if the passage itself is
    not among them, because its document was replaced meanwhile.
    """
    at = next((i for i, passage in enumerate(passages) if passage.id == middle.id), None)
    if at is None:
        return []
    low = high = at
    while low > 0 and passages[low].ordinal - passages[low - 1].ordinal <= 1:
        low -= 1
    while high + 1 < len(passages) and passages[high + 1].ordinal - passages[high].ordinal <= 1:
        high += 1
    return list(passages[low : high + 1])


def covered(passages: Sequence[Passage], text: str) -> Span | None:
    """Returns from where to where passages reach in their document's text.

    None unless all are slices of this very text, in ascending order: it may be a later revision's.
    """
    spans: list[Span] = []
    for passage in passages:
        span = passage.span
        if span is None or text[span.start : span.end] != passage.text:
            return None
        if spans and span.start < spans[-1].start:
            return None
        spans.append(span)
    return Span(spans[0].start, max(span.end for span in spans))


def _checked(ids: Sequence[str], known: Mapping[str, Passage], bounds: Filter) -> list[Passage]:
    """Returns the passages that were found, without what a writer has removed meanwhile.

    Raises:
        ScopeViolation: A passage lies outside filter or scope.
    """
    found = [known[id_] for id_ in ids if id_ in known]
    if bounds:
        for passage in found:
            if not bounds.matches_passage(passage):
                raise ScopeViolation(passage.id)
    return found


def _candidates(
    ranking: Ranking,
    passages: Sequence[Passage],
    explain: bool,  # noqa: FBT001 - handed on by position
) -> list[Candidate]:
    scores = ranking.fused.scores
    if not explain:
        return [Candidate(passage, scores[passage.id]) for passage in passages]
    return [
        Candidate(passage, scores[passage.id], explain=explanation)
        for passage, explanation in zip(passages, _explanations(ranking, passages), strict=True)
    ]


def _explanations(ranking: Ranking, passages: Sequence[Passage]) -> list[Explanation]:
    asked = set(_WORDS.terms(ranking.query.text))
    ranks = {id_: rank for rank, id_ in enumerate(ranking.ids, start=1)}
    keyword, vector = (
        None if lane is None else (lane.ranks(), lane.scores())
        for lane in (ranking.keyword, ranking.vector)
    )
    result = []
    for passage in passages:
        item = ranking.fused.fused(passage.id)
        words = meaning = None
        if keyword is not None:
            shared = asked & set(_WORDS.terms(indexed_text(passage)))
            words = KeywordExplanation(
                rank=keyword[0].get(passage.id),
                score=keyword[1].get(passage.id),
                contribution=item.keyword,
                overlap=len(shared) / len(asked) if asked else 0.0,
            )
        if vector is not None:
            meaning = LaneExplanation(
                rank=vector[0].get(passage.id),
                score=vector[1].get(passage.id),
                contribution=item.vector,
            )
        name = None
        if ranking.title is not None:
            share = ranking.title.get(passage.id, 0.0)
            name = TitleExplanation(share=share, contribution=item.title)
        result.append(
            Explanation(
                keyword=words,
                vector=meaning,
                title=name,
                fused_score=item.score,
                fused_rank=ranks[passage.id],
                final_rank=ranks[passage.id],
            )
        )
    return result
