"""What one collection's evaluation has to say, as one value with a JSON form."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragchat_retrieval.evaluation.bootstrap import Difference
    from ragchat_retrieval.evaluation.citing import CitationEvaluation
    from ragchat_retrieval.evaluation.gate import GateResult
    from ragchat_retrieval.evaluation.metrics import Metric
    from ragchat_retrieval.evaluation.result import Evaluation
    from ragchat_retrieval.evaluation.tuning import Tuning


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """The evaluation of one collection, ready to be shown.

    Raises:
        InvalidSetting: There is no evaluation.
    """

    collection: str
    evaluations: Mapping[str, Evaluation]
    """By way of asking, of the same topics; the first is what is reported in detail."""

    documents: int | None = None
    """How many documents were searched."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """What else a reader needs to repeat it: store, embedder, versions."""

    notes: tuple[str, ...] = ()
    segment: str | None = None
    """The field whose segments are shown; None shows none."""

    gates: tuple[GateResult, ...] = ()
    tuning: Tuning | None = None
    citations: CitationEvaluation | None = None
    """What the citations of answers to these topics are worth."""

    def __post_init__(self) -> None:
        if not self.evaluations:
            raise InvalidSetting("evaluations", "at least one is needed")

    @property
    def evaluation(self) -> Evaluation:
        """The one reported in detail."""
        return next(iter(self.evaluations.values()))

    @property
    def metric(self) -> Metric:
        """The metric that differences and plots are about: the first."""
        return self.evaluation.metrics[0]

    @property
    def passed(self) -> bool:
        """Whether every gate was passed."""
        return all(result.passed for result in self.gates)

    def differences(self) -> dict[str, Difference]:
        """Returns how much better the main ranking is than each other one."""
        main = self.evaluation
        return {
            name: main.difference(self.metric, baseline=name)
            for name in main.rankings
            if name != main.main
        }

    def ways(self) -> dict[str, Difference]:
        """Returns how much better the first way of asking is than each other one."""
        first, *others = self.evaluations
        return {
            name: self.evaluations[first].difference_from(self.evaluations[name], self.metric)
            for name in others
        }

    def segments(self) -> dict[str, Evaluation]:
        """Returns the evaluation per segment of the chosen field."""
        return {} if self.segment is None else self.evaluation.segments(self.segment)

    def to_json(self) -> dict[str, Any]:
        """Returns everything but texts as JSON values; values per topic under ``topics``."""
        main = self.evaluation
        return {
            "collection": self.collection,
            "documents": self.documents,
            "settings": dict(self.settings),
            "notes": list(self.notes),
            "metric": str(self.metric),
            "main": main.main,
            "asked": {
                way: {"rankings": e.table(), "degraded": dict(e.degraded)}
                for way, e in self.evaluations.items()
            },
            "differences": {name: asdict(d) for name, d in self.differences().items()},
            "ways": {name: asdict(d) for name, d in self.ways().items()},
            "segment": self.segment,
            "segments": {
                name: {"topics": len(part.topics), "rankings": part.table()}
                for name, part in self.segments().items()
            },
            "gates": [
                {"gate": str(g.gate), "found": g.found, "passed": g.passed} for g in self.gates
            ],
            "tuning": None if self.tuning is None else tuning_record(self.tuning),
            "citations": None if self.citations is None else self.citations.to_json(),
            "topics": {
                topic.id: {str(m): float(main.scores(m)[i]) for m in main.metrics}
                for i, topic in enumerate(main.topics)
            },
        }


def tuning_record(tuning: Tuning) -> dict[str, Any]:
    """Returns a tuning as JSON values."""
    return {
        "metric": str(tuning.metric),
        "default": asdict(tuning.default),
        "best": asdict(tuning.best),
        "recommended": asdict(tuning.recommended),
        "held_out": {
            "topics": len(tuning.held_out),
            "default": tuning.default_value,
            "best": tuning.best_value,
            "gain": asdict(tuning.gain),
        },
        "trials": [
            {**asdict(trial.setting), "value": trial.value, "scored": trial.scored}
            for trial in tuning.trials
        ],
    }
