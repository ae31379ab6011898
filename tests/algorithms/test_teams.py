"""Values of teams are mixed from those of the agents that are there."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_unrolls import SLOTS, STEPS, unroll_of
from gymnasium import spaces

from srl import Experiment, SelfPlay, UserError
from srl.algorithms import DQN, PPO, PQN, Mixer
from srl.algorithms.preprocessing import bound
from srl.algorithms.teams import TeamObservation, team_unroll
from srl.core.types import Specs
from srl.loop.policy_set import PolicySet
from srl.networks import MLP

BOX = spaces.Box(-9, 9, (3,), np.float32)
SPECS = Specs(BOX, spaces.Discrete(2), ("cat_0", "dog", "cat_1"))
TEAM = replace(SPECS, agents=("cat_0", "cat_1"))
KEY = jax.random.key(3)


def network(kind, **settings):
    algorithm = PQN(network=MLP(width=4), mixer=Mixer(kind, width=3, **settings), minibatches=1)
    return algorithm.bind(TEAM, 10, 4).actor


def observed(random, rows, terminated=False, truncated=False):
    flags = (np.broadcast_to(flag, (rows, 2)) for flag in (terminated, truncated))
    return TeamObservation(random.normal(size=(rows, 2, 3)).astype(np.float32), *flags)


def joint(actor, params, seen, outputs):
    action = np.zeros(outputs.shape[:-1], np.int32)
    return np.asarray(actor.joint(params, {}, seen, outputs, action))[..., 0]


def test_vdn_adds_up_the_values_of_the_agents_that_are_there():
    actor, random = network("vdn"), np.random.default_rng(0)
    outputs = random.normal(size=(3, 2, 2)).astype(np.float32)
    dead = np.array([[False, False], [False, True], [True, True]])
    found = joint(actor, {"mixer": {}}, observed(random, 3, dead), outputs)
    first = outputs[..., 0]
    np.testing.assert_allclose(found, [first[0].sum(), first[1, 0], 0.0], rtol=1e-6)


def test_an_agent_that_is_cut_off_counts_in_the_last_row_alone():
    flags = np.array([[True, False], [True, True]])
    seen = TeamObservation((), np.zeros((2, 2), bool), flags)
    np.testing.assert_array_equal(seen.present, [[False, True], [True, True]])


def test_qmix_is_the_network_of_its_paper():
    """Rashid et al., 2018, equations 5 and 6 and figure 2, with weights by two layers."""
    actor, random = network("qmix"), np.random.default_rng(1)
    params, seen = actor.init(KEY), observed(random, 5)
    outputs = random.normal(size=(5, 2, 2)).astype(np.float32)
    state = np.asarray(seen.agents).reshape(5, 6)
    mixer = jax.tree.map(np.asarray, params["mixer"])

    def dense(name, x):
        return x @ mixer[name]["kernel"] + mixer[name]["bias"]

    def two_layers(name):
        return dense(name, np.maximum(dense(f"{name}_hidden", state), 0))

    first = np.abs(two_layers("first")).reshape(5, 2, 3)
    hidden = np.einsum("na,nah->nh", outputs[..., 0], first) + dense("bias", state)
    hidden = np.where(hidden > 0, hidden, np.expm1(hidden))
    expected = np.sum(hidden * np.abs(two_layers("last")), -1) + two_layers("value")[:, 0]
    np.testing.assert_allclose(joint(actor, params, seen, outputs), expected, rtol=1e-4, atol=1e-5)


def test_the_value_of_qmix_never_falls_with_an_agents_value():
    actor, random = network("qmix"), np.random.default_rng(2)
    params, seen = actor.init(KEY), observed(random, 50)
    outputs = jnp.asarray(random.normal(size=(50, 2, 2)), jnp.float32)
    action = jnp.zeros((50, 2), jnp.int32)
    total = lambda x: jnp.sum(actor.joint(params, {}, seen, x, action))  # noqa: E731
    gradient = jax.grad(total)(outputs)[..., 0]
    assert bool((gradient > 0).any())
    assert bool((gradient >= 0).all())


def test_the_weights_of_qmix_may_come_from_a_part_of_the_observation_alone():
    space = spaces.Dict(own=BOX, state=spaces.Box(-9, 9, (2, 2), np.float32))
    algorithm = PQN(network=MLP(width=4), mixer=Mixer(state_key="state"), minibatches=1)
    actor = algorithm.bind(replace(TEAM, observation=space), 10, 4).actor
    params, random = actor.init(KEY), np.random.default_rng(4)
    assert params["mixer"]["bias"]["kernel"].shape == (4, 32)
    there = np.zeros((5, 2), bool)
    agents = {"own": random.normal(size=(5, 2, 3)), "state": random.normal(size=(5, 2, 2, 2))}
    outputs = random.normal(size=(5, 2, 2)).astype(np.float32)
    values = [
        joint(actor, params, TeamObservation({**agents, **changed}, there, there), outputs)
        for changed in ({}, {"own": 1 - agents["own"]}, {"state": 1 - agents["state"]})
    ]
    np.testing.assert_array_equal(values[0], values[1])
    assert (values[0] != values[2]).all()
    with pytest.raises(UserError, match="give a part of a Dict"):
        network("qmix", state_key="state").init(KEY)


def test_a_teams_unroll_ends_with_its_last_agent():
    unroll = unroll_of(0)
    terminated, truncated = np.zeros((2, STEPS + 1, SLOTS), bool)
    terminated[1, 0] = terminated[2, :2] = terminated[3, 2] = truncated[3, 3] = True
    teams = team_unroll(unroll._replace(terminated=terminated, truncated=truncated), 2)
    np.testing.assert_array_equal(np.argwhere(teams.terminated), [[2, 0]])
    np.testing.assert_array_equal(np.argwhere(teams.truncated), [[3, 1]])
    np.testing.assert_allclose(teams.reward, unroll.reward.reshape(STEPS + 1, 4, 2).mean(-1))
    np.testing.assert_array_equal(teams.slot, [0, 2, 4, 6])
    np.testing.assert_array_equal(teams.action[:, 1], unroll.action[:, 2:4])


def test_the_present_observations_of_all_agents_are_standardised():
    algorithm = PQN(network=MLP(width=4), mixer=Mixer(), normalize_observations=True)
    instance = bound(replace(algorithm, unroll_length=STEPS), TEAM, 10, SLOTS // 2)
    unroll = unroll_of(0)
    state, _, batch = instance.prepare(instance.init(KEY), (), unroll, lambda sums: sums)
    del state
    there = ~(unroll.terminated | unroll.truncated)[:-1]
    found = batch.results["observation"]
    np.testing.assert_allclose(found.mean, unroll.observation[:-1][there].mean(0), atol=1e-4)


def test_an_instance_knows_the_agents_of_its_own_policy():
    mixed = DQN(network=MLP(width=4), mixer=Mixer("vdn"))
    for algorithm, slots in ((PPO(), 16), (mixed, 8)):
        policies = {"cat*": "cats", "dog": "dogs"}
        instances = PolicySet.of(algorithm, policies, SPECS, 5, num_envs=8).instances
        assert instances["cats"].specs.agents == ("cat_0", "cat_1")
        assert instances["dogs"].specs.agents == ("dog",)
        assert instances["cats"].slots == slots
    assert instances["cats"].slots_of_block(8) == 2


def test_past_versions_play_whole_teams_alone():
    game = Experiment("x", "native:CartPole-v1", num_envs=8, self_play=SelfPlay(past=0.5))
    mixed = DQN(network=MLP(width=4), mixer=Mixer())
    whole = PolicySet.of(mixed, {"cat*": "cats", "dog": "dogs"}, SPECS, 5, num_envs=8)
    assert whole.with_opponents(game, 1).period == 4
    with pytest.raises(UserError, match="give each side a policy"):
        PolicySet.of(mixed, {"*": "all"}, SPECS, 5, num_envs=8).with_opponents(game, 1)


def shared(forms):
    """The rewards that a policy of all agents learns from, of 1, 2 and 3 in one environment."""
    policy_set = PolicySet.of(PPO(), {"*": "all"}, SPECS, 5, num_envs=1, team_reward=forms)
    unroll = unroll_of(0)
    unroll = unroll._replace(reward=np.float32([[1, 2, 3]]), memory={"all": ()})
    return np.asarray(policy_set._unroll_of("all", unroll).reward)[0].tolist()


def test_agents_of_a_team_learn_from_its_sum_or_mean():
    assert shared({}) == [1, 2, 3]
    assert shared({"cat*": "sum"}) == [4, 2, 4]
    assert shared({"cat*": "mean", "*": "sum"}) == [2, 2, 2]


def test_a_team_reward_for_nobody_is_refused():
    with pytest.raises(UserError, match="is for no agent"):
        shared({"cow*": "sum"})
    with pytest.raises(UserError, match="expected sum or mean by pattern"):
        Experiment("x", "native:CartPole-v1", team_reward={"*": "most"}).validate()
