"""Thresholds that an evaluation must reach, for continuous integration. Pure."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.evaluation.citing import CitationMetric
from ragchat_retrieval.evaluation.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat_retrieval.evaluation.citing import CitationEvaluation
    from ragchat_retrieval.evaluation.result import Evaluation

Comparison = Literal[">=", ">", "<=", "<"]

_TESTS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}
_WRITTEN = re.compile(
    r"(?:(?P<ranking>[^:<>=]+):)?(?P<metric>[^:<>=]+)(?P<sign>[<>]=?)(?P<value>.+)"
)


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition on the mean of a metric.

    Raises:
        InvalidSetting: The comparison is another one, the value no finite number, or a metric of
            citations is asked of a ranking.
    """

    metric: Metric | CitationMetric
    comparison: Comparison
    value: float
    ranking: str | None = None
    """Name of a ranking; None is the main one."""

    def __post_init__(self) -> None:
        if self.comparison not in _TESTS:
            raise InvalidSetting("gate", f"compares by one of {', '.join(_TESTS)}")
        if not math.isfinite(self.value):
            raise InvalidSetting("gate", "the value must be a finite number")
        if self.ranking is not None and not isinstance(self.metric, Metric):
            raise InvalidSetting("gate", f"{self.metric} is about answers, not about a ranking")

    @classmethod
    def of(cls, value: Gate | str) -> Gate:
        """Reads a gate as it is written.

        It is ``ndcg@10>=0.6``, ``keyword:recall@100>0.9`` of one ranking, or ``citation
        precision>=0.8`` of answers.

        Raises:
            InvalidSetting: It is not written like that.
        """
        if isinstance(value, Gate):
            return value
        match = _WRITTEN.fullmatch(value.strip())
        try:
            number = float(match["value"]) if match else math.nan
        except ValueError:
            number = math.nan
        if match is None or math.isnan(number):
            raise InvalidSetting("gate", f"{value!r} is not written like ndcg@10>=0.6")
        ranking, name = match["ranking"], " ".join(match["metric"].split())
        return cls(
            name if name in get_args(CitationMetric) else Metric.of(name),  # type: ignore[arg-type] # as is this
            match["sign"],  # type: ignore[arg-type] # one of the four by the pattern
            number,
            None if ranking is None else ranking.strip(),
        )

    @property
    def about_answers(self) -> bool:
        """Whether it asks for what answers cite."""
        return not isinstance(self.metric, Metric)

    def __str__(self) -> str:
        name = "" if self.ranking is None else f"{self.ranking}:"
        return f"{name}{self.metric}{self.comparison}{self.value:g}"

    def check(
        self, evaluation: Evaluation, citations: CitationEvaluation | None = None
    ) -> GateResult:
        """Compares an evaluation with the value.

        Args:
            evaluation: What a metric of rankings is asked of.
            citations: What a metric of citations is asked of.

        Raises:
            InvalidSetting: The evaluation has no such ranking, or the metric is one of citations
                and there are none.
        """
        if isinstance(self.metric, Metric):
            found = evaluation.mean(self.metric, self.ranking)
        elif citations is None:
            raise InvalidSetting("gate", f"{self.metric} needs answers")
        else:
            found = citations.mean(self.metric)
        return GateResult(self, found, _TESTS[self.comparison](found, self.value))


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate found."""

    gate: Gate
    found: float
    passed: bool
