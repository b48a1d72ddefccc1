"""Reports as one HTML page that needs nothing else: no script, no font, no request. Pure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ragchat_retrieval.evaluation.metrics import Metric
from ragchat_retrieval.evaluation.svg import Axes, bars, intervals, lines, sorted_bars

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ragchat_retrieval.evaluation.bootstrap import Difference
    from ragchat_retrieval.evaluation.citing import CitationEvaluation
    from ragchat_retrieval.evaluation.grid import Setting
    from ragchat_retrieval.evaluation.report import Report
    from ragchat_retrieval.evaluation.result import Evaluation
    from ragchat_retrieval.evaluation.tuning import Tuning

_DEPTHS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
_HARDEST = 10
_TRIALS = 10
_QUESTION = 160
"""Letters of a question shown."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #667; --rule: #d8dbe2; --page: #fff;
  --good: #1a7f4b; --bad: #c2372e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e9ec; --soft: #9aa0ad; --rule: #3a3e47;
  --page: #16181c; --good: #4cc38a; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid var(--rule);
  padding-top: 1.5rem; }
.soft { color: var(--soft); } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }
th, td { text-align: right; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; } td.left, th.left { text-align: left; }
tr.main td { font-weight: 600; }
.passed { color: var(--good); } .failed { color: var(--bad); font-weight: 600; }
svg { width: 100%; max-width: 46rem; display: block; margin: .5rem 0 1.5rem; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg line.axis { stroke: var(--soft); } svg line.grid { stroke: var(--rule); }
svg line.good { stroke: var(--good); stroke-width: 2; } svg .good { fill: var(--good); }
svg line.bad { stroke: var(--bad); stroke-width: 2; } svg .bad { fill: var(--bad); }
svg line.even { stroke: var(--soft); stroke-width: 2; } svg .even { fill: var(--soft); }
svg polyline { fill: none; stroke-width: 2; }
"""
# Okabe and Ito's palette without black and yellow, which vanish on one of the two backgrounds,
# and two greys; readable with colour-blind eyes.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a8f9a", "#b0a48f")


def html_report(reports: Sequence[Report], *, title: str = "Retrieval evaluation") -> str:
    """Returns a whole page about one or more collections.

    Texts of questions are shown, escaped; texts of documents and answers are not.

    Args:
        reports: What to show, in order.
        title: The page's title.
    """
    series = "\n".join(
        f"svg rect.s{n} {{ fill: {c}; }} svg polyline.s{n} {{ stroke: {c}; }}"
        for n, c in enumerate(_COLOURS)
    )
    page = "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{_STYLE}{series}</style>\n</head>\n<body>",
            f"<h1>{escape(title)}</h1>",
            *map(_collection, reports),
            "</body>\n</html>\n",
        ]
    )
    # JSON may hold half a surrogate pair, in a field that names segments, and UTF-8 may not.
    return page.encode("utf-8", "replace").decode("utf-8")


def _collection(report: Report) -> str:
    main, metric = report.evaluation, report.metric
    name = main.main
    way = next(iter(report.evaluations))
    searched = "" if report.documents is None else f", {report.documents:,} documents"
    parts = [
        f"<h2>{escape(report.collection)}</h2>",
        f'<p class="soft">{len(main.topics):,} questions{searched}. Asked by: {escape(way)}.</p>',
        *(f'<p class="soft">{escape(note)}</p>' for note in report.notes),
        _gates(report),
        "<h3>Stages and fusions</h3>",
        _means(main, report.differences()),
        bars(f"{metric} by ranking", {n: main.mean(metric, n) for n in main.rankings}),
    ]
    differences = report.differences()
    if differences:
        caption = f"{metric}: {name} minus each, with 95 % interval"
        parts += [f"<h3>{escape(caption)}</h3>", intervals(caption, differences)]
    parts += [*_depth(main), *_topics(main, metric), *_ways(report), *_segments(report)]
    if report.tuning is not None:
        parts += _tuning(report.tuning)
    if report.citations is not None:
        parts += _citations(report.citations)
    parts += ["<h3>Hardest questions</h3>", _hardest(main, metric), _settings(report)]
    return "\n".join(filter(None, parts))


def _gates(report: Report) -> str:
    if not report.gates:
        return ""
    rows = [
        f'<li class="{"passed" if result.passed else "failed"}">{escape(str(result.gate))}: '
        f"{result.found:.4f}, {'passed' if result.passed else 'failed'}</li>"
        for result in report.gates
    ]
    return f"<ul>{''.join(rows)}</ul>"


def _means(evaluation: Evaluation, differences: Mapping[str, Difference]) -> str:
    metrics = evaluation.metrics
    head = ["ranking", *map(str, metrics), f"{evaluation.main} minus it: {metrics[0]}"]
    rows = []
    for name in evaluation.rankings:
        cells = [name, *(f"{evaluation.mean(metric, name):.4f}" for metric in metrics)]
        d = differences.get(name)
        rows.append([*cells, "" if d is None else _interval(d)])
    main = list(evaluation.rankings).index(evaluation.main)
    return _table(head, rows, main=main)


def _depth(evaluation: Evaluation) -> list[str]:
    """Returns the recall at growing depth, of rankings that are deep enough to have one."""
    deepest = max((len(row) for rows in evaluation.rankings.values() for row in rows), default=0)
    depths = [depth for depth in _DEPTHS if depth <= deepest]
    if len(depths) < 2:  # noqa: PLR2004 - a line needs two points
        return []
    series = {
        name: [(depth, evaluation.mean(Metric("recall", depth), name)) for depth in depths]
        for name in evaluation.rankings
    }
    axes = Axes(x="documents read (logarithmic)", y="recall", logarithmic=True)
    return ["<h3>Recall by depth</h3>", lines("Recall by depth", series, axes)]


def _topics(evaluation: Evaluation, metric: Metric) -> list[str]:
    lanes = [name for name in ("keyword", "vector") if name in evaluation.rankings]
    if not lanes:
        return []
    better = max(lanes, key=lambda name: evaluation.mean(metric, name))
    gains = evaluation.scores(metric) - evaluation.scores(metric, better)
    won, lost = int((gains > 0).sum()), int((gains < 0).sum())
    title = f"{metric} per question: {evaluation.main} minus {better}"
    told = f"Better for {won}, worse for {lost}, equal for {len(gains) - won - lost}."
    plot = sorted_bars(title, [float(gain) for gain in gains])
    return [f"<h3>{escape(title)}</h3>", f'<p class="soft">{told}</p>', plot]


def _ways(report: Report) -> list[str]:
    if len(report.evaluations) == 1:
        return []
    stages = list(report.evaluation.rankings)
    first = next(iter(report.evaluations))
    differences = report.ways()
    rows = []
    for way, evaluation in report.evaluations.items():
        cells = [
            f"{evaluation.mean(report.metric, name):.4f}" if name in evaluation.rankings else ""
            for name in stages
        ]
        rows.append([way, *cells, _interval(differences[way]) if way in differences else ""])
    head = ["asked by", *stages, f"{first} minus it"]
    return [f"<h3>Ways of asking: {report.metric}</h3>", _table(head, rows, main=0)]


def _segments(report: Report) -> list[str]:
    parts = report.segments()
    if not parts:
        return []
    head = ["segment", "questions", *report.evaluation.rankings]
    rows = [
        [name, str(len(e.topics)), *(f"{e.mean(report.metric, r):.4f}" for r in e.rankings)]
        for name, e in parts.items()
    ]
    title = f"{report.metric} by {report.segment}"
    values = {name: e.mean(report.metric) for name, e in parts.items()}
    counts = {name: len(e.topics) for name, e in parts.items()}
    return [f"<h3>{escape(title)}</h3>", _table(head, rows), bars(title, values, counts=counts)]


def _citations(citations: CitationEvaluation) -> list[str]:
    told = (
        f"{citations.citing:,} of {len(citations.topics):,} answers cite something; "
        f"{citations.unknown:,} invented numbers."
    )
    means = citations.intervals()
    cells = [f"{mean.mean:.4f} [{mean.low:.4f}, {mean.high:.4f}]" for mean in means.values()]
    return [
        "<h3>Citations</h3>",
        f'<p class="soft">{told}</p>',
        _table(["answers", *means], [[citations.system, *cells]]),
    ]


def _tuning(tuning: Tuning) -> list[str]:
    by_candidates: dict[int, dict[float, float]] = {}
    for trial in tuning.trials:
        row = by_candidates.setdefault(trial.setting.candidates, {})
        weight = trial.setting.keyword
        row[weight] = max(row.get(weight, 0.0), trial.value)
    series = {
        f"{count} candidates": sorted(by_candidates[count].items())
        for count in sorted(by_candidates)
    }
    verdict = "keep the default" if tuning.recommended == tuning.default else "take the choice"
    told = (
        f"{len(tuning.trials)} settings on {len(tuning.tuned_on)} questions; judged on "
        f"{len(tuning.held_out)} others: default {tuning.default_value:.4f}, choice "
        f"{tuning.best_value:.4f}, gain {_interval(tuning.gain)}: {verdict}."
    )
    head = ["setting", str(tuning.metric), "reranked per question"]
    rows = [[setting_text(tuning.default) + " (default)", "", ""]]
    rows += [
        [setting_text(trial.setting), f"{trial.value:.4f}", f"{trial.scored:.1f}"]
        for trial in tuning.trials[:_TRIALS]
    ]
    parts = ["<h3>Tuning</h3>", f"<p>{escape(told)}</p>", _table(head, rows, main=1)]
    if any(len(points) > 1 for points in series.values()):
        marks = [(tuning.default.keyword, "default")]
        axes = Axes(x="weight of the keyword lane", y=str(tuning.metric), marks=marks)
        parts.append(lines(f"{tuning.metric} by keyword weight", series, axes))
    return parts


def setting_text(setting: Setting) -> str:
    """Returns a setting in a few words."""
    title = [f"title {setting.title:g}"] if setting.title else []
    parts = [f"keyword {setting.keyword:g}", *title, f"{setting.candidates} candidates"]
    if setting.rerank_weight is not None:
        margin = "always" if setting.margin is None else f"margin {setting.margin:g}"
        parts.append(f"rerank {setting.rerank_weight:g}, {margin}")
    return ", ".join(parts)


def _hardest(evaluation: Evaluation, metric: Metric) -> str:
    rows = []
    for topic, value in evaluation.hardest(metric, _HARDEST):
        text = topic.query.text
        short = text if len(text) <= _QUESTION else text[:_QUESTION] + "…"
        rows.append([topic.id, f"{value:.3f}", short])
    return _table(["id", str(metric), "question"], rows, left=2)


def _settings(report: Report) -> str:
    rows = [[name, value] for name, value in report.settings.items()]
    return "" if not rows else "<h3>Settings</h3>" + _table(["", ""], rows, left=1)


def _interval(d: Difference) -> str:
    return f"{d.mean:+.4f} [{d.low:+.4f}, {d.high:+.4f}]"


def _table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    main: int | None = None,
    left: int | None = None,
) -> str:
    """Returns a table; `main` is the row to stress, `left` a column of text."""

    def row(tag: str, cells: Sequence[str]) -> str:
        kinds = ["", ' class="left"']
        return "".join(
            f"<{tag}{kinds[n == left]}>{escape(cell)}</{tag}>" for n, cell in enumerate(cells)
        )

    stress = ["<tr>", '<tr class="main">']
    body = "".join(
        f"{stress[number == main]}{row('td', cells)}</tr>" for number, cells in enumerate(rows)
    )
    return f'<div class="wide"><table><tr>{row("th", head)}</tr>{body}</table></div>'
