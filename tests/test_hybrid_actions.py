"""Trees of actions through all that handles actions: pools, training, agents, evaluation."""

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from pettingzoo import ParallelEnv

import srl
from srl import Experiment, UserError, make_pool
from srl.algorithms import PPO
from srl.config.experiment import Resolved
from srl.core.tree import leaves_of, map_tree
from srl.extras.check_env.checks import findings
from srl.extras.check_env.report import Settings
from srl.launch.local import train
from srl.networks import MLP
from srl.pools import ParallelPool
from srl.pools.functional.pool import FunctionalPool
from srl.run.folder import create_run
from tests.hybrid import ACTED, OBSERVED, Hybrid, HybridInJax


def sampled(space, count, seed=0):
    """Actions [count, ...] of a space."""
    space.seed(seed)
    return map_tree(lambda *rows: np.stack(rows), *(space.sample() for _ in range(count)))


def vector(num_envs):
    return SyncVectorEnv([Hybrid] * num_envs)


class Both(ParallelEnv):
    """Two agents with the actions of Hybrid."""

    metadata = {"name": "both"}  # noqa: RUF012
    possible_agents = ("one", "two")

    def observation_space(self, agent):
        return OBSERVED

    def action_space(self, agent):
        return ACTED

    def reset(self, seed=None, options=None):
        self.agents = [*self.possible_agents]
        self.games = {agent: Hybrid() for agent in self.agents}
        return {agent: game.reset(seed=seed)[0] for agent, game in self.games.items()}, {}

    def step(self, actions):
        results = [game.step(actions[agent]) for agent, game in self.games.items()]
        observations, rewards, ends, cuts, infos = (
            dict(zip(self.agents, part, strict=True)) for part in zip(*results, strict=True)
        )
        return observations, rewards, ends, cuts, infos


@pytest.mark.parametrize("workers", [0, 1])
def test_pools_of_python_give_environments_their_trees(workers):
    with make_pool("tests.hybrid:Hybrid", 3, workers=workers) as pool:
        pool.reset(0)
        actions = sampled(pool.specs.action, 3)
        expected = actions["lights"].mean((1, 2)) + 5 * actions["push"].mean(1)
        expected += actions["more"][1][:, 0] / 4
        rewards = pool.step(actions).reward - expected
        assert (np.isclose(rewards, 0, atol=1e-6) | np.isclose(rewards, 1)).all()
        wrong = {**actions, "move": actions["move"] - 3}
        with pytest.raises(UserError, match=r"the action .* is not in Discrete\(3, start=1\)"):
            pool.step(wrong)
        with pytest.raises(UserError, match=r"actions\['lights'\] have shape \(1, 2, 2\)"):
            pool.step({**actions, "lights": actions["lights"][:1]})
        with pytest.raises(UserError, match="actions: ndarray; expected a dict of"):
            pool.step(actions["push"])


def test_asynchronous_pools_take_trees():
    with make_pool(Hybrid, 4, batch_size=2, workers=0) as pool:
        pool.async_reset(0)
        for _ in range(6):
            ids = pool.recv().env_id
            pool.send(sampled(pool.specs.action, 2), ids)


def test_vector_environments_take_batched_trees():
    with make_pool(vector, 3) as pool:
        pool.reset(0)
        for _ in range(12):
            pool.step(sampled(pool.specs.action, 3))
    made = srl.make_vec(Hybrid, 3)
    made.reset(seed=0)
    made.step(made.action_space.sample())
    made.close()


def test_agents_of_pettingzoo_act_by_trees():
    with ParallelPool(make_pool(Both, 2)) as pool:
        pool.reset(0)
        actions = {agent: sampled(ACTED, 2, seed) for seed, agent in enumerate(pool.agents)}
        _, rewards, *_ = pool.step(actions)
        for agent, own in actions.items():
            paid = own["lights"].mean((1, 2)) + 5 * own["push"].mean(1) + own["more"][1][:, 0] / 4
            rest = rewards[agent] - paid
            assert (np.isclose(rest, 0, atol=1e-6) | np.isclose(rest, 1)).all()


def test_environments_in_jax_take_trees():
    pool = FunctionalPool(HybridInJax(), 3, 1, "hybrid")
    pool.reset(0)
    actions = sampled(pool.specs.action, 3)
    pool.send(map_tree(lambda x: x[::-1], actions), np.array([2, 1, 0]))
    expected = actions["push"][0].sum(1) - actions["choice"]
    np.testing.assert_allclose(pool.recv().reward, expected, rtol=1e-5)


def test_random_actions_of_check_env_are_trees():
    settings = Settings("tests.hybrid:Hybrid", 60, 20.0, 0, {})
    found = list(findings(settings, lambda **_: None))
    assert not [each for each in found if getattr(each, "verdict", "ok") == "fix"]


def test_a_policy_of_trees_trains_acts_and_is_evaluated(tmp_path):
    experiment = Experiment(
        name="hybrid",
        env=Hybrid,
        num_envs=4,
        algorithm=PPO(network=MLP(width=8), unroll_length=10, epochs=1, minibatches=1),
        updates=2,
    )
    folder = create_run(Resolved(experiment, "", (), None, tmp_path), tmp_path / "run")
    assert train(experiment, folder) == 0
    agent, env = srl.load(folder.path), Hybrid()
    observation, _ = env.reset(seed=0)
    for deterministic in (True, False):
        action, _ = agent.act(observation, deterministic=deterministic)
        env.step(action)
    several, _ = agent.act(np.stack([observation] * 3))
    assert [len(leaf) for leaf in leaves_of(several)] == [3] * 5
    assert "episode_return" in srl.evaluate(folder.path, episodes=2)["results"]
