"""Why a candidate stands where it stands: a typed, ephemeral record, never stored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneExplanation:
    """What one lane said of a candidate."""

    rank: int | None = None
    """1-based rank in the lane's own list; None if the lane did not return it."""

    score: float | None = None
    """The lane's raw score (BM25, cosine); None if it has none."""

    contribution: float = 0.0
    """Its part of the fused score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordExplanation(LaneExplanation):
    """The keyword lane's view."""

    overlap: float = 0.0
    """Share of the question's distinct terms that occur in the passage, 0 … 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TitleExplanation:
    """What a candidate's title and file name said."""

    share: float
    """Share of the question's terms that stand there, weighted by how rare they are, 0 … 1."""

    contribution: float
    """Its part of the fused score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankExplanation:
    """What a reranker did to a candidate."""

    rank_in: int
    """Rank before, `rank_out` after."""

    score: float
    """The reranker's own score, 0 … 1."""

    rank_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MMRExplanation:
    """Why diversification took a candidate when it did."""

    relevance: float
    max_similarity: float
    """Highest cosine with any candidate taken before."""

    score: float
    """λ · relevance − (1 − λ) · max_similarity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The way of one candidate through a search."""

    keyword: KeywordExplanation | None = None
    """None if the keyword lane did not run, as for `vector` and its lane."""

    vector: LaneExplanation | None = None
    title: TitleExplanation | None = None
    """None if the fusion gives titles no weight."""

    fused_score: float
    fused_rank: int
    """1-based, as all ranks here."""

    rerank: RerankExplanation | None = None
    """None if nothing was reranked, or not this candidate; as is `mmr` without diversification."""

    mmr: MMRExplanation | None = None
    final_rank: int
