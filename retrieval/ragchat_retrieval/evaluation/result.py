"""The outcome of an evaluation: rankings by stage, and what metrics say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.errors import InvalidRun, InvalidSetting
from ragchat_retrieval.evaluation.bootstrap import paired_bootstrap
from ragchat_retrieval.evaluation.collection import MOST_GRADE
from ragchat_retrieval.evaluation.metrics import DEFAULT_METRICS, Metric

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from ragchat_retrieval.evaluation.bootstrap import Difference
    from ragchat_retrieval.evaluation.collection import Topic

Rankings = Sequence[Sequence[str]]
"""Document ids, best first, one row per topic."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluation:
    """Rankings of the same topics, side by side.

    Raises:
        InvalidSetting: There is no topic, two share an id, a grade is no whole number up to 60, or
            `main` is no ranking's name.
        InvalidRun: A ranking has not exactly one row per topic.
    """

    topics: tuple[Topic, ...]
    rankings: Mapping[str, Rankings]
    """By name, in the order in which a search makes them: ``keyword``, ``vector``, ``fused``,
    ``reranked``, ``diversified``, ``final``; then other fusions by their own names."""

    main: str
    """The ranking that a user gets."""

    metrics: tuple[Metric, ...] = DEFAULT_METRICS
    """Those that `table` and reports show; others can be asked for."""

    degraded: Mapping[str, int] = field(default_factory=dict)
    """In how many searches a stage was left out, by stage."""

    _values: dict[tuple[str, Metric], NDArray[np.float64]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "metrics", tuple(dict.fromkeys(map(Metric.of, self.metrics))))
        check_topics(self.topics)
        if self.main not in self.rankings:
            raise InvalidSetting("main", f"{self.main!r} is no ranking")
        count = len(self.topics)
        for rows in self.rankings.values():
            if len(rows) != count:
                raise InvalidRun(max(0, count - len(rows)), max(0, len(rows) - count))

    def scores(self, metric: Metric | str, ranking: str | None = None) -> NDArray[np.float64]:
        """Returns a metric's value for each topic [topics], in their order.

        Args:
            metric: The metric.
            ranking: The ranking's name; None is the main one.

        Raises:
            InvalidSetting: There is no such ranking or metric.
        """
        name, chosen = self._named(ranking), Metric.of(metric)
        key = (name, chosen)
        if key not in self._values:
            pairs = zip(self.rankings[name], self.topics, strict=True)
            values = np.array([chosen(row, topic.grades) for row, topic in pairs])
            values.setflags(write=False)
            self._values[key] = values
        return self._values[key]

    def mean(self, metric: Metric | str, ranking: str | None = None) -> float:
        """Returns a metric's mean over all topics, as for `scores`."""
        return float(self.scores(metric, ranking).mean())

    def difference(
        self, metric: Metric | str, ranking: str | None = None, *, baseline: str, **settings: Any
    ) -> Difference:
        """Returns how much better a ranking is than another, with its confidence interval.

        Args:
            metric: The metric.
            ranking: The ranking's name; None is the main one.
            baseline: The other one's name.
            **settings: See `paired_bootstrap`. Conversations are drawn whole.
        """
        return self.difference_from(self, metric, ranking, baseline=baseline, **settings)

    def difference_from(
        self,
        other: Evaluation,
        metric: Metric | str,
        ranking: str | None = None,
        *,
        baseline: str | None = None,
        **settings: Any,
    ) -> Difference:
        """Returns how much better a ranking is than one of another evaluation of these topics.

        Args:
            other: Of the same topics in the same order.
            metric: The metric.
            ranking: This evaluation's ranking; None is its main one.
            baseline: The other evaluation's ranking; None is its main one.
            **settings: See `paired_bootstrap`.

        Raises:
            InvalidRun: The topics differ.
        """
        mine = [topic.id for topic in self.topics]
        theirs = [topic.id for topic in other.topics]
        if mine != theirs:
            raise InvalidRun(len(set(mine) - set(theirs)), len(set(theirs) - set(mine)))
        settings.setdefault("groups", [topic.group for topic in self.topics])
        return paired_bootstrap(
            self.scores(metric, ranking), other.scores(metric, baseline), **settings
        )

    def table(self) -> dict[str, dict[str, float]]:
        """Returns the mean of each metric by ranking and metric."""
        return {
            name: {str(metric): self.mean(metric, name) for metric in self.metrics}
            for name in self.rankings
        }

    def segments(self, name: str) -> dict[str, Evaluation]:
        """Splits the topics by a field of their queries; a list belongs to each of its values.

        Args:
            name: The field; ``turn`` also tells the first turn of a conversation from later ones.

        Returns:
            An evaluation per segment, in the order of their names.
        """
        members: dict[str, list[int]] = {}
        for position, topic in enumerate(self.topics):
            for segment in topic.segments(name):
                members.setdefault(segment, []).append(position)
        return {segment: self._only(members[segment]) for segment in sorted(members)}

    def hardest(self, metric: Metric | str, count: int = 10) -> list[tuple[Topic, float]]:
        """Returns the topics of the lowest values under the main ranking, lowest first."""
        values = self.scores(metric)
        order = np.argsort(values, kind="stable")[:count]
        return [(self.topics[i], float(values[i])) for i in order]

    def _named(self, ranking: str | None) -> str:
        name = self.main if ranking is None else ranking
        if name not in self.rankings:
            known = ", ".join(self.rankings)
            raise InvalidSetting("ranking", f"{name!r} is none of {known}")
        return name

    def _only(self, positions: Sequence[int]) -> Evaluation:
        return Evaluation(
            topics=tuple(self.topics[i] for i in positions),
            rankings={n: [rows[i] for i in positions] for n, rows in self.rankings.items()},
            main=self.main,
            metrics=self.metrics,
        )


def check_topics(topics: Sequence[Topic]) -> None:
    """Checks that there are topics, each with an id of its own and grades up to 60.

    Raises:
        InvalidSetting: There is none, an id occurs twice, or a grade is no whole number up to 60.
    """
    if not topics:
        raise InvalidSetting("topics", "at least one is needed")
    if len({topic.id for topic in topics}) < len(topics):
        raise InvalidSetting("topics", "an id occurs twice")
    for topic in topics:
        for grade in topic.grades.values():
            given: object = grade
            if not isinstance(given, Integral) or grade > MOST_GRADE:
                problem = f"a grade of {topic.id!r} is no whole number up to {MOST_GRADE}"
                raise InvalidSetting("topics", problem)


def evaluate_run(
    run: Mapping[str, Sequence[str]],
    topics: Sequence[Topic],
    *,
    metrics: Sequence[Metric | str] = DEFAULT_METRICS,
    name: str = "run",
) -> Evaluation:
    """Evaluates rankings that were made elsewhere.

    Args:
        run: Document ids, best first, by topic id. A search that found nothing has an empty row.
        topics: What was judged.
        metrics: What reports show.
        name: What to call the ranking.

    Raises:
        InvalidSetting: There is no topic, two share an id, or a grade is no whole number up to 60.
        InvalidRun: The run does not rank exactly these topics.
    """
    wanted = {topic.id for topic in topics}
    if run.keys() != wanted:
        raise InvalidRun(len(wanted - run.keys()), len(run.keys() - wanted))
    return Evaluation(
        topics=tuple(topics),
        rankings={name: [tuple(run[topic.id]) for topic in topics]},
        main=name,
        metrics=tuple(map(Metric.of, metrics)),
    )
