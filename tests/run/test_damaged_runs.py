"""Whatever a run's folder holds, a command trains, plays and draws what is good, or says a line."""

import contextlib
import json
import os
import shutil

import pytest

from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.launch.engines import controller_main
from srl.record.checkpoint import Checkpoints
from srl.record.run_record import find_run
from srl.run.folder import create_run
from srl.run.metrics import read_metrics
from srl.run.status import read_address, read_outcome
from srl.streams.transport.keys import create_keys

ARGUMENTS = "--num-envs 2 --algorithm.unroll-length 4 --algorithm.minibatches 1 --report-every 1"
TRAIN = [*ARGUMENTS.split(), "--updates", "4", "--checkpoint-minutes", "0"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with checkpoints 1 to 4."""
    path = tmp_path_factory.mktemp("whole") / "run"
    assert main(["run", "native:CartPole-v1", "--run-dir", str(path), *TRAIN]) == 0
    return path


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def cut_short(path):
    os.truncate(path, path.stat().st_size // 2)


def written(content):
    return lambda path: path.write_bytes(content)


def folder_in_place(path):
    path.unlink()
    path.mkdir()


def link_to_itself(path):
    path.unlink()
    path.symlink_to(path.name)


DAMAGES = {
    "cut": cut_short,
    "empty": written(b""),
    "binary": written(bytes(range(256))),
    "list": written(b"[1, 2]"),
    "object": written(b"{}"),
    "deep": written(b"[" * 100_000),
    "folder": folder_in_place,
    "unreadable": link_to_itself,
}


def complaint(capsys, *words):
    """The one line that a command says before it ends with an error."""
    capsys.readouterr()
    assert main([str(word) for word in words]) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("srl: ")
    assert len(error.splitlines()) == 1
    return error


def versions(run):
    with contextlib.closing(Checkpoints(run / "checkpoints")) as checkpoints:
        return checkpoints.versions()


@pytest.mark.parametrize("file", ["config.json", "checkpoints/4.safetensors"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_told_in_a_line(run, file, damage, capsys, tmp_path):
    DAMAGES[damage](run / file)
    error = complaint(capsys, "export", run, tmp_path / "out.safetensors")
    assert (str(run) if file == "config.json" else f"{file} is damaged") in error


@pytest.mark.parametrize("command", ["resume", "eval", "plot", "watch", "export", "top", "stop"])
@pytest.mark.parametrize("damage", ["deep", "binary", "folder"])
def test_every_command_says_in_a_line_that_the_configuration_is_damaged(
    run, command, damage, capsys, tmp_path
):
    DAMAGES[damage](run / "config.json")
    more = [tmp_path / "out.safetensors"] if command == "export" else []
    assert "config.json" in complaint(capsys, command, run, *more)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("target", 7),
        ("target", "a\0b"),
        ("target", "\ud800"),
        ("overrides", "--seed 3"),
        ("overrides", [1]),
        ("source", 1.5),
        ("sha256", []),
        ("directory", None),
        ("experiment", [1]),
    ],
)
def test_a_value_of_the_configuration_that_srl_did_not_write_is_told(run, name, value, capsys):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, name: value}))
    assert f"{name} is " in complaint(capsys, "resume", run)
    assert f"{name} is " in complaint(capsys, "eval", run)


def test_a_folder_in_place_of_the_experiments_copy_is_told(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "from srl import Experiment\nexperiment = Experiment(name='mine', env='CartPole-v1')\n"
    )
    folder = create_run(load_experiment(str(file)), tmp_path / "run")
    folder_in_place(folder.source)
    assert "experiment.py: Is a directory" in complaint(capsys, "resume", folder.path)


ODD = {"env_steps": 8, "updates": 1, "fps": "x", "elo/a": [1], "time/a/b": {}, "bottleneck": 3}


def test_values_of_a_report_that_are_no_numbers_are_neither_shown_nor_drawn(run, capsys):
    (run / "metrics.jsonl").write_text(f'[1]\n7\n{{"env_steps": true}}\n{json.dumps(ODD)}\n')
    assert main(["top", str(run)]) == 0
    assert "fps -  return -" in capsys.readouterr().out
    pytest.importorskip("matplotlib", reason="plots are drawn by matplotlib")
    assert main(["plot", str(run)]) == 2
    assert "srl: the reports hold none of the metrics" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [folder_in_place, link_to_itself])
def test_metrics_that_cannot_be_read_are_told_in_a_line(run, damage, capsys):
    damage(run / "metrics.jsonl")
    assert f"cannot read {run}/metrics.jsonl" in complaint(capsys, "top", run)


def test_a_run_goes_on_without_logs_where_they_cannot_be_written(run, capsys):
    shutil.rmtree(run / "logs")
    (run / "logs").write_text("")
    assert main(["resume", str(run), "--env-steps", "40"]) == 0
    assert "Traceback" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("damage", ["cut", "empty", "binary", "list", "deep", "folder"])
def test_what_an_engine_was_given_is_told_to_be_damaged(run, damage, capsys):
    (run / "outcome.json").unlink()  # which would be removed when it is given to an engine
    jobs = run / "slurm" / "jobs.json"
    jobs.parent.mkdir()
    jobs.write_text('{"jobs": "1"}')
    DAMAGES[damage](jobs)
    for command in ("top", "stop", "resume"):
        assert f"{jobs} does not hold the names" in complaint(capsys, command, run)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_outcome_or_address_counts_as_none(run, damage):
    for name in ("outcome.json", "controller.json"):
        (run / name).write_text("")
        DAMAGES[damage](run / name)
    assert read_outcome(run) is None
    assert read_address(run) is None


def test_a_controller_that_cannot_write_where_it_is_or_how_it_ended_says_so(tmp_path, capsys):
    inline = load_experiment("native:CartPole-v1", ["--plan", "inline"])
    folder = create_run(inline, tmp_path / "run").path
    create_keys(folder)
    for name in ("controller.json", "outcome.json"):
        (folder / name).mkdir()
    assert controller_main.main([str(folder)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"srl: cannot write {folder}/controller.json: Is a directory",
        f"srl: cannot write in {folder} how the run ended: Is a directory",
    ]


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one_and_says_so(whole, run, capsys):
    for version in (3, 4):
        cut_short(run / f"checkpoints/{version}.safetensors")
    assert main(["resume", str(run)]) == 0
    output = capsys.readouterr()
    assert "checkpoints/4.safetensors is damaged" in output.out
    assert "kept as 4.damaged" in output.out
    assert "kept as 3.damaged" in output.out
    assert "Traceback" not in output.out + output.err
    assert versions(run) == [1, 2, 3, 4]
    steps = [[line["env_steps"] for line in read_metrics(path)] for path in (whole, run)]
    assert steps[0] == steps[1]


def test_a_run_whose_checkpoints_are_all_damaged_says_so_and_changes_nothing(run, capfd):
    for version in versions(run):
        cut_short(run / f"checkpoints/{version}.safetensors")
    assert main(["resume", str(run)]) == 1
    told = capfd.readouterr().err
    assert "checkpoints/4.safetensors is damaged" in told
    assert "Traceback" not in told
    assert versions(run) == [1, 2, 3, 4]


def test_resume_goes_on_from_the_version_asked_for_and_keeps_later_ones(whole, run, capsys):
    assert main(["resume", str(run), "--version", "2"]) == 0
    output = capsys.readouterr().out
    assert "checkpoint 4 is later, and kept as" in output
    assert versions(run) == [1, 2, 3, 4]
    assert {"3.later", "4.later"} <= {path.name for path in (run / "checkpoints").iterdir()}
    steps = [[line["env_steps"] for line in read_metrics(path)] for path in (whole, run)]
    assert steps[0] == steps[1]
    assert "there is no version 9" in complaint(capsys, "resume", run, "--version", "9")


def test_a_newer_run_without_a_checkpoint_does_not_hide_an_older_one(run, capsys, caplog):
    runs = run.parent
    failed = create_run(load_experiment("native:CartPole-v1", ARGUMENTS.split()), runs / "failed")
    os.utime(run / "config.json", (1, 1))
    assert main(["export", str(runs), str(runs / "out.safetensors")]) == 0
    assert f"{failed.path} has no checkpoint yet; {run} is the newest that has" in caplog.text
    assert main(["eval", str(runs), "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["run"] == str(run)


def test_a_newer_run_whose_checkpoints_cannot_be_read_does_not_hide_an_older_one(run, caplog):
    failed = create_run(load_experiment("native:CartPole-v1"), run.parent / "failed")
    failed.checkpoints.rmdir()
    failed.checkpoints.write_text("no folder")
    os.utime(run / "config.json", (1, 1))
    assert find_run(run.parent, trained=True).path == run
    assert f"cannot read the checkpoints in {failed.checkpoints}" in caplog.text


def test_a_run_of_several_that_cannot_be_read_is_left_out_of_a_plot(run, caplog, capsys):
    pytest.importorskip("matplotlib", reason="plots are drawn by matplotlib")
    broken = create_run(load_experiment("native:CartPole-v1"), run.parent / "broken")
    broken.config.write_text("7")
    assert main(["plot", str(run.parent), "--out", str(run.parent / "curves.png")]) == 0
    assert "left out" in caplog.text
    assert (run.parent / "curves.png").exists()


def test_a_run_folder_is_for_its_user_alone(tmp_path):
    before = os.umask(0o022)
    try:
        made = create_run(load_experiment("CartPole-v1"), tmp_path / "new")
        (tmp_path / "shared").mkdir(mode=0o755)
        given = create_run(load_experiment("CartPole-v1"), tmp_path / "shared")
    finally:
        os.umask(before)
    assert made.path.stat().st_mode & 0o777 == 0o700
    assert given.path.stat().st_mode & 0o777 == 0o755


def test_exports_of_equal_policies_are_equal_files(run, tmp_path):
    contents = set()
    for number in range(8):
        assert main(["export", str(run), str(tmp_path / f"{number}.safetensors")]) == 0
        contents.add((tmp_path / f"{number}.safetensors").read_bytes())
    assert len(contents) == 1


@pytest.mark.parametrize("name", ["directory", "source"])
@pytest.mark.parametrize("text", ["x" * 300, "x/" * 3000])
def test_a_path_in_the_configuration_that_no_file_can_have_is_told(run, capsys, name, text):
    file = run / "config.json"
    config = {**json.loads(file.read_text()), name: text}
    file.write_text(json.dumps(config))
    assert main(["eval", str(run), "--episodes", "1"]) == 2
    assert f"config.json is damaged: {name} is" in capsys.readouterr().err
