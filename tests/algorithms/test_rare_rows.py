"""Rows that are rare: turns of others, agents that are not there, and teachers' actions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from srl.algorithms import APPO, DQN, IMPALA, PPO, PQN, R2D2, SAC, DiscreteSAC, Mixer
from srl.algorithms.preprocessing import bound
from srl.algorithms.replay import transitions, windows
from srl.algorithms.teams import team_unroll
from srl.core.types import Specs, Unroll
from srl.networks import MLP

KEY = jax.random.key(0)
BOX = spaces.Box(-9, 9, (3,), np.float32)
NET = MLP(width=8)


def unroll(observation, action, log_prob=None, terminated=None, truncated=None, advice=()):
    """Rows [T + 1, B] of random rewards, whose episodes end where that is given."""
    steps, slots = jax.tree.leaves(action)[0].shape[:2]
    rows = steps + 1, slots
    return jax.tree.map(
        jnp.asarray,
        Unroll(
            observation=observation,
            reward=np.random.default_rng(1).normal(size=rows).astype(np.float32),
            terminated=np.zeros(rows, bool) if terminated is None else terminated,
            truncated=np.zeros(rows, bool) if truncated is None else truncated,
            action=action,
            log_prob=np.zeros((steps, slots), np.float32) if log_prob is None else log_prob,
            memory=(),
            version=np.zeros((steps, 1, 2), np.int32),
            slot=np.arange(slots, dtype=np.int32),
            advice=advice,
        ),
    )


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def all_five(params):
    """The parameters of a network whose outputs are 5."""

    def of(path, x):
        names = [getattr(part, "key", "") for part in path]
        return jnp.full_like(x, 5.0 if names[-2:] == ["head", "bias"] else 0.0)

    return jax.tree_util.tree_map_with_path(of, params)


# ---- turns ----

STEPS = 8
MASK = np.ones((STEPS + 1, 1, 2), np.int8)
MASK[1::2] = 0
SEEN = {"observation": numbers(STEPS + 1, 1, 3), "action_mask": MASK}
TURNS = unroll(SEEN, np.zeros((STEPS, 1), np.int32))._replace(reward=jnp.zeros((STEPS + 1, 1)))
TURN_SPECS = Specs(
    spaces.Dict(observation=BOX, action_mask=spaces.MultiBinary(2)), spaces.Discrete(2), ("a",)
)


def targets_of_pqn():
    algorithm = PQN(network=NET, minibatches=1, unroll_length=STEPS, discount=1.0)
    instance = algorithm.bind(TURN_SPECS, None, 1)
    state = instance.init(KEY)
    state = state._replace(params=all_five(state.params))
    return instance.prepare(state, (), TURNS, lambda sums: sums)[2].samples.target


def targets_of_dqn():
    algorithm = DQN(network=NET, unroll_length=STEPS, discount=1.0, n_step=3)
    instance = algorithm.bind(TURN_SPECS, None, 1)
    state = instance.init(KEY)
    state = state._replace(params=all_five(state.params), targets=all_five(state.targets))
    steps = jax.tree.map(lambda x: x[0], transitions(windows(TURNS, 4), 1.0))
    _, metrics = instance.loss(state.params, state, steps)
    return metrics["td_error"] + metrics["q_value"]


def targets_of_discrete_sac():
    algorithm = DiscreteSAC(network=NET, unroll_length=STEPS, discount=1.0, temperature=1e-9)
    instance = algorithm.bind(TURN_SPECS, None, 1)
    state = instance.init(KEY)
    params = {**state.params, "critics": all_five(state.params["critics"])}
    state = state._replace(params=params, targets=all_five(state.targets))
    steps = jax.tree.map(lambda x: x[0], transitions(windows(TURNS, 2), 1.0))
    _, metrics = instance.critic_loss(params["critics"], state, steps, KEY)
    return 5 - jnp.sqrt(metrics["critic_loss"])  # of two critics, half the squares each


def targets_of_r2d2():
    algorithm = R2D2(
        network=replace(NET, memory=4), unroll_length=STEPS, discount=1.0, dueling=False,
        rescale=False, burn_in=0, sequence=STEPS, chunk=STEPS,
    )  # fmt: skip
    instance = algorithm.bind(TURN_SPECS, None, 1)
    state = instance.init(KEY)
    state = state._replace(params=all_five(state.params), targets=all_five(state.targets))
    memory = jax.tree.map(lambda x: x[None], instance.initial_memory(1))
    rows = windows(TURNS._replace(memory=memory), STEPS + 1, STEPS + 1)
    rows = jax.tree.map(lambda x: x[0], rows)
    _, metrics = instance.loss(state.params, state, rows)
    return metrics["td_error"] + metrics["q_value"]


@pytest.mark.parametrize(
    "targets", [targets_of_pqn, targets_of_dqn, targets_of_discrete_sac, targets_of_r2d2]
)
def test_values_go_on_while_others_have_their_turn(targets):
    """All values are 5 and all rewards 0, and no episode ends, so each target is 5."""
    np.testing.assert_allclose(targets(), 5.0, atol=1e-3)


# ---- teams ----


def team(mixer, observation_space, observation, terminated, truncated):
    """Two agents' team, and its unroll of two steps."""
    algorithm = PQN(network=NET, mixer=mixer, minibatches=1, unroll_length=2, discount=1.0)
    instance = bound(algorithm, Specs(observation_space, spaces.Discrete(2), ("a", "b")), 10, 1)
    rows = unroll(observation, np.zeros((2, 2), np.int32), None, terminated, truncated)
    return instance, rows


def test_a_team_ends_though_one_of_its_agents_never_joined():
    terminated, truncated = np.zeros((3, 2), bool), np.zeros((3, 2), bool)
    truncated[:, 1], terminated[2, 0] = True, True
    instance, rows = team(Mixer("vdn"), BOX, numbers(3, 2, 3), terminated, truncated)
    state = instance.init(KEY)
    params = {**state.params, "agents": all_five(state.params["agents"])}
    rows = rows._replace(reward=jnp.zeros((3, 2)))
    *_, batch = instance.prepare(state._replace(params=params), (), rows, lambda sums: sums)
    assert batch.samples.target[-1] == 0
    joined = team_unroll(rows, 2)
    assert joined.terminated[:, 0].tolist() == [False, False, True]
    assert not joined.truncated.any()


@pytest.mark.parametrize("dead", [0, 1])
def test_a_mixer_sees_the_state_of_an_agent_that_was_cut_off(dead):
    space = spaces.Dict(own=BOX, state=spaces.Box(-9, 9, (4,), np.float32))
    own, shared = numbers(3, 2, 3), np.repeat(numbers(3, 1, 4), 2, axis=1)
    terminated, truncated = np.zeros((3, 2), bool), np.zeros((3, 2), bool)
    terminated[1:, dead], truncated[2, 1 - dead] = True, True
    expected = shared[2, 1 - dead].copy()
    own[2, dead] = shared[2, dead] = 0
    observed = {"own": own, "state": shared}
    mixer = Mixer("qmix", state_key="state")
    instance, rows = team(mixer, space, observed, terminated, truncated)
    seen = team_unroll(rows, 2).observation
    state = instance._instance.actor._state(seen.agents, seen.present)
    np.testing.assert_array_equal(state[2, 0, 0], expected)


# ---- teachers ----

SIX = Specs(BOX, spaces.Box(-1, 1, (6,), np.float32), ("a",))


def taught_unroll(instance, state, seed, size=6):
    """Steps of which the teacher has taken about half, at the bounds."""
    observation = numbers(17, 8, 3, seed=seed)
    keys = jax.random.split(jax.random.fold_in(KEY, seed), 16 * 8)
    rows = jnp.asarray(observation[:-1].reshape(-1, 3))
    decision = instance.act(instance.policy(state), rows, (), keys, jnp.zeros(16 * 8, jnp.int32))
    log_prob = np.asarray(decision.log_prob).reshape(16, 8)
    action = np.array(decision.action).reshape(16, 8, size)
    action = np.where(np.isinf(log_prob)[..., None], np.sign(action), action)
    advice = {"action": np.sign(action)}
    return unroll(observation, action, log_prob, advice=advice)


def test_appo_leaves_out_a_teachers_actions_however_unlikely():
    algorithm = APPO(network=NET, teacher_share=0.5, imitation_cost=1.0, initial_log_std=-3.0)
    algorithm = replace(algorithm, minibatches=2, epochs=1, unroll_length=16)
    instance = algorithm.bind(SIX, 100, 8)
    state = instance.init(KEY)
    state, _, metrics = jax.jit(instance.learn)(state, taught_unroll(instance, state, 0))
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    assert abs(metrics["approx_kl"]) < 1


def test_who_acts_does_not_depend_on_the_parts_of_an_action():
    parts = {name: spaces.Box(-1, 1, (1,), np.float32) for name in "ab"}
    specs = Specs(BOX, spaces.Dict(parts), ("a",))
    algorithm = PPO(network=NET, teacher_share=0.5, minibatches=1, initial_log_std=0.0)
    instance, size = algorithm.bind(specs, None, 8), 4096
    policy = instance.policy(instance.init(KEY))
    slots, keys = jnp.zeros(size, jnp.int32), jax.random.split(KEY, size)
    decision = instance.act(policy, jnp.zeros((size, 3)), (), keys, slots)
    own = np.isfinite(decision.log_prob)
    for part in decision.action.values():
        assert abs(np.mean(np.asarray(part)[own])) < 0.1  # some five standard errors


def test_the_step_size_waits_for_the_policy_to_learn():
    algorithm = PPO(network=NET, desired_kl=0.01, value_warm_up=3, unroll_length=16)
    algorithm = replace(algorithm, minibatches=2, epochs=1, anneal=False)
    instance = algorithm.bind(SIX, 100, 8)
    state, learn = instance.init(KEY), jax.jit(instance.learn)
    for seed in range(3):
        observation = numbers(17, 8, 3, seed=seed)
        state, _, _ = learn(state, unroll(observation, numbers(16, 8, 6, seed=seed)))
        assert state.step_scale == 1


def test_the_step_size_follows_the_divergence_of_the_policys_own_actions():
    algorithm = PPO(network=NET, desired_kl=0.01, teacher_share=0.9, imitation_cost=1.0)
    algorithm = replace(algorithm, minibatches=1, epochs=1, unroll_length=16, anneal=False)
    instance = algorithm.bind(SIX, 100, 8)
    state = instance.init(KEY)
    metrics = {"approx_kl": jnp.array([0.003]), "own_actions": jnp.array([0.1])}
    batch = instance.prepare(state, (), taught_unroll(instance, state, 0), lambda sums: sums)[2]
    learned, _, _ = instance.finish(state, (), batch, metrics)
    assert learned.step_scale == np.float32(1 / 1.5)  # 0.03 is more than twice 0.01


@pytest.mark.parametrize("kind", [PPO, APPO, IMPALA])
def test_a_policy_that_begins_to_learn_has_a_new_optimizer(kind):
    instance = kind(network=NET, value_warm_up=5).bind(SIX, 100, 8)
    state, adam = instance.init(KEY), instance.adam
    moved = state._replace(optimizer=jax.tree.map(lambda x: x + 1, state.optimizer))
    first = moved._replace(n=jnp.int32(5))
    same = lambda a, b: jax.tree.all(jax.tree.map(jnp.array_equal, a, b))  # noqa: E731
    assert same(instance.optimizer_before(first, jnp.int32(0), adam), state.optimizer)
    assert same(instance.optimizer_before(first, jnp.int32(1), adam), moved.optimizer)
    assert same(instance.optimizer_before(moved, jnp.int32(0), adam), moved.optimizer)


# ---- tasks ----


def test_sac_without_a_reward_for_entropy_learns_in_a_mixture():
    space = spaces.Dict(x=BOX, task=spaces.Discrete(2))
    action = spaces.Box(-1, 1, (2,), np.float32)
    specs = Specs(space, action, ("a",), tasks=("one", "two"), task_of=(0, 1))
    algorithm = SAC(network=NET, temperature=0.0, warm_up=0, batch_size=4, replay=1_000)
    instance = replace(algorithm, samples_per_insert=1.0).bind(specs, 100, 4)
    task = np.tile(np.arange(4) % 2, (9, 1)).astype(np.int32)
    rows = unroll({"x": numbers(9, 4, 3), "task": task}, np.clip(numbers(8, 4, 2), -1, 1))
    state = instance.init(KEY)
    state, _, metrics = jax.jit(instance.learn)(state, rows, instance.empty_replay(rows))
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params["critics"]))
    assert metrics["temperature"] == 0
