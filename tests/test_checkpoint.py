import os
import resource
import shutil
import signal
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors import safe_open

from srl.core.errors import RunError, Unwritable, UserError
from srl.record import array_file
from srl.record.checkpoint import Checkpoints, Damaged
from srl.record.files import UNFINISHED

COUNTS = {"env_steps": 100, "updates": 1}


class Learner(NamedTuple):
    params: dict
    optimizer: tuple
    key: jax.Array


def learner(width=4):
    params = {"policy": {"Dense_0": {"kernel": jnp.ones((3, width)), "bias": jnp.zeros(width)}}}
    return Learner(params, optax.adam(1e-3).init(params), jax.random.key_data(jax.random.key(1)))


def same(left, right):
    left, right = jax.tree.leaves(left), jax.tree.leaves(right)
    return len(left) == len(right) and all(
        np.asarray(a).dtype == np.asarray(b).dtype
        and np.asarray(a).shape == np.asarray(b).shape
        and np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(left, right, strict=True)
    )


@pytest.fixture
def checkpoints(tmp_path):
    opened = Checkpoints(tmp_path / "checkpoints", keep=2)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "dtype",
    "bool uint8 int8 int16 uint32 int32 int64 uint64 float16 float32 float64 bfloat16".split(),
)
def test_every_type_comes_back_bit_by_bit(checkpoints, dtype):
    bits = np.random.default_rng(0).integers(0, 256, size=(5, 16), dtype=np.uint8)
    array = bits % 2 == 1 if dtype == "bool" else bits.view(jnp.dtype(dtype))
    checkpoints.save(1, {"array": array, "scalar": array[0, 0]}, COUNTS, wait=True)
    restored, _ = checkpoints.restore()
    assert same(restored, {"array": array, "scalar": array[0, 0]})


def test_structure_and_metadata_come_back(checkpoints):
    tree = {"learners": {"red": learner(), "blue": learner(8)}, "nothing": (), "none": None}
    checkpoints.save(7, tree, {"env_steps": 3, "note": "x"}, wait=True)
    restored, metadata = checkpoints.restore(7, like=tree)
    assert jax.tree.structure(restored) == jax.tree.structure(tree)
    assert same(restored, tree)
    assert metadata == {"env_steps": 3, "note": "x"}


def test_arrays_without_elements_are_kept(checkpoints):
    tree = {"empty": np.zeros((0, 3), np.int64)}
    checkpoints.save(1, tree, COUNTS, wait=True)
    assert same(checkpoints.restore(like=tree)[0], tree)


def test_without_a_template_the_tree_is_nested_dicts(checkpoints):
    checkpoints.save(1, {"learners": {"policy": learner()}}, COUNTS, wait=True)
    tree, _ = checkpoints.restore()
    kernel = tree["learners"]["policy"]["params"]["policy"]["Dense_0"]["kernel"]
    assert isinstance(kernel, np.ndarray)
    assert kernel.shape == (3, 4)


def test_arrays_may_change_while_they_are_saved(checkpoints):
    array = np.zeros(1_000_000)
    checkpoints.save(1, {"array": array}, COUNTS)
    array += 1
    checkpoints.wait()
    assert not checkpoints.restore()[0]["array"].any()


def test_only_the_newest_are_kept(checkpoints):
    for version in (10, 20, 30):
        checkpoints.save(version, {"x": np.arange(version)}, COUNTS)
    checkpoints.wait()
    assert checkpoints.versions() == [20, 30]
    assert checkpoints.latest() == 30
    assert checkpoints.restore(20)[0]["x"].size == 20


def test_saving_a_version_twice_keeps_the_first(checkpoints):
    checkpoints.save(1, {"x": np.zeros(1)}, COUNTS)
    checkpoints.save(1, {"x": np.ones(1)}, COUNTS, wait=True)
    assert checkpoints.restore()[0]["x"] == 0


def test_an_unknown_version_is_told_with_those_there(checkpoints):
    with pytest.raises(UserError, match="no checkpoint in"):
        checkpoints.restore()
    checkpoints.save(5, {"x": np.zeros(1)}, COUNTS, wait=True)
    with pytest.raises(UserError, match=r"no version 6 .* it has 5"):
        checkpoints.restore(6)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"a": np.zeros((3, 8), np.float32)}, r"a is float32\[3, 4\] in it and float32\[3, 8\]"),
        ({"a": np.zeros((3, 4), np.float64)}, r"a is float32\[3, 4\] in it and float64\[3, 4\]"),
        ({"b": np.zeros(1)}, r"b is absent in it and float64\[1\] here"),
        ({}, r"a is float32\[3, 4\] in it and absent here"),
    ],
)
def test_a_checkpoint_of_another_network_names_the_first_difference(checkpoints, other, told):
    checkpoints.save(1, {"a": np.zeros((3, 4), np.float32)}, COUNTS, wait=True)
    with pytest.raises(UserError, match=told):
        checkpoints.restore(like=other)


def cut_short(path):
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, empty])
def test_a_damaged_checkpoint_is_named_and_the_earlier_one_offered(checkpoints, damage):
    tree = {"x": np.random.default_rng(0).normal(size=100_000)}
    checkpoints.save(1, tree, COUNTS, wait=True)
    checkpoints.save(2, tree, COUNTS, wait=True)
    damage(checkpoints.folder / "2.safetensors")
    with pytest.raises(
        RunError, match=r"checkpoints/2.safetensors is damaged .* --version takes another one: 1"
    ):
        checkpoints.restore(like=tree)
    newest, damaged = checkpoints.restore_newest(like=tree)
    assert same(newest, tree)
    assert [each.version for each in damaged] == [2]
    assert checkpoints.newest_counts() == COUNTS
    checkpoints.set_aside(2, "damaged")
    assert checkpoints.versions() == [1]
    checkpoints.save(2, {"x": np.ones(1)}, COUNTS, wait=True)
    checkpoints.set_aside(2, "damaged")
    names = sorted(path.name for path in checkpoints.folder.iterdir())
    assert names == ["1.safetensors", "2.damaged", "2.damaged-2"]


@pytest.mark.parametrize("names", [("learners", "learners/policy"), ("a/b", "a")])
def test_a_checkpoint_with_an_array_within_another_is_damaged(checkpoints, names):
    arrays = {name: np.zeros(1) for name in names}
    checkpoints.folder.mkdir()
    array_file.write(checkpoints.folder / "1.safetensors", arrays, {"updates": "1"})
    with pytest.raises(RunError, match=r"1.safetensors is damaged \(array"):
        checkpoints.restore()


def test_a_lone_damaged_checkpoint_is_named_and_kept(checkpoints):
    checkpoints.save(1, {"x": np.zeros(3)}, COUNTS, wait=True)
    cut_short(checkpoints.folder / "1.safetensors")
    with pytest.raises(RunError, match=r"1.safetensors is damaged .* there is no other"):
        checkpoints.restore()
    with pytest.raises(RunError, match=r"1.safetensors is damaged"):
        checkpoints.restore_newest()
    assert checkpoints.versions() == [1]


@pytest.mark.parametrize("flipped", range(0, 400, 7))
def test_a_changed_bit_anywhere_in_a_checkpoint_is_noticed(checkpoints, flipped):
    checkpoints.save(1, {"x": np.arange(9)}, COUNTS, wait=True)
    path = checkpoints.folder / "1.safetensors"
    data = bytearray(path.read_bytes())
    assert 200 < len(data) < 400
    data[flipped % len(data)] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged):
        checkpoints.restore()


@pytest.mark.parametrize("count", ["", "x", "[" * 100_000, "\ud83d"])
def test_metadata_that_srl_did_not_write_are_damaged(checkpoints, count):
    checkpoints.save(1, {"x": np.zeros(3)}, COUNTS, wait=True)
    array_file.write(checkpoints.folder / "1.safetensors", {"x": np.zeros(3)}, {"updates": count})
    for read in (checkpoints.restore, checkpoints.metadata):
        with pytest.raises(Damaged):
            read()
    assert checkpoints.newest_counts() is None


def test_a_checkpoint_can_be_read_without_srl(checkpoints):
    checkpoints.save(1, {"learners": {"policy": learner()}}, COUNTS, wait=True)
    with safe_open(checkpoints.folder / "1.safetensors", framework="numpy") as file:
        kernel = file.get_tensor("learners/policy/params/policy/Dense_0/kernel")
        assert file.metadata()["env_steps"] == "100"
    assert kernel.tolist() == [[1.0] * 4] * 3


def test_equal_states_make_equal_files(tmp_path):
    written = set()
    for name in "abcdefgh":
        array_file.write(
            tmp_path / name, {"y": np.ones(2), "x": np.zeros(3, "b")}, {"1": "", "0": ""}
        )
        written.add((tmp_path / name).read_bytes())
    assert len(written) == 1


def test_a_type_that_the_format_lacks_is_reported_when_it_is_saved(checkpoints):
    with pytest.raises(
        Unwritable, match=r"the type of x is 'complex128'; expected bool bfloat16 .*"
    ):
        checkpoints.save(1, {"x": np.zeros(3, complex)}, COUNTS, wait=True)
    assert checkpoints.versions() == []


def test_a_checkpoint_of_an_earlier_srl_is_refused_in_a_line_and_kept(checkpoints):
    (checkpoints.folder / "7" / "state").mkdir(parents=True)
    for use in (checkpoints.latest, checkpoints.restore, checkpoints.newest_counts):
        with pytest.raises(UserError, match=r"checkpoints/7 is a checkpoint .* of an earlier srl"):
            use()
    with pytest.raises(Unwritable, match="of an earlier srl"):
        checkpoints.save(8, {"x": np.zeros(1)}, COUNTS, wait=True)


def test_a_file_in_place_of_the_folder_is_told(tmp_path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(UserError, match=r"cannot read the checkpoints in .*: Not a directory"):
        Checkpoints(tmp_path / "checkpoints").latest()


SAVE_UNTIL_KILLED = """
import sys
from pathlib import Path
import numpy as np
from srl.record import array_file
from srl.record.checkpoint import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]), keep=2)
for version in range(1, 1000):
    checkpoints.save(version, {"x": np.full(3_000_000, version)}, {"updates": version})
    print(version, flush=True)
"""


@pytest.mark.parametrize("saves", [2, 3])
def test_a_process_killed_while_saving_leaves_whole_checkpoints(tmp_path, saves):
    command = [sys.executable, "-c", SAVE_UNTIL_KILLED, str(tmp_path / "checkpoints")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for _ in range(saves):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    latest = checkpoints.latest()
    assert latest is not None
    assert latest >= saves - 1
    for version in checkpoints.versions():
        tree, metadata = checkpoints.restore(version)
        assert (tree["x"] == version).all()
        assert metadata == {"updates": version}
    checkpoints.save(2000, {"x": np.zeros(1)}, COUNTS, wait=True)
    assert checkpoints.latest() == 2000
    assert not list(checkpoints.folder.glob(f"{UNFINISHED}*"))
    checkpoints.close()


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_told_and_loses_nothing(small_disk):
    checkpoints = Checkpoints(small_disk / "checkpoints", keep=1)
    small = {"x": np.arange(1000)}
    checkpoints.save(1, small, COUNTS, wait=True)
    noise = np.random.default_rng(0).integers(0, 256, size=8_000_000, dtype=np.uint8)
    with pytest.raises(RunError, match=r"checkpoints: No space left .*checkpoints \(1\) are"):
        checkpoints.save(2, {"x": noise}, COUNTS, wait=True)
    assert checkpoints.versions() == [1]
    assert same(checkpoints.restore(like=small)[0], small)
    checkpoints.save(3, small, COUNTS, wait=True)
    assert checkpoints.versions() == [3]
    checkpoints.close()


def test_a_write_that_fails_midway_is_told_and_loses_nothing(checkpoints):
    small, noise = {"x": np.arange(1000)}, np.random.default_rng(0).bytes(8_000_000)
    checkpoints.save(1, small, COUNTS, wait=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, before[1]))
    try:
        with pytest.raises(
            RunError, match=r"File too large.* earlier checkpoints \(1\) are intact"
        ):
            checkpoints.save(2, {"x": np.frombuffer(noise, np.uint8)}, COUNTS, wait=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert checkpoints.versions() == [1]
    assert same(checkpoints.restore(like=small)[0], small)
    assert not list(checkpoints.folder.glob(f"{UNFINISHED}*"))


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    checkpoints = Checkpoints(tmp_path / "file" / "checkpoints")
    with pytest.raises(Unwritable, match=r"cannot save .*: cannot read the checkpoints in"):
        checkpoints.save(1, {"x": np.zeros(1)}, COUNTS, wait=True)
