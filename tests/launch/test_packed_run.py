import pytest

from srl.errors import UserError
from srl.experiment import load_experiment
from srl.launch.folder import create_run, open_run
from srl.launch.packed_run import VARIABLE, PackedRun

SOURCE = """
from srl import Experiment

experiment = Experiment(name="small", env="native:CartPole-v1")
"""


@pytest.fixture
def run(tmp_path):
    file = tmp_path / "small.py"
    file.write_text(SOURCE)
    return create_run(load_experiment(str(file), ["--num-envs", "16"]), tmp_path / "run")


def test_a_host_that_does_not_see_the_folder_gets_the_same_experiment(run, tmp_path, monkeypatch):
    text = PackedRun.of(run, run).to_text()
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    (tmp_path / "small.py").unlink()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    packed = PackedRun.from_environment({VARIABLE: text})
    assert not packed.seen
    folder, resolved = open_run(packed.unpack().path)
    assert folder.path.parent == tmp_path
    assert resolved.experiment.name == "small"
    assert resolved.experiment.num_envs == 16


def test_a_host_sees_a_folder_only_if_it_is_that_of_the_run(run, tmp_path):
    packed = PackedRun.of(run, run)
    assert packed.seen
    run.config.write_text("{}")
    assert not packed.seen


def test_an_experiment_that_is_too_long_to_travel_is_refused(run):
    run.source.write_text(SOURCE + "# and so on\n" * 10_000)
    with pytest.raises(UserError, match="at most 100000"):
        PackedRun.of(run, run).to_text()
