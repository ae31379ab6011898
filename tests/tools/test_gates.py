"""The gates: their table, their runs, and their file of results."""

import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srl import UserError
from srl.config.experiment import load_experiment
from srl.record.run_record import RunFolder
from srl.run.metrics import MetricsWriter, read_metrics
from tools.gates import table
from tools.gates.__main__ import main
from tools.gates.gates import _judged, _parser, _Results, _runs, markdown
from tools.gates.runs import GateRun
from tools.gates.summary import summary
from tools.gates.table import GATES, Gate, gates_named

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SMALL = (
    "native:CartPole-v1 --num-envs 8 --env-steps {} --algorithm.unroll-length 16 "
    "--algorithm.epochs 2 --algorithm.network.mlp.width 16"
)
EASY = Gate("ppo-easy", SMALL.format(2048), 1, "none")


# ---- the table ----


def test_a_gate_that_names_its_plan_keeps_it(tmp_path):
    runs = {
        name: _runs(
            gates_named([name])[0], _parser().parse_args(["--plan", "inline", "--runs", "x"])
        )
        for name in ("ppo-cartpole", "appo-cartpole:staleness_0")
    }
    plans = {name: first.experiment.settled_plan.name for name, (first, *_) in runs.items()}
    assert plans == {"ppo-cartpole": "inline", "appo-cartpole:staleness_0": "decoupled"}


def test_names_are_distinct_and_begin_with_the_algorithm():
    assert len({gate.name for gate in GATES}) == len(GATES)
    for gate in GATES:
        target, *overrides = gate.arguments
        experiment = load_experiment(target, overrides).experiment
        name = type(experiment.algorithm).__name__.lower()
        assert gate.name.startswith(f"{name}-")


def test_lines_of_the_list_can_be_given_to_a_shell_as_they_are(capsys):
    assert main(["pqn-cartpole", "ppo-ant", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    gates = gates_named(["pqn-cartpole", "ppo-ant"])
    assert commands == [["srl", "run", *gate.arguments] for gate in gates]
    assert lines[1].endswith("# pqn-cartpole: at least 475")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nothing"], "there is no gate 'nothing'; there are ppo-cartpole"),
        (["ppo-cartpole", "--seeds", "1,1"], "--seeds 1,1: give each seed once"),
        (["ppo-cartpole", "--seeds", "x"], "--seeds: 'x'; expected"),
        (["ppo-cartpole", "--out", "gates.txt"], "the name must end in .md"),
        (["ppo-cartpole", "--out", "nowhere/gates.md"], "there is no folder nowhere"),
        (["ppo-cartpole", "--plan", "nothing", "--seeds", "0"], "nothing"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(words, error, tmp_path, capsys):
    assert main([*words, "--runs", str(tmp_path / "runs")]) == 2
    assert error in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


# ---- runs ----


def test_a_gate_is_run_for_each_seed_once_and_its_row_is_printed(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(table, "GATES", (EASY,))
    words = ["--seeds", "0,3", "--runs", str(tmp_path), "--json", "--plan", "inline"]
    assert main(words) == 0
    row = json.loads(capfd.readouterr().out)
    last = [read_metrics(tmp_path / "ppo-easy" / seed)[-1]["episode_return"] for seed in "03"]
    assert row["returns"] == pytest.approx(last, abs=0.01)
    assert row["mean"] == pytest.approx(np.mean(last), abs=0.01)
    assert (row["name"], row["algorithm"], row["env"]) == ("ppo-easy", "PPO", "native:CartPole-v1")
    assert (row["seeds"], row["threshold"], row["passed"]) == ([0, 3], 1, True)
    assert not row["out_of_date"]  # another plan is not another gate
    assert row["command"] == f"srl run {EASY.command} --plan inline"

    written = RunFolder(tmp_path / "ppo-easy" / "0").config.stat().st_mtime_ns
    assert main(words) == 0
    assert json.loads(capfd.readouterr().out) == row
    assert RunFolder(tmp_path / "ppo-easy" / "0").config.stat().st_mtime_ns == written


def test_a_mean_below_the_threshold_is_reported_and_gives_exit_code_1(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(table, "GATES", (Gate("ppo-hard", SMALL.format(256), 1e6, "none"),))
    assert main(["ppo-hard", "--seeds", "0", "--runs", str(tmp_path)]) == 1
    assert "ppo-hard: BELOW THRESHOLD" in capfd.readouterr().out


def test_a_row_of_more_seeds_is_not_replaced_by_one_of_fewer(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(table, "GATES", (EASY,))
    out = tmp_path / "gates.md"
    out.with_suffix(".json").write_text(json.dumps([row(EASY, 20.0, seeds=[0, 1, 2])]))
    words = ["--seeds", "0,3", "--runs", str(tmp_path), "--out", str(out)]
    assert main(words) == 2
    assert "its row ppo-easy is of 3 seeds, and --seeds gives 2" in capsys.readouterr().err
    assert not (tmp_path / "ppo-easy").exists()


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
    run.train()
    assert run.finished()
    assert read_metrics(tmp_path / "run")[: len(before)] == before


def test_a_folder_with_other_settings_is_refused(tmp_path):
    GateRun(EASY, 0, tmp_path / "run").train()
    other = Gate("ppo-easy", SMALL.format(4096), 1, "none")
    with pytest.raises(UserError, match="holds another run, of `srl run native:CartPole-v1"):
        GateRun(other, 0, tmp_path / "run").train()
    assert GateRun(EASY, 0, tmp_path / "run").finished()


def test_a_gate_with_an_evaluation_takes_that_of_the_last_version(tmp_path):
    words = "--evaluation.episodes 4 --evaluation.share 1 --evaluation.every 2"
    run = GateRun(
        Gate("ppo-evaluated", f"{SMALL.format(1024)} {words}", 1, "none"), 0, tmp_path / "run"
    )
    run.train()
    *_, last = [line for line in read_metrics(run.path) if "eval/return" in line]
    assert last["updates"] == 8
    assert run.value() == last["eval/return"] != run.read().values("episode_return")[-1]

    # As if the last version had not been evaluated.
    file = run.path / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if json.loads(line) != last))
    assert math.isnan(run.value())


def test_a_lasting_gate_takes_the_lowest_report_of_the_last_third(tmp_path):
    lasting = Gate("ppo-lasting", SMALL.format(2048), 1, "none", lasting=True)
    GateRun(lasting, 0, tmp_path / "run").train()
    (tmp_path / "run" / "metrics.jsonl").unlink()
    writer = MetricsWriter(tmp_path / "run")
    for i, value in enumerate([1.0, 2.0, 3.0, 500.0, 100.0, 400.0]):
        writer.write({"env_steps": i, "updates": i, "episode_return": value, "fps": 1.0})
    writer.close()
    assert GateRun(lasting, 0, tmp_path / "run").value() == 100
    assert GateRun(EASY, 0, tmp_path / "run").value() == 400


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
        "seeds": [0],
        "mean": mean,
        "iqm": mean,
        "low": None,
        "high": None,
        "threshold": gate.threshold,
        "passed": mean >= gate.threshold,
        "published": gate.published,
        "env_steps": 300_000,
        "seconds": 61,
        "command": f"srl run {gate.command}",
        **changed,
    }


def test_rows_are_put_into_a_table_whose_other_rows_stay(tmp_path):
    file = tmp_path / "gates.md"
    ppo, pqn = gates_named(["ppo-cartpole", "pqn-cartpole"])
    _Results(file).add(_judged(row(pqn, 470.0)))
    _Results(file).add(_judged(row(ppo, 499.5)))
    _Results(file).add(_judged(row(pqn, 480.0)))
    lines = [line for line in file.read_text().splitlines() if line.startswith("| p")]
    assert [line.split(" | ")[0] for line in lines] == ["| ppo-cartpole", "| pqn-cartpole"]
    assert "480" in lines[1]
    _, absent = file.read_text().split("Gates that have not been run")
    assert "# dqn-cartpole" in absent
    assert "# pqn-cartpole\n" not in absent
    assert "470" not in file.read_text()
    assert [r["mean"] for r in json.loads(Path(tmp_path / "gates.json").read_text())] == [
        499.5,
        480,
    ]


OLD_ROWS = {
    "another command": row(EASY, 9.0, command=f"srl run {SMALL.format(1024)}"),
    "a longer command": row(EASY, 9.0, command=f"srl run {EASY.command} --num-epochs 2"),
    "another threshold": row(EASY, 9.0, threshold=0.5),
    "no gate of this name": row(Gate("ppo-gone", EASY.command, 1, "none"), 9.0),
}


@pytest.mark.parametrize("old", OLD_ROWS.values(), ids=OLD_ROWS)
def test_a_row_whose_gate_has_changed_since_is_out_of_date_and_not_passed(
    old, tmp_path, monkeypatch
):
    other = Gate("ppo-other", SMALL.format(256), 1, "none")
    monkeypatch.setattr(table, "GATES", (EASY, other))
    file = tmp_path / "gates.md"
    file.with_suffix(".json").write_text(json.dumps([old]))
    _Results(file).add(_judged(row(other, 9.0)))
    rows = json.loads(file.with_suffix(".json").read_text())
    assert {**old, "passed": False, "out_of_date": True} in rows
    assert {**row(other, 9.0), "out_of_date": False} in rows
    shown = {line.split()[1]: line for line in file.read_text().splitlines() if "| ppo" in line}
    assert shown[old["name"]].endswith("| **out of date** |")
    assert shown["ppo-other"].endswith("| passed |")
    _, absent = file.read_text().split("Gates that have not been run")
    assert f"srl run {EASY.command}  # ppo-easy" in absent


def test_rows_out_of_date_are_printed_too_and_replaced_when_their_gates_are_run(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(table, "GATES", (EASY,))
    out = tmp_path / "gates.md"
    gone = OLD_ROWS["no gate of this name"]
    more_seeds = row(EASY, 9.0, threshold=2, seeds=[0, 1, 2])
    out.with_suffix(".json").write_text(json.dumps([more_seeds, gone]))
    words = ["--seeds", "3", "--runs", str(tmp_path), "--out", str(out)]
    assert main([*words, "--json"]) == 0
    new, listed = map(json.loads, capfd.readouterr().out.splitlines())
    assert (new["name"], new["seeds"], new["threshold"]) == ("ppo-easy", [3], 1)
    assert (new["passed"], new["out_of_date"]) == (True, False)
    assert listed == {**gone, "passed": False, "out_of_date": True}
    assert json.loads(out.with_suffix(".json").read_text()) == [new, listed]

    assert main(words) == 0
    assert "ppo-gone: OUT OF DATE" in capfd.readouterr().out


def test_a_row_is_current_again_where_its_gate_has_been_changed_back():
    old = row(EASY, 9.0)
    assert _judged(old)["out_of_date"]  # EASY is not in the table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "GATES", (EASY,))
        assert _judged(_judged(old)) == _judged(old)
        assert _judged(old)["passed"]


def test_the_results_in_the_documents_are_those_of_the_gates_as_they_are():
    rows = json.loads((RESULTS / "gates.json").read_text())
    gates = {gate.name: gate for gate in GATES}
    for row in rows:
        gate = gates[row["name"]]
        assert row["command"] == f"srl run {gate.command}", gate.name
        assert (row["threshold"], row["published"]) == (gate.threshold, gate.published), gate.name
        assert row["passed"] == _judged(row)["passed"], gate.name
    assert (RESULTS / "gates.md").read_text() == markdown([_judged(row) for row in rows])


@pytest.mark.parametrize("content", ["{", "[1]", '{"a": 1}', '[{"mean": 3}]', '[{"name": "ppo"}]'])
def test_a_file_that_holds_no_results_is_left_as_it_is(content, tmp_path):
    (tmp_path / "gates.json").write_text(content)
    with pytest.raises(UserError, match="holds no results of gates"):
        _Results(tmp_path / "gates.md")
    assert (tmp_path / "gates.json").read_text() == content
