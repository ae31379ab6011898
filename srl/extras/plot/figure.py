"""A picture of curves: a panel for each metric, made to be read in grey print as well."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from srl.core.errors import UserError
from srl.core.optional_packages import install_command
from srl.extras.plot.curves import Curve
from srl.record.files import write_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Of falling darkness, so that they differ in grey, too; their markers differ as well.
_COLORS = ("#1b2a49", "#b3263a", "#2f8f6b", "#d9822b", "#7fb3d5", "#e3c567")
_MARKS = "osD^vPX"
_MARKS_A_CURVE = 7
_PANEL = (3.5, 2.5)  # inches

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.edgecolor": "#8a949e",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e7eb",
    "grid.linewidth": 0.6,
    "xtick.color": "#4a545e",
    "ytick.color": "#4a545e",
    "svg.fonttype": "none",
    "svg.hashsalt": "srl",
    "text.parse_math": False,  # names and settings may have dollar signs
    "path.simplify": True,
}


def require_matplotlib() -> None:
    """Raises UserError where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"srl plot draws with matplotlib, which is not installed: {install_command('plot')}; "
            "--csv FILE alone writes the curves without it"
        ) from error


def draw(
    panels: Mapping[str, Sequence[Curve]],
    meanings: Mapping[str, str],
    x_label: str,
    note: str,
    files: Sequence[Path],
) -> None:
    """Draws a panel for each metric and writes the picture.

    Args:
        panels: The curves of each metric, a group's each.
        meanings: What each metric is, for the y-axis.
        x_label: For the x-axes.
        note: Below the picture: how the curves were made.
        files: Where to write it; each suffix names its format.

    Raises:
        UserError: If a file cannot be written.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        columns = min(len(panels), 3 if len(panels) > 4 else 2)
        rows = math.ceil(len(panels) / columns)
        size = (max(_PANEL[0] * columns, 5), _PANEL[1] * rows + 0.6)
        figure = Figure(figsize=size, layout="constrained")
        axes: list[Any] = list(figure.subplots(rows, columns, squeeze=False).flat)
        looks = _looks(panels)
        for axis, (key, curves) in zip(axes, panels.items(), strict=False):
            _panel(axis, curves, looks)
            axis.set_title(key, loc="left", fontsize=9, fontweight="bold")
            axis.set_ylabel(textwrap.fill(meanings[key], 34), fontsize=7)
        for axis in axes[len(panels) :]:
            axis.remove()
        for axis in axes[max(0, len(panels) - columns) : len(panels)]:
            axis.set_xlabel(x_label)
        _legend(figure, panels, looks)
        figure.supxlabel(note, fontsize=6.5, color="#4a545e", x=0.01, ha="left")
        for file in files:
            write_figure(figure, file)


def _looks(panels: Mapping[str, Sequence[Curve]]) -> dict[str, dict[str, Any]]:
    groups = list(dict.fromkeys(curve.label for curves in panels.values() for curve in curves))
    return {
        label: {
            "color": _COLORS[place % len(_COLORS)],
            "marker": _MARKS[place % len(_MARKS)],
        }
        for place, label in enumerate(groups)
    }


def _panel(axis: Axes, curves: Sequence[Curve], looks: Mapping[str, dict[str, Any]]) -> None:
    from matplotlib.ticker import EngFormatter

    for curve in curves:
        look = looks[curve.label]
        if curve.raw is not None:
            axis.plot(*curve.raw, color=look["color"], alpha=0.35, linewidth=0.7)
        axis.fill_between(
            curve.x, curve.low, curve.high, color=look["color"], alpha=0.18, linewidth=0
        )
        # Dots where not all runs are in the mean, from the last place where they are.
        part = ~curve.whole
        part |= np.roll(part, -1) | np.roll(part, 1)
        if part.any():
            rest = np.where(part, curve.mean, np.nan)
            axis.plot(curve.x, rest, color=look["color"], linewidth=1.5, linestyle=(0, (1, 1.2)))
        every = max(1, len(curve.x) // _MARKS_A_CURVE)
        marks = (every // 2, every)
        mean = np.where(curve.whole, curve.mean, np.nan)
        axis.plot(curve.x, mean, **look, linewidth=1.5, markersize=3.5, markevery=marks)
    axis.xaxis.set_major_formatter(EngFormatter(sep=" "))
    low, high = _limits(curves)
    axis.set_ylim(low, high)
    if max(abs(low), abs(high)) >= 10_000:
        axis.yaxis.set_major_formatter(EngFormatter(sep=" "))


def _limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """The span of the y-axis: all runs' values and some of the band, which for two runs is huge."""
    ends = np.array([curve.spread for curve in curves])
    ends = np.concatenate([ends.ravel(), *(curve.raw[1] for curve in curves if curve.raw)])
    low, high = float(ends.min()), float(ends.max())
    margin = 0.25 if any(curve.raw is None for curve in curves) else 0.05
    margin *= (high - low) or abs(high) or 1.0
    return low - margin, high + margin


def _legend(
    figure: Figure, panels: Mapping[str, Sequence[Curve]], looks: Mapping[str, dict[str, Any]]
) -> None:
    """The groups, with how many runs each has, above the panels."""
    from matplotlib.lines import Line2D

    counts: dict[str, int] = {}
    for curves in panels.values():
        for curve in curves:
            counts[curve.label] = max(counts.get(curve.label, 0), int(curve.runs.max()))
    handles = [Line2D([], [], **look, linewidth=1.5, markersize=4) for look in looks.values()]
    names = [f"{label} ({n} {'run' if n == 1 else 'runs'})" for label, n in counts.items()]
    longest = max(map(len, names))
    columns = max(1, min(3, int(14 * figure.get_figwidth() / longest)))
    figure.legend(handles, names, loc="outside upper left", ncols=columns, frameon=False)


_PLACES = re.compile(rb'\b(d|x|y|points|transform)="[^"]*"')
_DIGITS = re.compile(rb"(\.\d\d)\d+")


def write_figure(figure: Figure, file: Path) -> None:
    """Writes a picture; the same figure gives the same file."""
    kind = file.suffix.lower().removeprefix(".")
    drawn = io.BytesIO()
    # Without the time, which would differ.
    metadata = {"Date": None} if kind == "svg" else None
    figure.savefig(drawn, format=kind, dpi=160, metadata=metadata)
    picture = drawn.getvalue()
    if kind == "svg":  # a hundredth of a point is finer than can be seen
        picture = _PLACES.sub(lambda found: _DIGITS.sub(rb"\1", found[0]), picture)
    write_output(file, picture)
