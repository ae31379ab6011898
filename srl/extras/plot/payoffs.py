"""The payoffs of self-play: how often each version of a run has beaten each other one."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from srl.core.errors import UserError
from srl.extras.plot.figure import STYLE, write_figure
from srl.record.files import short_path, write_output
from srl.record.ratings import Match, read_payoff
from srl.record.run_record import find_run, read_config

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL = 3.4  # inches
_MOST_WRITTEN = 12  # versions, up to which numbers are legible in their fields


@dataclass(frozen=True)
class PayoffMatrix:
    """The results of one side's versions against the others' versions."""

    run: Path
    side: str
    versions: tuple[int, ...]
    games: np.ndarray  # int64 [V, V], of the version of a row against that of a column
    points: np.ndarray  # float64 [V, V]; a draw is half a point

    def shares(self) -> np.ndarray:
        """The shares of the points that were won, float64 [V, V]; NaN where none was played."""
        none = np.full(self.games.shape, math.nan)
        return np.divide(self.points, self.games, out=none, where=self.games > 0)


def plot_payoffs(folders: Sequence[Path], out: Path | None, table: Path | None) -> int:
    """Draws runs' payoffs (payoff.png and .svg), or writes them as CSV; gives the exit code.

    Of a folder of several runs, the newest is meant.

    Raises:
        UserError: If a folder holds no run, or no results of matches.
    """
    runs = [find_run(folder) for folder in folders]
    for run in runs:
        read_config(run)  # raises where there is no run
    found = [matrix for run in runs for matrix in payoff_matrices(run.path)]
    files = []
    if table is not None:
        write_output(table, _csv(found).encode())
        files.append(table)
    if out is not None or table is None:
        place = runs[0].path if len(runs) == 1 else Path()
        pictures = [out] if out else [place / "payoff.png", place / "payoff.svg"]
        _draw(found, pictures)
        files += pictures
    games = sum(int(matrix.games.sum()) for matrix in found)
    sys.stdout.write(f"{games:,} games: {', '.join(map(str, files))}\n")
    return 0


def payoff_matrices(folder: Path) -> list[PayoffMatrix]:
    """A run's payoffs, a matrix for each side; of two sides, the first one's.

    Raises:
        UserError: If there are no results of matches.
    """
    results = read_payoff(folder).results
    if not results:
        raise UserError(
            f"{short_path(folder)} holds no results of matches between its versions; runs with "
            "self_play have them, once ratings have begun"
        )
    versions = tuple(sorted({version for match in results for version in match[1:]}))
    found = []
    for side in dict.fromkeys(match.side for match in sorted(results)):
        pairs = [[results.get(Match(side, a, b), (0, 0.0)) for b in versions] for a in versions]
        games, points = np.moveaxis(np.array(pairs), -1, 0)
        found.append(PayoffMatrix(folder, side, versions, games.astype(int), points))
    return found


def _csv(matrices: Sequence[PayoffMatrix]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "side", "version", "others", "games", "points"])
    for matrix in matrices:
        for row, column in np.argwhere(matrix.games):
            pair = matrix.versions[row], matrix.versions[column]
            counts = matrix.games[row, column], f"{matrix.points[row, column]:g}"
            writer.writerow([matrix.run, matrix.side, *pair, *counts])
    return text.getvalue()


def _draw(matrices: Sequence[PayoffMatrix], files: Sequence[Path]) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        columns = min(len(matrices), 3)
        rows = math.ceil(len(matrices) / columns)
        figure = Figure(figsize=(_PANEL * columns + 0.8, _PANEL * rows + 0.3), layout="constrained")
        axes: list[Any] = list(figure.subplots(rows, columns, squeeze=False).flat)
        several = len({matrix.run for matrix in matrices}) > 1
        for axis, matrix in zip(axes, matrices, strict=False):
            image = _panel(axis, matrix)
            title = f"{matrix.side} of {matrix.run.name}" if several else matrix.side
            axis.set_title(title, loc="left", fontsize=9, fontweight="bold")
        for axis in axes[len(matrices) :]:
            axis.remove()
        figure.colorbar(
            image,  # pyright: ignore[reportPossiblyUnboundVariable]
            ax=axes[: len(matrices)],
            shrink=0.7,
            label="share of points won",
        )
        for file in files:
            write_figure(figure, file)


def _panel(axis: Axes, matrix: PayoffMatrix) -> Any:
    shares = matrix.shares()
    image = axis.imshow(shares, vmin=0, vmax=1, cmap="RdYlBu")
    places = range(len(matrix.versions))
    axis.set_xticks(places, [str(version) for version in matrix.versions], rotation=90)
    axis.set_yticks(places, [str(version) for version in matrix.versions])
    axis.set_ylabel(f"version that plays {matrix.side}")
    axis.set_xlabel("version that plays against it")
    if len(places) <= _MOST_WRITTEN:
        for row, column in np.argwhere(~np.isnan(shares)):
            text = f"{shares[row, column]:.2f}"
            axis.text(column, row, text, ha="center", va="center", fontsize=6)
    return image
