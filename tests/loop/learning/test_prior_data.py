"""Prior data of another run or of a data set: read, divided among slots, kept with the run."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from gymnasium import spaces
from small_runs import assert_same

from srl import Experiment
from srl.algorithms import DQN, PPO, SAC
from srl.config.experiment import resolved_value
from srl.core.errors import RunError, UserError
from srl.core.types import Specs, Unroll
from srl.dataflow import plans
from srl.loop.learning.prior import load_prior
from srl.loop.learning.replay_files import ReplayFiles
from srl.loop.training import local_training
from srl.networks import MLP
from srl.record.checkpoint import Checkpoints
from srl.run.folder import create_run

SLOTS, STEPS, UPDATES = 4, 8, 3
SPECS = Specs(spaces.Box(-9, 9, (4,), np.float32), spaces.Discrete(2), ("agent",))
SIZES = {"unroll_length": STEPS, "batch_size": 8, "samples_per_insert": 1.0, "warm_up": 0}
CARTPOLE = Experiment(
    name="cartpole",
    env="native:CartPole-v1",
    num_envs=SLOTS,
    groups=1,
    algorithm=DQN(network=MLP(width=8, depth=1), replay=100, priorities=0.5, **SIZES),
    updates=20,
    plan=plans.replicated(1),
)


def unroll_of(n, slots=range(SLOTS), observation=None, action=None):
    """An unroll whose rewards name the update and the slot."""
    columns = np.asarray(slots)
    shape = STEPS + 1, len(columns)
    return Unroll(
        observation=np.zeros((*shape, 4), np.float32) if observation is None else observation,
        reward=np.broadcast_to(10 * n + columns, shape).astype(np.float32),
        terminated=np.zeros(shape, bool),
        truncated=np.zeros(shape, bool),
        action=np.zeros((STEPS, len(columns)), np.int32) if action is None else action,
        log_prob=np.zeros((STEPS, len(columns)), np.float32),
        memory=(),
        version=np.zeros((STEPS, 1, 2), np.int32),
        slot=columns.astype(np.int32),
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The folder of a run of which a replay of three updates is left, by two learners."""
    folder = create_run(resolved_value(CARTPOLE), tmp_path_factory.mktemp("source") / "run")
    instance = CARTPOLE.algorithm.bind(SPECS, 10, SLOTS)
    checkpoints, files = Checkpoints(folder.checkpoints), {}
    ones = lambda rows: np.ones(rows.reward.shape[2], np.float32)  # noqa: E731
    for part, slots in enumerate((range(2), range(2, 4))):
        replay = instance.empty_replay(unroll_of(0, slots))
        for n in range(UPDATES):
            replay = instance.replay.insert(replay, unroll_of(n, slots), n, ones)
        saved = ReplayFiles(part, 2).save(
            checkpoints.replay_folder, {"policy": replay}, UPDATES, lambda: None
        )
        files |= saved.files
    counts = {"updates": UPDATES, "env_steps": 0}
    checkpoints.save(UPDATES, {"x": np.zeros(1)}, counts, replay_files=files, wait=True)
    checkpoints.close()
    return folder.path


def with_prior(folder, prior, experiment=CARTPOLE, **settings):
    """A new run's folder, and its experiment."""
    algorithm = replace(experiment.algorithm, prior=str(prior), **settings)
    experiment = replace(experiment, algorithm=algorithm)
    return create_run(resolved_value(experiment), folder / "run"), experiment


def loaded(folder, experiment, specs=SPECS, name="policy", columns=range(SLOTS), **parts):
    instances = {name: experiment.settled_algorithm.bind(specs, 10, SLOTS)}
    unrolls = {name: unroll_of(0, columns, **parts)}
    return load_prior(folder.prior, instances, unrolls, lambda _: np.asarray(columns))[name]


def test_each_unroll_of_another_run_belongs_to_one_slot_however_slots_are_divided(source, tmp_path):
    run, experiment = with_prior(tmp_path, source)
    whole = loaded(run, experiment)
    assert whole.reward.shape == (UPDATES, STEPS + 1, SLOTS)
    found = sorted(whole.reward[:, 0].ravel())
    assert found == sorted(10 * n + slot for n in range(UPDATES) for slot in range(SLOTS))
    halves = [loaded(run, experiment, columns=part) for part in (range(2), range(2, 4))]
    np.testing.assert_array_equal(
        np.concatenate([half.reward for half in halves], axis=2), whole.reward
    )
    assert whole.memory == () == whole.update


def test_a_single_policys_data_serve_a_policy_of_another_name(source, tmp_path):
    run, experiment = with_prior(tmp_path, source)
    assert loaded(run, experiment, name="walker").reward.shape[2] == SLOTS


def test_a_run_goes_on_to_the_last_bit_without_the_folder_of_its_prior_data(source, tmp_path):
    shutil.copytree(source, tmp_path / "source")
    run, experiment = with_prior(tmp_path, tmp_path / "source")
    shutil.rmtree(tmp_path / "source")

    def begun():
        training = local_training(experiment)
        training.folder = run.path
        training.start()
        return training

    training = begun()
    for _ in range(2):
        training.update()
    state = jax.tree.map(np.array, training.state())
    files = training.save_replays(tmp_path / "replay")
    training.update()
    prior, expected = training.learner.replays.buffers["policy"].prior, training.state()
    resumed = begun()
    resumed.restore(state)
    resumed.restore_replays(tmp_path / "replay", files)
    resumed.update()
    assert_same(resumed.state()["learners"], expected["learners"])
    assert_same(resumed.learner.replays.buffers, training.learner.replays.buffers)
    assert_same(prior, loaded(run, experiment))  # which nothing has written over
    whole = training.learner.replays.nbytes + sum(x.nbytes for x in jax.tree.leaves(prior))
    assert whole == sum(x.nbytes for x in jax.tree.leaves(training.learner.replays.buffers))
    training.close()
    resumed.close()


@pytest.mark.parametrize("damage", ["bits", "absent", "list"])
def test_damaged_prior_data_are_reported_by_their_file(source, tmp_path, damage):
    run, experiment = with_prior(tmp_path, source)
    file = sorted(run.prior.glob("*.safetensors"))[0]
    body = bytearray(file.read_bytes())
    file.unlink()  # a link to the other run's
    if damage == "bits":
        body[-5] ^= 1
        file.write_bytes(body)
    elif damage == "list":
        file = run.prior / "prior.json"
        file.write_text("{")
    with pytest.raises(RunError, match=file.name) as error:
        loaded(run, experiment)
    assert "\n" not in str(error.value)


WIDE = Specs(spaces.Box(-9, 9, (5,), np.float32), spaces.Discrete(2), ("agent",))


def test_prior_data_of_another_environment_are_refused(source, tmp_path):
    run, experiment = with_prior(tmp_path, source)
    wide = np.zeros((STEPS + 1, SLOTS, 5), np.float32)
    with pytest.raises(UserError, match=r"observation is float32\[4\] in .* and float32\[5\] here"):
        loaded(run, experiment, WIDE, observation=wide)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"reward_scale": 0.5}, r"reward_scale=1.0, and this run has reward_scale=0.5"),
        ({"frame_stack": 2}, r"frame_stack=0, and this run has frame_stack=2"),
    ],
)
def test_a_replay_that_holds_other_values_is_refused(source, tmp_path, settings, reason):
    with pytest.raises(UserError, match=reason):
        with_prior(tmp_path, source, **settings)
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_replay_is_refused(tmp_path):
    ppo = replace(CARTPOLE, algorithm=PPO(network=MLP(width=8)))
    other = create_run(resolved_value(ppo), tmp_path / "other")
    checkpoints = Checkpoints(other.checkpoints)
    checkpoints.save(1, {"x": np.zeros(1)}, {"updates": 1, "env_steps": 1}, wait=True)
    checkpoints.close()
    with pytest.raises(UserError, match="holds no replay; give a run of SAC"):
        with_prior(tmp_path, other.path)


PENDULUM = replace(CARTPOLE, env="native:Pendulum-v1", algorithm=SAC(network=MLP(width=8), **SIZES))
TORQUES = Specs(spaces.Box(-9, 9, (3,), np.float32), spaces.Box(-2, 2, (1,), np.float32), ("a",))


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """A data set of two episodes, of 5 and 14 steps; the first terminates."""
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    buffers = []
    for number, steps in enumerate((5, 14)):
        observation = np.full((steps + 1, 3), number, np.float64)
        observation[:, 1] = np.arange(steps + 1)
        ends = np.arange(steps) == steps - 1
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=number,
                observations=observation,
                actions=np.full((steps, 1), 2.0 * number - 1, np.float64),
                rewards=np.arange(1, steps + 1) + 100.0 * number,
                terminations=ends & (number == 0),
                truncations=np.zeros(steps, bool),
            )
        )
    minari.create_dataset_from_buffers(
        "swing/small-v0",
        buffers,
        observation_space=spaces.Box(-9, 9, (3,), np.float64),
        action_space=spaces.Box(-2, 2, (1,), np.float64),
    )
    return "minari:swing/small-v0"


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what the data set does not tell
def test_a_data_set_is_cut_into_unrolls_as_an_environment_would_give_them(dataset, tmp_path):
    run, experiment = with_prior(tmp_path, dataset, PENDULUM, reward_scale=0.5)
    form = {
        "observation": np.zeros((STEPS + 1, SLOTS, 3), np.float32),
        "action": np.zeros((STEPS, SLOTS, 1), np.float32),
    }
    prior = loaded(run, experiment, TORQUES, **form)
    rows = 5 + 1 + 14 + 1
    assert prior.reward.shape == (1, STEPS + 1, SLOTS)  # 3 unrolls; the first fills the last slot
    np.testing.assert_array_equal(prior.reward[..., 3], prior.reward[..., 0])

    def stream(x):
        return np.concatenate([x[0, :STEPS, slot] for slot in range(3)])[:rows]

    reward = [0, 1, 2, 3, 4, 5, 0, *range(101, 115)]
    np.testing.assert_array_equal(stream(prior.reward), 0.5 * np.array(reward))
    np.testing.assert_array_equal(stream(prior.observation)[:, 1], [*range(6), *range(15)])
    assert np.flatnonzero(stream(prior.terminated)).tolist() == [5]
    assert np.flatnonzero(stream(prior.truncated)).tolist() == [20]  # where recording ended
    assert prior.truncated[0, 5:, 2].all()  # rows that fill the last unroll
    action = stream(prior.action)[:, 0]
    np.testing.assert_allclose(action, [-0.5] * 6 + [0.5] * 15)  # as SAC has torques of 1


def test_a_data_set_that_is_not_here_is_reported_with_the_command_that_gets_it(tmp_path):
    pytest.importorskip("minari")
    with pytest.raises(UserError, match=r"cannot be read .*minari download no/such-v0"):
        with_prior(tmp_path, "minari:no/such-v0", PENDULUM)


def test_a_missing_package_is_reported_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(UserError, match=r"needs the package minari: .*pip install"):
        with_prior(tmp_path, "minari:no/such-v0", PENDULUM)


def test_prior_data_lie_in_the_runs_folder(source, tmp_path):
    run, _ = with_prior(tmp_path, Path(source).parent)  # a folder of runs: the newest
    files = {file.name for file in run.prior.iterdir()}
    assert files == {"prior.json", "0-3.0of2.safetensors", "0-3.1of2.safetensors"}
