"""Which slots past versions play: static slices, alike in every part of a group."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from duels import Label
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from srl import UserError
from srl.config.self_play import SelfPlay
from srl.core.types import Policy, Specs
from srl.loop.policy_set import PolicySet
from srl.loop.self_play.pairings import Pairings
from srl.loop.self_play.past_acting import PastActing, PastPolicies

KINDS = ("hider_0", "hider_1", "seeker_0", "seeker_1", "seeker_2")
ALIKE = ("player_0", "player_1", "player_2")


@given(st.sampled_from([KINDS, ALIKE]), st.floats(0.05, 1), st.integers(1, 200))
def test_every_slot_is_played_by_one_policy_present_or_past(agents, share, num_envs):
    try:
        pairings = Pairings.of(share, agents, num_envs)
    except UserError:
        assert round(share * num_envs) < len(agents)
        return
    assert pairings is not None
    policies = {"one": (0, 2), "other": tuple(i for i in range(len(agents)) if i not in (0, 2))}
    slots = []
    for members in policies.values():
        slots += [*pairings.present_slots(members), *pairings.opponent_slots(members).slots]
    assert sorted(slots) == list(range(pairings.period * len(agents)))
    assert num_envs % pairings.period == 0


@given(st.sampled_from([KINDS, ALIKE]), st.floats(0.05, 1), st.integers(1, 200))
def test_past_matches_are_spread_evenly_and_sides_take_turns(agents, share, num_envs):
    if round(share * num_envs) < len(agents):
        return
    pairings = Pairings.of(share, agents, num_envs)
    assert pairings is not None
    played = pairings.played * (num_envs // pairings.period)
    where = np.array([side is not None for side in played])
    assert where.sum() == round(share * num_envs)
    # In any stretch of environments there are as many as in any other as long, give or take one.
    for width in (1, num_envs // 3, num_envs // 2):
        counts = np.convolve(where, np.ones(width or 1), "valid")
        assert counts.max() - counts.min() <= 1
    turns = [side for side in played if side is not None]
    assert turns == [list(pairings.sides)[i % len(pairings.sides)] for i in range(len(turns))]


def test_in_a_past_match_one_side_is_past_and_all_others_are_present():
    pairings = Pairings.of(0.5, KINDS, 4)
    assert pairings is not None
    assert pairings.played == (None, "hider", None, "seeker")
    assert pairings.opponent_slots((0, 1)).slots == (5, 6)
    assert pairings.opponent_slots((2, 3, 4)).slots == (17, 18, 19)
    assert pairings.present_slots((0, 1)) == (0, 1, 10, 11, 15, 16)
    assert pairings.environments(8, "seeker").tolist() == 2 * [False, False, False, True]
    assert pairings.environments(8, None).tolist() == 2 * [True, False, True, False]


def test_what_cannot_be_spread_is_told():
    with pytest.raises(UserError, match="several agents; this one has 'agent' alone"):
        Pairings.of(0.2, ("agent",), 8)
    with pytest.raises(UserError, match="makes 1 past matches, and each of the sides"):
        Pairings.of(0.2, KINDS, 4)


@given(st.integers(1, 5), st.integers(2, 9), st.sampled_from(["uniform", "recent"]))
def test_the_pool_keeps_the_first_the_newest_and_others_evenly_between(every, keep, choice):
    settings, gone, before = SelfPlay(every=every, keep=keep, choice=choice), set(), set()
    for updates in range(200):
        pool = settings.pool(updates)
        newest = updates // every * every
        assert pool[0] == 0
        assert pool[-1] == newest
        assert len(pool) <= keep
        assert len(pool) > min(keep // 2, updates // every)
        steps = np.diff([*pool[:-1]])
        assert len(set(steps)) <= 1
        gone |= before - set(pool)
        assert not gone & set(pool), "what has left never comes back"
        before = set(pool)
        order = settings.opponents(0, 7, updates)
        expected = pool[len(pool) // 2 :] if choice == "recent" else pool
        assert sorted(order) == list(expected)


def test_everyone_of_the_pool_is_chosen_as_often():
    settings = SelfPlay(every=1, keep=8)
    chosen = [settings.opponents(3, number, 7)[0] for number in range(2000)]
    counts = np.bincount(chosen, minlength=8)
    assert counts.min() > 190
    assert counts.max() < 310


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"past": 1.5}, "self_play.past is 1.5; expected a number from 0 to 1"),
        ({"keep": 1}, "self_play.keep is 1"),
        ({"choice": "best"}, "self_play.choice is 'best'; expected uniform, recent or hard"),
        ({"hold": 0}, "self_play.hold is 0"),
    ],
)
def test_settings_that_cannot_be_are_told(settings, told):
    with pytest.raises(UserError, match=told):
        SelfPlay(**settings).validate()


def test_an_opponent_stays_while_any_agent_of_its_environment_goes_on():
    agents = ("cat_0", "cat_1", "dog_0")
    box = spaces.Box(-1, 1, (1,), np.float32)
    pairings = Pairings.of(1.0, agents, 2)
    policy_set = PolicySet.of(Label(), {"*": "all"}, Specs(box, box, agents), None)
    acting = PastActing(pairings, policy_set.members, policy_set.instances)
    policy_set = replace(policy_set, opponents=acting)
    memory = policy_set.initial_memory(2)
    slots = np.arange(6, dtype=np.int32)

    def act(newest, ended):
        """What the slots do, [2, 3, (version, steps remembered)]; opponent k is version k."""
        nonlocal memory
        versions = {v: {"all": Policy(np.float32(v), ())} for v in (newest, newest - 1, 99)}
        policies = policy_set.acting(
            versions[99], PastPolicies(versions[newest], versions[newest - 1], np.int32(newest))
        )
        inputs = (np.zeros((6, 1)), np.array(ended, bool), memory, jax.random.key(0), np.uint32(0))
        decision = policy_set.act(policies, *inputs, slots)
        memory = decision.memory
        return np.asarray(decision.action).reshape(2, 3, 2).astype(int).tolist()

    goes_on = [0, 0, 0, 0, 0, 0]
    assert pairings.played == ("cat", "dog")
    assert act(3, goes_on) == [[[3, 0], [3, 0], [99, 0]], [[99, 0], [99, 0], [3, 0]]]
    # One of the cats dies; the game of the other environment ends.
    assert act(3, [1, 0, 0, 1, 1, 1]) == [[[3, 1], [3, 1], [99, 1]], [[99, 1], [99, 1], [3, 1]]]
    assert memory["opponents"]["opponent"].tolist() == [3, -1]
    assert act(4, goes_on) == [[[3, 0], [3, 2], [99, 2]], [[99, 0], [99, 0], [4, 0]]]
    # Opponent 3 is there no more: 5 takes over, and remembers nothing.
    assert act(5, goes_on) == [[[5, 0], [5, 0], [99, 3]], [[99, 1], [99, 1], [4, 1]]]
