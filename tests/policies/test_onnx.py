"""Policies as ONNX graphs, which onnxruntime computes as JAX does."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces
from small_runs import save

import srl
from srl.algorithms import DQN, PPO, SAC, TD3
from srl.algorithms.discrete_sac import DiscreteSAC
from srl.algorithms.normalization import Statistics
from srl.algorithms.preprocessing import bound
from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.core.errors import UserError
from srl.core.tree import leaves_of, map_tree, names_of
from srl.core.types import Specs
from srl.networks import CNN, MLP, EntityAttention, PolicyAndValue, SimBa
from srl.policies.onnx_graph import write_onnx
from srl.record import array_file

VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float32)
CHOICE = spaces.Discrete(3, start=1)
BOUNDED = spaces.Box(np.float32([-2, 0]), np.float32([3, 1]))
MIXED = spaces.Dict(
    position=VECTOR,
    kind=spaces.Discrete(5),
    switches=spaces.MultiBinary(2),
    action_mask=spaces.MultiBinary(7),
)
ENTITIES = spaces.Dict(
    observation_self=VECTOR,
    lidar=spaces.Box(0, 1, (6, 1), np.float32),
    agent_qpos_qvel=spaces.Box(-9, 9, (3, 5), np.float32),
    mask_aa_obs=spaces.Box(0, 1, (3,), np.float32),
    box_obs=spaces.Box(-9, 9, (2, 7), np.float32),
    mask_ab_obs=spaces.Box(0, 1, (2,), np.float32),
)
IMAGE = spaces.Box(0, 255, (40, 40, 4), np.uint8)
TREE = spaces.Dict(move=CHOICE, arm=spaces.Tuple((BOUNDED, spaces.MultiBinary(2))))
SEVERAL = spaces.MultiDiscrete([3, 4])
SMALL = MLP(width=8)
ATTENTION = EntityAttention(width=8, heads=2, memory=8, cell="lstm")
KINDS = {
    "stacked frames": (PPO(network=SMALL, frame_stack=3), VECTOR, CHOICE, {"logits"}),
    "layer normalisation": (
        PPO(network=MLP(width=8, layer_norm=True, activation="gelu")),
        VECTOR,
        BOUNDED,
        {"mean", "log_std"},
    ),
    "masks and categories": (PPO(network=SMALL), MIXED, SEVERAL, {"logits"}),
    "gated recurrent units": (PPO(network=MLP(width=8, memory=8)), MIXED, SEVERAL, {"logits"}),
    "convolutions": (PPO(network=CNN(filters=(8, 8, 8), width=16)), IMAGE, CHOICE, {"logits"}),
    "attention, and long short-term memory": (
        PPO(network=ATTENTION),
        ENTITIES,
        SEVERAL,
        {"logits"},
    ),
    "trees of actions": (
        PPO(network=SMALL),
        VECTOR,
        TREE,
        {"move/logits", "arm/0/mean", "arm/0/log_std", "arm/1/logits"},
    ),
    "dueling distributions": (
        DQN(network=SMALL, dueling=True, atoms=5),
        MIXED,
        spaces.Discrete(7),
        {"action_values"},
    ),
    "soft actor-critic": (SAC(network=SMALL), VECTOR, BOUNDED, {"mean", "log_std"}),
    "discrete soft actor-critic": (DiscreteSAC(network=SMALL), VECTOR, CHOICE, {"logits"}),
    "deterministic policy": (TD3(network=SimBa(8)), VECTOR, BOUNDED, set()),
}


def learned(algorithm, observation, action):
    """The functions of a policy, and one whose statistics are not those of the beginning."""
    instance = bound(algorithm, Specs(observation, action, ("agent",)), None, 0)
    state = instance.init(jax.random.key(1))
    seen = {
        name: Statistics(jnp.float32(9), s.mean + 0.3, s.variance * 1.7)
        for name, s in state.observations.items()
    }
    # The head starts at almost 0, where outputs would hardly depend on what is observed.
    params = jax.tree.map(lambda x: 3 * x if x.ndim == 2 else x + 0.1, state.params)
    return instance, instance.policy(state._replace(observations=seen, params=params))


def inputs_of(space, rows, seed):
    """Rows that the space holds, and of which some actions are allowed."""

    def draw(leaf):
        return np.stack([leaf.sample() for _ in range(rows)])

    space.seed(seed)
    if not isinstance(space, spaces.Dict):
        return draw(space)
    parts = {name: draw(leaf) for name, leaf in space.items()}
    for name, part in parts.items():
        if name.startswith("mask"):
            parts[name] = (part > 0.5).astype(np.float32)
    if "action_mask" in parts:
        parts["action_mask"][:, [0, 3]] = 1
    return jax.tree.map(lambda x: x.astype(np.int32) if x.dtype == np.int64 else x, parts)


@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_computes_what_jax_computes(kind, tmp_path):
    algorithm, observation, action, names = KINDS[kind]
    instance, policy = learned(algorithm, observation, action)
    file = tmp_path / "policy.onnx"
    try:
        write_onnx(file, instance, policy, observation, {"version": "3"})
    except UserError as error:
        if "install an older JAX" not in str(error):
            raise
        pytest.skip(str(error))
    session = onnxruntime.InferenceSession(file)
    assert session.get_modelmeta().custom_metadata_map["version"] == "3"

    @jax.jit
    def by_jax(rows, memory):
        decision = instance.act_greedy(policy, rows, memory)
        outputs = instance.action_outputs(policy, rows, memory)
        return decision.action, outputs, decision.memory

    memory = map_tree(np.asarray, instance.initial_memory(5))
    for seed in range(2):
        rows = inputs_of(observation, 5, seed)
        given = {**by_name(rows, "observation"), **by_name(memory, "memory")}
        action, wanted, following = by_jax(rows, memory)
        wanted |= by_name(instance.env_action(map_tree(np.asarray, action)), "action")
        wanted |= by_name(following, "next_memory")
        found = computed(session, given)
        assert found.keys() == wanted.keys()
        given_names = {name for name in found if not name.startswith(("next_memory", "action"))}
        assert given_names == names - {"action_values"}
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)
        alone = computed(session, {name: x[2:3] for name, x in given.items()})
        for name, value in found.items():
            np.testing.assert_allclose(alone[name], value[2:3], rtol=1e-5, atol=1e-5)
        memory = map_tree(np.asarray, following)


def test_a_translator_that_is_too_old_for_jax_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("jax2onnx.to_onnx", lambda *_, **__: jax.a_name_that_moved)
    algorithm, observation, action, _ = next(iter(KINDS.values()))
    instance, policy = learned(algorithm, observation, action)
    with pytest.raises(UserError, match=r"jax2onnx \S+ fails with JAX .*a_name_that_moved.*jax<"):
        write_onnx(tmp_path / "policy.onnx", instance, policy, observation, {})


def test_any_other_failure_of_the_translator_is_reported(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ValueError("an axis is missing")

    monkeypatch.setattr("jax2onnx.to_onnx", fail)
    algorithm, observation, action, _ = next(iter(KINDS.values()))
    instance, policy = learned(algorithm, observation, action)
    with pytest.raises(UserError, match="as ONNX: ValueError: an axis is missing; write"):
        write_onnx(tmp_path / "policy.onnx", instance, policy, observation, {})


def by_name(tree, name):
    return dict(zip(leaves_of(names_of(tree, name)), leaves_of(tree), strict=True))


def computed(session, given):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True))


class Undoing(MLP):
    """A network with a function that ONNX does not have."""

    def build(self, *spaces):
        network = super().build(*spaces)
        return Called(**vars(network))


class Called(PolicyAndValue):
    def policy(self, params, observation, memory=()):
        outputs, memory = super().policy(params, observation, memory)
        return jax.pure_callback(lambda x: x, outputs, outputs), memory


def test_what_onnx_cannot_compute_is_named(tmp_path):
    instance, policy = learned(PPO(network=Undoing(width=8)), VECTOR, CHOICE)
    with pytest.raises(UserError, match=r"cannot be written as ONNX: .*'pure_callback'"):
        write_onnx(tmp_path / "policy.onnx", instance, policy, VECTOR, {})
    assert not list(tmp_path.iterdir())


@pytest.fixture
def run_dir(tmp_path):
    """A run of two policies for three agents."""
    resolved = load_experiment("CartPole-v1")
    teams = {"cat*": "cats", "mouse": "mice"}
    algorithm = replace(resolved.experiment.algorithm, network=MLP(width=8))
    experiment = replace(resolved.experiment, policies=teams, algorithm=algorithm)
    specs = Specs(VECTOR, CHOICE, ("cat_0", "cat_1", "mouse"))
    return save(replace(resolved, experiment=experiment), tmp_path / "run", specs).path


def test_one_of_several_policies_is_exported_by_its_name(run_dir, tmp_path, capsys):
    words = ["export", str(run_dir), str(tmp_path / "policy.onnx")]
    assert main(words) == 2
    assert "has cats, mice: choose one with --policy" in capsys.readouterr().err
    assert main([*words, "--policy", "dogs"]) == 2
    assert "--policy dogs: the run has the policies cats, mice" in capsys.readouterr().err
    assert main([*words, "--policy", "mice"]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert (about["policies"], about["version"], about["env_steps"]) == ('["mice"]', "7", "16")
    observation = np.random.default_rng(0).normal(size=(1, 4)).astype(np.float32)
    (found,) = computed(session, {"observation": observation})["action"]
    everywhere = dict.fromkeys(("cat_0", "cat_1", "mouse"), observation[0])
    assert srl.load(run_dir).act(everywhere)[0]["mouse"] == found


def test_one_of_several_policies_parameters_are_exported_by_its_name(run_dir, tmp_path):
    file = tmp_path / "policy.safetensors"
    assert main(["export", str(run_dir), str(file), "--policy", "cats"]) == 0
    arrays, about = array_file.read(file)
    assert about["policies"] == '["cats"]'
    assert "observations/observation/mean" in arrays
