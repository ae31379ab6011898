"""`srl sweep --search optuna`: what it chooses follows from what there is, and bad trials end."""

import numpy as np
import pytest
from sweeping import RATE, SMALL, STEPS, rows, sweep

from srl.config.experiment import load_experiment
from srl.extras.sweep.folder import open_study
from srl.extras.sweep.space import Listed, Range
from srl.extras.sweep.study_search import StudySearch
from srl.extras.sweep.sweep import Sweep
from srl.extras.sweep.trials import Objective
from srl.run.folder import create_run
from srl.run.metrics import MetricsWriter
from srl.run.status import write_outcome
from srl.run.terminal import DONE

SEARCHED = (
    Range(RATE, 1e-4, 1e-1, True, False, True),
    Range("--algorithm.epochs", 1, 9, False, True, True),
    Listed("--algorithm.anneal", ("true", "false"), True),
)
BUDGET = 20 * STEPS


def search(folder, pruner="median", trials=40, minimize=False):
    """A sweep of one trial at a time, as its folder holds it, and Optuna's search of it."""
    folder.mkdir(exist_ok=True)
    whole = Sweep(
        folder=folder,
        study=open_study(folder, {}, minimize=minimize),
        target=SMALL[0],
        fixed=(*SMALL[1:], "--env-steps", str(BUDGET)),
        searched=SEARCHED,
        seeds=(),
        seed=3,
        objective=Objective("episode_return", minimize),
    )
    return whole, StudySearch(whole, whole.suggested, trials, 1, pruner)


def reported(trial, values):
    """Lets a trial's run have reported these values, one for each 5 % of its budget."""
    (run,) = trial.runs
    if not run.begun:
        create_run(load_experiment(run.arguments[0], run.arguments[1:]), run.path)
    writer = MetricsWriter(run.path)
    for step, value in enumerate(values, 1):
        report = {"env_steps": step * STEPS, "updates": step, "episode_return": value, "fps": 1.0}
        writer.write(report)
    writer.close()
    if len(values) == 20:
        write_outcome(run.path, DONE)


def settings_after(folder, count, minimize=False):
    """The settings of trials whose value falls with the distance of the rate from 0.01."""
    whole, chooses = search(folder, "none", minimize=minimize)
    for _ in range(count):
        (trial,) = chooses.wanted(waiting=False)
        distance = abs(np.log10(float(trial.settings[RATE])) + 2)
        reported(trial, [distance if minimize else -distance] * 20)
    return whole


@pytest.mark.parametrize("minimize", [False, True])
def test_later_trials_are_nearer_to_what_did_well(tmp_path, minimize):
    whole = settings_after(tmp_path, 30, minimize)
    distances = [abs(np.log10(float(trial.settings[RATE])) + 2) for trial in whole.trials]
    assert np.mean(distances[15:]) < 0.6 * np.mean(distances[:10])
    assert {trial.settings["--algorithm.anneal"] for trial in whole.trials} == {"true", "false"}


def test_a_search_that_was_ended_chooses_as_one_that_was_not(tmp_path):
    whole = settings_after(tmp_path / "a", 14)
    chosen = [trial.settings for trial in whole.trials]
    settings_after(tmp_path / "b", 13)
    with (tmp_path / "b" / "sweep.journal").open("a") as journal:
        journal.write('{"op_code": 4')  # half a line, as a full disk leaves it
    (tmp_path / "b" / "sweep.journal.lock").symlink_to(tmp_path / "b" / "sweep.journal")
    again, chooses = search(tmp_path / "b", "none")
    (trial,) = chooses.wanted(waiting=False)
    assert trial.number == 13
    assert [trial.settings for trial in again.trials] == chosen
    _, chooses = search(tmp_path / "b", "none")
    assert [trial.number for trial in chooses.wanted(waiting=False)] == [13]  # it goes on


def test_each_twentieth_of_a_trial_is_judged_once_by_its_last_value(tmp_path):
    whole, _ = search(tmp_path)
    trial = whole.add(whole.drawn(0, shuffled=True))
    reported(trial, [1.0, 2.0])
    reported(trial, [3.0, 4.0, 5.0])  # the first two anew
    assert trial.new_scores(whole.objective) == [(1, 3.0), (2, 4.0), (3, 5.0)]
    trial.judged = 2
    assert trial.new_scores(whole.objective) == [(3, 5.0)]


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
def test_a_trial_that_does_worse_than_others_is_ended_and_a_better_one_is_not(tmp_path, pruner):
    whole, chooses = search(tmp_path, pruner)
    for value in (10.0, 11.0, 12.0, 13.0, 14.0, 15.0):
        (trial,) = chooses.wanted(waiting=False)
        reported(trial, [value] * 20)
        assert not chooses.pruned(trial) or pruner == "hyperband"
    good, bad = (whole.add(whole.trials[0].settings) for _ in range(2))
    reported(good, [20.0] * 12)
    assert not chooses.pruned(good)
    reported(bad, [1.0] * 12)
    assert chooses.pruned(bad)
    assert 1 <= bad.pruned < 12
    assert [trial.number for trial in chooses.wanted(waiting=False)] == [8]
    kept, _ = search(tmp_path, pruner)
    assert kept.trials[bad.number].pruned == bad.pruned


def test_the_command_trains_what_optuna_chooses(tmp_path, capfd):
    words = (RATE, "1e-4..1e-2:log", "--search", "optuna", "--trials", "2")
    assert sweep(tmp_path / "s", *words, "--env-steps", str(2 * STEPS), "--json") == 0
    table = rows(capfd.readouterr().out)
    assert [row["state"] for row in table.values()] == ["done", "done"]
    assert len({row["settings"][RATE] for row in table.values()}) == 2
