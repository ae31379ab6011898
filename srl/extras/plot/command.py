"""The subcommand `srl plot`: how runs have gone, as a picture and as a table."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from srl.config.built_in_envs import config_class
from srl.core.console.arguments import Arguments, number
from srl.core.console.number_text import number_text
from srl.core.errors import UserError
from srl.extras.plot.curves import Axis, Curve, curve, keys_of, unchanging
from srl.extras.plot.labels import AXES, fitting, label, usual
from srl.extras.plot.payoffs import plot_payoffs
from srl.extras.plot.runs import Group, read_groups
from srl.extras.plot.table import table
from srl.record.files import expect_place, write_output

_POINTS = 200
"""Places at which a picture's curves are drawn at most: more is not seen, and makes SVG large."""
_FORMATS = (".png", ".svg", ".pdf")


def main(argv: list[str]) -> int:
    """`srl plot RUN_DIR... [--x AXIS] [--keys PATTERN] [--by KEY] [--out FILE] ...`."""
    options = _parser().parse_args(argv)
    _check(options)
    if options.payoff:
        return plot_payoffs(options.run_dirs, options.out, options.csv)
    groups = read_groups(options.run_dirs, options.ignore, options.by)
    keys, constant = _keys(groups, options.keys)
    files = [] if options.csv is None else [options.csv]
    if options.csv is not None:
        panels = _panels(groups, keys, options.x, options.rows, options.smooth)
        write_output(options.csv, table(panels, options.x, options.rows).encode())
    if options.out or options.csv is None:
        panels = _panels(groups, keys, options.x, _POINTS, options.smooth)
        pictures = _pictures(groups, options)
        _draw(panels, groups, options, pictures)
        files += pictures
    count = sum(len(group.runs) for group in groups)
    lines = [f"{count} {'run' if count == 1 else 'runs'}: {', '.join(map(str, files))}"]
    if constant:
        same = ", ".join(
            f"{key} ({number_text(value, digits=6)})" for key, value in constant.items()
        )
        lines.append(f"left out, as they never change (--keys shows them): {same}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _parser() -> Arguments:
    parser = Arguments(
        "plot",
        description="Draw curves of runs: returns, the environment's statistics and speed. Runs "
        "that differ only in the seed become one curve, their mean, with a 95 % confidence band "
        "(Student's t), dotted where some of them have ended.",
    )
    add = parser.add_argument
    add("run_dirs", nargs="+", type=Path, metavar="RUN_DIR", help="of a run, or of several: all")
    add("--x", choices=list(AXES), default="env_steps", help="default env_steps")
    add(
        "--keys",
        action="append",
        metavar="PATTERN",
        help="metrics to draw, such as 'loss/*'; repeatable. By default returns, ratings, the "
        "environment's statistics and fps, those of them that change",
    )
    add(
        "--by",
        action="append",
        default=[],
        metavar="KEY",
        help="what runs of one curve have in common, in place of all settings: env_id, exp_name, "
        "tags, or a setting such as algorithm.learning_rate; repeatable",
    )
    add(
        "--ignore",
        action="append",
        default=[],
        metavar="PATTERN",
        help="settings in which runs of one curve may differ, such as env_steps; repeatable",
    )
    payoff = "in place of curves: how often each version has beaten each other one, in self-play"
    add("--payoff", action="store_true", help=payoff)
    add(
        "--smooth",
        type=number(0.0, 1.0),
        default=0.1,
        metavar="SHARE",
        help="average each run over this share of its extent, 0 to 1; default 0.1",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="picture, .png, .svg or .pdf; by default plot.png and plot.svg, in the run's folder "
        "or, of several runs, in the current one",
    )
    add("--csv", type=Path, metavar="FILE", help="write the curves as a table; needs no matplotlib")
    rows = "of the table for a curve; default 50"
    add("--rows", type=number(2), default=50, metavar="N", help=rows)
    return parser


def _check(options: Namespace) -> None:
    if options.out and options.out.suffix.lower() not in _FORMATS:
        raise UserError(f"--out {options.out}: the name must end in {', '.join(_FORMATS)}")
    if options.payoff and (options.keys or options.by or options.ignore):
        raise UserError("--payoff draws no curves: leave out --keys, --by and --ignore")
    for flag, file in (("out", options.out), ("csv", options.csv)):
        if file:
            expect_place(f"--{flag}", file)
    if options.out or options.csv is None:
        from srl.extras.plot.figure import require_matplotlib

        require_matplotlib()


def _keys(
    groups: Sequence[Group], patterns: Sequence[str] | None
) -> tuple[list[str], dict[str, float]]:
    """The metrics to draw, and those that are left out with the one value that they have."""
    there = keys_of(groups)
    if patterns is None:
        values = {key: unchanging(groups, key) for key in usual(there)}
        constant = {key: value for key, value in values.items() if value is not None}
        if not values:
            others = f"; --keys draws others: {', '.join(there)}" if there else ""
            raise UserError(f"the reports hold none of the metrics that are drawn{others}")
        return [key for key in values if key not in constant] or list(values), constant
    for pattern in patterns:
        if not fitting(there, [pattern]):
            raise UserError(f"--keys {pattern} fits no metric; there are {', '.join(there)}")
    return fitting(there, patterns), {}


def _panels(
    groups: Sequence[Group], keys: Sequence[str], axis: Axis, points: int, smooth: float
) -> dict[str, list[Curve]]:
    panels: dict[str, list[Curve]] = {}
    for key in keys:
        curves = (curve(group, key, axis, points, smooth) for group in groups)
        panels[key] = [found for found in curves if found is not None]
    return panels


def _pictures(groups: Sequence[Group], options: Namespace) -> list[Path]:
    if options.out:
        return [options.out]
    alone = len(groups) == 1 and len(groups[0].runs) == 1
    folder = groups[0].runs[0].path if alone else Path()
    return [folder / "plot.png", folder / "plot.svg"]


def _draw(
    panels: Mapping[str, Sequence[Curve]],
    groups: Sequence[Group],
    options: Namespace,
    files: Sequence[Path],
) -> None:
    from srl.extras.plot.figure import draw

    statistics: dict[str, str] = {}
    for group in groups:
        config = config_class(group.runs[0].env)
        statistics.update(config.statistics if config else {})
    notes = []
    if any(len(group.runs) > 1 for group in groups):
        notes += [
            "line: mean over runs, dotted where not all have got so far",
            "band: 95 % confidence interval of it (Student's t), cut off where it is much wider "
            "than the runs lie apart",
        ]
    if options.smooth:
        notes += [f"each run averaged over {100 * options.smooth:g} % of its extent"]
        if any(len(group.runs) == 1 for group in groups):
            notes += ["light: one run's reports as they are"]
    labels = {key: label(key, statistics) for key in panels}
    draw(panels, labels, AXES[options.x], "; ".join(notes), files)
