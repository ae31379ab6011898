"""Native pools stepped from inside compiled programs."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jax.errors import JaxRuntimeError

from srl import UserError, make_pool
from srl.envs.hide_and_seek.config import HideAndSeek

CARTPOLE = "native:CartPole-v1"
WHILE_RUNNING = (JaxRuntimeError, ValueError)  # JAX's choice


@pytest.fixture
def pool():
    with make_pool(CARTPOLE, num_envs=4) as pool:
        yield pool


def draw(pool, steps, seed=0):
    """Random actions for all slots, [steps, B, ...]."""
    space, slots = pool.specs.action, pool.num_envs * len(pool.specs.agents)
    shape, rng = (steps, slots, *space.shape), np.random.default_rng(seed)
    if isinstance(space, spaces.Box):
        return rng.uniform(space.low, space.high, shape).astype(np.float32)
    counts = space.nvec if space.shape else space.n
    return rng.integers(0, counts, shape).astype(np.int32)


def assert_same(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(
    ("env", "steps"),
    [(CARTPOLE, 200), ("native:Pendulum-v1", 50), ("native:Hopper-v5", 50), (HideAndSeek(), 10)],
)
def test_a_scan_gives_what_steps_give(env, steps):
    with make_pool(env, num_envs=3) as pool, make_pool(env, num_envs=3) as reference:
        xla, actions = pool.xla(), draw(reference, steps)
        state, first = xla.reset(xla.init(), seed=5)
        assert_same(first, reference.reset(seed=5))
        _, timesteps = jax.jit(lambda state: jax.lax.scan(xla.step, state, actions))(state)
        for t in range(steps):
            row = jax.tree.map(lambda array, t=t: array[t], timesteps)
            assert_same(row, reference.step(actions[t]))


def test_a_rollout_with_a_policy_is_one_program(pool):
    xla, weights = pool.xla(), jnp.array([0.1, 0.5, 1.0, 1.0])

    def act(weights, observation):
        return (observation @ weights > 0).astype(jnp.int32)

    @jax.jit
    def rollout(weights, state):
        def step(carry, _):
            state, timestep = carry
            state, timestep = xla.step(state, act(weights, timestep.observation))
            return (state, timestep), timestep.reward

        return jax.lax.scan(step, xla.reset(state, seed=1), length=300)

    (_, last), rewards = rollout(weights, xla.init())
    with make_pool(CARTPOLE, num_envs=4) as reference:
        timestep, expected = reference.reset(seed=1), []
        for _ in range(300):
            timestep = reference.step(np.asarray(jax.jit(act)(weights, timestep.observation)))
            expected.append(timestep.reward)
        assert_same(last, timestep)
    np.testing.assert_array_equal(rewards, expected)


def test_a_rollout_begins_from_init_as_often_as_wanted(pool):
    xla, actions, start = pool.xla(), draw(pool, 2000), pool.xla().init()

    @jax.jit
    def rollout(state):
        return jax.lax.scan(xla.step, xla.reset(state, seed=7)[0], actions)

    runs = [rollout(state) for state in (xla.init(), xla.init(), start, start)]  # none waits
    for _, timesteps in runs[1:]:
        assert_same(timesteps, runs[0][1])


def test_init_may_be_called_inside_a_program(pool):
    xla, actions = pool.xla(), draw(pool, 20)

    @jax.jit
    def rollout(seed):
        return jax.lax.scan(xla.step, xla.reset(xla.init(), seed)[0], actions)[1]

    first, second, again = rollout(3), rollout(4), rollout(3)
    assert_same(first, again)
    assert not np.array_equal(first.observation, second.observation)


def test_a_program_that_begins_from_init_goes_on_where_the_pool_stands(pool):
    xla, actions = pool.xla(), draw(pool, 4)
    step = jax.jit(xla.step)
    pool.reset(seed=0)
    (state, _), _ = step(xla.init(), actions[0]), pool.step(actions[1])
    _, _ = step(state, actions[2])
    _, timestep = step(xla.init(), actions[3])
    assert timestep.episode_length.tolist() == [4] * 4


def test_a_state_from_before_another_beginning_is_refused(pool):
    xla, action = pool.xla(), np.zeros(4, np.int32)
    before, _ = xla.reset(xla.init(), seed=0)
    state, _ = xla.reset(xla.init(), seed=0)
    with pytest.raises(WHILE_RUNNING, match=r"another call was made since.* begin again with init"):
        jax.block_until_ready(xla.step(before, action))
    _, timestep = xla.step(state, action)  # what was refused changed nothing
    assert timestep.episode_length.tolist() == [1] * 4


def test_a_state_serves_once(pool):
    xla, action = pool.xla(), np.zeros(4, np.int32)
    first, _ = xla.reset(xla.init(), seed=0)
    second, _ = xla.step(first, action)
    with pytest.raises(WHILE_RUNNING, match="not the pool's present state"):
        xla.step(first, action)[1].reward.block_until_ready()

    @jax.jit
    def twice(state):
        return xla.step(state, action), xla.step(state, 1 - action)

    with pytest.raises(WHILE_RUNNING, match="not the pool's present state"):
        jax.block_until_ready(twice(second))
    _, timestep = xla.step(xla.init(), action)  # one of the two was done
    assert timestep.episode_length.tolist() == [3] * 4


def test_steps_that_only_the_state_connects_stay_in_order(pool):
    xla = pool.xla()
    actions = draw(pool, 6)

    @jax.jit
    def six(state):
        state, _ = xla.reset(state, seed=0)
        for action in actions:  # nobody asks for these timesteps
            state, timestep = xla.step(state, action)
        return state, timestep

    _, timestep = six(xla.init())
    with make_pool(CARTPOLE, num_envs=4) as reference:
        reference.reset(seed=0)
        for action in actions:
            expected = reference.step(action)
    assert_same(timestep, expected)


def test_one_program_serves_all_pools_of_a_kind(pool):
    traces = []
    xla = pool.xla()

    @jax.jit
    def step(state, action):
        traces.append(1)
        return xla.step(state, action)

    with make_pool(CARTPOLE, num_envs=4) as other:
        states = [one.reset(one.init(), seed=i)[0] for i, one in enumerate((xla, other.xla()))]
        for action in draw(pool, 3):
            results = [step(state, action) for state in states]
            states = [state for state, _ in results]
            assert not np.array_equal(results[0][1].observation, results[1][1].observation)
        assert len(traces) == 1
        texts = {
            jax.jit(lambda s, one=one: one.reset(s, 0)).lower(one.init()).as_text()
            for one in (xla, other.xla())
        }
        assert len(texts) == 1  # so that programs kept on disk serve other processes too
    with make_pool(CARTPOLE, num_envs=3) as smaller:
        with pytest.raises(WHILE_RUNNING, match="traced for a pool of another size"):
            jax.block_until_ready(step(smaller.xla().init(), np.zeros(4, np.int32)))


def test_two_pools_in_one_program_do_not_mix(pool):
    with make_pool(HideAndSeek(), num_envs=1) as game:
        ours, theirs = pool.xla(), game.xla()
        moves = draw(game, 1)[0]

        @jax.jit
        def both(one, other):
            one, timestep = ours.reset(one, seed=0)
            other, _ = theirs.reset(other, seed=0)
            other, seen = theirs.step(other, moves)
            one, timestep = ours.step(one, (timestep.observation[:, 0] > 0).astype(jnp.int32))
            return timestep, seen

        timestep, seen = both(ours.init(), theirs.init())
    with make_pool(CARTPOLE, num_envs=4) as again, make_pool(HideAndSeek(), num_envs=1) as second:
        observation = again.reset(seed=0).observation
        assert_same(timestep, again.step((observation[:, 0] > 0).astype(np.int32)))
        second.reset(seed=0)
        assert_same(seen, second.step(moves))


def test_a_pool_is_saved_restored_and_stepped_between_programs(pool):
    xla, actions = pool.xla(), draw(pool, 20)
    step = jax.jit(xla.step)
    state, _ = xla.reset(xla.init(), seed=0)
    pool.step(actions[0])
    state, _ = step(state, actions[1])
    saved = pool.save()
    runs = []
    for _ in range(2):
        pool.restore(saved)
        state, timesteps = jax.lax.scan(xla.step, state, actions)
        runs.append(timesteps)
    assert_same(*runs)
    assert timesteps.episode_length[0].tolist() == [3] * 4


def test_a_reset_without_a_seed_goes_on_with_chance(pool):
    xla = pool.xla()
    reset = jax.jit(xla.reset)
    state, first = reset(xla.init(), 3)
    state, second = reset(state)
    _, third = reset(state, jnp.int32(3))
    assert_same(first, third)
    assert not np.array_equal(first.observation, second.observation)


def test_a_closed_pool_is_refused(pool):
    xla = pool.xla()
    step = jax.jit(xla.step)
    state, _ = step(xla.reset(xla.init(), 0)[0], np.zeros(4, np.int32))
    pool.close()
    with pytest.raises(WHILE_RUNNING, match="the pool is closed"):
        jax.block_until_ready(step(state, np.zeros(4, np.int32)))
    for call in (xla.init, pool.xla):
        with pytest.raises(UserError, match="the pool of native:CartPole-v1 is closed"):
            call()


def test_what_the_pool_refuses_or_its_environments_raise_is_told(pool):
    xla, good = pool.xla(), np.zeros(4, np.int32)
    with pytest.raises(WHILE_RUNNING, match="environment 0 was never reset; call reset first"):
        jax.block_until_ready(xla.step(xla.init(), good))
    state, _ = xla.reset(xla.init(), seed=0)
    with pytest.raises(WHILE_RUNNING, match="environment 2, agent agent: action 2, expected 0"):
        jax.block_until_ready(xla.step(state, np.array([0, 1, 2, 0])))
    state, _ = xla.step(state, good)  # a call that was refused changed nothing
    pool.inject(1, "state", [np.nan] * 4)
    with pytest.raises(WHILE_RUNNING, match="environment 1: gave a number that is not finite"):
        jax.block_until_ready(jax.lax.scan(xla.step, state, draw(pool, 9)))
    _, timestep = xla.step(xla.init(), good)
    assert timestep.episode_length[1] == 0


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x, s: x.step(s, jnp.zeros(3, jnp.int32)), r"shape \(3,\); expected \(4,\)"),
        (lambda x, s: x.step(s, jnp.zeros(4)), "float32; expected int32"),
        (lambda x, s: x.step(s, jnp.zeros(4, bool)), "bool; expected int32"),
        (lambda x, s: x.reset(s, -1), "seed=-1; expected 0 to 4294967295"),
        (lambda x, s: x.reset(s, 0.5), "dtype float32; expected one integer"),
        (
            lambda x, s: jax.vmap(lambda a: x.step(s, a))(jnp.zeros((2, 4), jnp.int32)),
            "vmap of a pool's call",
        ),
        (
            lambda x, s: jax.vmap(jax.jit(lambda seed: x.reset(s, seed)))(jnp.arange(3)),
            "vmap of a pool's call",
        ),
    ],
)
def test_what_cannot_be_is_refused_while_tracing(pool, call, told):
    xla = pool.xla()
    with pytest.raises(UserError, match=told):
        jax.jit(lambda state: call(xla, state)).lower(xla.init())


def test_gradients_stop_at_the_pool(pool):
    xla = pool.xla()

    @jax.jit
    def loss(scale, state):
        def step(state, action):
            state, timestep = xla.step(state, (scale * action).astype(jnp.int32))
            return state, timestep.reward.sum() * scale

        state, rewards = jax.lax.scan(step, xla.reset(state, 0)[0], jnp.ones((5, 4)))
        return rewards.sum(), state

    gradient, _ = jax.grad(loss, has_aux=True)(1.0, xla.init())
    assert gradient == 20  # of the factor alone: 5 steps of 4 environments


def test_an_asynchronous_pool_has_none():
    with make_pool(CARTPOLE, num_envs=4, batch_size=2) as pool:
        with pytest.raises(UserError, match="a compiled program steps all"):
            pool.xla()


def test_other_pools_say_which_have_it():
    with make_pool("CartPole-v1") as pool, pytest.raises(UserError, match=r"native:\.\.\."):
        pool.xla()


def test_a_program_runs_on_the_cpu_that_holds_the_state_whatever_the_default():
    code = """
import jax, jax.numpy as jnp, numpy as np
from srl import make_pool
first, second = jax.devices()
assert "jax" in __import__("sys").modules
with jax.default_device(second), make_pool("native:CartPole-v1", num_envs=2) as pool:
    xla = pool.xla()
    weights = jnp.ones(4)  # uncommitted, on the default device
    @jax.jit
    def step(weights, state, observation):
        return xla.step(state, (observation @ weights > 0).astype(jnp.int32))
    state, timestep = xla.reset(xla.init(), seed=0)
    for _ in range(3):
        state, timestep = step(weights, state, timestep.observation)
    assert timestep.reward.devices() == {first}, timestep.reward.devices()
    try:
        step(jax.device_put(weights, second), state, timestep.observation)
    except ValueError as error:
        print(error)
"""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "incompatible devices" in done.stdout


def test_pools_load_no_jax():
    code = "import srl.pools.native.xla, srl.pools.native, sys; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
