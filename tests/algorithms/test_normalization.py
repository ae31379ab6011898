"""Running statistics agree with those of all rows at once, and leave masks and images alone."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from srl import UserError
from srl.algorithms import PPO
from srl.algorithms.normalization import (
    ObservationNormalizer,
    merge,
    moments,
    no_statistics,
    spread,
    standardize,
    unstandardize,
)
from srl.core.spaces import is_picture


def add(statistics, x, mask):
    """Adds rows."""
    return merge(statistics, moments(x, mask, statistics.mean))


def update(normalizer, statistics, observation, mask):
    """Adds observations."""
    return normalizer.update(statistics, normalizer.measure(statistics, observation, mask))


compiled_add = jax.jit(add)


@settings(max_examples=20)
@given(st.integers(0, 2**31), st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_merged_statistics_are_those_of_all_valid_rows(seed, cuts):
    random = np.random.default_rng(seed)
    x = random.normal(3.0, 2.0, (12, 5, 2)).astype(np.float32)
    mask = random.random((12, 5)) < 0.7
    statistics = no_statistics((2,))
    edges = sorted({0, 12, *cuts})
    for start, end in itertools.pairwise(edges):
        # Rows beyond the part are masked, so that one compiled shape serves all parts.
        inside = (np.arange(12) >= start) & (np.arange(12) < end)
        statistics = compiled_add(statistics, x, mask & inside[:, None])
    rows = x[mask]
    assert float(statistics.count) == len(rows)
    np.testing.assert_allclose(statistics.mean, rows.mean(0), rtol=1e-4)
    np.testing.assert_allclose(statistics.variance, rows.var(0), rtol=1e-4)


def test_float32_is_enough_for_large_means():
    x = (1e4 + np.random.default_rng(0).normal(size=(4000, 1))).astype(np.float32)
    statistics = no_statistics((1,))
    for part in np.split(x, 4):
        statistics = add(statistics, part, np.ones(len(part), bool))
    np.testing.assert_allclose(statistics.variance, x.astype(np.float64).var(0), rtol=1e-2)


def test_sums_of_slots_add_up_to_those_of_all():
    random = np.random.default_rng(0)
    x = random.normal(50.0, 2.0, (12, 6, 3)).astype(np.float32)
    mask, center = random.random((12, 6)) < 0.7, np.array([49.0, 0.0, 60.0], np.float32)
    whole = moments(x, mask, center)
    parts = [moments(x[:, s], mask[:, s], center) for s in (slice(0, 2), slice(2, 6))]
    jax.tree.map(lambda a, b, c: np.testing.assert_allclose(a + b, c, rtol=1e-5), *parts, whole)
    _, variance = spread(whole)
    np.testing.assert_allclose(variance, x[mask].var(0), rtol=1e-3)


def test_rows_that_do_not_count_may_hold_anything():
    mask = np.array([True, False, True])
    x = np.array([[1.0], [np.nan], [3.0]], np.float32)
    statistics = add(no_statistics((1,)), x, mask)
    np.testing.assert_allclose([statistics.mean[0], statistics.variance[0]], [2.0, 1.0])


def test_no_valid_row_changes_nothing():
    statistics = add(no_statistics(), jnp.array([np.inf]), jnp.array([False]))
    assert statistics == no_statistics()
    assert float(standardize(statistics, jnp.array(3.0))) == 3.0


def test_unstandardize_undoes_standardize():
    x = np.random.default_rng(0).normal(5.0, 3.0, 100).astype(np.float32)
    statistics = add(no_statistics(), x, np.ones(100, bool))
    np.testing.assert_allclose(unstandardize(statistics, standardize(statistics, x)), x, rtol=1e-4)


SPACE = spaces.Dict(
    vector=spaces.Box(-np.inf, np.inf, (3,)),
    entities=spaces.Box(-np.inf, np.inf, (4, 2)),
    mask_entities=spaces.Box(0, 1, (4,)),
    action_mask=spaces.MultiBinary(5),
    camera=spaces.Box(0, 255, (32, 32, 3), np.uint8),
    kind=spaces.Discrete(7),
    nested=spaces.Tuple([spaces.Box(-1, 1, ()), spaces.MultiDiscrete([2, 3])]),
)


def observations(rows):
    random = np.random.default_rng(0)
    return {
        "vector": random.normal(7.0, 5.0, (rows, 3)).astype(np.float32),
        "entities": random.normal(-2.0, 3.0, (rows, 4, 2)).astype(np.float32),
        "mask_entities": np.ones((rows, 4), np.float32),
        "action_mask": np.ones((rows, 5), np.int8),
        "camera": np.full((rows, 32, 32, 3), 255, np.uint8),
        "kind": np.full(rows, 6),
        "nested": (np.full(rows, 0.5, np.float32), np.ones((rows, 2), np.int64)),
    }


def test_only_numbers_are_standardised_leaf_by_leaf():
    normalizer = ObservationNormalizer(SPACE)
    observation = observations(500)
    statistics = jax.jit(partial(update, normalizer))(
        normalizer.init(), observation, np.ones(500, bool)
    )
    assert set(statistics) == {"vector", "entities", "nested/0"}
    inputs = jax.jit(normalizer.normalize)(statistics, observation)
    np.testing.assert_allclose(inputs["vector"].mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(inputs["vector"].std(0), 1, atol=1e-3)
    assert float(inputs["camera"].max()) == 1.0
    for name in ("mask_entities", "action_mask", "kind"):
        np.testing.assert_array_equal(inputs[name], observation[name])
    np.testing.assert_array_equal(inputs["nested"][1], observation["nested"][1])


def test_entities_share_their_statistics():
    normalizer = ObservationNormalizer(SPACE)
    observation = observations(50)
    statistics = update(normalizer, normalizer.init(), observation, np.ones(50, bool))["entities"]
    rows = observation["entities"].reshape(-1, 2)
    np.testing.assert_allclose(statistics.mean, rows.mean(0), rtol=1e-4)
    np.testing.assert_allclose(statistics.variance, rows.var(0), rtol=1e-4)


def test_empty_places_of_a_set_do_not_count():
    """One of 200 places is taken, by an entity of mean 5 and deviation 2."""
    space = spaces.Dict(units=spaces.Box(-99, 99, (200, 1)), mask_units=spaces.Box(0, 1, (200,)))
    normalizer, random = ObservationNormalizer(space), np.random.default_rng(0)
    units, mask = np.zeros((500, 4, 200, 1), np.float32), np.zeros((500, 4, 200), np.float32)
    units[:, :, 7, 0] = random.normal(5.0, 2.0, (500, 4))
    mask[:, :, 7] = 1
    rows, seen = random.random((500, 4)) < 0.5, {"units": units, "mask_units": mask}
    measured = jax.jit(partial(update, normalizer))
    statistics = measured(normalizer.init(), seen, rows)["units"]
    there = units[rows][:, 7]
    assert statistics.count == len(there)
    np.testing.assert_allclose(statistics.mean, there.mean(0), rtol=1e-3)
    np.testing.assert_allclose(jnp.sqrt(statistics.variance), there.std(0), rtol=1e-3)
    assert measured(normalizer.init(), {**seen, "mask_units": 0 * mask}, rows)["units"].count == 0


def test_what_exists_unseen_counts_as_the_value_sees_it():
    space = spaces.Dict(
        box_obs=spaces.Box(-9, 9, (2, 1)), mask_ab_obs=spaces.Box(0, 1, (2,)),
        mask_ab_obs_spoof=spaces.Box(0, 1, (2,)), agent_qpos_qvel=spaces.Box(-9, 9, (1, 1)),
        mask_aa_obs=spaces.Box(0, 1, (1,)),
    )  # fmt: skip
    normalizer = ObservationNormalizer(space)
    seen = {
        "box_obs": np.float32([[[3], [0]], [[5], [0]]]), "mask_ab_obs": np.zeros((2, 2)),
        "mask_ab_obs_spoof": np.float32([[1, 0], [1, 0]]),
        "agent_qpos_qvel": np.float32([[[1]], [[2]]]), "mask_aa_obs": np.zeros((2, 1)),
    }  # fmt: skip
    statistics = update(normalizer, normalizer.init(), seen, np.ones(2, bool))
    assert {name: float(x.mean[0]) for name, x in statistics.items()} == {
        "box_obs": 4.0, "agent_qpos_qvel": 1.5,
    }  # fmt: skip


def test_small_changes_of_a_constant_feature_stay_small():
    normalizer = ObservationNormalizer(spaces.Box(-np.inf, np.inf, (2,)))
    x = np.full((1000, 2), [3.0, 0.5], np.float32)
    x[::2, 1] = -0.5
    statistics = update(normalizer, normalizer.init(), x, np.ones(1000, bool))
    inputs = normalizer.normalize(statistics, np.float32([3.001, 0.5]))
    np.testing.assert_allclose(inputs, [0.1, 1.0], rtol=1e-3)


def test_far_observations_are_clipped():
    space = spaces.Box(-np.inf, np.inf, (1,))
    normalizer = ObservationNormalizer(space, clip=5.0)
    x = np.array([[0.0], [1.0]], np.float32)
    statistics = update(normalizer, normalizer.init(), x, np.ones(2, bool))
    assert float(normalizer.normalize(statistics, np.array([1e9]))[0]) == 5.0


def test_without_running_statistics_only_pictures_are_scaled():
    normalizer = ObservationNormalizer(SPACE, running=False)
    observation = observations(2)
    assert normalizer.init() == {}
    inputs = normalizer.normalize(
        update(normalizer, {}, observation, np.ones(2, bool)), observation
    )
    np.testing.assert_array_equal(inputs["vector"], observation["vector"])
    assert float(inputs["camera"].max()) == 1.0


@pytest.mark.parametrize(
    ("space", "picture"),
    [
        (spaces.Box(0, 255, (84, 84), np.uint8), True),
        (spaces.Box(0, 255, (64, 48, 3), np.uint8), True),
        (spaces.Box(0, 255, (4, 32, 40), np.uint8), True),
        (spaces.Box(0, 255, (4,), np.uint8), False),  # four bytes
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), False),  # what MiniGrid's agents see
        (spaces.Box(0, 255, (25, 25, 3), np.uint8), False),  # and a whole grid
        (spaces.Box(0, 255, (64, 4), np.uint8), False),  # entities
        (spaces.Box(0, 10, (84, 84, 3), np.uint8), False),
        (spaces.Box(0, 255, (84, 84, 3), np.int16), False),
    ],
)
def test_pictures_are_bytes_of_the_whole_range_in_two_long_axes(space, picture):
    assert is_picture(space) == picture
    assert (ObservationNormalizer(space).init() == {}) == picture


@pytest.mark.parametrize("kind", ["pictures", "none"])
def test_bytes_that_are_no_picture_are_inputs_as_the_same_floats_would_be(kind):
    rows = np.random.default_rng(0).integers(0, 2, (64, 4))
    inputs = []
    for dtype in (np.uint8, np.float32):
        normalizer = ObservationNormalizer(spaces.Box(0, 255, (4,), dtype), scaled_bytes=kind)
        x = rows.astype(dtype)
        statistics = update(normalizer, normalizer.init(), x, np.ones(64, bool))
        inputs.append(np.asarray(normalizer.normalize(statistics, x)))
    np.testing.assert_array_equal(*inputs)
    np.testing.assert_allclose(inputs[0].std(0), 1, atol=1e-3)


@pytest.mark.parametrize(("kind", "scaled"), [("all", True), ("none", False)])
def test_a_setting_chooses_which_bytes_are_divided(kind, scaled):
    for shape in ((4,), (32, 32, 3)):
        normalizer = ObservationNormalizer(spaces.Box(0, 255, shape, np.uint8), scaled_bytes=kind)
        assert (normalizer.init() == {}) == scaled
    with pytest.raises(
        UserError, match=r"algorithm.scaled_bytes is 'some'; expected pictures, all or none"
    ):
        PPO(scaled_bytes="some").validate()
