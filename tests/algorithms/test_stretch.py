"""Actions of a Box: every algorithm gives numbers of the space's type, within its bounds."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from srl import UserError, make_pool
from srl.algorithms import APPO, IMPALA, PPO, SAC, TD3
from srl.algorithms.stretch import Stretch
from srl.core.spaces import bounded, inner_bounds
from srl.core.types import Specs
from srl.networks import MLP
from srl.pools.functional.environment import Step
from srl.pools.functional.pool import FunctionalPool

OBSERVED = spaces.Box(-1, 1, (2,), np.float32)
EVEN = np.linspace(-1, 1, 2001, dtype=np.float32)[:, None]
INTEGERS = {
    "int64": spaces.Box(0, 4, (1,), np.int64),
    "uint8": spaces.Box(100, 255, (1,), np.uint8),
    "int8": spaces.Box(-128, 127, (1,), np.int8),
    "uint16": spaces.Box(0, 2**16 - 1, (1,), np.uint16),
}
EXTREMES = [
    spaces.Box(np.iinfo(kind).min, np.iinfo(kind).max, (1,), kind)
    for kind in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64)
]


def env_action(algorithm, space):
    return algorithm(network=MLP(width=4)).bind(Specs(OBSERVED, space, ("agent",)), 1).env_action


@pytest.mark.parametrize("algorithm", [SAC, TD3, PPO, APPO, IMPALA])
@pytest.mark.parametrize("space", INTEGERS.values(), ids=INTEGERS)
def test_each_integer_gets_its_fair_share_of_the_outputs(algorithm, space):
    actions = env_action(algorithm, space)(EVEN)
    assert actions.dtype == space.dtype
    values = int(space.high[0]) - int(space.low[0]) + 1
    counts = np.bincount(actions[:, 0].astype(np.int64) - int(space.low[0]), minlength=values)
    assert (abs(counts - len(EVEN) / values) < 2).all()  # the ends of the interval are rounded


@given(
    kind=st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint8, np.int64]),
    drawn=st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=4),
    data=st.data(),
)
def test_actions_are_in_their_space_whatever_it_is(kind, drawn, data):
    if np.issubdtype(kind, np.integer):
        numbers = st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    else:
        numbers = st.floats(width=8 * np.dtype(kind).itemsize, allow_nan=False)
    low, high = sorted(data.draw(st.tuples(numbers, numbers)))
    if high == -np.inf or low == np.inf:
        return
    space = spaces.Box(np.array([low], kind), np.array([high], kind), (1,), kind)
    numbers = np.array([*drawn, -1.0, 1.0], np.float32)[:, None]
    for kept in (numbers, numbers.astype(np.float64)):
        actions = Stretch(space)(kept)
        assert all(space.contains(action) for action in actions), (space, actions)
    least, most = inner_bounds(space, np.float32)
    if np.dtype(kind).kind in "iu" and (low < -(2**31) or high >= 2**31):
        return  # refused by pools of environments in JAX
    if least > most or any(0 < abs(x) < np.finfo(np.float32).tiny for x in (*least, *most)):
        return  # no number of float32 is within, or one that XLA takes for zero
    compiled = np.asarray(Stretch(space)(jnp.asarray(numbers))).astype(object)
    assert (compiled >= space.low.astype(object)).all()
    assert (compiled <= space.high.astype(object)).all()


@pytest.mark.parametrize("space", EXTREMES, ids=lambda space: str(space.dtype))
def test_types_at_their_extremes_keep_the_sign(space):
    low, middle, high = Stretch(space)(np.array([[-1.0], [0.0], [1.0]], np.float32))[:, 0]
    assert int(low) == int(space.low[0])
    assert int(low) < int(middle) < int(high) <= int(space.high[0])


@pytest.mark.parametrize(
    "limit", [np.float64(1e300), np.float64(1.7e308), np.float32(3e38), np.float64(2e38)]
)
def test_bounds_further_apart_than_float32_reaches_count_as_none(limit):
    space = spaces.Box(-limit, limit, (2,), limit.dtype)
    assert not bounded(space).any()
    np.testing.assert_allclose(env_action(PPO, space)(np.array([[0.5, -7.0]])), [[0.5, -7.0]])
    for algorithm in (SAC, TD3):
        with pytest.raises(UserError, match="within bounds"):
            env_action(algorithm, space)


def demanding(low, high, kind):
    class Demanding(gymnasium.Env):
        observation_space = OBSERVED
        action_space = spaces.Box(low, high, (1,), kind)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(2, np.float32), {}

        def step(self, action):
            assert self.action_space.contains(action), action
            return np.zeros(2, np.float32), 0.0, False, False, {}

    return Demanding


@pytest.mark.parametrize("algorithm", [SAC, PPO])
@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [(-0.1, 0.1, np.float64), (100, 255, np.uint8), (-3, 7, np.int64), (-0.1, 0.3, np.float16)],
)
def test_environments_get_actions_of_their_space_at_the_bounds(algorithm, low, high, kind):
    with make_pool(demanding(low, high, kind), 3) as pool:
        pool.reset(0)
        pool.step(env_action(algorithm, pool.specs.action)(np.array([[-1.0], [1.0], [0.3]], "f")))


def test_bounds_of_environments_in_jax_are_rounded_inwards():
    class Narrow:
        observation_space = OBSERVED
        action_space = spaces.Box(-0.1, 0.1, (1,), np.float64)

        def reset(self, key):
            return jnp.zeros(()), jnp.zeros(2)

        def step(self, state, action, key):
            beyond = jnp.abs(action[0]) > np.nextafter(np.float32(0.1), np.float32(0))
            return Step(state, jnp.zeros(2), beyond.astype(jnp.float32), jnp.bool_(False))

    pool = FunctionalPool(Narrow(), 2, 1, "narrow")
    stretch, ends = env_action(SAC, pool.specs.action), np.array([[-1.0], [1.0]], np.float32)
    assert all(pool.specs.action.contains(action) for action in stretch(ends))
    xla = pool.xla()
    step = jax.jit(lambda state, x: xla.step(xla.reset(state, 0)[0], stretch(x))[1].reward)
    assert not np.asarray(step(pool.state, ends)).any()


def test_the_largest_number_may_be_a_bound():
    largest = np.finfo(np.float64).max
    space = spaces.Box(largest, largest, (1,), np.float64)
    assert space.contains(Stretch(space)(np.zeros((1, 1), np.float32))[0])
