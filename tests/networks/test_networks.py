"""Networks: what they take, what they ignore, and that they are what they claim to be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from srl.config.experiment import load_experiment
from srl.core.errors import UserError
from srl.networks import CNN, MLP, AutoNetwork, EntityAttention, SimBa
from srl.pools import make_pool

KEY = jax.random.key(0)
VECTOR = spaces.Box(-1, 1, (3,))


def entities(others=3, boxes=4, ramps=2):
    def numbers(*shape):
        return spaces.Box(-np.inf, np.inf, shape, np.float32)

    def mask(*shape):
        return spaces.Box(0, 1, shape, np.float32)

    return spaces.Dict(
        observation_self=numbers(10),
        agent_qpos_qvel=numbers(others, 10),
        box_obs=numbers(boxes, 15),
        ramp_obs=numbers(ramps, 15),
        lidar=numbers(30, 1),
        count_target=numbers(2),
        mask_aa_obs=mask(others),
        mask_ab_obs=mask(boxes),
        mask_ar_obs=mask(ramps),
        mask_ab_obs_spoof=mask(boxes),
    )


def draw(space, leading=(), seed=0):
    random = np.random.default_rng(seed)

    def leaf(name, part):
        if isinstance(part, spaces.Dict):
            return {key: leaf(key, inner) for key, inner in part.items()}
        if isinstance(part, spaces.Tuple):
            return tuple(leaf(name, inner) for inner in part)
        shape = (*leading, *part.shape)
        if name.startswith("mask"):
            return (random.random(shape) < 0.5).astype(np.float32)
        if isinstance(part, spaces.Box):
            return random.normal(size=shape).astype(np.float32)
        return random.integers(0, 2, shape).astype(np.int32)

    return leaf("", space)


IMAGE = spaces.Box(0, 255, (24, 20, 3), np.uint8)
GRID = CNN(filters=(16,), kernels=(3,), strides=(1,), width=128)
NESTED = spaces.Dict(
    place=spaces.Box(-1, 1, (2, 3)),
    kind=spaces.Discrete(5),
    parts=spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4)]),
    action_mask=spaces.MultiBinary(7),
)


@pytest.mark.parametrize(
    ("network", "space"),
    [
        (MLP(width=8), spaces.Box(-1, 1, (3,))),
        (MLP(width=8, depth=1, activation="relu"), NESTED),
        (MLP(width=8), spaces.Discrete(4)),
        (CNN(filters=(4, 8), kernels=(8, 4), strides=(4, 2), width=16), IMAGE),
        (CNN(filters=(4,), kernels=(3,), strides=(2,), width=8), spaces.Dict(i=IMAGE, n=NESTED)),
        (EntityAttention(width=16), entities()),
        (SimBa(8, value_width=16), NESTED),
    ],
)
def test_functions_agree_over_any_leading_axes(network, space):
    built = network.build(space, 5)
    params = built.init(KEY)
    assert set(params) == {"policy", "value"}
    observation = draw(space, (2, 3))
    policy, value = jax.jit(built.policy), jax.jit(lambda p, o: built.value_sequence(p, o)[0])
    outputs, memory = policy(params["policy"], observation, ())
    values = value(params, observation)
    assert outputs.shape == (2, 3, 5)
    assert values.shape == (2, 3)
    assert memory == ()
    single = jax.tree.map(lambda x: x[1, 2], observation)
    alone, _ = policy(params["policy"], single, ())
    np.testing.assert_allclose(alone, outputs[1, 2], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(value(params, single), values[1, 2], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("network", "space"),
    [
        (AutoNetwork(memory=6), spaces.Box(-1, 1, (3,))),
        (EntityAttention(width=8, heads=2, memory=6), entities()),
        (MLP(memory=3, cell="lstm"), spaces.Box(-1, 1, (3,))),
    ],
)
def test_a_sequence_is_its_steps_and_memory_starts_anew_after_an_end(network, space):
    built = network.build(space, 5)
    params = built.init(KEY)
    params["policy"]["head"]["kernel"] *= 100
    observation = draw(space, (7, 4))
    ended = np.random.default_rng(0).random((7, 4)) < 0.3
    start = jnp.ones((4, 6))
    actual = jax.jit(built.policy_sequence)(params["policy"], observation, start, ended)
    _, memories = jax.jit(built.value_sequence)(params, observation, start, ended)
    policy, memory = jax.jit(built.policy), start
    for t in range(7):
        row = jax.tree.map(lambda x, t=t: x[t], observation)
        expected, memory = policy(params["policy"], row, memory)
        np.testing.assert_allclose(actual[t], expected, atol=1e-5)
        memory = jnp.where(ended[t][:, None], 0.0, memory)
    assert memories.shape == (7, 4, 6)
    np.testing.assert_array_equal(memories[0], start)
    np.testing.assert_array_equal(memories[1:][ended[:-1]], 0)
    without, _ = policy(params["policy"], row, built.initial_memory(4))
    assert np.abs(without - expected).max() > 1e-3


def test_the_published_network_of_hide_and_seek_has_its_published_size():
    network = EntityAttention(width=128, heads=4, memory=256, cell="lstm")
    params = network.build(entities(others=5, boxes=9, ramps=2), 11 + 11 + 11 + 2 + 2).init(KEY)
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    # Published is 1.6 million: 1,628,270 with a second bias in each LSTM, to no effect.
    assert count == 1_628_270 - 2 * 4 * 256


def test_a_cell_that_there_is_not_is_refused():
    with pytest.raises(UserError, match="expected gru or lstm"):
        MLP(memory=3, cell="rnn").build(spaces.Box(-1, 1, (3,)), 2)


def test_simba_adds_normalised_blocks_to_an_embedding():
    """Lee et al., 2024, section 4: x + W2 relu(W1 norm(x)), and a normalisation at the end."""
    built = SimBa(8, blocks=2, value_width=16, value_blocks=1).build(VECTOR, 2)
    params, x = built.init(KEY), np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    layers = params["policy"]["features"]
    assert layers["Dense_1"]["kernel"].shape == (8, 32)
    assert params["value"]["features"]["Dense_2"]["kernel"].shape == (64, 16)

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)

    expected = x @ np.asarray(layers["Dense_0"]["kernel"])
    for first, second in (("Dense_1", "Dense_2"), ("Dense_3", "Dense_4")):
        hidden = np.maximum(norm(expected) @ np.asarray(layers[first]["kernel"]), 0)
        expected = expected + hidden @ np.asarray(layers[second]["kernel"])
    outputs = norm(expected) @ np.asarray(params["policy"]["head"]["kernel"])
    np.testing.assert_allclose(built.policy_sequence(params["policy"], x), outputs, atol=1e-4)


def test_parameters_follow_from_the_key():
    built = MLP().build(spaces.Box(-1, 1, (3,)), 2)
    one, same, other = (built.init(jax.random.key(seed)) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, one, same)
    kernels = (
        one["policy"]["features"]["Dense_0"]["kernel"],
        other["policy"]["features"]["Dense_0"]["kernel"],
    )
    assert (kernels[0] != kernels[1]).any()


def test_kernels_are_orthogonal_with_the_usual_scales():
    params = MLP(width=32).build(spaces.Box(-1, 1, (3,)), 2).init(KEY)
    for tree, head in ((params["policy"], 0.01), (params["value"], 1.0)):
        hidden = np.asarray(tree["features"]["Dense_1"]["kernel"])
        np.testing.assert_allclose(hidden.T @ hidden, 2 * np.eye(32), atol=1e-4)
        first = np.asarray(tree["features"]["Dense_0"]["kernel"])
        np.testing.assert_allclose(first @ first.T, 2 * np.eye(3), atol=1e-4)
        last = np.asarray(tree["head"]["kernel"])
        np.testing.assert_allclose(last.T @ last, head**2 * np.eye(last.shape[1]), atol=1e-4)


def test_categories_enter_as_one_hot_and_the_action_mask_does_not_enter():
    built = MLP(width=8).build(NESTED, 2)
    params = built.init(KEY)
    assert params["policy"]["features"]["Dense_0"]["kernel"].shape[0] == 5 + 2 + 3 + 4 + 6
    observation = draw(NESTED, (4,))
    expected, _ = built.policy(params["policy"], observation, ())
    observation["action_mask"] = 1 - observation["action_mask"]
    actual, _ = built.policy(params["policy"], observation, ())
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("kernel", "stride"), [(8, 4), (4, 2), (3, 1), (3, 2), (6, 4), (4, 4)])
def test_convolutions_are_those_of_xla(kernel, stride):
    from srl.networks.cnn_features import Convolution

    x = np.random.default_rng(0).normal(size=(2, 17, 14, 3)).astype(np.float32)
    module = Convolution(5, kernel, stride)
    params = module.init(KEY, x)
    expected = jax.lax.conv_general_dilated(
        x,
        params["params"]["kernel"],
        (stride, stride),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    np.testing.assert_allclose(module.apply(params, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("gpu")
def test_next_to_a_gpu_convolutions_are_xlas_own_unless_patches_are_chosen(monkeypatch):
    from srl.networks.cnn_features import Convolution

    x = np.random.default_rng(0).normal(size=(2, 9, 8, 3)).astype(np.float32)
    module = Convolution(5, 4, 2)
    params = module.init(KEY, x)

    def loss(params):
        return (module.apply(params, x) ** 2).mean()

    def used():
        return "conv_general_dilated" in str(jax.make_jaxpr(loss)(params))

    own = jax.value_and_grad(loss)(params)
    assert used()
    with jax.default_device("cpu"):  # as programs that step a native pool
        assert not used()
    monkeypatch.setenv("SRL_GPU", "convolutions=patches")
    jax.clear_caches()
    assert not used()
    patches = jax.value_and_grad(loss)(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), own, patches)


def test_channels_may_come_first():
    small = CNN(filters=(4,), kernels=(4,), strides=(2,), width=8)
    first = small.build(spaces.Box(0, 255, (4, 20, 24), np.uint8), 2)
    last = small.build(spaces.Box(0, 255, (20, 24, 4), np.uint8), 2)
    params = first.init(KEY)
    image = np.random.default_rng(0).random((3, 4, 20, 24)).astype(np.float32)
    outputs, _ = jax.jit(first.policy)(params["policy"], image, ())
    moved, _ = jax.jit(last.policy)(params["policy"], np.moveaxis(image, 1, 3), ())
    np.testing.assert_allclose(outputs, moved, rtol=1e-5)


def test_the_policy_is_blind_to_what_is_not_visible_and_the_value_is_not():
    space = entities()
    built = EntityAttention(width=16).build(space, 5)
    params = built.init(KEY)
    observation = draw(space, (6,))
    observation["mask_aa_obs"][:] = [1, 0, 1]
    observation["mask_ab_obs"][:] = [0, 1, 0, 0]
    observation["mask_ab_obs_spoof"][:] = [1, 1, 1, 0]

    functions = jax.jit(
        lambda o: (
            built.policy(params["policy"], o)[0],
            built.value_sequence(params, o)[0],
        )
    )
    expected = functions(observation)

    def changed(name, index):
        other = {**observation, name: observation[name].copy()}
        other[name][:, index] += 3.0
        return tuple(bool((x != y).any()) for x, y in zip(functions(other), expected, strict=True))

    assert changed("agent_qpos_qvel", 0) == (True, True)
    assert changed("agent_qpos_qvel", 1) == (False, True)  # hidden from view
    assert changed("box_obs", 1) == (True, True)
    assert changed("box_obs", 2) == (False, True)
    assert changed("box_obs", 3) == (False, False)  # there is no such box
    assert changed("lidar", 7) == (True, True)
    assert changed("count_target", 0) == (False, False)  # an answer of object counting


UNITS = spaces.Dict(
    health=spaces.Box(0, 1, (2,)),
    job=spaces.Discrete(3),
    units=spaces.Box(-1, 1, (4, 5)),
    mask_units=spaces.MultiBinary(4),
    walls=spaces.Box(-1, 1, (2, 3)),
    mask_walls=spaces.MultiBinary(2),
    mask_walls_spoof=spaces.MultiBinary(2),
    action_mask=spaces.MultiBinary(5),
)


def test_any_sets_with_masks_are_attended_to():
    built = EntityAttention(width=16).build(UNITS, 5)
    params = built.init(KEY)
    shapes = jax.tree.map(np.shape, params["policy"]["features"])
    assert shapes["set_units"]["of_entity"]["kernel"] == (5, 16)
    assert shapes["self"]["kernel"] == (2 + 3, 16)
    observation = draw(UNITS, (6,))
    observation["mask_units"] = np.tile([1, 0, 1, 0], (6, 1))
    observation["mask_walls"], observation["mask_walls_spoof"] = np.tile(
        [[[0, 0]], [[0, 1]]], (6, 1)
    )
    of = lambda o: (built.policy(params["policy"], o)[0], built.value_sequence(params, o)[0])  # noqa: E731
    functions = jax.jit(of)
    expected = functions(observation)

    def changed(name, index):
        other = {**observation, name: observation[name].copy()}
        other[name][:, index] += 1
        return tuple(bool((x != y).any()) for x, y in zip(functions(other), expected, strict=True))

    assert changed("units", 2) == changed("health", 0) == (True, True)
    assert changed("units", 1) == (False, False)  # there is none, for the value neither
    assert changed("walls", 0) == (False, False)
    assert changed("walls", 1) == (False, True)  # hidden from view
    assert changed("action_mask", 0) == (False, False)


def test_sets_that_are_not_attended_to_are_named():
    assert not AutoNetwork().remarks(UNITS)
    with_image = spaces.Dict(units=UNITS["units"], mask_units=UNITS["mask_units"], camera=IMAGE)
    [line] = AutoNetwork().remarks(with_image)
    assert line.startswith("the network CNN takes units [4, 5] as one vector: attention does not")
    misnamed = spaces.Dict(units=UNITS["units"], units_mask=UNITS["mask_units"])
    [line] = AutoNetwork().remarks(misnamed)
    assert line.endswith("observe their mask, mask_units [4]")


def test_critics_attend_to_the_sets_within_what_they_take():
    both = spaces.Dict(observation=UNITS, action=spaces.Box(-1, 1, (2,)))
    params = jax.eval_shape(AutoNetwork().build(both, 1).init, KEY)
    shapes = jax.tree.map(np.shape, params["value"]["features"])
    assert shapes["set_observation_units"]["of_entity"]["kernel"] == (5, 64)
    assert shapes["self"]["kernel"] == (2 + 2 + 3, 64)


@pytest.mark.parametrize("name", ["units", "self", "after_pooling"])
def test_an_agent_without_numbers_attends_too_whatever_the_name_of_its_set(name):
    space = spaces.Dict({name: UNITS["units"], f"mask_{name}": UNITS["mask_units"]})
    built = EntityAttention(width=8, heads=2).build(space, 3)
    assert built.policy(built.init(KEY)["policy"], draw(space, (2,)))[0].shape == (2, 3)


def test_the_order_of_entities_does_not_matter():
    space = entities()
    built = EntityAttention(width=16).build(space, 5)
    params = built.init(KEY)
    observation = draw(space, (6,))
    order = np.array([2, 0, 3, 1])
    other = dict(observation)
    for name in ("box_obs", "mask_ab_obs", "mask_ab_obs_spoof"):
        other[name] = observation[name][:, order]
    policy = jax.jit(built.policy)
    expected, actual = (policy(params["policy"], o)[0] for o in (observation, other))
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_turning_the_rays_turns_the_filtered_ones():
    from srl.networks.entity_attention_features import CircularConvolution

    module = CircularConvolution(4)
    rays = np.random.default_rng(0).normal(size=(2, 30, 1)).astype(np.float32)
    params = module.init(KEY, rays)
    straight = module.apply(params, rays).reshape(2, 30, 4)
    turned = module.apply(params, np.roll(rays, 5, axis=1)).reshape(2, 30, 4)
    np.testing.assert_allclose(turned, np.roll(straight, 5, axis=1), rtol=1e-5)


def test_an_agent_that_sees_nothing_has_finite_outputs_and_gradients():
    space = entities()
    built = EntityAttention(width=16).build(space, 5)
    params = built.init(KEY)
    observation = jax.tree.map(jnp.zeros_like, draw(space, (2,)))
    gradient = jax.jit(jax.grad(lambda p: built.policy(p, observation)[0].sum()))(params["policy"])
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    ("space", "chosen"),
    [
        (spaces.Box(-1, 1, (3,)), MLP()),
        (NESTED, MLP()),
        (spaces.Box(0, 255, (84, 84, 4), np.uint8), CNN()),
        (spaces.Box(0, 1, (2, 32, 40)), CNN()),
        (spaces.Box(0, 1, (10, 10, 4)), GRID),
        (spaces.Box(0, 255, (4, 5, 26), np.uint8), MLP()),
        (spaces.Dict(camera=IMAGE, speed=spaces.Box(-1, 1, (1,))), GRID),
        (entities(), EntityAttention()),
        (UNITS, EntityAttention()),
        (spaces.Dict(units=UNITS["units"], units_mask=UNITS["mask_units"]), MLP()),
        (spaces.Dict({**UNITS, "camera": IMAGE}), GRID),
    ],
)
def test_the_network_is_chosen_by_what_is_observed(space, chosen):
    assert AutoNetwork().choose(space) == chosen


@pytest.mark.parametrize(
    ("network", "space"),
    [
        (MLP(), spaces.Text(5)),
        (MLP(), spaces.Dict(words=spaces.Text(5), x=spaces.Box(-1, 1, (2,)))),
        (CNN(), spaces.Box(-1, 1, (3,))),
        (EntityAttention(), spaces.Box(-1, 1, (3,))),
        (MLP(activation="tahn"), spaces.Box(-1, 1, (3,))),
        (EntityAttention(width=10, heads=4), entities()),
        (SimBa(blocks=0), VECTOR),
        (SimBa(shared=True), VECTOR),
    ],
)
def test_what_does_not_fit_is_refused(network, space):
    with pytest.raises(UserError):
        network.build(space, 2).init(KEY)


@pytest.mark.parametrize(
    ("network", "space"),
    [
        (MLP(width=8, shared=True), spaces.Box(-1, 1, (3,))),
        (AutoNetwork(memory=6, shared=True), spaces.Box(-1, 1, (3,))),
        (CNN((4,), (4,), (2,), width=8, memory=3, cell="lstm", shared=True), IMAGE),
    ],
)
def test_shared_layers_give_by_one_pass_what_policy_and_value_give_alone(network, space):
    built = network.build(space, 5)
    params = built.init(KEY)
    assert set(params["value"]) == {"kernel", "bias"}  # of its last layer alone
    observation = draw(space, (7, 4))
    ended = np.random.default_rng(0).random((7, 4)) < 0.3
    memory = jax.tree.map(jnp.ones_like, built.initial_memory(4))
    both = jax.jit(built.both_sequences)
    outputs, values = both(params, observation, observation, {"policy": memory, "value": ()}, ended)
    alone = built.policy_sequence(params["policy"], observation, memory, ended)
    np.testing.assert_allclose(outputs, alone, rtol=1e-5, atol=1e-6)
    alone, _ = built.value_sequence(params, observation, memory, ended)
    np.testing.assert_allclose(values, alone, rtol=1e-5, atol=1e-6)
    assert values.shape == (7, 4)


def test_entity_attention_shares_no_layers_as_its_value_sees_more():
    with pytest.raises(UserError, match=r"network.shared=True: the value .* sees what is hidden"):
        EntityAttention(shared=True).build(entities(), 5)


def units(params):
    """The outputs of each dense layer, in order."""
    layers = {**params.get("features", {}), "head": params["head"]}
    return [layers[name]["kernel"].shape[1] for name in sorted(layers, key=lambda n: n == "head")]


def test_layers_have_the_widths_that_are_given():
    network = AutoNetwork(widths=(40, 30), value_widths=(20,))
    params = network.build(VECTOR, 3).init(jax.random.key(0))
    assert (units(params["policy"]), units(params["value"])) == ([40, 30, 3], [20, 1])
    params = MLP(widths=(40, 30)).build(VECTOR, 3).init(jax.random.key(0))
    assert (units(params["policy"]), units(params["value"])) == ([40, 30, 3], [40, 30, 1])
    with pytest.raises(
        UserError, match=r"network.widths\[1\] is 0; expected a whole number from 1 up"
    ):
        MLP(widths=(8, 0)).build(VECTOR, 3)
    with pytest.raises(UserError, match=r"network.value_widths with network.shared"):
        MLP(value_widths=(8,), shared=True).build(VECTOR, 3)
    with pytest.raises(UserError, match=r"network.value_activation with network.shared"):
        MLP(value_activation="relu", shared=True).build(VECTOR, 3)
    with pytest.raises(UserError, match=r"network.widths is of a perceptron, .* CNN"):
        AutoNetwork(widths=(8,)).build(IMAGE, 3)


@pytest.mark.parametrize(
    ("network", "policy", "value"),
    [
        (MLP(), "tanh", "relu"),
        (MLP(activation="silu"), "silu", "silu"),
        (MLP(activation="silu", value_activation="elu"), "silu", "elu"),
        (AutoNetwork(MLP(value_activation="elu")), "tanh", "elu"),
    ],
)
def test_values_have_their_own_activation_where_it_is_given_or_none_is(network, policy, value):
    built = network.build(VECTOR, 3)
    used = (built.policy_module.features.activation, built.value_module.features.activation)
    assert used == (policy, value)


def test_critics_have_the_widths_of_values():
    experiment = load_experiment(
        "native:Pendulum-v1",
        (
            "--algorithm sac --algorithm.network.widths 40 30 "
            "--algorithm.network.value-widths 20 10 5"
        ).split(),
    ).experiment
    with make_pool(experiment.env) as pool:
        params = experiment.algorithm.bind(pool.specs).init(jax.random.key(0)).params
    assert units(params["actor"])[:-1] == [40, 30]
    assert units(jax.tree.map(lambda x: x[0], params["critics"])) == [20, 10, 5, 1]
