"""How much of a question stands in a passage's title or file name. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ragchat_retrieval.lexical import idf

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.ports import TermCounts
    from ragchat_retrieval.values import Passage

_SEPARATOR = re.compile(r"[/\\]")


def title_shares(
    terms: Mapping[str, float],
    passages: Mapping[str, Passage],
    counts: TermCounts | None,
    analyzer: Analyzer,
) -> dict[str, float]:
    """Returns the share of a question that stands in the title or file name of each passage.

    Args:
        terms: The question's analysed terms with their weights.
        passages: By id.
        counts: How common the terms are: a rare one is more of the question than a common one.
            None has every term count the same.
        analyzer: The analysis that the terms come from.

    Returns:
        By passage id, 0 … 1: the weights times idf of the terms that stand there, over the sum of
        all.
    """
    weights = {
        term: weight
        * (1.0 if counts is None else idf(counts.passages, counts.holding.get(term, 0)))
        for term, weight in terms.items()
        if weight > 0
    }
    total = sum(weights.values())
    labels = {id_: _label(passage) for id_, passage in passages.items()}
    distinct = list(dict.fromkeys(labels.values()))
    found = analyzer.counts_many(distinct)
    shares = {
        label: _share(weights, held, total) for label, held in zip(distinct, found, strict=True)
    }
    return {id_: shares[label] for id_, label in labels.items()}


def file_name(source: str) -> str:
    """Returns the last part of a path or of a URL's path; empty if there is none."""
    if "://" in source:
        try:
            source = unquote(urlsplit(source).path)
        except ValueError:  # an address that is none, such as one with half a bracket
            return ""
    return _SEPARATOR.split(source.rstrip("/\\"))[-1]


def _label(passage: Passage) -> str:
    return f"{passage.title or ''}\n{file_name(passage.source or '')}"


def _share(weights: Mapping[str, float], held: Collection[str], total: float) -> float:
    return min(1.0, sum(weights[t] for t in weights if t in held) / total) if total > 0 else 0.0
