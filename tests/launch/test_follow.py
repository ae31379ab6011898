"""A run on a cluster is followed by the states that its engine reports."""

import os

import pytest

from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.core.errors import UserError
from srl.launch import follow as following
from srl.launch.engines.engine import names_file, write_names
from srl.launch.follow import Jobs, follow
from srl.record.run_record import RunFolder
from srl.run.folder import create_run
from srl.run.status import note_begun, write_outcome

UNFIT = "host3 cannot take part: it has no srl"


class Engine:
    """Answers as one does whose jobs are in these states, one after the other."""

    def __init__(self, folder, states, unfit=""):
        self.folder, self.later, self.unfit = folder, states, unfit
        self.stopped, self.said = False, []

    def states(self, names):
        state, *self.later = self.later
        if isinstance(state, int):
            write_outcome(self.folder.path, state)
            return set()
        return {state} - {""}

    def refused(self, names):
        return self.unfit

    def stop(self, names):
        self.stopped = True
        return True

    def follow(self, *, new):
        return follow(Jobs(self.folder, self, {}), self.said.append, new=new)


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(following, "_ASK_SECONDS", 0.0)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "controller.log").touch()
    (tmp_path / "config.json").touch()
    return lambda *states, unfit="": Engine(RunFolder(tmp_path), [*states], unfit)


def test_an_outcome_that_comes_after_the_jobs_have_gone_counts(engine):
    run = engine("RUNNING", "", "", "", 0)
    assert run.follow(new=True) == 0
    assert run.said == ["jobs: RUNNING"]


def test_jobs_that_stay_away_have_left_no_result(engine, monkeypatch):
    monkeypatch.setattr(following, "_GONE_SECONDS", 0.0)
    run = engine("RUNNING", *[""] * 100)
    assert run.follow(new=True) == 1
    assert "have ended without a result" in run.said[-1]


def test_an_unfit_host_ends_new_jobs_that_have_not_begun(engine):
    run = engine("RUNNING", "RUNNING", "RUNNING", unfit=UNFIT)
    with pytest.raises(UserError, match=UNFIT):
        run.follow(new=True)
    assert run.stopped


@pytest.mark.parametrize(("new", "begun"), [(False, False), (True, True)])
def test_an_unfit_host_is_only_told_of_once_to_who_looks_on_or_where_all_has_begun(
    engine, new, begun
):
    run = engine(*["RUNNING"] * 5, 0, unfit=UNFIT)
    if begun:
        note_begun(run.folder.path)
    assert run.follow(new=new) == 0
    assert run.said.count(UNFIT) == 1
    assert not run.stopped


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_a_run_of_another_user_is_not_stopped(engine):
    run = engine("RUNNING")
    os.chown(run.folder.config, 12345, -1)
    with pytest.raises(UserError, match="belongs to user 12345, who alone can stop it"):
        Jobs(run.folder, run, {}).stop()
    assert not run.stopped


@pytest.mark.parametrize("command", ["stop", "top", "resume"])
def test_a_file_without_the_names_of_jobs_is_told(tmp_path, capsys, command):
    folder = create_run(load_experiment("native:CartPole-v1", ["--plan", "inline"]), tmp_path / "r")
    file = names_file(folder.path, "slurm")
    write_names(file, {})
    assert main([command, str(folder.path)]) == 2
    assert f"{file} does not hold the names of the run's jobs" in capsys.readouterr().err
