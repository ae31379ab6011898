"""Trackers that fail, hang or end, and what they get."""

import contextlib
import math
import threading
from collections import Counter
from dataclasses import replace

import imageio.v2 as imageio
import numpy as np
import pytest
from event_files import scalars_of, values_of
from small_runs import CARTPOLE
from tiny_trainer import STEPS
from tracked_runs import UPDATES, new_run, resumed_run

from srl import Tracking
from srl.config.experiment import load_experiment
from srl.core.errors import RunError, UserError
from srl.loop.training import local_training
from srl.run.metrics import read_metrics
from srl.tracking import trackers
from srl.tracking.tracker import Histogram, Started


class Recorder:
    """A tracker that lists its calls; subclasses fail or hang."""

    calls: list[tuple] = []  # noqa: RUF012

    def start(self, run):
        self.calls.append(("start", run.id, run.resumed_at))
        return Started("run-1")

    def metrics(self, values, env_steps):
        self.calls.append(("metrics", env_steps))

    def histogram(self, name, histogram, env_steps):
        self.calls.append(("histogram", name, env_steps))

    def video(self, file, env_steps):
        self.calls.append(("video", file.name, env_steps))

    def end(self, code):
        self.calls.append(("end", code))


@pytest.fixture
def tracker(monkeypatch):
    """Puts a tracker in the place of MLflow's; gives the list of its calls."""

    def put(kind):
        kind.calls = []
        monkeypatch.setitem(trackers._KINDS, "mlflow", kind)
        return kind.calls

    return put


def steps_of(calls):
    return [call[1] for call in calls if call[0] == "metrics"]


GRID = [STEPS * (update + 1) for update in range(UPDATES)]


def test_a_tracker_gets_each_report_and_the_exit_code(tmp_path, tracker):
    calls = tracker(Recorder)
    assert new_run(tmp_path / "run", "--trackers", "mlflow") == 0
    assert calls == [("start", None, None), *(("metrics", step) for step in GRID), ("end", 0)]


def test_a_resumed_run_goes_on_with_what_the_tracker_called_it(tmp_path, tracker):
    calls = tracker(Recorder)
    options = ("--trackers", "mlflow", "--checkpoint-minutes", "0")
    failure = {"fail_at": 4, "error": RunError("the simulator raised")}
    assert new_run(tmp_path / "run", *options, **failure) == 1
    assert calls[-1] == ("end", 1)
    calls.clear()
    assert resumed_run(tmp_path / "run") == 0
    assert calls[0] == ("start", "run-1", 3 * STEPS)
    assert steps_of(calls) == GRID[3:]
    assert calls[-1] == ("end", 0)


def test_a_tracker_that_fails_now_and_then_costs_one_line(tmp_path, tracker, capsys):
    class Fails(Recorder):
        def metrics(self, values, env_steps):
            super().metrics(values, env_steps)
            if env_steps <= 300:
                raise ConnectionError("POST http://me:secret@host/api: 503")

    calls = tracker(Fails)
    assert new_run(tmp_path / "run", "--trackers", "mlflow") == 0
    assert steps_of(calls) == GRID
    shown = capsys.readouterr().out
    assert shown.count("the tracker mlflow lacks what was reported just now") == 1
    assert "POST http://host/api: 503" in shown
    log = (tmp_path / "run" / "logs" / "trainer.log").read_text()
    assert log.count("http://host/api: 503") == 2  # the digits alone may be of a time
    assert "secret" not in shown + log


def test_a_tracker_that_hangs_holds_up_neither_reports_nor_for_long_the_end(
    tmp_path, tracker, capsys, monkeypatch
):
    released = threading.Event()

    class Hangs(Recorder):
        def metrics(self, values, env_steps):
            super().metrics(values, env_steps)
            released.wait()

    monkeypatch.setattr(trackers, "_END_SECONDS", 0.5)
    monkeypatch.setattr(trackers, "_MOST_WAITING", 2)
    calls = tracker(Hangs)
    assert new_run(tmp_path / "run", "--trackers", "mlflow") == 0
    assert len(read_metrics(tmp_path / "run")) == UPDATES
    assert steps_of(calls) == GRID[:1]
    shown = capsys.readouterr().out
    assert shown.count("the tracker mlflow does not answer") == 1
    assert "mlflow has not ended within" in shown
    released.set()


# Writing a film starts a program, of which JAX warns, and leaves its pipes to the collector.
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\):RuntimeWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_films_that_are_made_during_a_run_are_handed_to_trackers(tmp_path, tracker):
    calls = tracker(Recorder)
    videos = tmp_path / "run" / "videos"

    def film(trainer):
        if trainer.updates == 3:
            videos.mkdir()
            for name in ("version_3.mp4", ".unfinished-other.mp4", "env_steps_000000000200.mp4"):
                pictures = [np.zeros((32, 32, 3), np.uint8)] * 3
                imageio.mimwrite(videos / name, pictures, fps=10, macro_block_size=2)

    assert new_run(tmp_path / "run", "--trackers", "mlflow", on_update=film) == 0
    assert [call for call in calls if call[0] == "video"] == [
        ("video", "env_steps_000000000200.mp4", 200),
        ("video", "version_3.mp4", 300),
    ]
    in_events = [step for step, value in values_of(tmp_path / "run") if value.tag == "videos"]
    assert in_events == [200, 300]


def test_tensorboard_events_are_always_written(tmp_path):
    assert new_run(tmp_path / "run") == 0
    assert [s for tag, s, _ in scalars_of(tmp_path / "run") if tag == "charts/SPS"] == GRID


def test_histograms_come_with_every_so_many_reports(tmp_path):
    assert new_run(tmp_path / "run", "--tracking.histograms", "2") == 0
    found = [
        (step, value.tag) for step, value in values_of(tmp_path / "run") if value.HasField("histo")
    ]
    assert found == [(step, "parameters/kernel") for step in GRID[1::2]]


@pytest.mark.parametrize(
    "values",
    [[], [math.nan], [1e20], [-1e20] * 3, [0, 5e-324], [1, 1 + 2e-16], [-1.7e308, 1.7e308]],
)
def test_no_values_are_without_a_histogram(values):
    counts, edges = Histogram.of(np.array(values))
    assert counts.sum() == sum(abs(value) < 1e300 for value in values)
    assert (np.diff(edges) > 0).all()


def test_histograms_show_parameters_gradients_and_actions():
    training = local_training(replace(CARTPOLE, tracking=Tracking(histograms=1)))
    training.start()
    with contextlib.closing(training):
        training.update()
        found = training.learner.histograms()
        size = training.learner.parameters["policy"]
    counts = Counter()
    for name, histogram in found.items():
        counts[name.partition("/")[0]] += histogram.counts.sum()
    assert counts == {"parameters": size, "gradients": size, "actions": 8 * 16}
    actions = found["actions"]
    assert (actions.edges[0], actions.edges[-1], actions.counts[1:-1].sum()) == (0, 1, 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--trackers wandb,prometheus", "--trackers is 'wandb,prometheus'; expected tensorboard"),
        ("--tracking.prometheus-port 70000", "tracking.prometheus_port is 70000; expected a whole"),
        ("--tracking.histograms -1", "tracking.histograms is -1"),
    ],
)
def test_a_setting_that_cannot_be_is_told(words, told):
    with pytest.raises(UserError, match=told):
        load_experiment("CartPole-v1", words.split())


def test_one_name_in_place_of_several_is_told(tmp_path):
    file = tmp_path / "one.py"
    file.write_text(
        "from srl import Experiment\n"
        "experiment = Experiment(name='one', env='CartPole-v1', trackers='wandb')\n"
    )
    with pytest.raises(UserError, match=r"trackers is 'wandb'; .* such as \('wandb',\)"):
        load_experiment(str(file))
