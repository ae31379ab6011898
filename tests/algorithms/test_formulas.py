"""Published formulas, written out as loops in NumPy, against what algorithms compute."""

import json
import math
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_unrolls import DISCOUNT, SLOTS, STEPS, N, transitions_of, unroll_of
from gymnasium import spaces
from scipy import stats

from srl.algorithms import DQN, PQN, R2D2, SAC, TD3
from srl.algorithms.bounded_actor import noise_by_slot
from srl.algorithms.critics import step_key
from srl.algorithms.gradient_descent import adam
from srl.algorithms.replay import windows
from srl.algorithms.returns import n_step_returns, vtrace
from srl.algorithms.sac import mean_and_log_std, squashed
from srl.algorithms.value_forms import Atoms, range_remarks, value_form
from srl.core.errors import UserError
from srl.core.types import Specs
from srl.networks import MLP

BOX = spaces.Box(-9, 9, (3,), np.float32)
DISCRETE = Specs(BOX, spaces.Discrete(2), ("agent",))
CONTINUOUS = Specs(BOX, spaces.Box(-1, 1, (2,), np.float32), ("agent",))
SMALL = {"unroll_length": STEPS, "warm_up": 0, "replay": 64, "batch_size": 8}
NETWORK = MLP(width=8)
KEY, OTHER = jax.random.split(jax.random.key(0))
RLAX = json.loads((Path(__file__).parent / "rlax_vtrace.json").read_text())
"""Numbers that rlax gave for others that were drawn."""


@pytest.mark.parametrize("double", [True, False])
def test_the_target_of_dqn_takes_the_slow_value_of_the_chosen_action(double):
    instance = DQN(**SMALL, network=NETWORK, double=double).bind(DISCRETE, 10, SLOTS)
    state = instance.init(KEY)._replace(targets=instance.init(OTHER).params)
    drawn = transitions_of(np.random.default_rng(0))
    values, slow = (
        np.asarray(instance.actor.values(params, {}, drawn.last))
        for params in (state.params, state.targets)
    )
    now = np.asarray(instance.actor.values(state.params, {}, drawn.observation))
    best = (values if double else slow).argmax(-1)
    expected = [
        drawn.reward[i] + drawn.discount[i] * slow[i, best[i]] - now[i, drawn.action[i]]
        for i in range(N)
    ]
    assert (values.argmax(-1) != slow.argmax(-1)).any()
    loss, metrics = instance.loss(state.params, state, drawn)
    np.testing.assert_allclose(metrics["td_error"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loss, np.square(expected) / 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(metrics["q_value"], now[range(N), drawn.action])


def projected(reward, discount, returns, probabilities):
    """Bellemare et al., 2017, algorithm 1."""
    low, step = returns[0], returns[1] - returns[0]
    found = np.zeros(len(returns))
    for z, p in zip(returns, probabilities, strict=True):
        b = (np.clip(reward + discount * z, returns[0], returns[-1]) - low) / step
        b = round(b, 9)
        lower, upper = math.floor(b), math.ceil(b)
        if lower == upper:
            found[lower] += p
        else:
            found[lower] += p * (upper - b)
            found[upper] += p * (b - lower)
    return found


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_target_of_c51_is_projected_to_the_atoms(scale):
    form, random = Atoms(11, (-5.0, 5.0)), np.random.default_rng(1)
    drawn = transitions_of(random)
    drawn = drawn._replace(reward=scale * drawn.reward)
    logits = random.normal(size=(N, 11)).astype(np.float32)
    mass, inputs = np.asarray(jax.nn.softmax(logits)), (drawn.reward, drawn.discount, logits)
    found = np.asarray(form.target(*inputs))
    for i in range(N):
        expected = projected(
            float(drawn.reward[i]), float(drawn.discount[i]), np.linspace(-5, 5, 11), mass[i]
        )
        np.testing.assert_allclose(found[i], expected, atol=1e-5)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)
    returns = drawn.reward[:, None] + drawn.discount[:, None] * np.linspace(-5, 5, 11)
    clipped = np.where(np.abs(returns) > 5, mass, 0).sum(-1)
    assert (clipped.min(), clipped.max()) == (0, 1) if scale > 1 else clipped.max() < 1
    np.testing.assert_allclose(form.metrics(*inputs)["clipped_targets"], clipped, atol=1e-5)


def test_atoms_reach_all_returns_of_rewards_up_to_one_and_clipped_targets_are_reported():
    """CartPole's return is 99.3 at the usual discount; a range of -10 to 10 clipped it."""
    assert value_form(DQN(atoms=51)).range == pytest.approx((-100, 100))
    assert value_form(DQN(atoms=51, discount=0.9, reward_scale=0.5)).range == pytest.approx((-5, 5))
    given = DQN(atoms=51, value_range=(0.0, 20.0))
    assert value_form(given).range == (0, 20)
    assert not range_remarks(given, {"loss/clipped_targets": 0.02, "loss/grad_norm": 9.0})
    [remark] = range_remarks(given, {"loss/hiders/clipped_targets": 0.2})
    assert "0 to 20" in remark
    with pytest.raises(UserError, match="returns have no bounds; give value_range"):
        DQN(atoms=51, discount=1.0).validate()


def test_the_error_of_c51_is_the_divergence_of_the_prediction_from_the_target():
    instance = DQN(**SMALL, network=NETWORK, atoms=7, value_range=(-3.0, 3.0))
    instance = instance.bind(DISCRETE, 10, SLOTS)
    state, drawn = instance.init(KEY), transitions_of(np.random.default_rng(2))
    loss, metrics = instance.loss(state.params, state, drawn)
    actor, head = instance.actor, instance.actor.head
    form = head.form

    def atoms_of(params, observation):
        return np.asarray(jax.nn.softmax(head.parts(actor.outputs(params, {}, observation))))

    atoms = atoms_of(state.params, drawn.observation)[np.arange(N), drawn.action]
    best = actor.values(state.params, {}, drawn.last).argmax(-1)
    last = atoms_of(state.targets, drawn.last)[np.arange(N), best]
    target = np.asarray(form.target(drawn.reward, drawn.discount, np.log(last)))
    expected = [stats.entropy(*x) for x in zip(target, atoms, strict=True)]
    np.testing.assert_allclose(metrics["td_error"], expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(loss, -(target * np.log(atoms)).sum(-1), rtol=1e-4)


@pytest.mark.parametrize("atoms", [1, 3])
def test_dueling_outputs_are_a_value_and_advantages_over_their_mean(atoms):
    config = DQN(**SMALL, network=NETWORK, atoms=atoms, dueling=True)
    head = config.bind(DISCRETE, 10, SLOTS).actor.head
    outputs = np.random.default_rng(0).normal(size=(N, 3 * atoms)).astype(np.float32)
    assert head.streams == (atoms, 2 * atoms)
    found = np.asarray(head.parts(outputs))
    value, one, other = np.split(outputs, 3, axis=-1)
    for action, advantage in enumerate((one, other)):
        expected = value + advantage - (one + other) / 2
        np.testing.assert_allclose(found[:, action], expected, rtol=1e-4, atol=1e-5)


def test_dueling_outputs_are_no_linear_functions_of_the_features_that_they_share():
    """Wang et al., 2016, section 3: a hidden layer each; else they add nothing."""
    linear = MLP(width=8, activation="identity")
    actor = DQN(**SMALL, network=linear, dueling=True).bind(DISCRETE, 10, SLOTS).actor
    random, x = np.random.default_rng(0), np.ones((1, 3), np.float32)
    params = jax.tree.map(lambda p: random.normal(size=p.shape), actor.init(KEY))
    there, here, back = (actor.values(params, {}, factor * x) for factor in (-3, 0, 3))
    assert np.abs(there + back - 2 * here).max() > 0.1


def test_the_streams_of_r2d2_follow_its_memory():
    rows = {"burn_in": 1, "sequence": 2, "chunk": 1, "n_step": 1}
    instance = R2D2(**SMALL, **rows, network=MLP(width=8, memory=6)).bind(DISCRETE, 10, SLOTS)
    params = instance.init(KEY).params
    network = params.pop("network")
    shapes = jax.tree.map(np.shape, {name: layer["kernel"] for name, layer in params.items()})
    hidden, heads = {"hidden_0": (6, 6), "hidden_1": (6, 6)}, {"head_0": (6, 1), "head_1": (6, 2)}
    assert shapes == hidden | heads
    assert set(network) == {"features", "memory"}  # no last layer is left unused


@pytest.mark.parametrize("correction", [1.0, 0.4])
def test_importance_weights_make_up_for_priorities_and_for_slots(correction):
    """Draws are even over slots, and by priority within each."""
    sizes = {**SMALL, "replay": STEPS * SLOTS, "batch_size": 16 * SLOTS}
    config = DQN(**sizes, network=NETWORK, n_step=1, priorities=1.0, correction=correction)
    replay, random = config.bind(DISCRETE, 10, SLOTS).replay, np.random.default_rng(0)
    unroll, shape = unroll_of(0), (replay.windows, SLOTS)
    priority = random.uniform(0.1, 2, shape).astype(np.float32)
    held = replay.insert(replay.empty(unroll), unroll, 0, lambda rows: priority.reshape(-1))
    sample = replay.sample(KEY, held, 0, unroll.slot, lambda sums: sums)
    mass, number = priority.sum(0), priority.size
    of_all = priority / priority.sum()  # as one replay of all slots would draw
    drawn_here = priority / mass / SLOTS
    expected = (of_all / drawn_here) * (number * of_all) ** -correction
    place = np.asarray(sample.draws.row), np.asarray(sample.draws.column)
    np.testing.assert_allclose(sample.weight, expected[place], rtol=1e-4)
    if correction == 1.0:
        values = random.normal(size=shape)
        found = (drawn_here * expected * values).sum()
        np.testing.assert_allclose(found, values.mean(), rtol=1e-4)


def test_the_density_of_squashed_actions_is_that_of_the_change_of_variables():
    random = np.random.default_rng(0)
    outputs = random.normal(size=(N, 4)).astype(np.float32) * 2
    noise = random.normal(size=(N, 2)).astype(np.float32)
    action, log_prob = squashed(*mean_and_log_std(outputs), noise)
    mean, raw_std = np.split(outputs.astype(float), 2, axis=-1)
    std = np.exp(-5 + 3.5 * (np.tanh(raw_std) + 1))
    raw = mean + std * noise
    density = stats.norm.logpdf(raw, mean, std) + 2 * np.log(np.cosh(raw))
    np.testing.assert_allclose(action, np.tanh(raw), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log_prob, density.sum(-1), rtol=1e-3, atol=1e-3)


def sac_of(entropy_wanted):
    """An algorithm, a state whose targets are other networks, and transitions."""
    config = SAC(**SMALL, network=NETWORK, temperature=0.5, target_entropy=entropy_wanted)
    instance = config.bind(CONTINUOUS, 10, SLOTS)
    state = instance.init(KEY)
    state = state._replace(targets=instance.init(OTHER).params["critics"])
    return instance, state, transitions_of(np.random.default_rng(0), 2)


def test_the_critics_of_sac_learn_the_least_slow_value_and_the_entropy_of_what_follows():
    instance, state, steps = sac_of(-1.0)
    slot, keys = np.arange(N, dtype=np.int32), jax.random.split(step_key(state, 0), 3)
    outputs = instance.actor.outputs(state.params["actor"], {}, steps.last)
    noise = noise_by_slot(keys[1], slot, instance.ratio.share, 2)
    action, log_prob = squashed(*mean_and_log_std(outputs), noise)
    slow = np.asarray(instance.critics.values(state.targets, {}, steps.last, action))
    target = steps.reward + steps.discount * (slow.min(0) - 0.5 * np.asarray(log_prob))

    def loss(critics):
        values = instance.critics.values(critics, {}, steps.observation, steps.action)
        return 0.5 * jnp.sum(jnp.square(values - target))

    def found(critics):
        return jnp.sum(instance.critic_loss(critics, state, steps, keys[:2], slot)[0])

    ours, expected = (jax.value_and_grad(f)(state.params["critics"]) for f in (found, loss))
    for a, b in zip(*map(jax.tree.leaves, (ours, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("wanted", "sign"), [(50.0, -1), (-50.0, 1)])
def test_the_temperature_rises_where_the_entropy_is_too_low(wanted, sign):
    instance, *_ = sac_of(wanted)
    loss = lambda x: jnp.sum(instance.alpha_loss(x, jnp.zeros(N), ())[0])  # noqa: E731
    assert np.sign(jax.grad(loss)(0.0)) == sign  # a step goes against the gradient


def test_the_critics_of_td3_learn_the_least_slow_value_of_the_smoothed_slow_action():
    config = TD3(**SMALL, network=NETWORK, target_noise=0.2, noise_clip=0.1)
    instance = config.bind(CONTINUOUS, 10, SLOTS)
    state = instance.init(KEY)._replace(targets=instance.init(OTHER).params)
    steps = transitions_of(np.random.default_rng(0), 2)
    slot, key = np.arange(N, dtype=np.int32), step_key(state, 1)
    _, noise_key = jax.random.split(key)
    noise = np.asarray(noise_by_slot(noise_key, slot, instance.ratio.share, 2))
    slow = np.tanh(np.asarray(instance.actor.outputs(state.targets["actor"], {}, steps.last)))
    action = np.clip(slow + np.clip(0.2 * noise, -0.1, 0.1), -1, 1)
    values_of = instance.critics.values
    following = np.asarray(values_of(state.targets["critics"], {}, steps.last, action))
    target = steps.reward + steps.discount * following.min(0)
    critics = state.params["critics"]
    values = np.asarray(values_of(critics, {}, steps.observation, steps.action))
    loss, _ = instance.critic_loss(critics, state, steps, key, slot)
    np.testing.assert_allclose(loss, 0.5 * np.square(values - target).sum(0), rtol=1e-4)


@pytest.mark.parametrize("kind", [SAC, TD3])
def test_distributional_critics_learn_the_least_slow_distribution(kind):
    """Seo et al., 2025, with C51's projection; SAC's entropy counts as reward."""
    settings = {"atoms": 7, "value_range": (-3.0, 3.0), "weight_decay": 0.1}
    config = kind(**SMALL, network=NETWORK, **settings)
    config = replace(config, **({"temperature": 0.5} if kind is SAC else {"target_noise": 0.0}))
    instance, random = config.bind(CONTINUOUS, 10, SLOTS), np.random.default_rng(0)
    state = jax.tree.map(np.asarray, instance.init(KEY))
    others = jax.tree.map(lambda x: x + random.normal(0, 0.4, x.shape), state.params)
    targets = others["critics"] if kind is SAC else others
    state, steps = state._replace(targets=targets), transitions_of(random, 2)
    slot, keys = np.arange(N, dtype=np.int32), jax.random.split(step_key(state, 0), 3)
    actor = state.params["actor"] if kind is SAC else targets["actor"]
    outputs = instance.actor.outputs(actor, {}, steps.last)
    if kind is SAC:
        noise = noise_by_slot(keys[1], slot, instance.ratio.share, 2)
        action, log_prob = squashed(*mean_and_log_std(outputs), noise)
        entropy, keys = -0.5 * np.asarray(log_prob), keys[:2]
    else:
        action, entropy, keys = np.tanh(outputs), np.zeros(N), keys[0]

    atoms = np.linspace(-3, 3, 7)
    slow = instance.critics.outputs(others["critics"], {}, steps.last, action)
    slow = np.asarray(jax.nn.softmax(slow))
    least = (slow @ atoms).argmin(0)
    assert set(least) == {0, 1}
    following = slow[least, np.arange(N)]
    reward = steps.reward + steps.discount * entropy
    sums = zip(reward, steps.discount, following, strict=True)
    target = np.stack([projected(float(r), float(d), atoms, mass) for r, d, mass in sums])
    critics = state.params["critics"]
    logits = instance.critics.outputs(critics, {}, steps.observation, steps.action)
    logs = np.asarray(jax.nn.log_softmax(logits))
    loss, metrics = instance.critic_loss(critics, state, steps, keys, slot)
    np.testing.assert_allclose(loss, -(target * logs).sum((0, 2)), rtol=1e-4)
    values = instance.critics.values(critics, {}, steps.observation, steps.action)
    np.testing.assert_allclose(values, np.exp(logs) @ atoms, atol=1e-5)
    assert metrics["clipped_targets"].shape == (N,)


def test_weight_decay_shrinks_parameters_by_the_learning_rate():
    """Loshchilov and Hutter, 2019; a temperature stays."""
    descent, params = adam(0.1), {"x": jnp.float32([2.0])}
    moved, _ = descent.step(params, descent.init(params), jnp.zeros(1), 0.5)
    np.testing.assert_allclose(moved["x"], 2.0 * (1 - 0.5 * 0.1))
    descents = SAC(weight_decay=0.1).bind(CONTINUOUS, 10, SLOTS).descents
    moved, _ = descents["log_temperature"].step(
        params, descents["log_temperature"].init(params), jnp.zeros(1), 0.5
    )
    assert moved["x"] == 2.0


def h(x):
    return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x


def undo_h(x):
    """By bisection, without the formula of the paper."""
    low, high = -1e6, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle) < x else (low, middle)
    return middle


@pytest.mark.parametrize("rescale", [True, False])
def test_errors_of_r2d2_are_of_rescaled_returns_within_their_episode(rescale):
    n, seq = 2, STEPS - 1
    config = R2D2(
        **SMALL, network=MLP(width=8, memory=4), chunk=1, burn_in=1, sequence=seq, n_step=n,
        rescale=rescale, dueling=False, samples_per_insert=1.0,
    )  # fmt: skip
    instance = config.bind(DISCRETE, 10, SLOTS)
    state = instance.init(KEY)._replace(targets=instance.init(OTHER).params)
    unroll = unroll_of(3)._replace(memory=jnp.zeros((STEPS, SLOTS, 4)))
    unroll = unroll._replace(reward=10 * unroll.reward)
    replay = instance.replay
    window = windows(unroll, replay.length, replay.stride, replay.burn_in)
    window = jax.tree.map(lambda x: x[0], window)
    error = np.asarray(instance.loss(state.params, state, window)[1]["td_error"])
    online, slow = (
        np.asarray(instance.sequence_outputs(params, state, window), float)
        for params in (state.params, state.targets)
    )
    ended = unroll.terminated | unroll.truncated
    forward, backward = (h, undo_h) if rescale else (lambda x: x, lambda x: x)

    # The first sequence is of rows 0 to 2, the second of row 3, the last that has an action.
    learned = np.asarray(instance.learned_rows(window))
    assert not learned[1:, SLOTS:].any()
    for row, slot in np.argwhere(~ended[:-1]):
        first = row // seq * seq
        t, place, end = row - first, row // seq * SLOTS + slot, min(first + seq, STEPS)
        assert learned[t, place]
        target, k = 0.0, 0
        while k < n and row + k < end and not ended[row + k, slot]:
            k += 1
            target += DISCOUNT ** (k - 1) * unroll.reward[row + k, slot]
        if not unroll.terminated[row + k, slot]:
            best = online[t + k, place].argmax()
            target += DISCOUNT**k * backward(slow[t + k, place, best])
        expected = forward(target) - online[t, place, unroll.action[row, slot]]
        np.testing.assert_allclose(error[t, place], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("q_lambda", [0.0, 0.65, 1.0])
def test_targets_of_pqn_are_lambda_returns(q_lambda):
    """Gallici et al., 2025, section 4: G = r + discount (lambda G' + (1 - lambda) max Q')."""
    config = PQN(network=NETWORK, unroll_length=STEPS, minibatches=1, q_lambda=q_lambda)
    instance = config.bind(DISCRETE, 10, SLOTS)
    for n in range(3):
        state, unroll = instance.init(KEY), unroll_of(n)
        samples = instance.prepare(state, (), unroll, lambda sums: sums)[2].samples
        best = np.asarray(instance.actor.values(state.params, {}, unroll.observation)).max(-1)
        ended = unroll.terminated | unroll.truncated
        following = np.where(unroll.terminated[-1], 0, best[-1])
        for t in reversed(range(STEPS)):
            now = unroll.reward[t + 1] + DISCOUNT * following
            np.testing.assert_allclose(
                samples.target[t], np.where(ended[t], 0, now), rtol=1e-4, atol=1e-4
            )
            value = np.where(unroll.terminated[t], 0, best[t])
            following = np.where(ended[t], value, q_lambda * now + (1 - q_lambda) * best[t])


@pytest.mark.parametrize("case", RLAX["cases"])
def test_vtrace_gives_what_rlax_gives(case):
    value, reward, log_ratio = (np.float32(case[x]) for x in ("value", "reward", "log_ratio"))
    terminated = np.zeros(len(value), bool)
    terminated[-1] = case["ended"]
    rows = np.append(np.float32(0), reward), terminated, np.zeros_like(terminated), value
    ours = vtrace(*rows, log_ratio, 0.97, case["lambda_"], case["clip_rho"])
    weight = np.minimum(np.exp(log_ratio), case["clip_rho"])
    np.testing.assert_allclose(ours[0] * weight, case["pg_advantage"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours[1], case["errors"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("clip_rho", "clip_c", "lambda_"), [(1.0, 1.0, 1.0), (2.0, 1.5, 0.9), (0.7, 1.0, 0.5)]
)
def test_vtrace_is_the_sum_of_products_of_its_paper(clip_rho, clip_c, lambda_):
    """Espeholt et al., 2018, equation 1, with c_i = lambda min(c-bar, ratio)."""
    random, unroll = np.random.default_rng(0), unroll_of(1)
    value = random.normal(size=unroll.reward.shape).astype(np.float32)
    log_ratio = random.normal(size=(STEPS, SLOTS)).astype(np.float32)
    ends = unroll.reward, unroll.terminated, unroll.truncated
    advantage, correction = vtrace(*ends, value, log_ratio, DISCOUNT, lambda_, clip_rho, clip_c)
    ratio = np.exp(log_ratio.astype(float))
    rho, c = np.minimum(ratio, clip_rho), np.minimum(ratio, clip_c)
    ended = unroll.terminated | unroll.truncated
    worth = np.where(unroll.terminated, 0, value.astype(float))

    def correction_at(s, slot):
        total = 0.0
        for t in range(s, STEPS):
            if ended[t, slot]:
                break
            delta = unroll.reward[t + 1, slot] + DISCOUNT * worth[t + 1, slot] - value[t, slot]
            product = np.prod(lambda_ * c[s:t, slot])
            total += DISCOUNT ** (t - s) * product * rho[t, slot] * delta
        return total

    for s in range(STEPS):
        for slot in range(SLOTS):
            expected = correction_at(s, slot)
            np.testing.assert_allclose(correction[s, slot], expected, rtol=1e-4, atol=1e-5)
            if lambda_ == 1.0 and not ended[s, slot]:
                after = worth[s + 1, slot] + (correction_at(s + 1, slot) if s + 1 < STEPS else 0)
                expected = unroll.reward[s + 1, slot] + DISCOUNT * after - value[s, slot]
                np.testing.assert_allclose(advantage[s, slot], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3, STEPS + 2])
def test_returns_of_n_steps_have_fewer_where_the_rows_end(n):
    unroll = unroll_of(2)
    value = np.random.default_rng(0).normal(size=unroll.reward.shape).astype(np.float32)
    ended = unroll.terminated | unroll.truncated
    ends = unroll.reward, unroll.terminated, unroll.truncated
    found = np.asarray(n_step_returns(*ends, value, DISCOUNT, n))
    for t, slot in np.argwhere(~ended[:-1]):
        expected, k = 0.0, 0
        while k < n and t + k < STEPS and not ended[t + k, slot]:
            k += 1
            expected += DISCOUNT ** (k - 1) * unroll.reward[t + k, slot]
        if not unroll.terminated[t + k, slot]:
            expected += DISCOUNT**k * value[t + k, slot]
        np.testing.assert_allclose(found[t, slot], expected, rtol=1e-4, atol=1e-5)
