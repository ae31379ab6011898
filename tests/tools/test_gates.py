"""The gates: their table, their runs, and their file of results."""

import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srl import UserError
from srl.config.experiment import load_experiment
from srl.evaluation.evaluate import evaluate
from srl.record.run_record import RunFolder
from srl.run.metrics import MetricsWriter, read_metrics
from tools.gates import runs, table
from tools.gates.__main__ import main
from tools.gates.gates import _parser, gate_runs
from tools.gates.results import Results, judged, make_row, markdown, row_line, summary
from tools.gates.runs import GateRun, code_version, settings_of
from tools.gates.table import GATES, Gate, gates_named

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SMALL = (
    "native:CartPole-v1 --num-envs 8 --env-steps {} --algorithm.unroll-length 16 "
    "--algorithm.epochs 2 --algorithm.network.mlp.width 16"
)
EASY = Gate("ppo-easy", SMALL.format(2048), 1, "none")


# ---- the table ----


def test_a_gate_that_names_its_plan_keeps_it(tmp_path):
    chosen = {
        name: gate_runs(
            gates_named([name])[0], _parser().parse_args(["--plan", "inline", "--runs", "x"])
        )
        for name in ("ppo-cartpole", "appo-cartpole:staleness_0")
    }
    plans = {name: first.experiment.settled_plan.name for name, (first, *_) in chosen.items()}
    assert plans == {"ppo-cartpole": "inline", "appo-cartpole:staleness_0": "decoupled"}


def test_names_are_distinct_and_begin_with_the_algorithm():
    assert len({gate.name for gate in GATES}) == len(GATES)
    for gate in GATES:
        target, *overrides = gate.arguments
        experiment = load_experiment(target, overrides).experiment
        mixer = getattr(experiment.algorithm, "mixer", None)
        name = mixer.kind if mixer else type(experiment.algorithm).__name__.lower()
        assert gate.name.startswith(f"{name}-")


def test_lines_of_the_list_can_be_given_to_a_shell_as_they_are(capsys):
    assert main(["pqn-cartpole", "ppo-ant", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    gates = gates_named(["pqn-cartpole", "ppo-ant"])
    assert commands == [["srl", "run", *gate.arguments] for gate in gates]
    assert lines[1].endswith("# pqn-cartpole: at least 475, lasting 451.2")


def test_the_seeds_of_the_table_are_not_those_on_which_settings_are_chosen():
    options = _parser().parse_args([])
    seeds = {gate.name: [run.seed for run in gate_runs(gate, options)] for gate in GATES}
    assert seeds["pqn-cartpole"] == list(range(100, 110))
    assert seeds["sac-half_cheetah"] == list(range(100, 105))
    assert {first for first, *_ in seeds.values()} == {100}


@pytest.mark.parametrize(("threshold", "lasting"), [(400, 300), (-300, -400)])
def test_the_lasting_threshold_is_a_share_on_either_side_of_zero(threshold, lasting):
    assert Gate("a", "b", threshold, "none", lasting=0.75).lasting_threshold == lasting


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nothing"], "there is no gate 'nothing'; there are ppo-cartpole"),
        (["ppo-cartpole", "--seeds", "1,1"], "--seeds 1,1: give each seed once"),
        (["ppo-cartpole", "--seeds", "x"], "--seeds: 'x'; expected"),
        (["ppo-cartpole", "--out", "gates.txt"], "the name must end in .md"),
        (["ppo-cartpole", "--out", "nowhere/gates.md"], "there is no folder nowhere"),
        (["ppo-cartpole", "--plan", "nothing", "--seeds", "0"], "nothing"),
        (["ppo-cartpole", "--out", "a.md", "--seeds", "0"], "leave out --seeds"),
        (["ppo-cartpole", "--out", "a.md", "--plan", "inline"], "leave out --plan"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(words, error, tmp_path, capsys):
    assert main([*words, "--runs", str(tmp_path / "runs")]) == 2
    assert error in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


# ---- runs ----


def test_a_gate_is_run_for_each_seed_once_and_its_row_is_printed(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(table, "GATES", (EASY,))
    words = ["--seeds", "0,3", "--runs", str(tmp_path), "--json", "--plan", "threads"]
    assert main(words) == 0
    row = json.loads(capfd.readouterr().out)
    reports = [read_metrics(tmp_path / "ppo-easy" / seed) for seed in "03"]
    values = [[line["episode_return"] for line in of if "episode_return" in line] for of in reports]
    assert row["returns"] == pytest.approx([each[-1] for each in values], abs=0.01)
    assert row["mean"] == pytest.approx(np.mean([each[-1] for each in values]), abs=0.01)
    assert row["lasting"] == pytest.approx(np.mean(row["lowest"]), abs=0.01)
    assert (row["name"], row["algorithm"], row["env"]) == ("ppo-easy", "PPO", "native:CartPole-v1")
    assert (row["seeds"], row["threshold"], row["passed"]) == ([0, 3], 1, True)
    assert row["changed"] == []  # another plan is not another gate
    assert (row["command"], row["options"]) == (f"srl run {EASY.command}", ["--plan", "threads"])
    assert row["commits"] == [code_version()]
    assert {"processor", "cores", "jax", "python"} <= row["machine"].keys()

    written = RunFolder(tmp_path / "ppo-easy" / "0").config.stat().st_mtime_ns
    origin = tmp_path / "ppo-easy" / "0.json"
    origin.write_text(json.dumps({**json.loads(origin.read_text()), "commits": ["0123456789"]}))
    assert main([word for word in words if word != "--json"]) == 0
    assert f"by code 0123456789, {code_version()}" in capfd.readouterr().out
    assert RunFolder(tmp_path / "ppo-easy" / "0").config.stat().st_mtime_ns == written


def test_a_mean_below_the_threshold_is_reported_and_gives_exit_code_1(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(table, "GATES", (Gate("ppo-hard", SMALL.format(256), 1e6, "none"),))
    assert main(["ppo-hard", "--seeds", "0", "--runs", str(tmp_path)]) == 1
    assert "ppo-hard: BELOW THRESHOLD" in capfd.readouterr().out


def test_a_run_that_was_interrupted_is_gone_on_with(tmp_path):
    code = (
        "from tools.gates.runs import GateRun; from tools.gates.table import Gate; "
        f"from pathlib import Path; gate = Gate('ppo-long', {SMALL.format(120_000)!r}, 1, 'none'); "
        f"GateRun(gate, 0, Path({str(tmp_path / 'run')!r}), ('--report-every', '1')).train()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") > 3):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(120) != 0
    gate = Gate("ppo-long", SMALL.format(120_000), 1, "none")
    run = GateRun(gate, 0, tmp_path / "run", ("--report-every", "1"))
    before = read_metrics(tmp_path / "run")
    assert not run.finished()
    file = tmp_path / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "commits": ["0123456789"]}))
    run.train()
    assert run.finished()
    assert read_metrics(tmp_path / "run")[: len(before)] == before
    assert run.origin()["commits"] == ["0123456789", code_version()]


@pytest.fixture(scope="module")
def easy_run(tmp_path_factory):
    """A finished run of EASY."""
    run = GateRun(EASY, 0, tmp_path_factory.mktemp("gates") / "run")
    run.train()
    return run


def test_a_folder_with_other_settings_is_refused(easy_run):
    other = Gate("ppo-easy", SMALL.format(4096), 1, "none")
    with pytest.raises(UserError, match="holds another run, of `srl run native:CartPole-v1"):
        GateRun(other, 0, easy_run.path).train()
    assert easy_run.finished()


def test_the_return_at_the_end_is_the_greedy_policys_where_the_published_one_is(easy_run):
    gate = replace(EASY, evaluated=True)
    run = GateRun(gate, 0, easy_run.path)
    found = evaluate(run.path, episodes=100)["results"]["episode_return"]["mean"]
    assert run.returns().end == pytest.approx(found) != easy_run.returns().end
    assert make_row(gate, [run])["evaluated"]


def test_the_lowest_report_of_the_last_third_is_taken_too(easy_run):
    (easy_run.path / "metrics.jsonl").unlink()
    writer = MetricsWriter(easy_run.path)
    for i, value in enumerate([1.0, 2.0, 3.0, 500.0, 100.0, 400.0]):
        writer.write({"env_steps": i, "updates": i, "episode_return": value, "fps": 1.0})
    writer.close()
    assert easy_run.returns() == (400, 100)


# ---- what is written ----

returns = st.lists(st.integers(-(10**6), 10**6).map(float), min_size=1, max_size=12)


@given(returns)
def test_the_interval_holds_the_interquartile_mean_which_lies_among_the_returns(values):
    found = summary(values)
    assert min(values) <= found.iqm <= max(values) or math.isclose(found.iqm, min(values))
    if len(values) == 1:
        assert math.isnan(found.low)
        assert found.mean == found.iqm == values[0]
    elif len(set(values)) == 1:
        assert (found.low, found.high) == pytest.approx((values[0], values[0]))
    else:
        slack = 1e-9 * max(map(abs, values))
        assert min(values) - slack <= found.low <= found.high <= max(values) + slack


def test_one_outlier_of_five_does_not_move_the_interquartile_mean():
    assert summary([1, 2, 3, 4, 5]).iqm == summary([1, 2, 3, 4, 5000]).iqm == 3


def row(gate, mean, **changed):
    """A row of results as a file holds it."""
    return {
        "name": gate.name,
        "seeds": [100],
        "mean": mean,
        "lasting": mean,
        "iqm": mean,
        "low": None,
        "high": None,
        "threshold": gate.threshold,
        "lasting_threshold": gate.lasting_threshold,
        "evaluated": gate.evaluated,
        "published": gate.published,
        "env_steps": 300_000,
        "seconds": 61,
        "command": f"srl run {gate.command}",
        "commits": ["abc"],
        "date": "2026-11-27T12:00:00",
        "machine": {},
        "settings": {},
        **changed,
    }


def test_rows_are_put_into_a_table_whose_other_rows_stay(tmp_path):
    file = tmp_path / "gates.md"
    ppo, pqn = gates_named(["ppo-cartpole", "pqn-cartpole"])
    Results(file).write(judged(row(pqn, 470.0)))
    Results(file).write(judged(row(ppo, 499.5)))
    Results(file).write(judged(row(pqn, 480.0)))
    lines = [line for line in file.read_text().splitlines() if line.startswith("| p")]
    assert [line.split(" | ")[0] for line in lines] == ["| ppo-cartpole", "| pqn-cartpole"]
    assert "480" in lines[1]
    _, absent = file.read_text().split("Gates without a row")
    assert "# dqn-cartpole" in absent
    assert "# pqn-cartpole\n" not in absent
    assert "470" not in file.read_text()
    written = json.loads(Path(tmp_path / "gates.json").read_text())
    assert [r["mean"] for r in written] == [499.5, 480]


def test_a_row_passes_only_if_what_was_learned_lasts(monkeypatch):
    gate = Gate("ppo-easy", EASY.command, 100, "none", lasting=0.9)
    monkeypatch.setattr(table, "GATES", (gate,))
    assert judged(row(gate, 100.0, lasting=90.0))["passed"]
    fallen = judged(row(gate, 100.0, lasting=89.0))
    assert not fallen["passed"]
    assert "BELOW THRESHOLD, end 100 of 100, lowest 89 of 90" in row_line(fallen)
    assert not judged(row(gate, 99.0, lasting=95.0))["passed"]
    assert not judged(row(gate, 100.0, lasting=None))["passed"]


def test_rows_by_other_code_than_the_newest_are_marked(monkeypatch):
    other = Gate("ppo-other", SMALL.format(256), 1, "none")
    monkeypatch.setattr(table, "GATES", (EASY, other))
    machine = {"processor": "CPU X", "cores": 4, "gpus": [], "python": "3.11", "jax": "0.7"}
    rows = [
        row(EASY, 9.0, date="2026-11-26T12:00:00", seeds=[100, 101, 102]),
        row(other, 9.0, commits=["def", "def+"], machine=machine),
    ]
    text = markdown([judged(each) for each in rows])
    old, new = (line for line in text.splitlines() if line.startswith("| ppo"))
    assert "| 100 to 102 |" in old
    assert old.endswith("| abc | passed, by other code |")
    assert new.endswith("| def, def+ | passed |")
    assert "Measured on 4 cores of CPU X, with Python 3.11 and JAX 0.7: ppo-other." in text


@pytest.mark.parametrize("change", ["--num-envs 9", "--algorithm.discount 0.9"])
def test_a_row_holds_all_settings_but_the_seed_and_the_plan(change):
    def held(*words):
        return settings_of(load_experiment("native:CartPole-v1", words).experiment)

    assert held("--seed", "3", "--plan", "threads") == held()
    assert held(*change.split()) != held()


def test_a_row_stays_up_to_date_when_settings_are_added(monkeypatch):
    monkeypatch.setattr(table, "GATES", (EASY,))
    settings = settings_of(
        load_experiment("native:CartPole-v1", EASY.command.split()[1:]).experiment
    )
    del settings["algorithm.clip"]
    assert judged(row(EASY, 9.0, settings=settings))["changed"] == []
    assert judged(row(EASY, 9.0, settings=settings | {"gone": 1}))["changed"] == ["settings"]


def test_a_commit_with_uncommitted_changes_has_a_mark(tmp_path, monkeypatch):
    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(runs, "_CHECKOUT", tmp_path)
    assert code_version() == "unknown"
    for name in ("srl", "csrc", "docs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    first = code_version()
    (tmp_path / "docs" / "file").write_text("changed")
    git("commit", "-am", "of no effect on runs")
    assert code_version() == first
    (tmp_path / "srl" / "more").touch()
    assert code_version() == f"{first}+"


OLD_ROWS = {
    "command": row(EASY, 9.0, command=f"srl run {SMALL.format(1024)}"),
    "threshold": row(EASY, 9.0, threshold=0.5),
    "settings": row(EASY, 9.0, settings={"num_envs": 9}),
    "no such gate": row(Gate("ppo-gone", EASY.command, 1, "none"), 9.0),
}


@pytest.mark.parametrize(("why", "old"), OLD_ROWS.items(), ids=OLD_ROWS)
def test_a_row_is_out_of_date_and_not_passed_once_its_gate_has_changed(
    why, old, tmp_path, monkeypatch
):
    other = Gate("ppo-other", SMALL.format(256), 1, "none")
    monkeypatch.setattr(table, "GATES", (EASY, other))
    file = tmp_path / "gates.md"
    file.with_suffix(".json").write_text(json.dumps([old]))
    new = row(other, 9.0, date="2026-11-28T12:00:00")
    Results(file).write(judged(new))
    rows = json.loads(file.with_suffix(".json").read_text())
    assert {**old, "passed": False, "changed": [why]} in rows
    assert {**new, "passed": True, "changed": []} in rows
    shown = {line.split()[1]: line for line in file.read_text().splitlines() if "| ppo" in line}
    assert shown[old["name"]].endswith(f"| **out of date**: {why} |")
    assert shown["ppo-other"].endswith("| passed |")
    _, absent = file.read_text().split("Gates without a row")
    assert f"srl run {EASY.command}  # ppo-easy" in absent


def test_rows_out_of_date_are_printed_too_and_replaced_when_their_gates_are_run(
    tmp_path, capfd, monkeypatch
):
    gate = replace(EASY, seeds=1)
    monkeypatch.setattr(table, "GATES", (gate,))
    out = tmp_path / "gates.md"
    gone = OLD_ROWS["no such gate"]
    earlier = row(gate, 9.0, threshold=2)
    out.with_suffix(".json").write_text(json.dumps([earlier, gone]))
    assert main(["--list", "--out", str(out)]) == 0
    assert out.read_text().count("**out of date**") == 3  # one is in the explanation
    assert not (tmp_path / "ppo-easy").exists()

    capfd.readouterr()
    words = ["--runs", str(tmp_path), "--out", str(out)]
    assert main([*words, "--json"]) == 0
    new, listed = map(json.loads, capfd.readouterr().out.splitlines())
    assert (new["name"], new["seeds"], new["threshold"]) == ("ppo-easy", [100], 1)
    assert (new["passed"], new["changed"]) == (True, [])
    assert listed == {**gone, "passed": False, "changed": ["no such gate"]}
    assert json.loads(out.with_suffix(".json").read_text()) == [new, listed]

    assert main(words) == 0
    assert "ppo-gone: OUT OF DATE (no such gate)" in capfd.readouterr().out


def test_a_row_is_current_again_where_its_gate_has_been_changed_back():
    old = row(EASY, 9.0)
    assert judged(old)["changed"]  # EASY is not in the table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "GATES", (EASY,))
        assert judged(judged(old)) == judged(old)
        assert judged(old)["passed"]


def test_the_page_of_results_is_what_its_rows_are_by_the_gates_and_defaults_of_now():
    rows = json.loads((RESULTS / "gates.json").read_text())
    hint = "run `python -m tools.gates --list --out docs/results/gates.md`"
    assert [judged(row) for row in rows] == rows, hint
    assert (RESULTS / "gates.md").read_text() == markdown(rows), hint


@pytest.mark.parametrize("content", ["{", "[1]", '{"a": 1}', '[{"mean": 3}]', '[{"name": "ppo"}]'])
def test_a_file_that_holds_no_results_is_left_as_it_is(content, tmp_path):
    (tmp_path / "gates.json").write_text(content)
    with pytest.raises(UserError, match="holds no results of gates"):
        Results(tmp_path / "gates.md")
    assert (tmp_path / "gates.json").read_text() == content
