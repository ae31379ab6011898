"""Privileged keys: values and critics see them, and policies neither see nor need them."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest
from gymnasium import spaces

from srl import Experiment, Fixed, UserError
from srl.algorithms import (
    APPO,
    DQN,
    IMPALA,
    IPPO,
    MAPPO,
    PPO,
    REPPO,
    SAC,
    TD3,
    DiscreteSAC,
)
from srl.algorithms.preprocessing import bound
from srl.algorithms.privileged import expect_privileged, policy_specs
from srl.config.overrides import override
from srl.core.tree import leaves_of
from srl.core.types import Specs, Unroll
from srl.evaluation.episodes import Evaluator
from srl.evaluation.players import opponent, trained
from srl.loop.policy_set import PolicySet
from srl.networks import MLP
from srl.policies.agent import load
from srl.pools import NamedEnv, make_pool
from srl.record.run_record import RunFolder
from tests.small_runs import CARTPOLE, resolved, save

OBSERVED = spaces.Box(-9, 9, (3,), np.float32)
KEYS = spaces.Dict(observation=OBSERVED, state=spaces.Box(-9, 9, (4,), np.float32))
CHOICE, BOUNDED = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
STEPS, SLOTS = 4, 8
SMALL = {"network": MLP(width=4, depth=1), "privileged": ("state",), "unroll_length": STEPS}
RECURRENT = {**SMALL, "network": MLP(width=4, depth=1, memory=3)}
REPLAYED = {**SMALL, "replay": 64, "warm_up": 0, "batch_size": 8, "normalize_observations": True}
ALGORITHMS = {
    "PPO": (PPO(**SMALL, minibatches=1), CHOICE),
    "PPO, stacked": (PPO(**SMALL, minibatches=1, frame_stack=2), CHOICE),
    "PPO with memory": (PPO(**RECURRENT, minibatches=1), CHOICE),
    "APPO with memory": (APPO(**RECURRENT, minibatches=1), BOUNDED),
    "IMPALA with memory": (IMPALA(**RECURRENT), CHOICE),
    "REPPO": (REPPO(**SMALL, minibatches=1, atoms=5), BOUNDED),
    "SAC": (SAC(**REPLAYED), BOUNDED),
    "TD3, atoms": (TD3(**REPLAYED, atoms=5), BOUNDED),
    "DiscreteSAC": (DiscreteSAC(**REPLAYED), CHOICE),
}


@cache
def learning(name):
    """The functions that learn, and a state of them whose statistics are of something."""
    algorithm, action = ALGORITHMS[name]
    instance = bound(algorithm, Specs(KEYS, action, ("agent",)), 10, SLOTS)
    state = instance.init(jax.random.key(0))
    seen = {
        n: x._replace(mean=x.mean + 1, count=x.count + 9) for n, x in state.observations.items()
    }
    return instance, state._replace(observations=seen)


def observation(seed, leading=(SLOTS,)):
    random = np.random.default_rng(seed)
    draw = lambda space: random.normal(size=(*leading, *space.shape)).astype(np.float32)  # noqa: E731
    return {name: draw(space) for name, space in KEYS.items()}


def acted(instance, policy, seen):
    keys, slots = jax.random.split(jax.random.key(1), SLOTS), np.arange(SLOTS, dtype=np.int32)
    decision = instance.act(policy, seen, instance.initial_memory(SLOTS), keys, slots)
    return np.asarray(decision.action)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_policy_acts_alike_whatever_the_key_holds_and_without_it(name):
    instance, state = learning(name)
    policy, seen = instance.policy(state), observation(0)
    expected = acted(instance, policy, seen)
    other = {**seen, "state": seen["state"] + 5}
    np.testing.assert_array_equal(acted(instance, policy, other), expected)

    algorithm, action = ALGORITHMS[name]
    plain = bound(algorithm, Specs(OBSERVED, action, ("agent",)), 1, SLOTS)
    np.testing.assert_array_equal(acted(plain, policy, seen["observation"]), expected)
    assert not any("state" in name for name in policy.normalizer)


def values(instance, state, seen):
    """The values or the critics' values of the rows of an observation [1, SLOTS, ...]."""
    params, statistics, row = state.params, state.observations, jax.tree.map(lambda x: x[0], seen)
    if hasattr(instance.actor, "values"):
        memory, ended = instance.actor.initial_memory(SLOTS), np.zeros((1, SLOTS), bool)
        return instance.actor.values(params, statistics, seen, memory, ended)[0]
    critics = instance.critic if hasattr(instance, "critic") else instance.critics
    name = "critic" if hasattr(instance, "critic") else "critics"
    action = () if "Discrete" in type(instance.config).__name__ else (np.zeros((SLOTS, 2)),)
    return critics.values(params[name], statistics, row, *action)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "PPO, stacked"])
def test_values_see_the_key(name):
    instance, state = learning(name)
    seen = observation(0, (1, SLOTS))
    other = {**seen, "state": seen["state"] + 5}
    assert np.all(values(instance, state, seen) != values(instance, state, other))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_learner_takes_unrolls_with_the_key(name):
    instance, state = learning(name)

    def learn(state):
        seen = observation(0, (STEPS + 1, SLOTS))
        memory = jax.tree.map(lambda x: x[None], instance.initial_memory(SLOTS))
        action = instance.act(
            instance.policy(state),
            jax.tree.map(lambda x: x[0], seen),
            instance.initial_memory(SLOTS),
            jax.random.split(jax.random.key(0), SLOTS),
            np.arange(SLOTS, dtype=np.int32),
        ).action
        flags = np.zeros((STEPS + 1, SLOTS), bool)
        unroll = Unroll(
            *(seen, flags.astype(np.float32), flags, flags),
            action=jax.tree.map(lambda x: np.zeros((STEPS, *x.shape), x.dtype), action),
            log_prob=np.zeros((STEPS, SLOTS), np.float32),
            memory=memory,
            version=np.zeros((STEPS, 1, 2), np.int32),
            slot=np.arange(SLOTS, dtype=np.int32),
        )
        unroll = jax.tree.map(jax.numpy.asarray, unroll)
        return instance.learn(state, unroll, instance.empty_replay(unroll))[0]

    learned = jax.eval_shape(learn, state)
    assert jax.tree.map(np.shape, learned) == jax.tree.map(np.shape, state)


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (DQN(privileged=("state",)), "DQN acts by the values that it learns"),
        (PPO(privileged=("state",), network=MLP(shared=True)), "cannot share its layers"),
        (PPO(privileged="state"), r"is 'state'; expected a tuple, such as \('state',\)"),
    ],
)
def test_settings_without_a_value_that_could_see_more_are_refused(algorithm, words):
    with pytest.raises(UserError, match=words):
        algorithm.validate()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("camera",), "'camera' is no key of the observations, which have observation, state$"),
        (("observation", "state"), "nothing is left for the policy"),
        (("action_mask",), "policies need 'action_mask'"),
    ],
)
def test_keys_that_cannot_be_hidden_are_refused(keys, words):
    masked = spaces.Dict([*KEYS.items(), ("action_mask", spaces.MultiBinary(3))])
    space = masked if "mask" in keys[0] else KEYS
    with pytest.raises(UserError, match=words):
        expect_privileged(PPO(privileged=keys), Specs(space, CHOICE, ("agent",)))


def test_nested_keys_and_masks_of_what_exists_are_hidden():
    boxes = spaces.Dict(
        boxes=spaces.Box(-1, 1, (2, 3)),
        mask_boxes=spaces.MultiBinary(2),
        mask_boxes_spoof=spaces.MultiBinary(2),
    )
    space = spaces.Dict(scene=boxes, robot=spaces.Dict(place=OBSERVED, friction=OBSERVED))
    specs = policy_specs(Specs(space, CHOICE, ("agent",)), ("robot/friction",))
    assert list(specs.observation["scene"]) == ["boxes", "mask_boxes"]
    assert list(specs.observation["robot"]) == ["place"]


SPREAD = NamedEnv("pettingzoo:mpe2.simple_spread_v3", {"max_cycles": 3, "world_state": True})
TEAM = Experiment(
    "team",
    SPREAD,
    num_envs=4,
    algorithm=MAPPO(network=MLP(width=4, depth=1), unroll_length=4),
    env_steps=100,
)
ALONE = replace(TEAM, env=NamedEnv(SPREAD.id, {"max_cycles": 3}), algorithm=IPPO())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of MAPPO whose value sees PettingZoo's state."""
    return save(resolved(TEAM), tmp_path_factory.mktemp("team") / "run").path


def test_a_loaded_policy_asks_for_no_state(run):
    agent = load(run)
    agents = agent.agents
    assert agent.observation_space(agents[0]).shape == (18,)
    with make_pool(TEAM.env) as pool:
        rows = pool.reset(seed=0).observation
        for row in rows["state"]:  # of this environment, all observations
            np.testing.assert_array_equal(row, rows["observation"].ravel())
        assert agent.specs == policy_specs(pool.specs, ("state",))
    seen = {name: rows["observation"][i] for i, name in enumerate(agents)}
    given = {name: {"observation": x, "state": x[:0]} for name, x in seen.items()}
    assert agent.act(seen) == agent.act(given)


def test_a_trained_policy_plays_in_an_environment_without_the_state(run):
    folder = RunFolder(run)
    with make_pool(ALONE.env) as plain, make_pool(TEAM.env) as pool:
        sides = trained(TEAM, folder, pool.specs), opponent(str(run), ALONE, plain.specs, 0)
        returns = [
            Evaluator(each, 1, greedy=True, sides={"all": (0, 1, 2)}).play({"all": side.player})
            for each, side in zip((pool, plain), sides, strict=True)
        ]
        np.testing.assert_array_equal(returns[0].returns, returns[1].returns)

        fixed = {"agent_0": Fixed(str(run), 7).pinned("policies"), "*": "others"}
        policy_set = PolicySet.of_experiment(replace(ALONE, policies=fixed), plain.specs)
        (part,) = policy_set.opponents.parts
        params = {name: leaves_of(x) for name, x in part.policy.params.items()}
        ours = sides[0].player.policies["policy"].params
        for name, leaves in params.items():
            for one, other in zip(leaves, leaves_of(ours[name]), strict=True):
                np.testing.assert_array_equal(one, other)
        assert part.instance.specs.observation == plain.specs.observation


def test_mappo_names_the_option_that_gives_the_state():
    with (
        make_pool(ALONE.env) as pool,
        pytest.raises(UserError, match=r"'state' is no key .*, without keys; --env.world-state"),
    ):
        PolicySet.of_experiment(TEAM, pool.specs)


@pytest.mark.parametrize("kind", [MAPPO, IPPO])
def test_presets_are_chosen_by_name_and_differ_in_the_values_keys_alone(kind):
    chosen = override(CARTPOLE, ["--algorithm", kind.__name__.lower()]).algorithm
    assert chosen == kind()
    assert dict(vars(chosen), privileged=()) == vars(IPPO())
