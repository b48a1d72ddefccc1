"""Exact BM25 over what an engine's own scores bring.

Engines keep statistics that do not fit the definition in `ragchat_retrieval.lexical`: they count
what was deleted, or round lengths. So an engine is asked by term values that are never too small,
and what it brings is scored again here; a lane asks on until no unread row can be better.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ragchat_retrieval.lexical import K1, B, idf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ragchat_retrieval.stores.manifest import Row, State

SLACK = 16
"""How many more than wanted a lane reads, for ties at the limit."""

ROUNDING = 1e-5
"""Above what an engine's scores lose in single precision."""


def ceiling(limit: int) -> int:
    """Returns how many rows a lane reads at most to prove the order of so many."""
    return 8 * limit + 1_000


def saturation(count: float, length: float, average: float) -> float:
    """Returns BM25's part of a term that depends on the passage: all but idf and weight."""
    return count / (count + K1 * (1 - B + B * length / average))


def average_of(state: State) -> float:
    """Returns how many terms a passage of the corpus has on average, above 0."""
    return max(state.sums.length / max(state.sums.passages, 1), ROUNDING)


def weighed(
    terms: Mapping[str, float], holding: Mapping[str, int], state: State
) -> dict[str, float]:
    """Returns weight times idf of those terms that occur.

    Args:
        terms: Terms with their weights.
        holding: How many rows hold each.
        state: Of the corpus.
    """
    total = state.sums.passages
    return {
        # During a write the rows of two revisions are counted.
        term: weight * idf(max(total, count), count)
        for term, weight in terms.items()
        if (count := holding[term])
    }


def scored(row: Row, weights: Mapping[str, float], state: State) -> Row:
    """Returns a row with its exact score.

    Args:
        row: Read with its terms.
        weights: What `weighed` returned.
        state: Of the corpus.
    """
    average, length = average_of(state), row.length
    score = 0.0
    for term, weight in weights.items():
        count = row.terms.get(term)
        if count:
            score += weight * saturation(count, length, average)
    return replace(row, score=score)


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Returns rows by descending score, ties by passage id."""
    return sorted(rows, key=lambda row: (-row.score, row.passage_id))
