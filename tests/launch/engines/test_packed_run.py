import pytest

from srl.config.experiment import load_experiment
from srl.launch.engines.packed_run import PackedRun
from srl.launch.engines.ray_host import config_hash
from srl.run.folder import create_run, open_run
from srl.streams.transport.keys import create_keys

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
    keys = create_keys(run.path)
    held = run.fixed_copy("seeker*") / "specs.json"  # of another run, whose policy plays
    held.parent.mkdir(parents=True)
    held.write_bytes(b"{}\xff")
    packed = PackedRun.of(run)
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    (tmp_path / "small.py").unlink()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder, resolved = open_run(packed.unpack().path)
    assert folder.path.parent == tmp_path
    assert resolved.experiment.name == "small"
    assert resolved.experiment.num_envs == 16
    assert (folder.fixed_copy("seeker*") / "specs.json").read_bytes() == b"{}\xff"
    assert packed.keys == keys.to_text()
    assert packed.keys not in repr(packed)


def test_keys_are_not_among_the_files_that_travel(run):
    create_keys(run.path)
    assert PackedRun.of(run).files.keys() == {"experiment.py", "config.json"}


def test_a_folder_is_told_from_that_of_another_run_at_the_same_path(run):
    before = config_hash(run)
    run.config.write_text("{}")
    assert config_hash(run) != before
    run.config.unlink()
    assert config_hash(run) == ""
