"""One version at a time is offered for evaluation, and the best of them is kept."""

import os
import signal
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from small_runs import CARTPOLE
from waiting import wait_until
from watching import processes

from srl import Evaluation
from srl.config.experiment import load_experiment
from srl.evaluation.background import evaluator, processes_beside
from srl.loop.make_training import make_training
from srl.record.array_file import copied_leaves
from srl.record.checkpoint import BEST, Checkpoints
from srl.record.run_record import films
from srl.record.versions import Versions
from srl.run.evaluation import Evaluations, best_value
from srl.run.folder import create_run

EXPERIMENT = """
from srl import Experiment
from srl.algorithms import PPO
from srl.networks import MLP

algorithm = PPO(network=MLP(width=16), unroll_length=16, epochs=2)
experiment = Experiment(name="balance", env="native:CartPole-v1", num_envs=8, algorithm=algorithm)
"""
SLOW_FILMS = """
import threading
from pathlib import Path
from dataclasses import replace

from balance import experiment
from gymnasium.envs.classic_control import CartPoleEnv


class SlowFilms(CartPoleEnv):
    pictures = 0

    def render(self):
        self.pictures += 1
        if self.pictures == 5:
            (Path({run!r}) / "filmed").touch()
            while {forever} or not (Path({run!r}) / "evaluation" / "urgent").exists():
                threading.Event().wait(0.01)
        return super().render()


experiment = replace(experiment, env=SlowFilms)
"""


@pytest.fixture(scope="module")
def training():
    with closing(make_training(CARTPOLE)) as training:
        training.start()
        yield training


wait = partial(wait_until, seconds=300)  # on a busy machine


def test_the_newest_version_is_offered_next_and_the_best_one_kept(training, tmp_path):
    settings, versions = Evaluation(target=25.0), Versions(tmp_path)
    with (
        closing(Checkpoints(tmp_path / "checkpoints", keep=1)) as checkpoints,
        closing(Evaluations(settings, tmp_path, checkpoints)) as evaluations,
    ):
        saved, found = {}, []
        for value in (10.0, 20.0, 15.0):
            evaluations.offer(training)
            identity = wait(versions.offered)
            saved[training.learner.progress.updates] = copied_leaves(training.acting_state())
            first = training.learner.progress.updates
            training.update()
            evaluations.offer(training)  # passed over: the one before has no result yet
            assert versions.offered() == identity
            versions.put_result(identity, {"eval/return": value, "eval/episodes": 1})
            found.append(wait(evaluations.result))
            assert found[-1].report["updates"] == first
            assert found[-1].report["env_steps"] == first * 8 * 16
            versions.clear()
        assert ["the best so far" in evaluated.text for evaluated in found] == [True, True, False]
        assert not evaluations.reached
        checkpoints.save(training.learner.progress.updates, training.state(), {}, wait=True)
        checkpoints.save(training.learner.progress.updates + 1, training.state(), {}, wait=True)
        best, counts = checkpoints.learners(BEST)
        assert counts["updates"] == found[1].report["updates"]
        kept = copied_leaves({"learners": best})
        assert all(np.array_equal(kept[n], x) for n, x in saved[counts["updates"]].items())
        assert checkpoints.versions() == [training.learner.progress.updates + 1]
        assert best_value(settings, checkpoints) == 20

    with (
        closing(Checkpoints(tmp_path / "checkpoints")) as checkpoints,
        closing(Evaluations(settings, tmp_path, checkpoints)) as evaluations,
    ):
        evaluations.offer(training)
        versions.put_result(wait(versions.offered), {"eval/return": 19.0})
        assert "the best so far" not in wait(evaluations.result).text
        assert checkpoints.learners(BEST)[1] == counts
        evaluations.offer(training, urgent=True)
        assert wait(lambda: versions.urgent)
        versions.put_result(versions.offered(), {"eval/return": 25.0})
        assert "the best so far" in wait(evaluations.result).text
        assert "has reached the target: its eval/return is 25" in evaluations.reached


def test_an_evaluator_that_dies_is_started_again_and_gives_the_same_result(training, tmp_path):
    (tmp_path / "balance.py").write_text(EXPERIMENT)
    words = ["--evaluation.episodes", "3", "--evaluation.share", "1"]
    resolved = load_experiment(str(tmp_path / "balance.py"), words)
    assert resolved.experiment.evaluation == Evaluation(episodes=3, share=1)
    run, shown, results = create_run(resolved, tmp_path / "run").path, [], []

    def own(words):
        return "srl.evaluation.online" in words and str(run) in words

    with (
        closing(Checkpoints(run / "checkpoints")) as checkpoints,
        closing(Evaluations(resolved.experiment.evaluation, run, checkpoints)) as evaluations,
        evaluator(run, shown.append, nice=0),
    ):
        (first,) = wait(lambda: processes(own))
        os.kill(first, signal.SIGKILL)
        for _ in range(2):
            evaluations.offer(training)
            results.append(wait(evaluations.result))
            Versions(run).clear()
        assert processes(own) != [first]
    assert not processes(own)
    assert results[0].report == results[1].report
    log = run / "logs" / "evaluator.log"
    assert shown == [f"the evaluator was killed by SIGKILL; it is started again; its log is {log}"]


def test_an_evaluation_that_begins_is_in_no_haste_as_an_earlier_one_was_at_its_end(tmp_path):
    versions = Versions(tmp_path)
    versions.clear()
    versions.offer({}, {}, urgent=True)
    assert versions.urgent
    versions.begin()
    assert versions.urgent  # a host that starts again has not ended the wait
    with processes_beside(replace(CARTPOLE, evaluation=Evaluation()), tmp_path, print):
        assert not versions.urgent


def test_evaluated_versions_are_filmed_and_the_newest_films_stay(training, tmp_path):
    (tmp_path / "balance.py").write_text(EXPERIMENT)
    words = ["--evaluation.episodes", "2", "--evaluation.share", "1", "--evaluation.video", "true"]
    resolved = load_experiment(str(tmp_path / "balance.py"), words)
    folder, shown = create_run(resolved, tmp_path / "run"), []
    folder.videos.mkdir()
    for env_steps in range(20):
        folder.film(env_steps).touch()
    newest = folder.film(10**11)
    newest.touch()
    with (
        closing(Checkpoints(folder.checkpoints)) as checkpoints,
        closing(Evaluations(resolved.experiment.evaluation, folder.path, checkpoints)) as offers,
        evaluator(folder.path, shown.append, nice=0),
    ):
        training.update()
        offers.offer(training)
        assert "filmed" not in wait(offers.result).text
        film = folder.film(training.learner.progress.env_steps)
        wait(lambda: len(films(folder)) == 20)
    assert film.stat().st_size > 1000
    assert list(films(folder).values()) == [
        *range(2, 20),
        training.learner.progress.env_steps,
        10**11,
    ]
    assert not shown


def test_what_cannot_be_filmed_is_reported_once_and_evaluated_on(training, tmp_path):
    settings, versions = Evaluation(video=True), Versions(tmp_path)
    with (
        closing(Checkpoints(tmp_path / "checkpoints")) as checkpoints,
        closing(Evaluations(settings, tmp_path, checkpoints)) as evaluations,
    ):
        texts = []
        for _ in range(3):
            evaluations.offer(training)
            versions.put_result(wait(versions.offered), {"eval/return": 1.0})
            texts.append(wait(evaluations.result).text)
            with pytest.raises(OSError, match="no display"), versions.filming():
                raise OSError("no display")
        assert [text.partition("; versions")[2] for text in texts] == [
            "",
            " are not filmed any more: OSError: no display",
            "",
        ]
        versions.clear()
        assert not versions.no_films()
        (tmp_path / "evaluation" / "filming").touch()  # of a process that died then
        versions.note_death()
        assert versions.no_films() == "the process died as it rendered"


@pytest.mark.parametrize("killed", [True, False])
def test_a_film_ends_once_the_run_waits_for_its_last_version(training, tmp_path, killed):
    (tmp_path / "balance.py").write_text(EXPERIMENT)
    source = SLOW_FILMS.format(run=str(tmp_path / "run"), forever=killed)
    (tmp_path / "slow_films.py").write_text(source)
    words = ["--evaluation.episodes", "1", "--evaluation.share", "1", "--evaluation.video", "true"]
    resolved = load_experiment(str(tmp_path / "slow_films.py"), words)
    folder, shown = create_run(resolved, tmp_path / "run"), []
    with (
        closing(Checkpoints(folder.checkpoints)) as checkpoints,
        closing(Evaluations(resolved.experiment.evaluation, folder.path, checkpoints)) as offers,
        evaluator(folder.path, shown.append, nice=14 if killed else 0),
    ):
        offers.offer(training)
        wait(offers.result)
        wait((folder.path / "filmed").exists)
        training.update()
        offers.offer(training, urgent=True)
        assert "filmed" not in wait(offers.result).text
        assert not list((folder.path / "evaluation").glob("*film*"))
    assert not list(folder.videos.iterdir())
    assert not shown


def test_a_late_process_is_started_anew_once_the_run_waits(tmp_path):
    resolved = load_experiment("native:CartPole-v1", ["--evaluation.share", "0.01"])
    run, shown = create_run(resolved, tmp_path / "run").path, []

    with evaluator(run, shown.append):
        (late,) = wait(lambda: processes(lambda words: str(run) in words))
        lower = min(os.getpriority(os.PRIO_PROCESS, 0) + 14, 19)
        wait(lambda: os.getpriority(os.PRIO_PROCESS, late) == lower)
        (run / "evaluation").mkdir(exist_ok=True)
        (run / "evaluation" / "urgent").touch()
        (urgent,) = wait(lambda: processes(lambda words: str(run) in words and "urgent" in words))
        assert os.getpriority(os.PRIO_PROCESS, urgent) == os.getpriority(os.PRIO_PROCESS, 0)
    assert not shown


def test_options_of_evaluation_are_read_as_those_of_the_environment():
    words = ["--evaluation.options.scenario", "full", "--evaluation.options.hiders=2"]
    experiment = load_experiment("experiments/hide_and_seek.py", words).experiment
    env = experiment.evaluation.environment(experiment.env)
    assert env == replace(experiment.env, scenario="full", hiders=2)
