"""MLflow, whose client can keep runs in files: pip install mlflow-skinny; pytest -m slow."""

import json

import imageio.v2 as imageio
import numpy as np
import pytest
from tiny_trainer import STEPS
from tracked_runs import UPDATES, free_port, new_run, resumed_run

from srl.core.errors import RunError

pytest.importorskip("mlflow")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the library's own
GRID = [STEPS * (update + 1) for update in range(UPDATES)]


@pytest.fixture
def client(tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    return MlflowClient()


def tracked(client, run):
    return client.get_run(json.loads((run / "trackers.json").read_text())["mlflow"])


def steps(client, found):
    history = client.get_metric_history(found.info.run_id, "charts/episodic_return")
    return [metric.step for metric in history]


def test_a_run_is_in_its_experiment_with_settings_metrics_and_films(tmp_path, client):
    run = tmp_path / "run"

    def film(trainer):
        if trainer.updates == 3:
            (run / "videos").mkdir()
            pictures = [np.zeros((32, 32, 3), np.uint8)] * 3
            imageio.mimwrite(run / "videos" / "a.mp4", pictures, fps=10, macro_block_size=2)

    options = ("--trackers", "mlflow", "--tracking.project", "walkers", "--tags", "a")
    assert new_run(run, *options, on_update=film) == 0
    found = tracked(client, run)
    assert found.info.status == "FINISHED"
    assert found.info.experiment_id == client.get_experiment_by_name("walkers").experiment_id
    assert found.data.tags.items() >= {"env_id": "Tiny-v0", "exp_name": "ppo", "a": "true"}.items()
    assert found.data.params["algorithm.unroll_length"] == "32"
    assert steps(client, found) == GRID
    assert [file.path for file in client.list_artifacts(found.info.run_id, "videos")] == [
        "videos/a.mp4"
    ]


def test_a_resumed_run_is_the_same_run(tmp_path, client):
    run = tmp_path / "run"
    options = ("--trackers", "mlflow", "--checkpoint-minutes", "0")
    failure = {"fail_at": 4, "error": RunError("the simulator raised")}
    assert new_run(run, *options, **failure) == 1
    before = tracked(client, run)
    assert before.info.status == "FAILED"
    assert resumed_run(run) == 0
    found = tracked(client, run)
    assert (found.info.run_id, found.info.status) == (before.info.run_id, "FINISHED")
    assert steps(client, found) == GRID


def test_a_server_that_does_not_answer_costs_a_line_and_not_the_run(
    tmp_path, client, monkeypatch, capsys
):
    port = free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert new_run(tmp_path / "run", "--trackers", "mlflow") == 0
    shown = capsys.readouterr().out
    assert "the tracker mlflow cannot begin, and the run goes on without: " in shown
    files = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert not [file for file in files if b"secret" in file.read_bytes()]
    assert "secret" not in shown
