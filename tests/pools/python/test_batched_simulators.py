"""A simulator shaped as ManiSkill: nested observations of tensors, resets by indices."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from test_vector_env import Tensor

from srl import Experiment, UserError, make_pool
from srl.algorithms import PPO
from srl.loop.training import local_training
from srl.networks import MLP


def tensor(array):
    """One of PyTorch where it is installed; else what becomes an array by the same calls."""
    try:
        import torch
    except ImportError:
        return Tensor(array)
    return torch.from_numpy(np.array(array))


class Reaching(VectorEnv):
    """Arms of two joints that reach for goals; an episode ends at its goal or after five steps."""

    def __init__(self, num_envs):
        self.metadata = {}  # Gymnasium's own is one dict for all, into which others write
        self.num_envs = num_envs
        self.single_observation_space = spaces.Dict(
            agent=spaces.Dict(qpos=spaces.Box(-np.inf, np.inf, (2,))),
            extra=spaces.Dict(goal=spaces.Box(-np.inf, np.inf, (2,))),
        )
        self.single_action_space = spaces.Box(-1, 1, (2,))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.qpos, self.goal = np.zeros((2, num_envs, 2), np.float32)
        self.steps = np.zeros(num_envs, np.int32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        chosen = (options or {}).get("env_idx", np.arange(self.num_envs))
        drawn = self.np_random.uniform(-1, 1, (self.num_envs, 2))
        self.qpos[chosen], self.steps[chosen] = 0, 0
        self.goal[chosen] = drawn[chosen]
        return self.observed(), {}

    def step(self, actions):
        self.qpos += np.asarray(actions)
        self.steps += 1
        distance = np.linalg.norm(self.qpos - self.goal, axis=1).astype(np.float32)
        success, late = distance < 0.1, self.steps >= 5
        results = map(tensor, (-distance, success, late & ~success))
        return self.observed(), *results, {"success": tensor(success)}

    def observed(self):
        return {"agent": {"qpos": tensor(self.qpos)}, "extra": {"goal": tensor(self.goal)}}


class ResetMask(gymnasium.vector.VectorWrapper):
    """Resets by a mask what resets by indices; as docs/environments.md has it."""

    def reset(self, *, seed=None, options=None):
        if options and "reset_mask" in options:
            options = {"env_idx": np.flatnonzero(options["reset_mask"])}
        return self.env.reset(seed=seed, options=options)


def reaching(num_envs):
    envs = Reaching(num_envs)
    envs.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
    return ResetMask(envs)


def test_nested_tensors_become_rows_with_true_last_observations():
    with make_pool(reaching, 3) as pool:
        row = pool.reset(seed=0)
        goals = row.observation["extra"]["goal"].copy()
        for _ in range(2):  # reaches two of the goals at the second step
            row = pool.step(np.where(np.arange(3)[:, None] < 2, goals / 2, 0).astype(np.float32))
        assert row.terminated.tolist() == [True, True, False]
        last = row.observation["agent"]["qpos"][:2].copy()
        np.testing.assert_allclose(last, goals[:2], atol=1e-6)
        row = pool.step(np.zeros((3, 2), np.float32))
        assert (row.observation["agent"]["qpos"][:2] == 0).all()
        assert (row.observation["extra"]["goal"][:2] != goals[:2]).all()
        assert (row.observation["extra"]["goal"][2] == goals[2]).all()
        assert row.episode_length.tolist() == [0, 0, 3]


def test_it_trains():
    algorithm = PPO(network=MLP(width=8), unroll_length=8, epochs=1)
    trainer = local_training(
        Experiment(name="reach", env=reaching, num_envs=4, algorithm=algorithm)
    )
    try:
        trainer.start()
        trainer.update()
        assert 1 <= trainer.report()["episode_length"] <= 5
    finally:
        trainer.close()


def test_a_simulator_that_does_not_name_its_autoreset_is_refused_with_what_to_do():
    with pytest.raises(UserError, match="autoreset_mode"):
        make_pool(Reaching, 3)
