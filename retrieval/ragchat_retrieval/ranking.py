"""From candidates to a result: rerank, drop near-duplicates, diversify, cap, cut, widen.

The same steps finish an index's own search, a pipeline over several wordings, and a foreign
retriever's candidates.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ragchat_retrieval.diversity import WHOLE, cap_per_group, drop_near_duplicates, mmr
from ragchat_retrieval.explain import MMRExplanation
from ragchat_retrieval.rerank import Reranked
from ragchat_retrieval.stages import beside
from ragchat_retrieval.terms import tabulated
from ragchat_retrieval.values import indexed_text
from ragchat_retrieval.vectors import normalise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.options import SearchOptions
    from ragchat_retrieval.policy import Run
    from ragchat_retrieval.values import Candidate, Passage, Query

_MOST_COLUMNS = 4096
"""Bounds the matrix of word counts: 16 KiB a passage."""

_FEW = 20
"""So many candidates are compared with one another on the event loop."""

_MANY = 1_000
"""Beyond so many candidates, lists of them are worked on beside the event loop."""


class Shelf(Protocol):
    """What finishing needs to know of the passages beyond their text."""

    async def vectors(self, passages: Sequence[Passage]) -> Mapping[str, NDArray[np.float32]]:
        """Returns the vectors of those that have one, by passage id."""
        ...

    async def widen(self, passage: Passage, n: int) -> Passage:
        """Returns the passage joined with its n neighbours on either side."""
        ...


@dataclass(frozen=True, slots=True)
class Bare:
    """The shelf of a foreign retriever: it knows nothing but the passages themselves."""

    async def vectors(self, passages: Sequence[Passage]) -> Mapping[str, NDArray[np.float32]]:
        """Knows no vectors."""
        del passages
        return {}

    async def widen(self, passage: Passage, n: int) -> Passage:
        """Knows no neighbours."""
        del n
        return passage


async def finish(
    query: Query,
    candidates: Sequence[Candidate],
    options: SearchOptions,
    run: Run,
    *,
    shelf: Shelf,
    analyzer: Analyzer,
) -> tuple[Candidate, ...]:
    """Runs the steps after fusion, each only if it was asked for.

    Args:
        query: The question, with the final top_k.
        candidates: In fused order, best first.
        options: What was asked for.
        run: Policy, trace and degradations.
        shelf: Where vectors and neighbours come from.
        analyzer: Gives the word vectors for similarity where a passage has no embedding.

    Returns:
        At most top_k candidates, final ranks filled in where explained.
    """
    ranked = list(candidates)
    if options.rerank is not None and ranked:
        ranked = await _rerank(query, ranked, options, run)
    if options.rerank is not None and run.watcher is not None:
        run.watcher.step("reranked", ranked)
    if (options.near_duplicates is not None or options.mmr is not None) and ranked:
        known = await shelf.vectors([c.passage for c in ranked[:WHOLE]])
        much = len(ranked) > _FEW
        ranked = await beside(much, _spread, query, ranked, options, known, analyzer)
    if options.per_document is not None:
        groups = [c.passage.document_id or c.passage.id for c in ranked]
        ranked = [ranked[i] for i in cap_per_group(groups, options.per_document)]
    if options.diversifies and run.watcher is not None:
        run.watcher.step("diversified", ranked)
    ranked = await _cut(ranked, query.top_k, options.neighbours, shelf)
    return await beside(len(ranked) > _MANY, _with_final_ranks, ranked)


def _with_final_ranks(ranked: Sequence[Candidate]) -> tuple[Candidate, ...]:
    return tuple(
        c if c.explain is None else replace(c, explain=replace(c.explain, final_rank=position))
        for position, c in enumerate(ranked, start=1)
    )


async def _rerank(
    query: Query, ranked: list[Candidate], options: SearchOptions, run: Run
) -> list[Candidate]:
    step = options.rerank
    assert step is not None  # noqa: S101 - the caller checked

    async def work() -> Reranked:
        return await step(query, ranked, query.top_k)

    outcome = await run.stage(
        "rerank",
        work,
        fallback=lambda: Reranked(tuple(ranked), 0),
        count=lambda result: {"candidates": result.scored},
    )
    if options.min_rerank is None or not outcome.scored:
        return list(outcome.candidates)
    pairs = zip(outcome.candidates, outcome.scores, strict=False)
    return [candidate for candidate, score in pairs if score >= options.min_rerank]


def _spread(
    query: Query,
    ranked: list[Candidate],
    options: SearchOptions,
    known: Mapping[str, NDArray[np.float32]],
    analyzer: Analyzer,
) -> list[Candidate]:
    """Drops near-duplicates and diversifies the best; runs beside the event loop."""
    limit = None if options.per_document else query.top_k
    if options.neighbours:
        limit = None  # a hit may turn out to be part of a better one
    compared, others = ranked[:WHOLE], ranked[WHOLE:]
    matrix = _matrix([c.passage for c in compared], known, analyzer)
    if options.near_duplicates is not None:
        most = limit if options.mmr is None else None
        kept = drop_near_duplicates(matrix, options.near_duplicates, most)
        compared, matrix = [compared[i] for i in kept], matrix[kept]
    if options.mmr is not None:
        compared = _diversified(compared, matrix, options.mmr, limit)
    return [*compared, *others][:limit]


def _matrix(
    passages: Sequence[Passage], known: Mapping[str, NDArray[np.float32]], analyzer: Analyzer
) -> NDArray[np.float32]:
    """Returns a vector per passage: its embedding, or word counts if any has none."""
    if all(passage.id in known for passage in passages):
        return np.stack([known[passage.id] for passage in passages])
    counts = analyzer.counts_many([indexed_text(passage) for passage in passages])
    table = tabulated(counts)
    # So many words share columns, which makes few passages a little more alike than they are.
    width = min(max(1, len(table.names)), _MOST_COLUMNS)
    matrix = np.zeros((len(passages), width), dtype=np.float32)
    rows = np.repeat(np.arange(len(passages)), table.lengths)
    np.add.at(matrix, (rows, table.numbers % width), 1.0 + np.log(table.counts, dtype=np.float32))
    return normalise(matrix)


def _diversified(
    ranked: Sequence[Candidate], matrix: NDArray[np.float32], lam: float, limit: int | None
) -> list[Candidate]:
    best = max(candidate.score for candidate in ranked)
    # Relative to the best, because a cosine and, say, a reciprocal rank are not on one scale.
    relevance = [max(0.0, c.score) / best if best > 0 else 0.0 for c in ranked]
    chosen = []
    for index, relevant, similarity, score in mmr(relevance, matrix, lam, limit):
        candidate = ranked[index]
        if candidate.explain is not None:
            step = MMRExplanation(relevance=relevant, max_similarity=similarity, score=score)
            candidate = replace(candidate, explain=replace(candidate.explain, mmr=step))
        chosen.append(candidate)
    return chosen


async def _cut(
    ranked: Sequence[Candidate], top_k: int | None, neighbours: int, shelf: Shelf
) -> list[Candidate]:
    if not neighbours:
        return list(ranked[:top_k])
    kept: list[Candidate] = []
    shown: defaultdict[str, list[Passage]] = defaultdict(list)
    for candidate in ranked:
        if top_k is not None and len(kept) >= top_k:
            break
        beside_it = shown[candidate.passage.document_id]
        if any(_holds(wide, candidate.passage) for wide in beside_it):
            continue  # its text is already part of a better hit
        wide = await shelf.widen(candidate.passage, neighbours)
        beside_it.append(wide)
        kept.append(replace(candidate, passage=wide))
    return kept


def _holds(outer: Passage, inner: Passage) -> bool:
    """Says whether a passage lies in another one of its document."""
    if outer.span is None or inner.span is None:
        return False
    return outer.span.start <= inner.span.start and inner.span.end <= outer.span.end
