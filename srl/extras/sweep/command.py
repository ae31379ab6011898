"""The subcommand `srl sweep`: trains an experiment with several settings, and compares them."""

from __future__ import annotations

import hashlib
import itertools
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from srl.config.experiment import Experiment, Resolved, load_experiment
from srl.core.console.arguments import Arguments, listed, number
from srl.core.errors import UserError
from srl.extras.sweep.folder import locked, open_study
from srl.extras.sweep.population import PopulationSearch, expect_exploitable
from srl.extras.sweep.show import Progress, json_of, print_table, ranked, state_of
from srl.extras.sweep.space import (
    Listed,
    Range,
    Searched,
    searched_setting,
    settings_text,
    split_searched,
)
from srl.extras.sweep.study_search import PRUNERS, StudySearch
from srl.extras.sweep.sweep import MOST_COMBINATIONS, Search, Sweep, combinations
from srl.extras.sweep.trainers.here import Here
from srl.extras.sweep.trainers.ray_jobs import RayJobs
from srl.extras.sweep.trainers.slurm_array import SlurmArray
from srl.extras.sweep.trainers.trainer import Trainer
from srl.extras.sweep.trials import Objective, Trial, failure_of
from srl.launch.engines.options import add_engine, refuse_engine_options
from srl.launch.start import expect_fit
from srl.record.files import short_path
from srl.run.managed_run import ManagedRun
from srl.run.terminal import DONE, FAILED, INTERRUPTED, Stop
from srl.system.lasting_output import lasting_output

_ON_A_CLUSTER = 16  # runs at a time
_POPULATION, _INTERVALS = 8, 20


@lasting_output()
def main(argv: list[str]) -> int:
    """`srl sweep FILE[:NAME]|ENV_ID --FIELD A,B|A..B[:log] ... [--trials N] [--search WAY] ...`."""
    options, arguments = _parser().parse_target(argv)
    fixed, texts = split_searched(arguments)
    resolved = load_experiment(
        options.target, fixed, flags=options.flags, here=options.on == "local"
    )
    searched = tuple(_searched(flag, text, resolved) for flag, text in texts.items())
    _check(options, fixed, searched, resolved.experiment)
    path = options.sweep_dir or Path("sweeps") / resolved.experiment.name
    folder = path.absolute()
    with locked(folder):
        asked = _asked(options, texts, resolved)
        whole = Sweep(
            folder=folder,
            study=open_study(folder, asked, minimize=options.minimize),
            target=options.target,
            fixed=tuple(fixed),
            searched=searched,
            seeds=tuple(options.seeds or ()),
            seed=options.search_seed,
            objective=Objective(asked["objective"], options.minimize),
            here=options.on == "local",
        )
        search = _search(whole, options, resolved.experiment)
        return _train(whole, search, _trainer(folder, options), as_json=options.json)


def _parser() -> Arguments:
    synopsis = (
        *("FILE[:NAME]|ENV_ID", "--FIELD A,B,...|A..B[:log] ...", "[--trials N]", "[--seeds S,S]"),
        *("[--search random|optuna|pbt]", "[--parallel K]", "[--on local|slurm|ray]"),
        *("[--sweep-dir DIR]", "[--json]", "[--FIELD VALUE ...]"),
    )
    parser = Arguments(
        "sweep",
        synopsis=synopsis,
        description="Train an experiment with several settings, each in a separate run's folder, "
        "and compare the results. A setting with several values between commas, or with a range "
        "such as 1e-4..1e-2:log, is searched; all others are as in `srl run`. The same command "
        "continues a stopped sweep and tries failed runs again. The exit code is 1 if a trial has "
        "failed.",
    )
    add = parser.add_argument
    add("--trials", type=number(1), metavar="N", help="default: every combination of the lists")
    seeds = "train each trial with each of these seeds, and take the mean"
    add("--seeds", type=listed(number(0)), metavar="S,S,...", help=seeds)
    search = "random (the default), optuna, or pbt: population-based training"
    add("--search", choices=("random", "optuna", "pbt"), default="random", help=search)
    add("--search-seed", type=number(0), default=0, metavar="S", help="of all draws; default 0")
    pruner = "of optuna, which ends bad trials; default median"
    add("--pruner", choices=PRUNERS, help=pruner)
    population = f"of pbt: number of members; default {_POPULATION}"
    add("--population", type=number(2), metavar="N", help=population)
    every = f"of pbt: env steps between changes; default 1/{_INTERVALS} of the budget"
    add("--every", type=number(1), metavar="STEPS", help=every)
    key = "of metrics.jsonl, for its last value; default episode_return, or eval/METRIC if "
    add("--objective", metavar="KEY", help=f"{key}the experiment has an evaluation")
    add("--minimize", action="store_true", help="a smaller objective is better")
    parallel = f"runs at a time; default 1 on this machine, {_ON_A_CLUSTER} on a cluster"
    add("--parallel", type=number(1), metavar="K", help=parallel)
    add("--sweep-dir", type=Path, metavar="DIR", help="default sweeps/NAME")
    add("--json", action="store_true", help="print one JSON object a trial, the best first")
    add_engine(parser)
    return parser


def _searched(flag: str, text: str, resolved: Resolved) -> Searched:
    """Gives the searched values of one setting; raises UserError for an unknown name."""
    found = searched_setting(flag, text, resolved.experiment)
    if found.type_known:
        return found
    value = found.text(found.low) if isinstance(found, Range) else found.values[0]
    load_experiment(resolved.target, [*resolved.overrides, flag, value])
    return found


def _check(
    options: Any, fixed: Sequence[str], searched: Sequence[Searched], experiment: Experiment
) -> None:
    if not searched:
        raise UserError(
            "no setting has several values; give one some, such as --algorithm.learning-rate "
            "1e-4..1e-2:log or --num-envs 8,64"
        )
    if any(each.flag == "--seed" for each in searched):
        raise UserError("--seed is no setting to search; --seeds trains each trial with several")
    seeds = options.seeds or ()
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {','.join(map(str, seeds))}: give each seed once")
    if seeds and any(argument.partition("=")[0] == "--seed" for argument in fixed):
        raise UserError("--seed and --seeds were both given; give one of them")
    evaluated = experiment.evaluation or any(x.flag.startswith("--evaluation.") for x in searched)
    if str(options.objective).startswith("eval/") and not evaluated:
        raise UserError(
            f"--objective is {options.objective}, and no trial is evaluated; give "
            "--evaluation.episodes N, or another objective"
        )
    if str(options.objective).startswith("eval/") and (evaluation := experiment.evaluation):
        metric = options.objective.removeprefix("eval/")
        expect_fit(replace(experiment, evaluation=replace(evaluation, metric=metric)))
    plans = [each.values for each in searched if each.flag == "--plan" and isinstance(each, Listed)]
    if "auto" in (experiment.plan, *itertools.chain(*plans)):
        raise UserError("--plan auto would be measured for each trial; name a plan")
    refuse_engine_options(options)
    for ways, names in _OPTIONS_OF.items():
        for name in names:
            if options.search not in ways and getattr(options, name) is not None:
                flag = f"--{name.replace('_', '-')}"
                raise UserError(f"{flag} is for --search {' or '.join(ways)}")
    if options.search == "pbt":
        expect_exploitable(searched, experiment)
    elif options.trials is None:
        drawn = any(isinstance(each, Range) for each in searched)
        if drawn or options.search == "optuna":
            raise UserError("give --trials N: how many to draw")
        if (count := combinations(tuple(searched))) > MOST_COMBINATIONS:
            raise UserError(f"the lists make {count:,} combinations; give --trials N to draw some")


_OPTIONS_OF: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("optuna",): ("pruner",),
    ("pbt",): ("population", "every"),
    ("random", "optuna"): ("trials", "seeds"),
}
"""The options that only some ways to search have."""


def _asked(options: Any, texts: Mapping[str, str], resolved: Resolved) -> dict[str, Any]:
    """Gives the values that distinguish this sweep from others; the number of trials may grow."""
    source = resolved.source.read_bytes() if resolved.source else b""
    return {
        "target": options.target,
        "experiment_file's_hash": hashlib.sha256(source).hexdigest(),
        "arguments": list(resolved.overrides),
        "searched": [f"{flag} {text}" for flag, text in texts.items()],
        "search": options.search,
        "search_seed": options.search_seed,
        "seeds": options.seeds,
        "drawn": options.trials is not None,
        "pruner": options.pruner,
        "population": options.population,
        "every": options.every,
        "objective": options.objective or _usual_objective(resolved.experiment),
        "minimize": options.minimize,
    }


def _usual_objective(experiment: Experiment) -> str:
    evaluation = experiment.evaluation
    return f"eval/{evaluation.metric}" if evaluation else "episode_return"


def _search(whole: Sweep, options: Any, experiment: Experiment) -> Search:
    if options.search == "pbt":
        update = math.ceil(experiment.steps_per_update)
        every = options.every or max(experiment.env_steps // _INTERVALS, update)
        if every < update:
            raise UserError(f"--every is {every}; expected at least an update, of {update} steps")
        return PopulationSearch(whole, experiment, options.population or _POPULATION, every)
    if options.search == "optuna":
        at_once = -(-_parallel(options) // len(whole.seeds or (0,)))
        pruner = options.pruner or "median"
        return StudySearch(whole, whole.suggested, options.trials, at_once, pruner)
    trials = options.trials or combinations(whole.searched)
    choose = partial(whole.drawn, shuffled=options.trials is not None)
    return StudySearch(whole, choose, trials, at_once=trials)


def _parallel(options: Any) -> int:
    return options.parallel or (1 if options.on == "local" else _ON_A_CLUSTER)


def _trainer(folder: Path, options: Any) -> Trainer:
    if options.on == "slurm":
        return SlurmArray(folder, _parallel(options), options)
    if options.on == "ray":
        return RayJobs(folder, _parallel(options), options)
    return Here(folder, _parallel(options))


def _train(whole: Sweep, search: Search, trainer: Trainer, *, as_json: bool) -> int:
    """Runs the sweep to its end, and prints what it has come to; gives the exit code."""

    def trains(trial: Trial) -> bool:
        return any(trainer.trains(run) for run in trial.runs)

    with Stop() as stop, Progress(whole, trains) as progress:
        try:
            _loop(whole, search, trainer, progress, lambda: stop.requested)
        except UserError:
            _end_runs(whole, trainer, lambda: stop.requested)
            raise
        if stop.requested:
            progress.say(trainer.leave())
            return INTERRUPTED
    best_first = ranked(whole.trials, whole.objective)
    if as_json:
        sys.stdout.write("".join(f"{json_of(trial, whole)}\n" for trial in best_first))
    else:
        print_table(best_first, whole)
        _print_best(best_first[0], whole, search)
    _expect_objective(best_first[0], whole)
    return FAILED if any(trial.failure for trial in whole.trials) else DONE


def _loop(
    whole: Sweep, search: Search, trainer: Trainer, progress: Progress, stop: Callable[[], bool]
) -> None:
    """Begins runs, and notes what becomes of them, until there are no more."""
    while not stop():
        wanted = search.wanted(trainer.waiting)
        while whole.notes:
            progress.say(whole.notes.pop(0))
        if wanted:
            trainer.begin([run for trial in wanted for run in _begun(trial, progress)])
        elif not trainer.waiting:
            return
        for run in trainer.ended():
            trial = _note_end(run, whole, trainer, progress)
            _expect_objective(trial, whole, or_none=True)
        for trial in whole.trials:
            if trial.open and search.pruned(trial):
                trial.open = {run.path for run in trial.runs if trainer.trains(run)}
                for run in trial.runs:
                    trainer.stop(run)
                if not trial.open:
                    progress.ended(trial)
        progress.update()
        time.sleep(trainer.look_seconds)


def _end_runs(whole: Sweep, trainer: Trainer, stop: Callable[[], bool]) -> None:
    """Ends the runs that are being trained after a checkpoint each, and waits until `stop`."""
    for run in (run for trial in whole.trials for run in trial.runs if run.path in trial.open):
        trainer.stop(run)
    while trainer.waiting and not stop():
        trainer.ended()
        time.sleep(trainer.look_seconds)


def _begun(trial: Trial, progress: Progress) -> list[ManagedRun]:
    """The runs of a trial that are to be trained; none where its settings do not fit."""
    try:
        for run in trial.runs:
            _ = run.experiment  # raises where the settings do not fit
            run.expect_same_settings("--sweep-dir")
        runs = [run for run in trial.runs if not run.finished()]
    except UserError as error:
        trial.failure = str(error)
        progress.ended(trial)
        return []
    trial.open = {run.path for run in runs}
    return runs


def _note_end(run: ManagedRun, whole: Sweep, trainer: Trainer, progress: Progress) -> Trial:
    """Notes on a trial that one of its runs has ended; gives the trial."""
    trial = next(trial for trial in whole.trials if run.path in {r.path for r in trial.runs})
    trial.open.discard(run.path)
    if trial.pruned is None and not run.finished():
        trial.failure = f"{failure_of(run, trainer.log(run))}; see {short_path(trainer.log(run))}"
    if not trial.open:
        progress.ended(trial)
    return trial


def _expect_objective(trial: Trial, whole: Sweep, *, or_none: bool = False) -> None:
    """Raises UserError where a trial was trained and has not reported the objective.

    Args:
        trial: This.
        whole: Has the objective.
        or_none: Accept reports of no value, and lacking evaluations, which may be late.
    """
    if state_of(trial) == "done" and math.isnan(trial.value(whole.objective)):
        key, reports = whole.objective.key, trial.runs[0].newest_first()
        names = dict.fromkeys(name for report in reports for name in report)
        if or_none and (key in names or key.startswith("eval/")):
            return
        raise UserError(
            f"--objective {key}: trial {trial.number} has not reported it, so it cannot be "
            f"compared; reports have {', '.join(names)}"
        )


def _print_best(best: Trial, whole: Sweep, search: Search) -> None:
    if state_of(best) != "done" or math.isnan(best.value(whole.objective)):
        return
    folder = short_path(best.runs[0].path)
    lines = [f"\nbest: trial {best.number}, in {folder}"]
    if isinstance(search, PopulationSearch):
        lines[0] += f"; `srl eval {folder}` plays it. Its settings, interval by interval:"
        settings = map(settings_text, search.schedule(best.number))
        number = itertools.count(1)
        for text, same in itertools.groupby(settings):
            places = [next(number) for _ in same]
            span = f"{places[0]} to {places[-1]}" if len(places) > 1 else str(places[0])
            lines.append(f"  {span}: {text}")
    else:
        lines.append(f"  {best.command()}")
    lines.append(f"curves: srl plot {short_path(whole.folder)}")
    sys.stdout.write("\n".join(lines) + "\n")
