"""Citation metrics: whether answers cite the documents that were judged relevant. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from ragchat_retrieval.errors import InvalidRun
from ragchat_retrieval.evaluation.bootstrap import paired_bootstrap
from ragchat_retrieval.evaluation.result import check_topics

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from ragchat_retrieval.evaluation.bootstrap import Difference
    from ragchat_retrieval.evaluation.collection import Topic

CitationMetric = Literal["citation precision", "citation recall", "claims cited"]
CITATION_METRICS: tuple[CitationMetric, ...] = get_args(CitationMetric)


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """What an answer cites."""

    claims: tuple[tuple[str, ...], ...]
    """For each claim the ids of the documents that it cites; none if it cites nothing known."""

    unknown: int = field(default=0, kw_only=True)
    """How many numbers it invents."""

    def score(self, metric: CitationMetric, grades: Mapping[str, int]) -> float:
        """Returns a metric's value, 0 … 1; an answer that cites nothing has 0 everywhere.

        Args:
            metric: ``citation precision``, the share of all that its claims cite that is relevant;
                ``citation recall``, the share of the relevant documents that it cites; or ``claims
                cited``, the share of its claims that cite something.
            grades: Grade by document id; relevant from 1.
        """
        cited = [id_ for claim in self.claims for id_ in claim]
        relevant = {id_ for id_, grade in grades.items() if grade > 0}
        if not cited:
            return 0.0
        if metric == "citation precision":
            return sum(id_ in relevant for id_ in cited) / len(cited)
        if metric == "citation recall":
            return len(relevant & set(cited)) / len(relevant) if relevant else 0.0
        return sum(map(bool, self.claims)) / len(self.claims)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CitationEvaluation:
    """The answers to some topics and what their citations are worth.

    Raises:
        InvalidSetting: There is no topic, or two share an id.
        InvalidRun: There is not exactly one answer per topic.
    """

    topics: tuple[Topic, ...]
    answers: Mapping[str, CitedAnswer]
    """By topic id."""

    system: str = "answers"
    """What made the answers."""

    def __post_init__(self) -> None:
        check_topics(self.topics)
        wanted = {topic.id for topic in self.topics}
        if self.answers.keys() != wanted:
            raise InvalidRun(len(wanted - self.answers.keys()), len(self.answers.keys() - wanted))

    def scores(self, metric: CitationMetric) -> NDArray[np.float64]:
        """Returns a metric's value for each topic [topics], in their order."""
        return np.array([self.answers[t.id].score(metric, t.grades) for t in self.topics])

    def mean(self, metric: CitationMetric) -> float:
        """Returns a metric's mean over all topics."""
        return float(self.scores(metric).mean())

    def intervals(self, **settings: Any) -> dict[str, Difference]:
        """Returns the mean of each metric with its confidence interval, as a difference from 0.

        Args:
            **settings: See `paired_bootstrap`. Conversations are drawn whole.
        """
        settings.setdefault("groups", [topic.group for topic in self.topics])
        nothing = np.zeros(len(self.topics))
        return {
            metric: paired_bootstrap(self.scores(metric), nothing, **settings)
            for metric in CITATION_METRICS
        }

    def table(self) -> dict[str, float]:
        """Returns the mean of each metric."""
        return {metric: self.mean(metric) for metric in CITATION_METRICS}

    @property
    def citing(self) -> int:
        """How many answers cite something."""
        return sum(any(answer.claims) for answer in self.answers.values())

    @property
    def unknown(self) -> int:
        """How many numbers the answers invent."""
        return sum(answer.unknown for answer in self.answers.values())

    def to_json(self) -> dict[str, Any]:
        """Returns all figures as JSON values."""
        values = {metric: self.scores(metric) for metric in CITATION_METRICS}
        return {
            "system": self.system,
            "means": self.table(),
            "intervals": {metric: asdict(mean) for metric, mean in self.intervals().items()},
            "citing": self.citing,
            "unknown": self.unknown,
            "topics": {
                topic.id: {metric: float(values[metric][at]) for metric in CITATION_METRICS}
                for at, topic in enumerate(self.topics)
            },
        }
