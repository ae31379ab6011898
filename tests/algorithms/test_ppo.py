"""PPO: it learns, is deterministic, masks what must not count, and loads nothing early."""

import subprocess
import sys
from dataclasses import fields, replace
from functools import cached_property, partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jax import flatten_util

from srl.algorithms import APPO, PPO, ActorCritic
from srl.algorithms.gradient_descent import gradient_sums
from srl.algorithms.ppo import PPOInstance, adapted
from srl.config.experiment import load_experiment
from srl.core.config_values import config_values
from srl.core.errors import UserError
from srl.core.types import Policy, Specs, Unroll
from srl.networks import MLP

CONFIG = PPO(network=MLP(width=8), unroll_length=8, minibatches=4, epochs=2)
STALE_CONFIG = APPO(
    network=MLP(width=8),
    unroll_length=8,
    minibatches=4,
    epochs=2,
    learning_rate=CONFIG.learning_rate,
    max_grad_norm=CONFIG.max_grad_norm,
    entropy_cost=CONFIG.entropy_cost,
)
VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
MASKED = spaces.Dict(x=VECTOR, action_mask=spaces.MultiBinary(4))
METRICS = {
    *("policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac"),
    *("explained_variance", "grad_norm", "learning_rate"),
}


def specs(observation=VECTOR, action=None):
    return Specs(observation, action or spaces.Discrete(4), ("agent",))


def draw_observation(random, space, leading):
    if isinstance(space, spaces.Dict):
        return {name: draw_observation(random, part, leading) for name, part in space.items()}
    if isinstance(space, spaces.MultiBinary):
        mask = random.integers(0, 2, (*leading, space.n)).astype(np.int8)
        mask[..., 0] = 1
        return mask
    return random.normal(size=(*leading, *space.shape)).astype(np.float32)


def draw_unroll(instance, slots=6, seed=0, end=0.15):
    """Acts with the first policy in an environment of noise."""
    random = np.random.default_rng(seed)
    steps = instance.config.unroll_length
    state = instance.init(jax.random.key(0))
    observation = draw_observation(random, instance.specs.observation, (steps + 1, slots))
    keys = jax.random.split(jax.random.key(seed), (steps, slots))
    policy, act = instance.policy(state), jax.jit(instance.act)
    ends = random.random((2, steps + 1, slots)) < end
    memory, memories, decisions = instance.initial_memory(slots), [], []
    for t, key in enumerate(keys):
        memories.append(memory)
        seen = jax.tree.map(lambda x, t=t: x[t], observation)
        decision = act(policy, seen, memory, key, np.arange(slots))
        decisions.append(decision)
        ended = ends[:, t].any(0)[:, None]
        memory = jax.tree.map(lambda x, e=ended: np.where(e, 0, x), decision.memory)
    return Unroll(
        observation=observation,
        reward=random.normal(size=(steps + 1, slots)).astype(np.float32),
        terminated=ends[0],
        truncated=ends[1],
        action=np.stack([d.action for d in decisions]),
        log_prob=np.stack([d.log_prob for d in decisions]),
        memory=jax.tree.map(lambda *x: np.stack(x), *memories[:: instance.chunk or steps]),
        version=np.zeros((steps, 1, 2), np.int32),
        slot=np.arange(slots, dtype=np.int32),
    )


@pytest.fixture(scope="module")
def instance():
    return CONFIG.bind(specs())


@pytest.fixture(scope="module")
def learn(instance):
    return jax.jit(instance.learn)


@pytest.fixture(scope="module")
def unroll(instance):
    return draw_unroll(instance)


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def finite(tree):
    return all(np.isfinite(np.asarray(x, np.float64)).all() for x in jax.tree.leaves(tree))


def test_importing_the_configuration_loads_no_jax():
    code = (
        "import sys, numpy as np, gymnasium, srl.algorithms, srl.networks\n"
        "from srl.core.types import Specs\n"
        "box = gymnasium.spaces.Box(-2, 2, (1,))\n"
        "instance = srl.algorithms.PPO().bind(Specs(box, box, ('a',)))\n"
        "assert instance.env_action(np.ones((1, 1), 'f'))[0, 0] == 2\n"
        "assert not {'jax', 'flax', 'optax'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (MASKED, spaces.Discrete(4, start=2)),
        (MASKED, spaces.MultiDiscrete([2, 2])),
        (VECTOR, spaces.Box(-1, 1, (2,))),
    ],
)
def test_every_kind_of_action_is_learned_from(observation, action):
    instance = CONFIG.bind(specs(observation, action))
    unroll = draw_unroll(instance)
    state, _, metrics = jax.jit(instance.learn)(instance.init(jax.random.key(0)), unroll)
    assert set(metrics) == METRICS
    assert all(np.shape(value) == () for value in metrics.values())
    assert finite((state, metrics))
    assert int(state.n) == 1
    env_action = np.asarray(instance.env_action(unroll.action[0][0]))
    assert action.contains(env_action.astype(action.dtype))


def test_the_same_batch_gives_bitwise_the_same_state(instance, learn, unroll):
    one, other = (learn(instance.init(jax.random.key(1)), unroll) for _ in range(2))
    assert_same(one, other)


@pytest.mark.parametrize(
    ("kl", "factor"), [(0.0, 1.5), (0.0049, 1.5), (0.0051, 1), (0.0199, 1), (0.0201, 1 / 1.5)]
)
def test_the_step_size_follows_the_divergence_of_the_last_update(kl, factor):
    np.testing.assert_allclose(adapted(jnp.ones(()), jnp.asarray(kl), 0.01), factor)


def test_the_step_size_stays_within_a_thirtieth_and_thirty_times_the_setting():
    up = down = jnp.ones(())
    for _ in range(20):
        up, down = (adapted(x, kl, 0.01) for x, kl in ((up, jnp.zeros(())), (down, jnp.ones(()))))
    np.testing.assert_allclose((up, down), (30, 1 / 30), rtol=1e-6)


def test_a_desired_divergence_changes_the_step_size_of_the_next_update(unroll):
    instance = replace(CONFIG, desired_kl=1e-9, anneal=False).bind(specs())
    learn, state = jax.jit(instance.learn), instance.init(jax.random.key(0))
    state, _, first = learn(state, unroll)
    _, _, second = learn(state, unroll)
    np.testing.assert_allclose(first["learning_rate"], CONFIG.learning_rate)
    np.testing.assert_allclose(second["learning_rate"], CONFIG.learning_rate / 1.5)


@pytest.fixture(scope="module", params=[0, 6], ids=["without memory", "with memory"])
def off_policy(request):
    """Asynchronous PPO, and a batch."""
    network = MLP(width=8, memory=request.param)
    instance = replace(STALE_CONFIG, network=network, chunk=2).bind(specs())
    return instance, draw_unroll(instance)


def test_corrections_change_nothing_where_the_present_policy_acted(learn, instance, unroll):
    state = instance.init(jax.random.key(0))
    corrected, *_ = jax.jit(STALE_CONFIG.bind(specs()).learn)(state, unroll)
    expected, *_ = learn(state, unroll)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), corrected, expected)


def test_stale_samples_weigh_what_the_present_policy_would_have_made_of_them(off_policy):
    instance, unroll = off_policy
    state = instance.init(jax.random.key(0))  # the one that acted
    stale = unroll._replace(log_prob=unroll.log_prob + np.float32(0.5))

    @jax.jit
    def prepared(state, unroll):
        value, _ = instance.values(state, unroll)
        batch = instance.prepare(state, (), unroll, total=lambda sums: sums)[2]
        return batch.samples, instance.estimates(state, unroll, value)

    samples, (advantage, _, _, weight) = prepared(state, stale)
    valid = np.asarray(samples.valid)
    np.testing.assert_allclose(weight, np.where(valid, np.exp(-0.5), 1.0), rtol=1e-4)
    np.testing.assert_allclose(samples.log_prob, np.where(valid, unroll.log_prob, 0), atol=1e-5)
    counted = np.asarray(advantage)[valid]
    weighted = (advantage - counted.mean()) / counted.std() * np.exp(-0.5)
    expected = np.where(valid, weighted, 0.0)
    np.testing.assert_allclose(samples.advantage, expected, rtol=1e-3, atol=1e-5)


def test_what_a_reset_row_holds_changes_nothing(instance, learn):
    unroll = draw_unroll(instance, end=0.3)._replace(truncated=np.zeros((9, 6), bool))
    ended = unroll.terminated[:-1]
    assert ended.any()
    reward, action = unroll.reward.copy(), unroll.action.copy()
    log_prob, x = unroll.log_prob.copy(), unroll.observation.copy()
    reward[1:][ended], action[ended], log_prob[ended] = 1e30, 99, np.nan
    # Only a truncated observation is looked at: a terminal one is worth 0.
    x[:-1][ended] = 1e30
    other = unroll._replace(
        reward=reward,
        action=action,
        log_prob=log_prob,
        observation=x,
    )
    state = instance.init(jax.random.key(0))
    assert_same(learn(state, unroll), learn(state, other))


def test_a_batch_without_a_valid_row_changes_no_parameter(instance, learn, unroll):
    unroll = unroll._replace(terminated=np.ones((9, 6), bool))
    state = instance.init(jax.random.key(0))
    learned, _, metrics = learn(state, unroll)
    assert finite((learned, metrics))
    assert_same(learned.params, state.params)
    assert_same(learned.observations, state.observations)


def test_the_statistics_that_acted_are_those_that_learn(instance, learn, unroll):
    state, *_ = learn(instance.init(jax.random.key(0)), unroll)
    observation = np.random.default_rng(5).normal(3.0, 9.0, (9, 6, 3)).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), 6)
    act, policy = jax.jit(instance.act), instance.policy(state)
    decisions = [act(policy, x, (), keys, np.arange(6)) for x in observation[:-1]]
    other = unroll._replace(
        observation=observation,
        action=np.stack([d.action for d in decisions]),
        log_prob=np.stack([d.log_prob for d in decisions]),
    )

    def first_loss(state, unroll):
        state, _, batch = instance.prepare(state, (), unroll, total=lambda sums: sums)
        return instance.loss(state.params, state, batch.samples, batch.memory)[1]

    metrics = jax.jit(first_loss)(state, other)
    np.testing.assert_allclose(metrics["approx_kl"].sum(), 0, atol=1e-5)
    assert not metrics["clipfrac"].any()


def test_values_of_shared_layers_begin_from_the_memory_that_acted():
    network = MLP(width=8, memory=4, shared=True)
    instance = replace(CONFIG, network=network, chunk=2).bind(specs())
    unroll, state = draw_unroll(instance, end=0.0), instance.init(jax.random.key(3))
    later, values_of = unroll._replace(memory=unroll.memory + 1.0), jax.jit(instance.values)
    values = [values_of(state, each)[0] for each in (unroll, later)]
    assert np.abs(values[0][0] - values[1][0]).min() > 1e-4
    memory, params = later.memory[0], state.params
    networks = {"policy": params["policy"]["network"], "value": params["value"]}
    inputs = instance.normalizer.normalize(state.observations, unroll.observation)
    ended = np.zeros(unroll.reward.shape, bool)
    expected, _ = instance.actor.network.value_sequence(networks, inputs, memory, ended)
    np.testing.assert_allclose(values[1], expected, rtol=1e-5, atol=1e-6)


class Unshared(MLP):
    """A network of one's own, which does not look at the setting."""

    def build(self, *spaces):
        return MLP(width=self.width).build(*spaces)


def test_a_network_that_does_not_share_what_it_is_told_to_is_refused():
    with pytest.raises(UserError, match=r"network.shared=True, and what Unshared.build gives"):
        PPO(network=Unshared(width=8, shared=True)).bind(specs()).init(jax.random.key(0))


class TwoPasses(ActorCritic):
    """Computes distributions and values one after the other."""

    def distributions_and_values(self, params, statistics, observation, memory, ended):
        inputs = observation, memory["policy"], ended
        distribution = self.distributions(Policy(params["policy"], statistics), *inputs)
        return distribution, self.values(params, statistics, *inputs)[0]


class TwoPassesInstance(PPOInstance):
    """PPO with these."""

    @cached_property
    def actor(self):
        return TwoPasses(self.config.network, self.specs, self.normalizer)


@pytest.mark.parametrize("memory", [0, 4])
def test_shared_layers_get_the_gradients_of_policy_and_value(memory):
    network = MLP(width=8, memory=memory, shared=True)
    one_pass = replace(CONFIG, network=network, chunk=2).bind(specs())
    own = {field.name: getattr(one_pass, field.name) for field in fields(one_pass)}
    two_passes = TwoPassesInstance(**own)
    unroll, state = draw_unroll(one_pass), one_pass.init(jax.random.key(3))

    @jax.jit
    def gradients(state, unroll):
        state, _, batch = one_pass.prepare(state, (), unroll, total=lambda sums: sums)
        samples, memory = one_pass.division.draw(batch, state, jnp.int32(0))
        losses = [
            lambda params, each=each: each.loss(params, state, samples, memory)
            for each in (one_pass, two_passes)
        ]
        return [gradient_sums(loss, state.params, samples.valid)[0] for loss in losses]

    one, other = gradients(state, unroll)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), one, other)
    tree_of = flatten_util.ravel_pytree(state.params)[1]
    assert all(np.any(x) for x in jax.tree.leaves(tree_of(one.gradient)))


def test_the_statistics_are_of_the_valid_rows(instance, learn, unroll):
    learned, *_ = learn(instance.init(jax.random.key(0)), unroll)
    valid = ~(unroll.terminated | unroll.truncated)[:-1]
    rows = unroll.observation[:-1][valid]
    statistics = learned.observations["observation"]
    np.testing.assert_allclose(statistics.mean, rows.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(statistics.variance, rows.var(0), rtol=1e-4)


def test_only_the_policy_leaves_the_learner(instance):
    state = instance.init(jax.random.key(0))
    policy = instance.policy(state)
    shipped = sum(x.size for x in jax.tree.leaves(policy.params))
    assert shipped == sum(x.size for x in jax.tree.leaves(state.params["policy"]))
    assert shipped < sum(x.size for x in jax.tree.leaves(state.params))


def test_a_forbidden_action_is_never_taken_even_greedily():
    instance = CONFIG.bind(specs(MASKED))
    policy = instance.policy(instance.init(jax.random.key(0)))
    observation = {
        "x": np.zeros((100, 3), np.float32),
        "action_mask": np.tile(np.array([0, 0, 1, 0], np.int8), (100, 1)),
    }
    keys = jax.random.split(jax.random.key(0), 100)
    decision = instance.act(policy, observation, (), keys, np.arange(100))
    assert (decision.action == 2).all()
    np.testing.assert_array_equal(decision.log_prob, 0)
    assert (instance.act_greedy(policy, observation, ()).action == 2).all()


ONE_STEP = replace(CONFIG, minibatches=1, epochs=1)


def test_the_learning_rate_falls_to_zero_over_the_run(unroll):
    instance = ONE_STEP.bind(specs(), updates=2)
    state, learn = instance.init(jax.random.key(0)), jax.jit(instance.learn)

    def step_size(n):
        learned, *_ = learn(state._replace(n=jnp.int32(n)), unroll)
        head = [s.params["policy"]["network"]["head"]["bias"] for s in (state, learned)]
        return float(np.abs(head[1] - head[0]).max())

    np.testing.assert_allclose(step_size(1), step_size(0) / 2, rtol=1e-5)
    assert step_size(0) > 0
    assert step_size(2) == step_size(3) == 0


def test_weight_decay_draws_parameters_toward_zero(unroll):
    instance = replace(ONE_STEP, weight_decay=0.1).bind(specs())
    state = instance.init(jax.random.key(0))
    nothing = unroll._replace(terminated=np.ones((9, 6), bool))
    learned, *_ = jax.jit(instance.learn)(state, nothing)
    kernels = [s.params["policy"]["network"]["head"]["kernel"] for s in (state, learned)]
    step = np.asarray(kernels[1] - kernels[0])
    assert (np.sign(step) == -np.sign(kernels[0])).all()


def test_the_learning_rate_stays_where_the_length_of_the_run_is_not_known(learn, instance, unroll):
    state = instance.init(jax.random.key(0))
    *_, metrics = learn(state._replace(n=jnp.int32(10**6)), unroll)
    np.testing.assert_allclose(metrics["learning_rate"], CONFIG.learning_rate)


def test_the_configuration_holds_the_number_of_minibatches_that_was_chosen():
    chosen = {(64, 32): 16, (8, 32): 2, (8, 256): 16, (64, 40): 20, (1, 32): 1}
    for (num_envs, unroll_length), minibatches in chosen.items():
        words = f"--num-envs {num_envs} --algorithm.unroll-length {unroll_length}".split()
        values = config_values(load_experiment("CartPole-v1", words).experiment)
        assert values["algorithm"]["minibatches"] == minibatches
        words += ["--algorithm.minibatches", "1"]
        assert (
            config_values(load_experiment("CartPole-v1", words).experiment)["algorithm"][
                "minibatches"
            ]
            == 1
        )


def test_a_policy_with_memory_gets_as_many_minibatches_as_leave_each_enough_sequences():
    network = MLP(memory=8)
    assert [PPO(network=network).settled(n).minibatches for n in (1, 8, 32, 48, 64)] == [
        1,
        1,
        4,
        6,
        8,
    ]
    assert PPO(network=network, chunk=8).settled(64).minibatches == 16  # 4 of each slot's chunks
    assert PPO(network=network, unroll_length=64, chunk=16).settled(8).minibatches == 4
    assert PPO(network=network, minibatches=2).settled(64).minibatches == 2
    with pytest.raises(UserError, match="a multiple of 8, or leave chunk out"):
        PPO(network=network, unroll_length=36, chunk=8).validate()


def test_actions_of_a_box_start_with_the_deviation_that_is_set():
    box, key = spaces.Box(-2, 2, (3,)), jax.random.key(0)
    instance = PPO(network=MLP(width=8), initial_log_std=-1.5).bind(specs(action=box))
    observation = np.zeros((2000, *VECTOR.shape), np.float32)
    policy = instance.policy(instance.init(key))
    keys = jax.random.split(key, 2000)
    decision = instance.act(policy, observation, (), keys, np.arange(2000))
    np.testing.assert_allclose(np.asarray(decision.action).std(0), np.exp(-1.5), rtol=0.1)


def test_cart_pole_is_learned_quickly():
    slots, config = 32, PPO(unroll_length=32)
    env = gymnasium.make_vec("CartPole-v1", slots, vectorization_mode="vector_entry_point")
    instance = config.bind(Specs(env.single_observation_space, env.single_action_space, ("a",)))
    act, learn = jax.jit(instance.act), jax.jit(instance.learn)
    split = jax.jit(lambda key, t: jax.random.split(jax.random.fold_in(key, t), slots))
    state = instance.init(jax.random.key(0))
    observation, _ = env.reset(seed=0)
    reward, ended, cut = np.zeros(slots, "f"), np.zeros(slots, bool), np.zeros(slots, bool)
    length, lengths, t = np.zeros(slots), [], 0
    for _ in range(40):
        rows, decisions = [], []
        for _ in range(config.unroll_length):
            rows.append((observation.copy(), reward, ended, cut))
            keys = split(jax.random.key(1), t)
            policy = instance.policy(state)
            decisions.append(act(policy, observation, (), keys, np.arange(slots)))
            length = np.where(ended | cut, 0, length + 1)
            observation, step_reward, ended, cut, _ = env.step(np.asarray(decisions[-1].action))
            reward = np.asarray(step_reward, np.float32)
            lengths.extend(length[ended | cut])
            t += 1
        rows.append((observation.copy(), reward, ended, cut))
        stacked = (np.stack(part) for part in zip(*rows, strict=True))
        action, log_prob = (np.stack([d[i] for d in decisions]) for i in range(2))
        version = np.zeros((config.unroll_length, 1, 2), np.int32)
        state, *_ = learn(state, Unroll(*stacked, action, log_prob, (), version, np.arange(slots)))
    assert np.mean(lengths[:50]) < 40
    assert np.mean(lengths[-50:]) > 150
