"""How a terminal shows an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ragchat.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from ragchat.cli.output import Face
    from ragchat_retrieval.evaluation import CitationEvaluation, Difference, Report, Setting, Tuning

TRIALS = 5
"""Settings shown of a tuning."""


def show_report(face: Face, report: Report) -> None:
    """Shows one collection: rankings, ways of asking, segments, tuning, gates."""
    main = report.evaluation
    way = next(iter(report.evaluations))
    searched = "" if report.documents is None else f" · {report.documents:,} documents"
    face.line(f"{report.collection} · {len(main.topics):,} questions{searched}", "bold")
    differences = report.differences()
    metrics = [str(metric) for metric in main.metrics]
    rows = []
    for name in main.rankings:
        values = [f"{main.mean(metric, name):.3f}" for metric in main.metrics]
        rows.append([name, *values, _interval(differences.get(name))])
    head = ["ranking", *metrics, f"{main.main} minus it"]
    _show(face, head, rows, stress=list(main.rankings).index(main.main))
    if len(report.evaluations) > 1:
        _show_ways(face, report, way)
    if report.segment is not None:
        parts = report.segments()
        rows = [
            [name, str(len(e.topics)), *(f"{e.mean(m):.3f}" for m in e.metrics)]
            for name, e in parts.items()
        ]
        _show(face, [report.segment, "questions", *metrics], rows)
    if report.citations is not None:
        _show_citations(face, report.citations)
    if report.tuning is not None:
        _show_tuning(face, report.tuning)
    for result in report.gates:
        verdict = "passed" if result.passed else "failed"
        face.line(
            f"gate {result.gate}: {result.found:.4f}, {verdict}",
            "green" if result.passed else "bold red",
        )
    if report.gates:
        face.line()
    for note in report.notes:
        face.note(f"{report.collection}: {note}")


def _show_ways(face: Face, report: Report, first: str) -> None:
    differences = report.ways()
    names = list(report.evaluation.rankings)
    stages = names[: names.index(report.evaluation.main) + 1]
    rows = []
    for way, evaluation in report.evaluations.items():
        values = [
            f"{evaluation.mean(report.metric, name):.3f}" if name in evaluation.rankings else "–"
            for name in stages
        ]
        rows.append([way, *values, _interval(differences.get(way))])
    _show(face, [f"{report.metric} by", *stages, f"{first} minus it"], rows, stress=0)


def _show_citations(face: Face, citations: CitationEvaluation) -> None:
    means = citations.intervals()
    cells = [f"{mean.mean:.3f} [{mean.low:.3f}, {mean.high:.3f}]" for mean in means.values()]
    _show(face, ["answers", *means], [[citations.system, *cells]])
    face.note(
        f"{citations.citing:,} of {len(citations.topics):,} answers cite something; "
        f"{citations.unknown:,} invented numbers"
    )


def _show_tuning(face: Face, tuning: Tuning) -> None:
    rows = [
        [*_cells(trial.setting), f"{trial.value:.3f}", f"{trial.scored:.1f}"]
        for trial in tuning.trials[:TRIALS]
    ]
    head = ["tuning", "candidates", "rerank", "margin", str(tuning.metric), "reranked"]
    _show(face, head, rows, stress=0)
    face.line(
        f"on {len(tuning.held_out)} held-out questions: default {tuning.default_value:.3f}, "
        f"choice {tuning.best_value:.3f}, gain {_interval(tuning.gain)}"
    )
    kept = tuning.recommended == tuning.default
    face.line(
        "keep the default: no clear gain" if kept else "take the choice: a clear gain", "bold"
    )
    face.line()


def _cells(setting: Setting) -> list[str]:
    title = f", title {setting.title:g}" if setting.title else ""
    return [
        f"keyword {setting.keyword:g}{title}",
        str(setting.candidates),
        "–" if setting.rerank_weight is None else f"{setting.rerank_weight:g}",
        "–" if setting.margin is None else f"{setting.margin:g}",
    ]


def _interval(d: Difference | None) -> str:
    return "" if d is None else f"{d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}]"


def _show(
    face: Face, head: Sequence[str], rows: Sequence[Sequence[str]], *, stress: int | None = None
) -> None:
    """Shows a table or, where the terminal is too narrow for it, a few lines a row."""
    clean = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(head, *clean, strict=True)]
    body: RenderableType
    if sum(widths) + 2 * len(widths) <= face.out.width:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for number, name in enumerate(head):
            table.add_column(one_line(name), no_wrap=True, justify="right" if number else "left")
        for number, row in enumerate(clean):
            table.add_row(*row, style="bold" if number == stress else "")
        body = table
    else:
        lines = []
        for row in clean:
            lines.append(row[0])
            lines += [f"  {one_line(n)} {v}" for n, v in zip(head[1:], row[1:], strict=True) if v]
        body = Text("\n".join(lines))
    face.show(body)
    face.line()
