"""What algorithms minimise: each loss and its gradient, against the formula of its paper.

The formulas begin from the numbers that networks give, and are written without the functions of
the algorithm.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_unrolls import DISCOUNT, SLOTS, STEPS, N, transitions_of, unroll_of
from gymnasium import spaces

from srl.algorithms import APPO, IMPALA, PPO, SAC, TD3, DiscreteSAC
from srl.algorithms.bounded_actor import noise_by_slot
from srl.algorithms.critics import step_key
from srl.algorithms.gradient_descent import gradient_sums, vector
from srl.algorithms.ppo import Samples
from srl.algorithms.sequences import Batch
from srl.core.types import Specs
from srl.networks import MLP

BOX = spaces.Box(-9, 9, (3,), np.float32)
DISCRETE = Specs(BOX, spaces.Discrete(2), ("agent",))
CONTINUOUS = Specs(BOX, spaces.Box(-1, 1, (2,), np.float32), ("agent",))
MASKED = spaces.Dict(x=BOX, action_mask=spaces.MultiBinary(4))
COSTS = {"value_cost": 0.7, "entropy_cost": 0.3}
ON_POLICY = {
    "network": MLP(width=8), "unroll_length": STEPS, "normalize_observations": False, **COSTS,
}  # fmt: skip
REPLAYED = {
    "network": MLP(width=8), "unroll_length": STEPS, "warm_up": 0, "replay": 64, "batch_size": 8,
}  # fmt: skip


def moved(params, seed=0):
    """Other parameters than the first ones, whose policies are nearly even."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + random.normal(0, 0.4, x.shape).astype(np.float32), params)


def begun(instance):
    state = jax.jit(instance.init)(jax.random.key(0))
    return state._replace(params=moved(state.params))


def assert_close(found, expected, rtol=1e-3, atol=1e-4):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def outputs_of(instance, params, observation):
    """The log-probabilities of all actions, and the value, of each row."""
    networks = {"policy": params["policy"]["network"], "value": params["value"]}
    network = instance.actor.network
    logits = network.policy_sequence(networks["policy"], observation)
    value, _ = network.value_sequence(networks, observation)
    return logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True), value


def taken(log_probs, action):
    return jnp.where(action == 0, log_probs[..., 0], log_probs[..., 1])


def entropy_of(log_probs):
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def acted_differently(instance, params):
    """An unroll whose actions were more or less probable, by a factor of up to 2, than now."""
    unroll = unroll_of(1)
    log_probs, value = jax.jit(partial(outputs_of, instance))(params, unroll.observation)
    now = np.asarray(taken(log_probs[:-1], unroll.action))
    log_ratio = np.random.default_rng(0).uniform(-np.log(2), np.log(2), now.shape)
    unroll = unroll._replace(log_prob=(now - log_ratio).astype(np.float32))
    valid = ~(unroll.terminated | unroll.truncated)[:-1]
    return unroll, valid, now, np.exp(log_ratio), np.asarray(value, float)


def estimates(unroll, value, lambda_, rho=1.0, c=1.0):
    """Advantages, and errors of values (Espeholt et al., 2018, remark 1); GAE where rho = c = 1."""
    ended = unroll.terminated | unroll.truncated
    worth = np.where(unroll.terminated, 0, value)
    rho, c = (np.broadcast_to(x, (STEPS, SLOTS)) for x in (rho, c))
    advantage, correction = np.zeros((2, STEPS, SLOTS))
    following = np.zeros(SLOTS)
    for t in reversed(range(STEPS)):
        delta = unroll.reward[t + 1] + DISCOUNT * worth[t + 1] - value[t]
        later = DISCOUNT * lambda_ * following
        advantage[t] = np.where(ended[t], 0, delta + later)
        correction[t] = following = np.where(ended[t], 0, rho[t] * delta + c[t] * later)
    return advantage, correction


def of_terms(valid, policy, error, entropy, *counted):
    """The loss of these rows, and the sums of the terms and of what else is counted."""
    policy, error, entropy, *counted = (
        jnp.sum(jnp.where(valid, x, 0)) for x in (policy, error, entropy, *counted)
    )
    return policy + 0.7 * error - 0.3 * entropy, (policy, error, entropy, *counted)


def assert_is(loss, params, sums):
    """That these sums are those of a loss that `of_terms` gives."""
    gradient, terms = jax.jit(jax.grad(loss, has_aux=True))(params)
    names = "policy_loss", "value_loss", "entropy"
    found = [sums.metrics[name] for name in names]
    np.testing.assert_allclose(found, terms[:3], rtol=1e-4)
    assert_close(sums.gradient, vector(gradient))


def summed(instance, params, state, batch):
    """The sums of a gradient step from these parameters."""
    given = []
    instance.gradient_step(state._replace(params=params), batch, 0, lambda x: given.append(x) or x)
    return given[0]


@pytest.mark.parametrize(("algorithm", "normalized"), [(PPO, True), (PPO, False), (APPO, True)])
def test_ppo_minimises_the_clipped_surrogate_the_value_loss_and_minus_the_entropy(
    algorithm, normalized
):
    """Schulman et al., 2017, equation 9; the decoupled one of Hilton et al., 2022, for APPO."""
    scaled = {"normalize_values": normalized, "normalize_advantages": normalized}
    weighted = algorithm is APPO
    bound = {"max_weight": 1.5} if weighted else {}
    one = {"epochs": 1, "minibatches": 1, "gae_lambda": 0.9, "clip": 0.2}
    config = algorithm(**ON_POLICY, **scaled, **bound, **one)
    instance = config.bind(DISCRETE, 10, SLOTS)
    state = begun(instance)
    params = moved(state.params)  # as after some gradient steps of this batch
    unroll, valid, proximal, ratio, value = acted_differently(instance, state.params)

    @jax.jit
    def found(state, params, unroll):
        state, _, batch = instance.prepare(state, (), unroll, lambda sums: sums)
        return summed(instance, params, state, batch)

    if weighted:
        corrected = np.minimum(ratio, 1)
        advantage, correction = estimates(unroll, value, 0.9, corrected, corrected)
        weight, old = np.minimum(ratio, 1.5), proximal
    else:
        advantage, correction = estimates(unroll, value, 0.9)
        weight, old = np.ones_like(ratio), unroll.log_prob
    target = correction + value[:-1]
    if normalized:
        advantage = (advantage - advantage[valid].mean()) / advantage[valid].std()
        target = (target - target[valid].mean()) / target[valid].std()

    def loss(params):
        log_probs, value = outputs_of(instance, params, unroll.observation[:-1])
        ratio = jnp.exp(taken(log_probs, unroll.action) - old)
        kept = jnp.where(advantage > 0, jnp.minimum(ratio, 1.2), jnp.maximum(ratio, 0.8))
        policy, error = -weight * kept * advantage, jnp.square(value - target)
        return of_terms(valid, policy, error, entropy_of(log_probs), kept < ratio, kept > ratio)

    sums = found(state, params, unroll)
    assert_is(loss, params, sums)
    above, below = jax.jit(loss)(params)[1][3:]
    assert 0 < above + below < valid.sum() == sums.count


def test_a_ratio_earns_nothing_more_once_it_has_left_the_range_to_its_advantage():
    config = PPO(
        network=MLP(width=8), normalize_observations=False, normalize_values=False,
        normalize_advantages=False, clip=0.2, entropy_cost=0.0,
    )  # fmt: skip
    instance = config.bind(DISCRETE, 10, SLOTS)
    state, seen = begun(instance), np.ones((1, 3), np.float32)

    def log_prob(params):
        return outputs_of(instance, params, seen)[0][0, 1]

    now, slope = jax.jit(jax.value_and_grad(log_prob))(state.params)

    @jax.jit
    def loss(params, samples):
        memory = {"policy": (), "value": ()}
        of = lambda params: instance.loss(params, state, samples, memory)  # noqa: E731
        return gradient_sums(of, params, samples.valid)[0]

    cases = [  # the ratio, the advantage, what they earn, and whether more can be earned
        (0.5, 2.0, 1.0, True),
        (0.9, 2.0, 1.8, True),
        (1.1, 2.0, 2.2, True),
        (1.5, 2.0, 2.4, False),
        (0.5, -2.0, -1.6, False),
        (0.9, -2.0, -1.8, True),
        (1.1, -2.0, -2.2, True),
        (1.5, -2.0, -3.0, True),
    ]
    for ratio, advantage, earned, more in cases:
        samples = Samples(
            observation=seen,
            action=np.array([1]),
            log_prob=np.float32([now - np.log(ratio)]),
            advantage=np.float32([advantage]),
            target=np.float32([0]),
            valid=np.array([True]),
        )
        sums = loss(state.params, samples)
        np.testing.assert_allclose(sums.metrics["policy_loss"], -earned, rtol=1e-5)
        expected = vector(jax.tree.map(lambda x, by=-earned * more: by * x, slope["policy"]))
        assert_close(sums.gradient[: len(expected)], expected, atol=1e-5)


def test_impala_follows_the_weighted_policy_gradient_the_value_loss_and_minus_the_entropy():
    """Espeholt et al., 2018, section 4.2, in the first gradient step of a batch."""
    scaled = {"normalize_values": False, "normalize_advantages": False, "minibatches": 1}
    config = IMPALA(**ON_POLICY, **scaled, max_weight=1.2, clip_rho=1.3, clip_c=0.9, gae_lambda=0.8)
    instance = config.bind(DISCRETE, 10, SLOTS)
    state = begun(instance)
    unroll, valid, _, ratio, value = acted_differently(instance, state.params)
    rho, c = np.minimum(ratio, 1.3), np.minimum(ratio, 0.9)
    advantage, correction = estimates(unroll, value, 0.8, rho, c)
    weight, target = np.minimum(ratio, 1.2), value[:-1] + correction
    assert {True, False} == set((advantage > 0)[valid]) == set((ratio > 1.3)[valid])

    def loss(params):
        log_probs, value = outputs_of(instance, params, unroll.observation[:-1])
        policy = -weight * advantage * taken(log_probs, unroll.action)
        return of_terms(valid, policy, jnp.square(value - target), entropy_of(log_probs))[0]

    @jax.jit
    def found(state, unroll):
        _, _, batch = instance.prepare(state, (), unroll, lambda sums: sums)
        return summed(instance, state.params, state, batch)

    sums = found(state, unroll)
    assert_close(sums.gradient, vector(jax.jit(jax.grad(loss))(state.params)))
    assert sums.count == valid.sum()


def replayed(config, specs, actions=None):
    """An algorithm of a replay, a state whose targets are of their own, and transitions."""
    instance = config.bind(specs, 10, SLOTS)
    state = begun(instance)
    others = moved(state.params, 1)
    state = state._replace(targets=others if isinstance(config, TD3) else others["critics"])
    random = np.random.default_rng(0)
    steps = transitions_of(random, actions)._replace(valid=random.random(N) < 0.7)
    return instance, state, steps


def learned(instance, state, steps):
    """The sums of each network's gradient and metrics, in the first gradient step."""
    slot = np.arange(N, dtype=np.int32)
    parts = {"transitions": steps, "slot": slot, "observations": {}}
    batch = Batch(**jax.tree.map(lambda x: x[None], parts))

    def found(state, batch):
        return summed(instance, state.params, state, batch)

    return jax.jit(found)(state, batch)


def joined(values):
    """What the actor goes by: the least of two critics, the mean of more."""
    return values.min(0) if len(values) == 2 else values.mean(0)


@pytest.mark.parametrize("critics", [2, 3])
def test_td3_minimises_the_errors_of_its_critics_and_minus_the_value_of_its_actions(critics):
    """Fujimoto et al., 2018, algorithm 1: by the first of two critics, or the mean of more."""
    config = TD3(**REPLAYED, critics=critics, subset=critics, target_noise=0.0)
    instance, state, steps = replayed(config, CONTINUOUS, 2)
    params, values_of = state.params, instance.critics.values

    def action(actor, observation):
        return jnp.tanh(instance.actor.outputs(actor, {}, observation))

    def loss(learning):
        slow = action(state.targets["actor"], steps.last)
        following = values_of(state.targets["critics"], {}, steps.last, slow).min(0)
        target = steps.reward + steps.discount * following
        values = values_of(learning["critics"], {}, steps.observation, steps.action)
        error = 0.5 * jnp.sum(jnp.square(values - target), axis=0)
        acted = action(learning["actor"], steps.observation)
        worth = values_of(params["critics"], {}, steps.observation, acted)
        worth = worth[0] if critics == 2 else worth.mean(0)
        return jnp.sum((error - worth)[steps.valid])

    found, expected = learned(instance, state, steps), jax.jit(jax.grad(loss))(params)
    for name, sums in found.items():
        assert_close(sums.gradient, vector(expected[name]))


@pytest.mark.parametrize("critics", [2, 3])
def test_the_actor_of_sac_gains_value_and_entropy_and_the_temperature_weighs_a_lack_of_it(critics):
    """Haarnoja et al., 2018, equations 7 and 18."""
    settings = {"critics": critics, "subset": critics, "target_entropy": -0.4}
    instance, state, steps = replayed(SAC(**REPLAYED, **settings), CONTINUOUS, 2)
    params, slot = state.params, np.arange(N, dtype=np.int32)
    warmth = np.exp(params["log_temperature"])

    def value_and_entropy(actor):
        *_, own_key = jax.random.split(step_key(state, 0), 3)
        noise = noise_by_slot(own_key, slot, instance.ratio.share, 2)
        outputs = instance.actor.outputs(actor, {}, steps.observation)
        mean, raw_std = jnp.split(outputs, 2, axis=-1)
        log_std = -5 + 3.5 * (jnp.tanh(raw_std) + 1)
        raw = mean + jnp.exp(log_std) * noise
        density = -jnp.square(noise) / 2 - log_std - jnp.log(2 * jnp.pi) / 2
        density += 2 * jnp.log(jnp.cosh(raw))
        values = instance.critics.values(params["critics"], {}, steps.observation, jnp.tanh(raw))
        return joined(values), -density.sum(-1)

    def actor_loss(actor):
        value, entropy = value_and_entropy(actor)
        return -jnp.sum((value + warmth * entropy)[steps.valid]), entropy[steps.valid]

    of = jax.jit(jax.value_and_grad(actor_loss, has_aux=True))
    (loss, entropy), expected = of(params["actor"])
    found = learned(instance, state, steps)
    np.testing.assert_allclose(found["actor"].metrics["actor_loss"], loss, rtol=1e-4)
    assert_close(found["actor"].gradient, vector(expected))
    surplus = np.sum(entropy - 2 * -0.4)
    np.testing.assert_allclose(found["log_temperature"].gradient, [surplus], rtol=1e-4, atol=1e-4)


def test_discrete_sac_minimises_its_expectations_over_the_actions_that_are_allowed():
    """Christodoulou, 2019, equations 10 to 12, with masks that allow two actions to four."""
    specs = Specs(MASKED, spaces.Discrete(4), ("agent",))
    config = DiscreteSAC(**REPLAYED, target_entropy=0.6)
    instance, state, steps = replayed(config, specs)
    params = state.params
    masks = np.ones((2, N, 4), np.int8)
    masks[0, : N // 2, :2] = masks[1, ::2, 2] = masks[1, ::4, 0] = 0
    seen, last = (
        {"x": x, "action_mask": mask}
        for x, mask in zip((steps.observation, steps.last), masks, strict=True)
    )
    steps = steps._replace(observation=seen, last=last)
    allowed, warmth = masks[0].sum(-1), np.exp(params["log_temperature"])
    assert set(allowed) == {2, 4}
    assert set(masks[1].sum(-1)) == {2, 3, 4}

    def all_values(critics, observation):
        return instance.critics.values(critics, {}, observation)

    def expected(actor, values, observation):
        outputs = instance.actor.network.policy_sequence(actor, observation)
        mass = jnp.exp(outputs) * observation["action_mask"]
        share = mass / mass.sum(-1, keepdims=True)
        entropy = -jnp.sum(share * jnp.log(jnp.where(share > 0, share, 1)), axis=-1)
        return jnp.sum(share * values.min(0), axis=-1), entropy

    def loss(learning):
        slow = all_values(state.targets, last)
        value, entropy = expected(params["actor"], slow, last)
        target = steps.reward + steps.discount * (value + warmth * entropy)
        values = all_values(learning["critics"], seen)[:, np.arange(N), steps.action]
        error = 0.5 * jnp.sum(jnp.square(values - target), axis=0)
        now = all_values(params["critics"], seen)
        value, entropy = expected(learning["actor"], now, seen)
        surplus = expected(params["actor"], now, seen)[1] - 0.6 * np.log(allowed)
        loss = error - value - warmth * entropy + learning["log_temperature"] * surplus
        return tuple(jnp.sum(x[steps.valid]) for x in (loss, -value - warmth * entropy, entropy))

    of = jax.jit(jax.grad(lambda x: (loss(x)[0], loss(x)[1:]), has_aux=True))
    wanted, terms = of(params)
    found = learned(instance, state, steps)
    for name, sums in found.items():
        assert_close(sums.gradient, vector(wanted[name]))
    metrics = found["actor"].metrics
    np.testing.assert_allclose((metrics["actor_loss"], metrics["entropy"]), terms, rtol=1e-4)
