"""Exact BM25 over what an engine's own scores bring.

Engines keep statistics that do not fit the definition in `ragchat_retrieval.lexical`: they count
what was deleted, or round lengths. So an engine is asked by term values that are never too small,
and what it brings is scored again here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ragchat_retrieval.lexical import K1, B, idf
from ragchat_retrieval.stores.deepening import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragchat_retrieval.stores.manifest import Row, State


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
