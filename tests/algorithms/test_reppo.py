"""REPPO's targets and losses against formulas in NumPy, and its runs that stop and go on."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_unrolls import DISCOUNT, SLOTS, STEPS, unroll_of
from gymnasium import spaces
from scipy import stats

from srl.algorithms import REPPO
from srl.algorithms.critics import step_key
from srl.algorithms.distributions import Gaussian
from srl.algorithms.gradient_descent import vector
from srl.algorithms.value_forms import HLGauss
from srl.api.cli import main
from srl.core.tree import leaves_of
from srl.core.types import Specs
from srl.networks import MLP
from srl.record.checkpoint import Checkpoints

BOX = spaces.Box(-9, 9, (3,), np.float32)
SPECS = Specs(BOX, spaces.Box(-1, 1, (2,), np.float32), ("agent",))
ATOMS, RANGE = 21, (-6.0, 4.0)
CONFIG = REPPO(
    network=MLP(width=8, layer_norm=True), unroll_length=STEPS, epochs=1, minibatches=1,
    atoms=ATOMS, value_range=RANGE, normalize_observations=False, temperature=0.3, kl_cost=0.7,
)  # fmt: skip


def mass(value):
    """Farebrother et al., 2024, equation 4, with a deviation of 3/4 of a bin."""
    low, high = RANGE
    width = (high - low) / (ATOMS - 1)
    edges = low + width * (np.arange(ATOMS + 1) - 0.5)
    below = stats.norm.cdf(edges, np.clip(value, low, high)[..., None], 0.75 * width)
    return np.diff(below) / (below[..., -1:] - below[..., :1])


def begun(config=CONFIG):
    """An instance and a state of parameters other than the first ones."""
    instance, random = config.bind(SPECS, 10, SLOTS), np.random.default_rng(0)
    state = instance.init(jax.random.key(0))
    draw = lambda x: x + random.normal(0, 0.4, x.shape).astype(np.float32)  # noqa: E731
    critic = jax.tree.map(draw, state.params["critic"])
    actor = {
        **state.params["actor"],
        "network": jax.tree.map(draw, state.params["actor"]["network"]),
    }
    return instance, state._replace(params={"critic": critic, "actor": actor})


def acted(instance, network, observation, noise):
    """The mean and deviation of an actor, its action by a noise, and the action's log-density."""
    mean, raw = jnp.split(instance.actor.outputs(network, {}, observation), 2, axis=-1)
    std = jnp.exp(5 * jnp.tanh(raw / 5))
    number = mean + std * noise
    density = jax.scipy.stats.norm.logpdf(number, mean, std) + 2 * jnp.log(jnp.cosh(number))
    return mean, std, jnp.tanh(number), density.sum(-1)


def noise_at(state, slot, row, steps, step):
    key = jax.random.fold_in(jax.random.fold_in(step_key(state, steps), slot), row)
    return jax.random.normal(jax.random.fold_in(key, step), (2,))


def test_a_number_is_learned_as_the_normal_distribution_around_it():
    values = np.float32([-9, -6, -5.9, -1.26, 0, 0.1, 3.99, 4, 50])
    form = HLGauss(ATOMS, RANGE)
    found = np.asarray(form.probabilities(values))
    np.testing.assert_allclose(found, mass(values), atol=1e-5)
    np.testing.assert_allclose(form.value(np.log(found + 1e-12))[3:6], values[3:6], atol=1e-3)
    assert list(form.beyond(values)["clipped_targets"]) == [True] + [False] * 7 + [True]
    reward, discount, last = values, np.full(9, 0.5, np.float32), np.zeros((9, ATOMS), np.float32)
    expected = mass(values - 0.5)  # the value of equal logits is the middle of the range
    np.testing.assert_allclose(form.target(reward, discount, last), expected, atol=1e-5)


def test_probabilities_are_never_negative_whatever_rounding_does():
    found = np.asarray(HLGauss(151, (-170.0, 20.0)).probabilities(np.linspace(-170, 20, 5001)))
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5)


def test_the_divergence_is_that_of_the_squashed_distributions():
    """By integration over actions between -1 and 1."""
    one, other = (0.3, 0.4), (-0.2, 0.9)
    action = np.linspace(-1, 1, 200_001)[1:-1]
    number = np.arctanh(action)
    log_p, log_q = (stats.norm.logpdf(number, *x) - np.log(1 - action**2) for x in (one, other))
    expected = np.sum(np.exp(log_p) * (log_p - log_q)) * (action[1] - action[0])
    given = [np.float32([[x]]) for m, s in (one, other) for x in (m, np.log(s))]
    mean, log_std, *other = given
    found = Gaussian(*other, 1).divergence({"mean": mean, "log_std": log_std})
    np.testing.assert_allclose(found, [expected], rtol=1e-3)


@pytest.mark.parametrize("td_lambda", [0.0, 0.7])
def test_targets_are_lambda_returns_in_which_entropy_counts_as_reward(td_lambda):
    """G = r + discount (lambda G' + (1 - lambda) Q' - temperature log pi'), by drawn actions."""
    instance, state = begun(replace(CONFIG, td_lambda=td_lambda))
    unroll, network = unroll_of(2, actions=2), state.params["actor"]["network"]
    rows = range(STEPS + 1)
    noise = np.array([[noise_at(state, k, t, 1, 1) for k in range(SLOTS)] for t in rows])
    flat = unroll.observation.reshape(-1, 3)
    *_, action, log_prob = acted(instance, network, flat, noise.reshape(-1, 2))
    value = instance.critic.values(state.params["critic"], {}, flat, action)[0]
    value, log_prob = (np.asarray(x).reshape(STEPS + 1, SLOTS) for x in (value, log_prob))
    prepare = jax.jit(lambda *given: instance.prepare(*given, lambda sums: sums))
    samples = prepare(state, (), unroll)[2].samples
    ended, following = unroll.terminated | unroll.truncated, value[-1]
    for t in reversed(range(STEPS)):
        later = following - 0.3 * log_prob[t + 1]
        now = unroll.reward[t + 1] + DISCOUNT * np.where(unroll.terminated[t + 1], 0, later)
        expected = np.where(ended[t], 0, now)
        np.testing.assert_allclose(samples.target[t], expected, rtol=1e-4, atol=1e-4)
        following = np.where(ended[t], value[t], td_lambda * now + (1 - td_lambda) * value[t])


def test_the_critic_learns_the_targets_and_the_actor_value_and_entropy_within_the_bound():
    """Beyond it the divergence alone counts; both weights follow what is above their bounds."""
    instance, state = begun(replace(CONFIG, kl_bound=0.2))
    batch = instance.prepare(state, (), unroll_of(1, actions=2), lambda sums: sums)[2]
    random = np.random.default_rng(3)  # the policy before the update was another one
    shift = random.choice([0.05, 1.0], (STEPS, SLOTS, 1)).astype(np.float32)
    batch = batch._replace(samples=batch.samples._replace(mean=batch.samples.mean + shift))
    samples, params = jax.tree.map(np.asarray, batch.samples), state.params
    valid, observation = samples.valid, samples.observation
    noise = [[noise_at(state, k, t, 1, 0) for k in range(SLOTS)] for t in range(STEPS)]
    rows = lambda x: np.asarray(x).reshape(STEPS * SLOTS, -1)  # noqa: E731
    old_mean, old_std = rows(samples.mean), np.exp(rows(samples.log_std))

    def loss(learning):
        inputs = rows(observation), rows(samples.action)
        logits = instance.critic.outputs(learning["critic"], {}, *inputs)[0]
        error = -jnp.sum(mass(samples.target.reshape(-1)) * jax.nn.log_softmax(logits), axis=-1)
        actor = learning["actor"]
        mean, std, action, density = acted(
            instance, actor["network"], rows(observation), rows(noise)
        )
        value = instance.critic.values(params["critic"], {}, rows(observation), action)[0]
        kl = jnp.log(std / old_std) + (old_std**2 + (old_mean - mean) ** 2) / (2 * std**2) - 0.5
        kl = kl.sum(-1)
        gain = jnp.where(kl < 0.2, value - 0.3 * density, -0.7 * kl)
        entropy, cost = (jnp.exp(actor[x]) for x in ("log_temperature", "log_kl_cost"))
        fixed = jax.lax.stop_gradient
        weights = entropy * fixed(-density - 2 * -0.5) - cost * fixed(kl - 0.2)
        counted = valid.reshape(-1)
        total = jnp.sum(jnp.where(counted, error - gain + weights, 0))
        return total, jnp.sum((kl >= 0.2) & counted)

    expected, beyond = jax.jit(jax.grad(loss, has_aux=True))(params)
    assert 0 < beyond < valid.sum()

    def found(state, batch):
        given = []
        instance.gradient_step(state, batch, 0, lambda sums: given.append(sums) or sums)
        return given[0]

    found = jax.jit(found)(state, batch)
    for name, sums in found.items():
        assert sums.count == valid.sum()
        np.testing.assert_allclose(sums.gradient, vector(expected[name]), rtol=1e-3, atol=1e-3)
    assert found["actor"].metrics["beyond_kl_bound"] == beyond


def test_the_first_deviation_of_actions_is_near_one():
    instance = CONFIG.bind(SPECS, 10, SLOTS)
    policy = instance.policy(instance.init(jax.random.key(0)))
    seen = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    found = instance.action_outputs(policy, seen, ())
    np.testing.assert_allclose(found["mean"], 0, atol=0.1)
    np.testing.assert_allclose(found["log_std"], 0, atol=0.1)


def test_a_run_that_paused_ends_as_one_that_did_not(tmp_path, capfd):
    command = [
        "run", "native:Pendulum-v1", "--algorithm", "reppo", "--num-envs", "4", "--env-steps", "64",
        "--algorithm.unroll-length", "4", "--algorithm.network.widths", "8",
        "--algorithm.epochs", "1", "--algorithm.atoms", "5", "--algorithm.reward-scale", "0.05",
        "--run-dir",
    ]  # fmt: skip
    assert main([*command, str(tmp_path / "whole")]) == 0
    assert main([*command, str(tmp_path / "run"), "--pause-at", "32"]) == 0
    assert main(["resume", str(tmp_path / "run"), "--env-steps", "64"]) == 0
    whole, run = (
        Checkpoints(tmp_path / name / "checkpoints").restore()[0] for name in ("whole", "run")
    )
    for a, b in zip(leaves_of(whole["learners"]), leaves_of(run["learners"]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert "diverged" not in capfd.readouterr().err
