"""Weights & Biases, offline: what the library itself has written."""

import json
import struct

import pytest
from tiny_trainer import STEPS
from tracked_runs import UPDATES, new_run, resumed_run

from srl import RunError, Tracking
from srl.tracking.tracker import TrackedRun, tag
from srl.tracking.wandb import WandB

wandb = pytest.importorskip("wandb")
HISTOGRAM = "parameters/kernel/bins"
_BLOCK = 32768
GRID = [STEPS * (update + 1) for update in range(UPDATES)]
KEY = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """No network, and no key of this machine's user."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    yield
    wandb.teardown()  # or the next test would find the variables of this one


def records(run):
    """What was logged, in order: runs' descriptions and rows of history."""
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # until its own process has written all
    for file in sorted(run.glob("wandb/offline-run-*/run-*.wandb")):
        data, at, parts = file.read_bytes(), 7, b""  # a header, then LevelDB's log format
        while at < len(data):
            if _BLOCK - at % _BLOCK < 7:  # no room for a chunk's header
                at += _BLOCK - at % _BLOCK
                continue
            _, size, kind = struct.unpack_from("<IHB", data, at)
            parts += data[at + 7 : at + 7 + size]
            at += 7 + size
            if kind in (1, 4):  # whole, or the last of several chunks
                yield Record.FromString(parts)
                parts = b""


def rows(run):
    """The rows of history: values by name."""
    found = []
    for record in records(run):
        if record.HasField("history"):
            items = record.history.item
            found.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items})
    return found


def described(run):
    """Each part's id, project, tags and configuration."""
    parts = [record.run for record in records(run) if record.HasField("run")]
    return [
        (
            part.run_id,
            part.project,
            list(part.tags),
            {item.key: json.loads(item.value_json) for item in part.config.update},
        )
        for part in parts
    ]


def test_an_offline_run_has_cleanrls_tags_and_open_rl_benchmarks_keys(tmp_path):
    run = tmp_path / "run"
    options = ("--trackers", "wandb", "--tracking.project", "walkers", "--tags", "a")
    assert new_run(run, *options, "--tracking.histograms", "3") == 0
    found = rows(run)
    assert [row["global_step"] for row in found] == GRID
    assert [row["_step"] for row in found] == GRID
    assert all("charts/episodic_return" in row and "losses/policy_loss" in row for row in found)
    assert [row["global_step"] for row in found if HISTOGRAM in row] == GRID[2::3]
    ((_, project, tags, config),) = described(run)
    assert (project, tags) == ("walkers", ["a"])
    keys = {key: config[key] for key in ("env_id", "exp_name", "seed")}
    assert keys == {"env_id": "Tiny-v0", "exp_name": "ppo", "seed": 0}
    assert config["algorithm"]["unroll_length"] > 0


def test_a_resumed_run_is_the_same_run(tmp_path):
    run = tmp_path / "run"
    options = ("--trackers", "wandb", "--checkpoint-minutes", "0")
    failure = {"fail_at": 4, "error": RunError("the simulator raised")}
    assert new_run(run, *options, **failure) == 1
    assert resumed_run(run) == 0
    first, second = described(run)
    assert first[0] == second[0] == json.loads((run / "trackers.json").read_text())["wandb"]
    assert [row["global_step"] for row in rows(run)] == GRID


def test_the_evaluation_of_an_older_version_is_not_lost(tmp_path):
    config = {"env_id": "", "exp_name": "", "seed": 0, "srl": "", "tags": [], "experiment": {}}
    tracker = WandB()
    tracker.start(TrackedRun(tmp_path, config, Tracking(), None, None))
    tracker.metrics({"fps": 1.0}, 300)
    tracker.metrics({"eval/return": 7.0}, 200)
    tracker.metrics({"fps": 2.0}, 400)
    tracker.end(0)
    names = ("global_step", "eval/return", tag("fps"))
    found = [tuple(row.get(name) for name in names) for row in rows(tmp_path)]
    assert found == [(300, None, 1), (200, 7, None), (400, None, 2)]


def test_keys_never_reach_the_runs_folder(tmp_path):
    run = tmp_path / "run"
    assert new_run(run, "--trackers", "wandb") == 0
    files = [file for file in run.rglob("*") if file.is_file()]
    assert any(file.suffix == ".wandb" for file in files)
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


def test_without_a_key_the_run_is_kept_offline_and_nothing_is_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY")
    assert new_run(tmp_path / "run", "--trackers", "wandb") == 0
    assert [row["global_step"] for row in rows(tmp_path / "run")] == GRID
    shown = capsys.readouterr().out
    assert "wandb        offline as there is no key (`wandb login`); `wandb sync " in shown


def test_a_server_that_does_not_answer_leaves_the_run_offline(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "1")
    assert new_run(tmp_path / "run", "--trackers", "wandb") == 0
    assert [row["global_step"] for row in rows(tmp_path / "run")] == GRID
    shown = capsys.readouterr().out
    assert "wandb        offline as " in shown
    assert "; `wandb sync " in shown
