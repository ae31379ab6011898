"""Policies act on any division of the slots alike, and remember no longer than an episode."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from gymnasium import spaces

from srl.algorithms import APPO, DQN
from srl.core.types import Specs, Unroll
from srl.loop.policy_set import PolicySet
from srl.networks import MLP

ENVS, AGENTS, STEPS = 4, ("cat_0", "cat_1", "dog"), 12
SLOTS = ENVS * len(AGENTS)
SPECS = Specs(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4), AGENTS)
APPO_WITH_MEMORY = APPO(
    network=MLP(width=8, depth=1, memory=6),
    unroll_length=STEPS,
    chunk=3,
    minibatches=2,
    epochs=1,
)
KEY = jax.random.key(7)


@pytest.fixture(scope="module")
def policy_set():
    return PolicySet.of(APPO_WITH_MEMORY, {"cat*": "cat", "dog": "dog"}, SPECS, updates=5)


@pytest.fixture(scope="module")
def act(policy_set):
    return jax.jit(policy_set.act)


@pytest.fixture(scope="module")
def prepared(policy_set):
    return jax.jit(policy_set.prepared)


@pytest.fixture(scope="module")
def step_metrics(policy_set):
    """Gives the metrics of each policy of some gradient step, taken as if it were the first."""

    def of(prepared, step):
        return {
            name: instance.gradient_step(*prepared[name], step, lambda sums: sums)[1]
            for name, instance in policy_set.instances.items()
        }

    return jax.jit(of)


@pytest.fixture(scope="module")
def states(policy_set):
    """Policies whose actions depend on what they see and remember."""
    states = policy_set.init(jax.random.key(0))
    for state in states.values():
        head = state.params["policy"]["network"]["head"]
        head["kernel"] = head["kernel"] * 300
    return states


@pytest.fixture(scope="module")
def acted(policy_set, act, states):
    """An unroll of noise, whose episodes end at random."""
    random = np.random.default_rng(0)
    observation = random.normal(size=(STEPS + 1, SLOTS, 3)).astype(np.float32)
    terminated, truncated = random.random((2, STEPS + 1, SLOTS)) < 0.1
    memory, memories, decisions = policy_set.initial_memory(ENVS), [], []
    for t in range(STEPS):
        memories.append(memory)
        ended = terminated[t] | truncated[t]
        slots = np.arange(SLOTS, dtype=np.int32)
        inputs = (observation[t], ended, memory, KEY, np.uint32(t), slots)
        decisions.append(act(policy_set.policies(states), *inputs))
        memory = decisions[-1].memory
    kept = memories[:: policy_set.chunk_of(STEPS)]
    return Unroll(
        observation=observation,
        reward=random.normal(size=(STEPS + 1, SLOTS)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        action=np.stack([d.action for d in decisions]),
        log_prob=np.stack([d.log_prob for d in decisions]),
        memory=jax.tree.map(lambda *x: np.stack(x), *kept),
        version=np.zeros((STEPS, 1, 2), np.int32),
        slot=np.arange(SLOTS, dtype=np.int32),
    )


def test_a_slots_action_depends_on_the_key_its_clock_and_its_number_alone(policy_set, act, states):
    random = np.random.default_rng(1)
    observation = random.normal(size=(SLOTS, 3)).astype(np.float32)
    memory = jax.tree.map(lambda x: random.normal(size=x.shape), policy_set.initial_memory(ENVS))
    ended, slots = np.zeros(SLOTS, bool), np.arange(SLOTS, dtype=np.int32)
    policies = policy_set.policies(states)
    whole = act(policies, observation, ended, memory, KEY, np.uint32(5), slots)
    clocks = np.full(SLOTS, 5, np.uint32)
    again = act(policies, observation, ended, memory, KEY, clocks, slots)
    jax.tree.map(np.testing.assert_array_equal, again, whole)

    half = slice(SLOTS // 2, None)
    part = jax.tree.map(lambda x: x[len(x) // 2 :], memory)
    inputs = (observation[half], ended[half], part, KEY, np.uint32(5), slots[half])
    np.testing.assert_array_equal(act(policies, *inputs).action, whole.action[half])
    later = act(policies, observation, ended, memory, KEY, np.uint32(6), slots)
    assert (later.action != whole.action).any()


def test_memory_starts_anew_after_the_row_that_ends_an_episode(policy_set, act, states):
    observation = np.ones((SLOTS, 3), np.float32)
    ended = np.arange(SLOTS) % 5 == 0
    memory = jax.tree.map(lambda x: x + 1, policy_set.initial_memory(ENVS))
    slots = np.arange(SLOTS, dtype=np.int32)
    inputs = (observation, ended, memory, KEY, np.uint32(0), slots)
    decision = act(policy_set.policies(states), *inputs)
    for name, members in policy_set.members.items():
        own = ended.reshape(ENVS, -1)[:, members].reshape(-1)
        following = np.asarray(decision.memory[name])
        assert not following[own].any()
        assert following[~own].any(axis=1).all()


def test_learning_gives_the_actions_the_probabilities_with_which_they_were_drawn(
    policy_set, states, acted, prepared, step_metrics
):
    """Over whole unrolls and over chunks, across ends of episodes."""
    first = prepared(states, acted)
    for name, (_, batch) in first.items():
        samples = batch.samples
        members = [e * len(AGENTS) + i for e in range(ENVS) for i in policy_set.members[name]]
        drawn = np.where(samples.valid, acted.log_prob[:, members], 0)
        assert drawn.std() > 0.3
        np.testing.assert_allclose(samples.log_prob, drawn, atol=1e-5)
    for step in np.arange(policy_set.instances["cat"].gradient_steps):
        for metrics in step_metrics(first, step).values():
            np.testing.assert_allclose(metrics["approx_kl"], 0, atol=1e-6)
            assert metrics["clipfrac"] == 0


def test_without_what_was_remembered_the_probabilities_are_others(
    states, acted, prepared, step_metrics
):
    forgotten = acted._replace(memory=jax.tree.map(np.zeros_like, acted.memory))
    of_first = step_metrics(prepared(states, forgotten), np.int64(0))
    assert all(metrics["approx_kl"] > 1e-3 for metrics in of_first.values())


def test_minibatches_that_divided_slots_would_cut_are_described(policy_set):
    whole = PolicySet.of(
        replace(APPO_WITH_MEMORY, chunk=0, minibatches=8),
        {"cat*": "cat", "dog": "dog"},
        SPECS,
        updates=5,
    )
    assert policy_set.cut_block(1, [STEPS]) == ""  # of 4 chunks of each slot
    assert whole.cut_block(8, [STEPS]) == ""
    found = whole.cut_block(4, [STEPS])
    assert "minibatches of policy 'dog' divide each 8 neighbouring slots" in found
    assert "blocks of 8 do not fill the 4 slots" in found


def test_policies_with_other_numbers_of_gradient_steps_learn_as_each_does_alone():
    agents, envs, steps = ("cat_0", "cat_1", "cat_2", "dog"), 8, 4
    slots, random = envs * len(agents), np.random.default_rng(0)
    algorithm = DQN(
        network=MLP(width=8, depth=1),
        unroll_length=steps,
        n_step=1,
        warm_up=0,
        replay=4096,
        batch_size=8,
        samples_per_insert=1.0,
        priorities=0.6,
    )
    specs = Specs(SPECS.observation, spaces.Discrete(2), agents)
    members = {"cat*": "cats", "dog": "dogs"}
    policy_set = PolicySet.of(algorithm, members, specs, updates=5, num_envs=envs)
    steps_of = {name: i.gradient_steps for name, i in policy_set.instances.items()}
    assert steps_of == {"cats": 12, "dogs": 4}
    unroll = Unroll(
        observation=random.normal(size=(steps + 1, slots, 3)).astype(np.float32),
        reward=random.normal(size=(steps + 1, slots)).astype(np.float32),
        terminated=np.zeros((steps + 1, slots), bool),
        truncated=np.zeros((steps + 1, slots), bool),
        action=random.integers(0, 2, (steps, slots)).astype(np.int32),
        log_prob=np.zeros((steps, slots), np.float32),
        memory={"cats": (), "dogs": ()},
        version=np.zeros((steps, 1, 2), np.int32),
        slot=np.arange(slots, dtype=np.int32),
    )
    states, replays = policy_set.init(KEY), policy_set.empty_replays(unroll)
    together = jax.jit(policy_set.learn)(states, replays, unroll)
    for name, instance in policy_set.instances.items():
        own = policy_set._unroll_of(name, unroll)
        alone = jax.jit(instance.learn)(states[name], own, replays[name])
        found = together[0][name], together[1][name], together[3][name]
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), found, alone)


def test_each_policy_explores_by_the_whole_range_of_its_slots():
    shares, seen = np.linspace(0, 1, ENVS, dtype=np.float32), np.zeros((SLOTS, 3), np.float32)
    dqn = DQN(network=MLP(width=8, depth=1), epsilon_spread=1.0)
    policy_set = PolicySet.of(dqn, {"cat*": "cat", "dog": "dog"}, SPECS, 5, num_envs=ENVS)
    policies = policy_set.policies(policy_set.init(KEY))
    for name, members in policy_set.members.items():
        params = policies[name].params
        epsilon = np.repeat(shares, len(members))
        assert len(epsilon) == len(params["epsilon"])
        policies[name] = policies[name]._replace(params={**params, "epsilon": epsilon})

    slots, ended = np.arange(SLOTS, dtype=np.int32), np.zeros(SLOTS, bool)
    inputs = seen, ended, policy_set.initial_memory(ENVS), KEY
    act, log_probs = jax.jit(policy_set.act), []
    for clock in range(60):  # the probability of a best action is 1 - 3/4 of the share of any
        decision = act(policies, *inputs, np.uint32(clock), slots)
        log_probs.append(decision.log_prob.reshape(ENVS, len(AGENTS)))
    most_probable = np.exp(np.max(log_probs, axis=0))
    expected = np.maximum(1 - 0.75 * shares, 0.25)[:, None].repeat(len(AGENTS), axis=1)
    np.testing.assert_allclose(most_probable, expected, rtol=1e-5)


def test_states_are_drawn_alike_inside_compiled_functions(policy_set):
    drawn, compiled = policy_set.init(KEY), jax.jit(policy_set.init)(KEY)
    jax.tree.map(np.testing.assert_array_equal, drawn, compiled)


def test_arrays_of_a_drawn_state_are_its_own_so_that_it_can_be_donated():
    policy_set = PolicySet.of(DQN(network=MLP(width=8, depth=1)), {"*": "all"}, SPECS, 5)
    leaves = jax.tree.leaves(policy_set.init(KEY))
    assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == len(leaves)
