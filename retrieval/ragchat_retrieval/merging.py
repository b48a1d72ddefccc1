"""From what the lanes found to a ranking. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ragchat_retrieval.fusion import Order, Weighted, fuse_orders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ragchat_retrieval.fusion import Fusion, LaneResult
    from ragchat_retrieval.values import Passage, Query


@dataclass(frozen=True, slots=True)
class Ranking:
    """The fused order of one query, and the lanes that it came from."""

    query: Query
    fused: Order = field(default_factory=lambda: Order.of(()))
    keyword: LaneResult | None = None
    vector: LaneResult | None = None
    title: Mapping[str, float] | None = None
    """Shares of the question in titles and file names, by passage id; None if nobody asked."""

    passages: Mapping[str, Passage] = field(default_factory=dict, hash=False)
    """Those of the best that were read with the lanes, by id, inside the query's scope."""

    @property
    def ids(self) -> Sequence[str]:
        """The passage ids, best first."""
        return self.fused.ids


def ranked(
    query: Query,
    fusion: Fusion,
    keyword: LaneResult | None,
    vector: LaneResult | None,
    titles: Mapping[str, float] | None = None,
    *,
    min_similarity: float | None = None,
) -> Ranking:
    """Returns the ranking of a query.

    Args:
        query: The question.
        fusion: How the lanes are merged.
        keyword: The keyword lane; None if it did not run.
        vector: The vector lane; likewise.
        titles: Shares of the question in titles, by passage id; None if nobody asked.
        min_similarity: Least cosine of what has no keyword score; a skipped vector lane has none.
    """
    fused = fused_lanes(fusion, keyword, vector, titles)
    if min_similarity is not None and vector is not None:
        cosines = vector.scores()
        matches = {} if keyword is None else keyword.scores()
        kept = [
            id_
            for id_ in fused.ids
            if matches.get(id_, 0.0) > 0.0 or cosines.get(id_, -1.0) >= min_similarity
        ]
        fused = Order(kept, fused.fused, fused.scores)
    return Ranking(query, fused, keyword, vector, titles)


def fused_lanes(
    fusion: Fusion,
    keyword: LaneResult | None,
    vector: LaneResult | None,
    titles: Mapping[str, float] | None,
) -> Order:
    """Merges lanes, and what titles say where they are known and the fusion wants to know."""
    if isinstance(fusion, Weighted):
        return fusion.fuse(keyword, vector, titles)
    return Order.of(fusion.fuse(keyword, vector))


def fuse_variants(rankings: Sequence[Ranking]) -> Ranking:
    """Merges the rankings of a question, which comes first, and its other wordings."""
    first = rankings[0]
    if len(rankings) == 1:
        return first
    return replace(first, fused=fuse_orders([ranking.fused for ranking in rankings]))
