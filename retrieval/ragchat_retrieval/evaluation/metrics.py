"""Metrics of one ranking against graded judgments. Pure.

A ranking is document ids, best first; a repeated id counts where it stands first. A document is
relevant from grade 1; one that was not judged has grade 0. The values equal those of trec_eval and
of ir-measures (there ``R@k``, ``P@k``, ``RR@k``, and ``nDCG@k`` with gains 2^grade − 1).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MetricName = Literal["ndcg", "recall", "mrr", "precision"]

_WRITTEN = re.compile(r"([a-z]+)(?:@([0-9]{1,9}))?")


def recall(ranking: Sequence[str], grades: Mapping[str, int], k: int | None = None) -> float:
    """Returns the share of the relevant documents that stand among the first k, 0 … 1."""
    relevant = sum(grade > 0 for grade in grades.values())
    return _hits(ranking, grades, k) / relevant if relevant else 0.0


def precision(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Returns the share of the first k places that hold relevant documents, 0 … 1.

    It divides by k even if the ranking is shorter.
    """
    return _hits(ranking, grades, k) / k


def reciprocal_rank(
    ranking: Sequence[str], grades: Mapping[str, int], k: int | None = None
) -> float:
    """Returns 1 / rank of the first relevant document among the first k, else 0."""
    for rank, id_ in enumerate(_top(ranking, k), start=1):
        if grades.get(id_, 0) > 0:
            return 1.0 / rank
    return 0.0


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int | None = None) -> float:
    """Returns the discounted cumulative gain, relative to that of the best ranking, 0 … 1.

    The gain of a grade is 2^grade − 1 (Burges et al., ICML 2005), the discount of a rank
    log2(rank + 1), and the best ranking has all judged documents by descending grade.
    """
    best = _gain(sorted(grades.values(), reverse=True)[:k])
    found = _gain([grades.get(id_, 0) for id_ in _top(ranking, k)])
    return found / best if best > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with its cutoff: ``ndcg@10``, ``recall@100``, ``mrr``, ``precision@5``.

    Raises:
        InvalidSetting: The name is another one, the cutoff is below 1, or precision has none.
    """

    name: MetricName
    cutoff: int | None = None
    """How many places count; None is all."""

    def __post_init__(self) -> None:
        if self.name not in get_args(MetricName):
            known = ", ".join(get_args(MetricName))
            raise InvalidSetting("metric", f"{self.name!r} is none of {known}")
        if self.cutoff is not None and self.cutoff < 1:
            raise InvalidSetting("metric", "the cutoff must be 1 or more")
        if self.name == "precision" and self.cutoff is None:
            raise InvalidSetting("metric", "precision needs a cutoff, as in precision@10")

    @classmethod
    def of(cls, value: Metric | str) -> Metric:
        """Reads a metric as it is written: ``ndcg@10``; case does not matter.

        Raises:
            InvalidSetting: It is not written like that.
        """
        if isinstance(value, Metric):
            return value
        match = _WRITTEN.fullmatch(value.strip().lower())
        if match is None:
            raise InvalidSetting("metric", f"{value!r} is not written like ndcg@10")
        return cls(match[1], None if match[2] is None else int(match[2]))  # type: ignore[arg-type] # checked above

    def __str__(self) -> str:
        return self.name if self.cutoff is None else f"{self.name}@{self.cutoff}"

    def __call__(self, ranking: Sequence[str], grades: Mapping[str, int]) -> float:
        """Returns the value for one ranking, 0 … 1."""
        match self.name:
            case "ndcg":
                return ndcg(ranking, grades, self.cutoff)
            case "recall":
                return recall(ranking, grades, self.cutoff)
            case "mrr":
                return reciprocal_rank(ranking, grades, self.cutoff)
            case _:
                return precision(ranking, grades, self.cutoff or 1)


DEFAULT_METRICS = tuple(map(Metric.of, ("ndcg@10", "recall@10", "mrr@10", "recall@100")))


def _top(ranking: Sequence[str], k: int | None) -> list[str]:
    return list(dict.fromkeys(ranking))[:k]


def _hits(ranking: Sequence[str], grades: Mapping[str, int], k: int | None) -> int:
    return sum(grades.get(id_, 0) > 0 for id_ in _top(ranking, k))


def _gain(grades: Sequence[int]) -> float:
    return sum(
        (2.0**grade - 1.0) / math.log2(rank + 1)
        for rank, grade in enumerate(grades, start=1)
        if grade > 0
    )
