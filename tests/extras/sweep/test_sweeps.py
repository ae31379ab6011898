"""`srl sweep`: trials are runs, failures end nothing, and the same command goes on."""

import json
import os
import shlex
import signal

import pytest
from sweeping import RATE, SMALL, STEPS, begun, lines, rows, sweep

from srl.api.cli import main
from srl.extras.sweep.folder import open_study
from srl.extras.sweep.space import Listed
from srl.extras.sweep.sweep import Sweep
from srl.extras.sweep.trainers.here import divided, gpu_variables
from srl.extras.sweep.trials import Objective
from srl.record.run_record import RunFolder, read_config
from srl.run.metrics import read_metrics

BUDGET = ("--env-steps", str(4 * STEPS))


def test_a_grid_is_run_with_each_seed_once_and_a_trial_that_fails_is_reported(tmp_path, capfd):
    words = (*BUDGET, "--algorithm.discount", "3,0.5", "--seeds", "0,5", "--parallel", "2")
    assert sweep(tmp_path / "s", *words, "--json") == 1
    found, shown = capfd.readouterr()
    assert "trial 0 (discount 3): failed, algorithm.discount is 3.0; expected" in shown
    table = rows(found)
    assert [(row["trial"], row["state"]) for row in table.values()] == [(1, "done"), (0, "failed")]
    runs = [tmp_path / "s" / f"trial-001-seed-{seed}" for seed in (0, 5)]
    last = [read_metrics(run)[-1]["episode_return"] for run in runs]
    assert table[1]["values"] == last
    assert table[1]["value"] == pytest.approx(sum(last) / 2)
    assert shlex.split(table[1]["command"]) == ["srl", "run", *SMALL, *BUDGET, *words[2:3], "0.5"]
    assert read_config(RunFolder(runs[1]))["experiment"]["seed"] == 5

    written = [(run / "metrics.jsonl").stat().st_mtime_ns for run in runs]
    assert sweep(tmp_path / "s", *words) == 1
    assert "best: trial 1" in capfd.readouterr().out
    assert [(run / "metrics.jsonl").stat().st_mtime_ns for run in runs] == written

    assert main(["plot", str(tmp_path / "s"), "--csv", str(tmp_path / "curves.csv")]) == 0
    assert "2 runs" in capfd.readouterr().out

    RunFolder(runs[0]).config.write_text("")
    assert sweep(tmp_path / "s", *words) == 1
    told = capfd.readouterr()
    assert "config.json is not JSON" in told.out + told.err
    assert "trial" in told.out


def test_an_interrupted_sweep_goes_on_with_its_runs(tmp_path, capfd):
    words = ("--env-steps", str(400 * STEPS), RATE, "1e-4..1e-2:log", "--trials", "2")
    first = tmp_path / "s" / "trial-000" / "metrics.jsonl"
    process = begun(tmp_path / "s", *words, until=lambda: lines(first) > 3)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(120) == 130
    assert "interrupted; the same command goes on" in capfd.readouterr().err
    before = read_metrics(first.parent)
    assert before[-1]["env_steps"] < 400 * STEPS
    assert not (tmp_path / "s" / "trial-001").exists()
    assert sweep(tmp_path / "s", *words, "--json") == 0
    assert read_metrics(first.parent)[: len(before)] == before
    assert {row["progress"] for row in rows(capfd.readouterr().out).values()} == {1}


def test_the_search_seed_fixes_the_trials_and_more_can_follow(tmp_path, capfd):
    def drawn(name, *words):
        # A value that no trial can have: nothing is trained.
        lists = ("--algorithm.discount", "3,5", RATE, "1e-4..1e-2:log")
        assert sweep(tmp_path / name, *lists, *words, "--json") == 1
        lines = capfd.readouterr().out.splitlines()
        found = sorted(map(json.loads, lines), key=lambda row: row["trial"])
        return [tuple(row["settings"].values()) for row in found]

    four = drawn("a", "--trials", "4")
    assert drawn("b", "--trials", "2") == four[:2]
    assert drawn("b", "--trials", "4") == four
    assert drawn("c", "--trials", "4", "--search-seed", "1") != four
    assert sorted(discount for discount, _ in four) == ["3", "3", "5", "5"]
    assert len({rate for _, rate in four}) == 4


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "no setting has several values"),
        (["--seed", "0,1"], "--seeds trains each trial with several"),
        ([RATE, "0.1,0.2", "--seeds", "1,1"], "give each seed once"),
        ([RATE, "0.1,0.2", "--seeds", "1", "--seed", "2"], "both given"),
        ([RATE, "0.1..0.2"], "give --trials N"),
        (["--algorithm.learning-rat", "0.1,0.2"], "did you mean --algorithm.learning-rate?"),
        ([RATE, "0.1,0.2", "--plan", "auto"], "name a plan"),
        (
            [RATE, "0.1,0.2", "--evaluation.episodes", "2", "--objective", "eval/retrun"],
            "did you mean return?",
        ),
        ([RATE, "0.1,0.2", "--every", "5"], "--every is for --search pbt"),
        ([RATE, "0.1,0.2", "--partition", "gpu"], "--partition goes with --on slurm"),
        ([RATE, "0.1,0.2", "--ray-resource", "R"], "--ray-resource goes with --on ray"),
        (["--num-envs=4,8", "--search", "pbt"], "is given twice"),
        (
            ["--groups", "1,2", "--search", "pbt"],
            "does not change the loss and the optimizer alone",
        ),
        ([RATE, "0.1,0.2", "--search", "pbt", "--updates", "5"], "counts env steps"),
        ([RATE, "0.1..0.2", "--search", "pbt", "--every", "1"], "expected at least an update"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(words, error, tmp_path, capsys):
    assert sweep(tmp_path / "s", *words) == 2
    assert error in capsys.readouterr().err
    assert not list(tmp_path.glob("s/*/config.json"))


def test_an_objective_that_the_first_trial_does_not_report_ends_the_sweep(tmp_path, capsys):
    assert sweep(tmp_path / "s", *BUDGET, RATE, "1e-4,1e-3,1e-2", "--objective", "retrun") == 2
    told = capsys.readouterr()
    assert "--objective retrun: trial 0 has not reported it" in told.err
    assert "episode_return" in told.err
    assert "best:" not in told.out
    assert not (tmp_path / "s" / "trial-002").exists()


def test_a_folder_of_another_sweep_is_refused(tmp_path, capsys):
    assert sweep(tmp_path / "s", "--algorithm.discount", "3,5") == 1
    assert sweep(tmp_path / "s", *BUDGET, "--algorithm.discount", "3,7") == 2
    error = capsys.readouterr().err
    assert f"with arguments: {' '.join(SMALL[1:])} (here {' '.join(SMALL[1:] + BUDGET)})" in error
    assert "and with searched: --algorithm.discount 3,5 (here --algorithm.discount 3,7)" in error
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    assert sweep(tmp_path / "other", RATE, "0.1,0.2") == 2
    assert "holds something else than a sweep" in capsys.readouterr().err
    (tmp_path / "s" / "sweep.journal").write_text("[]\n")
    assert sweep(tmp_path / "s", "--algorithm.discount", "3,5") == 2
    assert "is no sweep of this srl" in capsys.readouterr().err


def test_an_objective_of_an_evaluation_that_there_is_not_is_refused(tmp_path, capsys):
    assert sweep(tmp_path / "s", RATE, "1e-4,1e-3", "--objective", "eval/return") == 2
    assert "no trial is evaluated; give --evaluation.episodes" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_lists_with_very_many_combinations_are_drawn_from_and_are_no_grid(tmp_path, capsys):
    digits = tuple(map(str, range(10)))
    searched = tuple(Listed(f"--number-{place}", digits, False) for place in range(30))
    study, objective = open_study(tmp_path, {}, minimize=False), Objective("episode_return", False)
    whole = Sweep(tmp_path, study, "CartPole-v1", (), searched, (), 0, objective)
    first, second = (whole.drawn(number, shuffled=True) for number in (0, 1))
    assert first != second
    assert first == whole.drawn(0, shuffled=True)
    numbers = ",".join(map(str, range(1, 400)))
    assert sweep(tmp_path / "s", "--env-steps", numbers, "--keep-checkpoints", numbers) == 2
    assert "the lists make 159,201 combinations; give --trials N" in capsys.readouterr().err


def test_a_run_on_a_cluster_has_the_actors_that_are_requested_for_it(tmp_path, monkeypatch):
    study = open_study(tmp_path, {}, minimize=False)

    def run(*fixed, here=False):
        objective, searched = (
            Objective("episode_return", False),
            (Listed("--groups", ("0",), True),),
        )
        whole = Sweep(tmp_path, study, "CartPole-v1", fixed, searched, (), 0, objective, here=here)
        return whole.managed_run("trial-000", {"--groups": "0"}, "--seed", "4")

    def actors(run):
        return run.experiment.settled_plan.fragment("step").replicas

    few = run("--plan", "inline")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))  # of this machine's
    monkeypatch.setattr("srl.system.control_group.OWN", tmp_path / "none")
    monkeypatch.setattr("srl.system.control_group.ROOT", tmp_path)
    on_node = run("--plan", "inline")
    assert few.arguments == on_node.arguments
    assert few.arguments[-4:] == ("--plan.actors.replicas", "2", "--seed", "4")
    assert actors(few) == actors(on_node) == 2
    assert actors(run("--plan", "inline", "--plan.actors.replicas=4")) == 4
    assert actors(run("--max-staleness", "1")) == 2
    assert run("--num-envs", "none").arguments[-2:] == ("--seed", "4")  # reported later
    assert actors(run("--plan", "inline", here=True)) == 16


def test_runs_at_a_time_share_cores_and_gpus():
    assert divided(range(5), 2) == [[0, 1], [2, 3, 4]]
    assert divided(range(2), 3) == [[0], [1], [0]]
    assert gpu_variables(["a", "b"], 1) == [{}]
    assert gpu_variables(["a", "b"], 2) == [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in "ab"]
    variables = gpu_variables(["a"], 2)
    assert [each["CUDA_VISIBLE_DEVICES"] for each in variables] == ["a", "a"]
    assert sum(float(each["XLA_PYTHON_CLIENT_MEM_FRACTION"]) for each in variables) <= 0.9


def test_a_sweep_over_plans_measures_none_of_them(tmp_path, capsys):
    assert sweep(tmp_path / "s", "--plan", "fused,auto") == 2
    assert "--plan auto would be measured for each trial" in capsys.readouterr().err
