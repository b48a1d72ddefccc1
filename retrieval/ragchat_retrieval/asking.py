"""From queries to what the lanes are asked: weighted terms, and vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.stages import beside
from ragchat_retrieval.vectors import blend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.values import Query

_INLINE_CHARACTERS = 10_000
"""Up to so much text, a few milliseconds, is analysed on the event loop."""


async def analysed(queries: Sequence[Query], analyzer: Analyzer) -> list[Mapping[str, float]]:
    """Returns the weighted terms of each query, computed beside the loop if there is much."""
    size = sum(
        len(query.lexical or query.text) + sum(len(c.text) for c in query.context)
        for query in queries
    )
    return await beside(
        size > _INLINE_CHARACTERS,
        lambda: [weighted_terms(query, analyzer) for query in queries],
    )


def weighted_terms(query: Query, analyzer: Analyzer) -> dict[str, float]:
    """Returns a query's weighted terms: its own text, plus its contexts at their weights."""
    weights = analyzer.weights(query.lexical or query.text)
    for context in query.context:
        if context.lexical > 0:
            for term, count in analyzer.weights(context.text).items():
                weights[term] = weights.get(term, 0.0) + context.lexical * count
    return weights


def semantic_texts(queries: Sequence[Query]) -> list[str]:
    """Returns the texts of queries and of their contexts that are to be embedded, each once."""
    texts: dict[str, None] = {}
    for query in queries:
        texts[semantic_text(query)] = None
        texts |= dict.fromkeys(c.text for c in query.context if c.semantic > 0)
    return list(texts)


def blended(
    queries: Sequence[Query], embedded: Mapping[str, NDArray[np.float32]]
) -> list[NDArray[np.float32] | None]:
    """Returns the vector of each query, with its contexts at their weights.

    Args:
        queries: The queries.
        embedded: float32 [d] of each of their `semantic_texts`.

    Returns:
        float32 [d] each. None for a text that has no direction, as without words (punctuation) or
        where the model cannot read it: there is nothing to compare.
    """
    vectors: list[NDArray[np.float32] | None] = []
    for query in queries:
        contexts = [c for c in query.context if c.semantic > 0]
        vector = blend(
            embedded[semantic_text(query)], contexts, [embedded[c.text] for c in contexts]
        )
        vectors.append(vector if np.count_nonzero(vector) else None)
    return vectors


def semantic_text(query: Query) -> str:
    """Returns the text of a query itself that is to be embedded."""
    return query.semantic or query.text
