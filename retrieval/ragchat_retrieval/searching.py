"""Searching one corpus: rank by the lanes, read the passages, finish.

A `Searcher` is what `HybridIndex` and `RetrievalPipeline` share. It checks every passage that it
reads against filter and scope, whatever the store promised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import ScopeViolation
from ragchat_retrieval.explain import Explanation, KeywordExplanation, LaneExplanation
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.identity import check_identity
from ragchat_retrieval.lanes import LaneSearch, Ranking
from ragchat_retrieval.lexical import Analyzer
from ragchat_retrieval.ranking import finish
from ragchat_retrieval.values import Candidate, Lines, Passage, Query, Span, indexed_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.fusion import Fusion
    from ragchat_retrieval.options import SearchOptions
    from ragchat_retrieval.policy import Run
    from ragchat_retrieval.ports import Embedder, Identity, Store

_WORDS = Analyzer(language=None)
"""Words as they stand, for the overlap in explanations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searcher:
    """Searches a corpus under given settings."""

    store: Store
    identity: Identity
    """What the caller works with."""

    analyzer: Analyzer
    embedder: Embedder | None
    fusion: Fusion
    """The rule where the options name none."""

    async def rank(
        self, queries: Sequence[Query], options: SearchOptions, run: Run
    ) -> list[Ranking]:
        """Ranks passages for each query; bounds and top_k are the queries' own.

        Raises:
            IdentityMismatch: The corpus was written with other settings.
        """
        stored = await self.store.identity() if queries else None
        if stored is None:  # nothing asked, or nothing was ever written
            return [Ranking(query) for query in queries]
        check_identity(stored, self.identity, store=self.store.name)
        embedder = self.embedder
        if embedder is not None and stored.model is None:
            run.record.degrade("vector", "the corpus has no vectors; embed() fills them in")
            embedder = None
        depths = [query.top_k for query in queries]
        deepest = None if None in depths else max(k for k in depths if k is not None)
        search = LaneSearch(
            store=self.store,
            analyzer=self.analyzer,
            embedder=embedder,
            dimension=stored.dimension,
            fusion=options.fusion or self.fusion,
            limit=replace(options, top_k=deepest).lane_limit,
            min_similarity=options.min_similarity,
            run=run,
        )
        return await search.rank(queries)

    async def finish(
        self, ranking: Ranking, options: SearchOptions, run: Run
    ) -> tuple[Candidate, ...]:
        """Reads the passages of a ranking and runs the steps after fusion."""
        query = ranking.query
        depth = None if options.reorders or options.neighbours else query.top_k
        candidates = await self._read(ranking, depth, explain=options.explain)
        return await finish(query, candidates, options, run, shelf=self, analyzer=self.analyzer)

    async def vectors(self, passages: Sequence[Passage]) -> Mapping[str, NDArray[np.float32]]:
        """Returns the vectors of those passages that have one, by passage id."""
        return await self.store.vectors([passage.id for passage in passages], scope=Filter())

    async def widen(self, passage: Passage, n: int) -> Passage:
        """Returns a passage joined with its n neighbours on either side."""
        around = await self.store.neighbours(
            passage.document_id, passage.ordinal, n, scope=Filter()
        )
        if len(around) < 2:  # noqa: PLR2004 - nothing beside the passage itself
            return passage
        document = await self.store.document(passage.document_id, scope=Filter())
        spans = [p.span for p in around if p.span is not None]
        if document is None or len(spans) < len(around):
            return replace(passage, text="\n\n".join(p.text for p in around), span=None, lines=None)
        start, end = min(s.start for s in spans), max(s.end for s in spans)
        lines = [p.lines for p in around if p.lines is not None]
        return replace(
            passage,
            text=document.text[start:end],
            span=Span(start, end),
            lines=Lines(lines[0].start, lines[-1].end) if lines else None,
        )

    async def _read(self, ranking: Ranking, depth: int | None, *, explain: bool) -> list[Candidate]:
        """Fetches the best passages of a ranking, checking each against filter and scope."""
        query, fused = ranking.query, ranking.fused
        bounds = query.filter & query.scope
        read: list[Candidate] = []
        position = 0
        while position < len(fused) and (depth is None or len(read) < depth):
            batch = fused[position : None if depth is None else position + depth - len(read)]
            known = await self.store.get([item.passage_id for item in batch], scope=query.scope)
            for rank, item in enumerate(batch, start=position + 1):
                passage = known.get(item.passage_id)
                if passage is None:
                    continue  # removed by a writer since the lanes ran
                if bounds and not bounds.matches_passage(passage):
                    raise ScopeViolation(passage.id)
                why = _explanation(ranking, rank, passage) if explain else None
                read.append(Candidate(passage, item.score, explain=why))
            position += len(batch)
        return read


def _explanation(ranking: Ranking, rank: int, passage: Passage) -> Explanation:
    item = ranking.fused[rank - 1]
    keyword = vector = None
    if ranking.keyword is not None:
        asked = set(_WORDS.terms(ranking.query.text))
        shared = asked & set(_WORDS.terms(indexed_text(passage)))
        keyword = KeywordExplanation(
            rank=ranking.keyword.ranks().get(passage.id),
            score=ranking.keyword.scores().get(passage.id),
            contribution=item.keyword,
            overlap=len(shared) / len(asked) if asked else 0.0,
        )
    if ranking.vector is not None:
        vector = LaneExplanation(
            rank=ranking.vector.ranks().get(passage.id),
            score=ranking.vector.scores().get(passage.id),
            contribution=item.vector,
        )
    return Explanation(
        keyword=keyword,
        vector=vector,
        fused_score=item.score,
        fused_rank=rank,
        final_rank=rank,
    )
