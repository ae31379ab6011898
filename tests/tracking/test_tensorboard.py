import io

import imageio.v2 as imageio
import numpy as np
import pytest
from event_files import scalars_of, values_of
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from srl import Tracking
from srl.tracking.tensorboard import TensorBoard
from srl.tracking.tracker import Histogram, TrackedRun, tag


def started(folder, resumed_at=None):
    tracker = TensorBoard()
    tracker.start(TrackedRun(folder, {}, Tracking(), resumed_at, None))
    return tracker


def write(folder, steps, resumed_at=None):
    tracker = started(folder, resumed_at)
    for step in steps:
        tracker.metrics({"episode_return": float(step)}, step)
    tracker.end(0)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("episode_return", "charts/episodic_return"),
        ("episode_return/hiders", "charts/episodic_return/hiders"),
        ("episode_length", "charts/episodic_length"),
        ("fps", "charts/SPS"),
        ("loss/learning_rate", "charts/learning_rate"),
        ("loss/policy_loss", "losses/policy_loss"),
        ("env/prep_fraction", "env/prep_fraction"),
        ("time/trainer/learn", "time/trainer/learn"),
        ("staleness_max", "staleness/max"),
        ("policy_version", "charts/policy_version"),
    ],
)
def test_tags_follow_cleanrl(name, wanted):
    assert tag(name) == wanted


def test_scalars_lie_at_their_env_steps(tmp_path):
    write(tmp_path, [10, 20])
    wanted = [("charts/episodic_return", 10, 10.0), ("charts/episodic_return", 20, 20.0)]
    assert scalars_of(tmp_path) == wanted


def test_a_resumed_curve_is_that_of_a_run_never_stopped(tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    write(tmp_path / "whole", [10, 20, 30, 40])
    write(tmp_path / "parts", [10, 20, 30])
    write(tmp_path / "parts", [30, 40], resumed_at=25)
    for folder in (tmp_path / "whole", tmp_path / "parts"):
        assert [step for _, step, _ in scalars_of(folder)] == [10, 20, 30, 40]


def test_a_value_at_the_step_of_the_checkpoint_stays(tmp_path):
    write(tmp_path, [10, 20])
    write(tmp_path, [30], resumed_at=20)
    assert [step for _, step, _ in scalars_of(tmp_path)] == [10, 20, 30]


def test_tensorboard_reads_a_histogram_as_it_was_given(tmp_path):
    tracker, values = started(tmp_path), np.array([0.0, 0.1, 0.9, 1.0, np.nan, np.inf])
    tracker.histogram("parameters/kernel", Histogram.of(values, bins=2), 30)
    tracker.end(0)
    reader = EventAccumulator(str(tmp_path), {"histograms": 0}).Reload()
    (event,) = reader.Histograms("parameters/kernel")
    shown = event.histogram_value
    assert (event.step, shown.num, shown.min, shown.max) == (30, 4, 0, 1)
    assert (shown.bucket_limit, shown.bucket) == ([0.5, 1.0], [2, 2])


# Writing a film starts a program, of which JAX warns, and leaves its pipes to the collector.
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\):RuntimeWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_film_moves_in_tensorboard(tmp_path):
    frames = [np.full((64, 640, 3), 10 * number, np.uint8) for number in range(20)]
    imageio.mimwrite(tmp_path / "version_7.mp4", frames, fps=20, macro_block_size=2)
    tracker = started(tmp_path)
    tracker.video(tmp_path / "version_7.mp4", 30)
    tracker.end(0)
    ((step, value),) = values_of(tmp_path)
    assert (step, value.tag, value.image.height, value.image.width) == (30, "videos", 32, 320)
    with Image.open(io.BytesIO(value.image.encoded_image_string)) as picture:
        assert picture.n_frames == 10
        picture.seek(9)
        assert abs(picture.convert("RGB").getpixel((5, 5))[0] - 180) < 20
