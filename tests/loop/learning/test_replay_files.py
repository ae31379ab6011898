"""A replay is saved by the blocks that are new, and a run goes on with it to the last bit."""

import os
from dataclasses import replace

import jax
import numpy as np
import pytest
from small_runs import CARTPOLE, assert_same, train

from srl import UserError
from srl.algorithms import DQN, SAC
from srl.algorithms.replay import Replay
from srl.loop.fused import Fused
from srl.loop.learning.replay_files import ReplayFiles
from srl.loop.training import local_training
from srl.networks import MLP
from srl.record.block_files import Blocks
from srl.record.checkpoint import Checkpoints

SETTINGS = {"network": MLP(width=8), "unroll_length": 4, "batch_size": 16, "warm_up": 64}
DQN_RUN = replace(
    CARTPOLE,
    algorithm=DQN(**SETTINGS, samples_per_insert=1.0, priorities=0.6, n_step=2, replay=5 * 32),
)
"""Five unrolls are remembered of each slot."""
SAC_RUN = replace(
    CARTPOLE,
    env="native:Pendulum-v1",
    algorithm=SAC(**SETTINGS, samples_per_insert=0.5, replay=5 * 32),
)


def save(trainer, checkpoints):
    files = trainer.save_replays(checkpoints.replay_folder)
    checkpoints.save(
        trainer.learner.progress.updates, trainer.state(), {}, replay_files=files, wait=True
    )


def resume(trainer, checkpoints):
    tree, _ = checkpoints.restore_newest(like=trainer.state())
    trainer.restore(tree)
    trainer.restore_replays(
        checkpoints.replay_folder, checkpoints.replay_files(trainer.learner.progress.updates)
    )


def replays(trainer):
    return trainer.learner.replays.buffers


def listed(checkpoints):
    return sorted(os.listdir(checkpoints.replay_folder))


@pytest.mark.parametrize(
    ("experiment", "kind"), [(DQN_RUN, local_training), (DQN_RUN, Fused), (SAC_RUN, local_training)]
)
def test_a_stopped_run_with_a_replay_resumes_bitwise(start, tmp_path, experiment, kind):
    whole, checkpoints = start(experiment, kind), Checkpoints(tmp_path, keep=1)
    for updates in (3, 5):
        train(whole, updates)
        save(whole, checkpoints)
    resumed = start(experiment, kind)
    resume(resumed, checkpoints)
    assert_same(replays(whole), replays(resumed))
    assert train(resumed, 4) == train(whole, 4)
    assert_same(whole.state()["learners"], resumed.state()["learners"])
    assert_same(replays(whole), replays(resumed))
    save(resumed, checkpoints)
    checkpoints.close()
    assert listed(checkpoints) == ["3-8.0of1.safetensors", "8-12.0of1.safetensors"]


def test_only_blocks_that_are_new_are_written(start, tmp_path):
    trainer, checkpoints = start(DQN_RUN), Checkpoints(tmp_path, keep=2)
    times = {}
    for version in (1, 3, 4, 9):
        train(trainer, version - trainer.learner.progress.updates)
        save(trainer, checkpoints)
        for name in listed(checkpoints):
            stat = (checkpoints.replay_folder / name).stat()
            assert times.setdefault(name, stat.st_mtime_ns) == stat.st_mtime_ns
    assert list(times) == [f"{a}-{b}.0of1.safetensors" for a, b in [(0, 1), (1, 3), (3, 4), (4, 9)]]
    # Checkpoint 4 needs the blocks from the beginning; 9 has all that it needs in one file.
    assert set(listed(checkpoints)) == set(times)
    train(trainer, 1)
    save(trainer, checkpoints)
    checkpoints.close()
    assert listed(checkpoints) == ["4-9.0of1.safetensors", "9-10.0of1.safetensors"]


@pytest.mark.parametrize("damage", [os.unlink, lambda path: os.truncate(path, 100)])
def test_a_damaged_block_damages_the_checkpoints_that_need_it(start, tmp_path, damage):
    trainer, checkpoints = start(DQN_RUN), Checkpoints(tmp_path)
    for updates in (2, 2):
        train(trainer, updates)
        save(trainer, checkpoints)
    damage(checkpoints.replay_folder / "2-4.0of1.safetensors")
    like = trainer.state()
    _, damaged = checkpoints.restore_newest(like=like)
    checkpoints.close()
    assert [each.version for each in damaged] == [4]
    assert "replay/2-4.0of1.safetensors" in damaged[0].what


@pytest.mark.parametrize("name", ["0-2.0of1.safetensors", "2-4.0of1.safetensors"])
def test_a_run_goes_on_without_the_damaged_blocks_of_its_replay(start, tmp_path, name):
    trainer, checkpoints = start(DQN_RUN), Checkpoints(tmp_path / "run" / "checkpoints")
    for updates in (2, 2):
        train(trainer, updates)
        save(trainer, checkpoints)
    os.unlink(checkpoints.folder / "2.safetensors")
    flip_a_bit(checkpoints.replay_folder / name)
    with pytest.raises(UserError, match=r"replay/.*--partial-replay` .* goes on without 1 of .* 2"):
        checkpoints.restore_newest()
    left_out = checkpoints.leave_out_damaged_blocks()
    assert left_out.startswith("checkpoint 4 goes on without 1 of the 2 files of its replay")
    assert name in left_out
    resumed = start(DQN_RUN)
    resume(resumed, checkpoints)
    there = np.unique(replays(resumed)["policy"].unrolls.update).tolist()
    assert there == [-1, *({0, 1, 2, 3} - set(range(int(name[0]), int(name[2]))))]
    train(resumed, 3)
    save(resumed, checkpoints)
    checkpoints.check_replay(7)
    checkpoints.close()


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip_a_bit, os.unlink])
def test_a_block_that_is_damaged_while_a_run_goes_on_is_written_again(start, tmp_path, damage):
    trainer, checkpoints = start(DQN_RUN), Checkpoints(tmp_path)
    train(trainer, 1)
    save(trainer, checkpoints)
    damage(checkpoints.replay_folder / "0-1.0of1.safetensors")
    train(trainer, 2)
    save(trainer, checkpoints)
    resumed = start(DQN_RUN)
    resume(resumed, checkpoints)
    assert_same(replays(trainer), replays(resumed))
    checkpoints.close()


def test_a_block_of_another_course_of_the_run_is_noticed(start, tmp_path):
    trainer, checkpoints = start(DQN_RUN), Checkpoints(tmp_path)
    train(trainer, 2)
    save(trainer, checkpoints)
    other = start(replace(DQN_RUN, seed=1))
    train(other, 2)
    other.save_replays(checkpoints.replay_folder)
    with pytest.raises(Exception, match="it is of another checkpoint"):
        checkpoints.restore_newest(like=trainer.state())
    checkpoints.close()


ALL = 8
"""Slots."""


def remembered(slots, updates, blocks):
    """A replay that has forgotten the first of the updates, and priorities."""
    update = np.full((blocks, 1, len(slots)), -1, np.int32)
    for n in range(updates):
        update[n % blocks] = n

    def values(rows, *shape):
        count = blocks * rows * ALL * np.prod(shape, dtype=int)
        every = np.arange(count, dtype=np.float32).reshape(blocks, rows, ALL, *shape)
        own = every[:, :, slots]
        there = (update >= 0).reshape(blocks, 1, len(slots), *[1] * len(shape))
        stamp = update.reshape(there.shape).astype(np.float32) * 1e4
        return jax.device_put(np.where(there, own + stamp, 0))

    unrolls = Replay(
        *(values(3, 2), values(3), values(3) > 5, values(3) > 9, values(2)),
        memory={"policy": values(1, 4)},
        update=jax.device_put(update),
    )
    return {"policy": {"unrolls": unrolls, "priority": values(2)}}


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (2, 1), (2, 4), (4, 2)])
@pytest.mark.parametrize("updates", [2, 5, 13])
def test_another_number_of_learners_reads_its_own_slots(tmp_path, before, after, updates):
    def parts(count):
        each = ALL // count
        return [(k, range(k * each, (k + 1) * each)) for k in range(count)]

    def nothing():
        pass

    files = {}
    for k, slots in parts(before):
        writer = ReplayFiles(k, before)
        for done in sorted({1, updates - 1, updates}):
            saved = writer.save(tmp_path, remembered(slots, done, 5), done, nothing)
        assert not saved.error
        files |= saved.files
    for k, slots in parts(after):
        reader, empty = ReplayFiles(k, after), remembered(slots, 0, 5)
        loaded = reader.load(tmp_path, files, empty, updates, nothing)
        assert_same(loaded, remembered(slots, updates, 5))
        again = reader.save(tmp_path, loaded, updates + 1, nothing).files
        new = set(again) - set(files)
        assert new == {Blocks(updates, updates + 1, k, after).name}


def test_slots_without_a_saved_replay_begin_with_an_empty_one_and_a_warning(tmp_path, caplog):
    half = range(ALL // 2)
    saved = ReplayFiles(0, 2).save(tmp_path, remembered(half, 3, 5), 3, lambda: None)
    empty = remembered(range(ALL), 0, 5)
    loaded = ReplayFiles().load(tmp_path, saved.files, empty, 3, lambda: None)
    lost = f"checkpoint 3 holds no replay of {ALL - ALL // 2} of the {ALL} slots here"
    assert lost in caplog.text
    assert_same(jax.tree.map(lambda x: x[:, :, : ALL // 2], loaded), remembered(half, 3, 5))
    assert_same(
        jax.tree.map(lambda x: x[:, :, ALL // 2 :], loaded),
        remembered(range(ALL // 2, ALL), 0, 5),
    )


def test_a_replay_of_another_size_is_told(start, tmp_path):
    trainer, checkpoints = start(DQN_RUN), Checkpoints(tmp_path)
    train(trainer, 2)
    save(trainer, checkpoints)
    checkpoints.close()
    other = start(replace(DQN_RUN, algorithm=replace(DQN_RUN.algorithm, replay=2 * 32)))
    with pytest.raises(UserError, match=r"another form: policy/priority is float32\[5, 4, 8\]"):
        resume(other, checkpoints)


@pytest.mark.parametrize("kind", [local_training, Fused])
def test_a_replay_that_memory_would_not_hold_is_refused_with_its_size(start, kind):
    large = replace(DQN_RUN, algorithm=replace(DQN_RUN.algorithm, replay=10**13))
    with pytest.raises(UserError, match=r"the replay would take [\d,.]+ GiB of memory"):
        start(large, kind)


def test_a_replay_stays_in_its_memory_also_while_it_is_saved(start, tmp_path):
    trainer = start(DQN_RUN)
    train(trainer, 2)
    before = [x.unsafe_buffer_pointer() for x in jax.tree.leaves(replays(trainer))]
    trainer.save_replays(tmp_path)
    train(trainer, 2)
    assert [x.unsafe_buffer_pointer() for x in jax.tree.leaves(replays(trainer))] == before
