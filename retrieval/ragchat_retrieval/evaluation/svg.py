"""Plots as inline SVG, for a page without scripts. Pure.

Colours come from the page: classes ``s0`` … ``s7`` for series, ``axis``, ``grid``, ``good`` and
``bad``. Every text is escaped here. Sizes are in user units of a viewBox 640 wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ragchat_retrieval.evaluation.bootstrap import Difference

WIDTH = 640
SERIES = 8
"""Colours that the page defines."""

_LABELS = 170
"""Room for names at the left of bars and intervals."""

_ROW = 26
_LETTER = 6.6
"""Width of a letter of the labels, about; for cutting names that are too long."""


def bars(
    title: str, values: Mapping[str, float], *, counts: Mapping[str, int] | None = None
) -> str:
    """Returns horizontal bars from 0 to 1 with their values.

    Args:
        title: What the plot shows, for readers who do not see it.
        values: Length of each bar, 0 … 1, by name.
        counts: What to write in brackets after a name. The bars are then parts of one ranking and
            have one colour; else each is a ranking with a colour of its own.
    """
    x = _scale(0.0, 1.0, _LABELS, WIDTH - 60)
    parts = []
    for row, (name, value) in enumerate(values.items()):
        y = row * _ROW + 4
        label = name if counts is None else f"{name} ({counts[name]})"
        parts += [
            _text(_LABELS - 8, y + 13, _fitted(label), anchor="end"),
            _rect(
                f"s{row % SERIES if counts is None else 0}", x(0), y, max(0.0, x(value) - x(0)), 18
            ),
            _text(x(value) + 6, y + 13, f"{value:.3f}"),
        ]
    return _svg(title, len(values) * _ROW + 8, parts)


def intervals(title: str, differences: Mapping[str, Difference]) -> str:
    """Returns a dot with its interval for each difference, around a line at 0."""
    ends = [0.0, *(d.low for d in differences.values()), *(d.high for d in differences.values())]
    low, high = _padded(min(ends), max(ends))
    x = _scale(low, high, _LABELS, WIDTH - 20)
    bottom = len(differences) * _ROW + 8
    parts = [_line("axis", x(0), 0, x(0), bottom)]
    for row, (name, d) in enumerate(differences.items()):
        y = row * _ROW + 13
        kind = "good" if d.low > 0 else "bad" if d.high < 0 else "even"
        parts += [
            _text(_LABELS - 8, y + 4, _fitted(name), anchor="end"),
            _line(kind, x(d.low), y, x(d.high), y),
            f'<circle class="{kind}" cx="{x(d.mean):.1f}" cy="{y}" r="4"/>',
        ]
    for tick in _ticks(low, high):
        parts.append(_text(x(tick), bottom + 14, f"{tick:+.3g}" if tick else "0", anchor="middle"))
    return _svg(title, bottom + 20, parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The axes of a line plot."""

    x: str
    y: str
    logarithmic: bool = False
    """The x axis; its values are then above 0."""

    marks: Sequence[tuple[float, str]] = field(default=())
    """Vertical lines worth naming."""


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], axes: Axes) -> str:
    """Returns lines through points, each named in a legend."""
    warp: Callable[[float], float] = math.log10 if axes.logarithmic else float
    xs = [px for points in series.values() for px, _ in points]
    ys = [py for points in series.values() for _, py in points]
    low, high = _padded(min(ys), max(ys))
    low, high = max(0.0, low), min(1.0, high)
    left, right, top, bottom = 50.0, WIDTH - 16.0, 8.0, 220.0
    x = _scale(warp(min(xs)), warp(max(xs)), left, right)
    y = _scale(low, high, bottom, top)
    parts = []
    for tick in _ticks(low, high):
        parts.append(_line("grid", left, y(tick), right, y(tick)))
        parts.append(_text(left - 6, y(tick) + 4, f"{tick:.3g}", anchor="end"))
    below = _decades(min(xs), max(xs)) if axes.logarithmic else _ticks(min(xs), max(xs))
    parts += [_text(x(warp(tick)), bottom + 16, f"{tick:.3g}", anchor="middle") for tick in below]
    for at, name in axes.marks:
        parts.append(_line("axis", x(warp(at)), top, x(warp(at)), bottom))
        parts.append(_text(x(warp(at)) + 4, top + 10, name))
    for number, points in enumerate(series.values()):
        path = " ".join(f"{x(warp(px)):.1f},{y(py):.1f}" for px, py in points)
        parts.append(f'<polyline class="s{number % SERIES}" points="{path}"/>')
    parts.append(_text((left + right) / 2, bottom + 32, axes.x, anchor="middle"))
    parts.append(_text(2, bottom + 32, axes.y))
    legend, height = _legend(list(series), bottom + 52)
    return _svg(title, height, parts + legend)


def sorted_bars(title: str, values: Sequence[float]) -> str:
    """Returns one thin vertical bar per value, highest first, up or down from 0."""
    ordered = sorted(values, reverse=True)
    reach = max(1e-9, *(abs(value) for value in ordered))
    left, right, middle, arm = 50.0, WIDTH - 16.0, 80.0, 70.0
    step = (right - left) / len(ordered)
    parts = [
        _line("axis", left, middle, right, middle),
        _text(left - 6, middle - arm + 8, f"{reach:+.2f}", anchor="end"),
        _text(left - 6, middle + 4, "0", anchor="end"),
        _text(left - 6, middle + arm, f"{-reach:+.2f}", anchor="end"),
    ]
    for position, value in enumerate(ordered):
        size = abs(value) / reach * arm
        if size:
            y = middle - size if value > 0 else middle
            kind = "good" if value > 0 else "bad"
            parts.append(_rect(kind, left + position * step, y, max(0.5, step * 0.9), size))
    return _svg(title, int(middle + arm + 8), parts)


def _legend(names: Sequence[str], top: float) -> tuple[list[str], int]:
    parts, x, y = [], 50.0, top
    for number, name in enumerate(names):
        width = 26 + _LETTER * len(name)
        if x + width > WIDTH and x > 50.0:  # noqa: PLR2004 - the left edge
            x, y = 50.0, y + 18
        parts.append(_rect(f"s{number % SERIES}", x, y - 9, 10, 10))
        parts.append(_text(x + 14, y, name))
        x += width + 8
    return parts, int(y + 10)


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    name = escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}">'
        f"<title>{name}</title>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"/>'
    )


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    reach = (high - low) or 1.0
    return lambda value: start + (value - low) / reach * (end - start)


def _padded(low: float, high: float) -> tuple[float, float]:
    room = (high - low) * 0.08 or 0.01
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    """Returns about five round numbers inside a range."""
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-9) / 4))
    while (high - low) / step > 6:  # noqa: PLR2004 - no more ticks than have room
        step *= 2
    first = math.ceil(low / step)
    return [round(n * step, 10) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Returns 1, 2, 5, 10, … inside a range above 0."""
    found = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        found += [factor * 10.0**power for factor in (1, 2, 5)]
    return [value for value in found if low <= value <= high]


def _fitted(name: str) -> str:
    most = int((_LABELS - 12) / _LETTER)
    return name if len(name) <= most else name[: most - 1] + "…"
