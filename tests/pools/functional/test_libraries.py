"""Environments of JAX libraries through adapters; where a library is absent, its tests skip."""

import sys
import warnings
from itertools import pairwise

import jax
import numpy as np
import pytest
from gymnasium import spaces

from srl import UserError, make_pool


@pytest.fixture
def library(request):
    """The library that a test names; imported here, as importing some warns of their own parts."""
    name = request.param
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")
        yield name


def needs(name):
    return pytest.mark.parametrize("library", [name], indirect=True)


def play(pool, steps, choose):
    """Plays from a reset; gives all timesteps."""
    rows = [pool.reset(seed=0)]
    for _ in range(steps):
        rows.append(pool.step(choose(rows[-1])))
    return rows


def first_allowed(timestep):
    return timestep.observation["action_mask"].argmax(-1)


@needs("brax")
def test_brax_environments_end_at_their_time_limit_by_truncation(library):
    with make_pool("jax:brax:fast", 2, max_episode_steps=3) as pool:
        rows = play(pool, 4, lambda _: np.zeros((2, *pool.specs.action.shape), np.float32))
        assert pool.specs.max_episode_steps == 3
    assert [row.episode_length[0] for row in rows] == [0, 1, 2, 3, 0]
    assert [bool(row.truncated.all()) for row in rows] == [False, False, False, True, False]


@needs("brax")
def test_an_unknown_name_or_option_of_brax_is_refused(library):
    with pytest.raises(UserError, match="there is no environment jax:brax:none"):
        make_pool("jax:brax:none")


@needs("mujoco_playground")
@pytest.mark.slow  # compiles for 20 seconds
def test_playground_environments_end_at_their_time_limit_by_truncation(library):
    with make_pool("jax:playground:CartpoleBalance", 2, episode_length=3) as pool:
        rows = play(pool, 4, lambda _: np.zeros((2, 1), np.float32))
        assert pool.specs.max_episode_steps == 3
        assert "reward/upright" in pool.specs.statistics
    assert [row.episode_length[0] for row in rows] == [0, 1, 2, 3, 0]
    assert [bool(row.truncated.all()) for row in rows] == [False, False, False, True, False]
    assert (rows[1].reward > 0.5).all()


@needs("mujoco_playground")
def test_an_unknown_name_or_option_of_playground_is_refused(library):
    with pytest.raises(UserError, match="there is no environment jax:playground:none"):
        make_pool("jax:playground:none")
    with pytest.raises(UserError, match="has no option colour; there are "):
        make_pool("jax:playground:CheetahRun", colour=1)


@needs("jumanji")
def test_a_jumanji_game_is_played_by_its_mask_to_its_end(library):
    with make_pool("jax:jumanji:Snake-v1", 2, num_rows=3, num_cols=3, time_limit=5) as pool:
        assert pool.specs.action == spaces.Discrete(4)
        assert pool.specs.observation["action_mask"] == spaces.MultiBinary(4)
        rows = play(pool, 20, first_allowed)
    ends = [row.terminated | row.truncated for row in rows]
    assert any(end.any() for end in ends)
    assert max(row.episode_length.max() for row in rows) <= 5
    # After an end the next row begins an episode.
    for row, after in pairwise(rows):
        ended = row.terminated | row.truncated
        assert (after.episode_length[ended] == 0).all()
        assert (after.reward[ended] == 0).all()


@needs("jumanji")
def test_a_jumanji_mask_of_combinations_makes_one_action_of_several_choices(library):
    with make_pool("jax:jumanji:Minesweeper-v0", 1) as pool:
        assert pool.specs.action == spaces.Discrete(100)
        assert pool.specs.observation["action_mask"] == spaces.MultiBinary(100)
        rows = play(pool, 1, lambda _: np.array([37]))
    # The square that action 37 opened, in row 3 and column 7, is not allowed again.
    assert rows[0].observation["action_mask"].all()
    assert np.flatnonzero(rows[1].observation["action_mask"][0] == 0).tolist() == [37]
    assert (rows[1].observation["board"][0] >= 0).nonzero() == (3, 7)


@needs("jumanji")
def test_jumanji_agents_with_rewards_of_their_own_are_several_agents(library):
    options = {"time_limit": 4, "grid_size": 6, "fov": 6, "num_agents": 3, "num_food": 1}
    options |= {"world_state": True}
    with make_pool("jax:jumanji:LevelBasedForaging-v0", 2, **options) as pool:
        assert pool.specs.agents == ("agent_0", "agent_1", "agent_2")
        assert pool.specs.action == spaces.Discrete(6)
        assert pool.specs.observation["action_mask"] == spaces.MultiBinary(6)
        rows = play(pool, 4, first_allowed)
    assert rows[-1].reward.shape == (6,)
    seen = rows[-1].observation
    assert seen["agents_view"].shape == (6, 12)
    assert seen["state"].shape == (6, 3 * 12 + 3)
    assert (seen["state"][0] == seen["state"][2]).all()
    assert rows[-1].observation["step_count"].tolist() == [4] * 6
    assert (rows[-1].terminated | rows[-1].truncated).all()


@needs("jumanji")
@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("None-v0", {}, "jax:jumanji:None-v0 cannot be made"),
        ("Snake-v1", {"colour": 1}, "has no such option"),
        ("MultiCVRP-v0", {}, "has a mask of shape"),
    ],
)
def test_what_jumanji_cannot_give_is_refused_in_a_sentence(library, name, options, words):
    with pytest.raises(UserError, match=words):
        make_pool(f"jax:jumanji:{name}", **options)


@needs("jaxmarl")
def test_jaxmarl_agents_of_different_sizes_are_padded_and_masked(library):
    with make_pool("jax:jaxmarl:MPE_simple_speaker_listener_v4", 1) as pool:
        specs = pool.specs
        assert specs.agents == ("speaker_0", "listener_0")
        assert [space.n for _, space in specs.agent_spaces] == [3, 5]
        assert [o["observation"].shape for o, _ in specs.agent_spaces] == [(3,), (11,)]
        row = play(pool, 1, first_allowed)[1]
    assert row.observation["action_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert (row.observation["observation"][0, 3:] == 0).all()
    assert (row.observation["observation"][1] != 0).any()


@needs("jaxmarl")
def test_jaxmarl_episodes_that_end_at_their_time_limit_are_truncated(library):
    with make_pool("jax:jaxmarl:MPE_simple_spread_v3", 1, max_steps=3) as pool:
        rows = play(pool, 8, lambda _: np.zeros(3, int))
    ends = [i for i, row in enumerate(rows) if row.truncated.any()]
    assert ends
    assert all(rows[i].truncated.all() for i in ends)
    assert not any(row.terminated.any() for row in rows)
    assert rows[ends[0] + 1].episode_length[0] == 0


@needs("jaxmarl")
def test_jaxmarl_agents_observe_the_environments_state_where_it_is_asked_for(library):
    from srl.pools.functional.jaxmarl import JaxMARL

    spread = JaxMARL("MPE_simple_spread_v3", {"world_state": True})  # has no state of its own
    seen = jax.eval_shape(spread.reset, jax.random.key(0))[1]
    assert (seen["observation"].shape, seen["state"].shape) == ((3, 18), (3, 54))
    battle = JaxMARL("SMAX", {"world_state": True})
    own = battle._env.get_world_state
    state, seen = jax.eval_shape(battle.reset, jax.random.key(0))
    shape = jax.eval_shape(own, state[0]).shape
    assert battle.observation_space["state"].shape == shape
    assert seen["state"].shape == (len(battle.agents), *shape)
    assert "action_mask" in seen


@needs("jaxmarl")
def test_what_jaxmarl_cannot_give_is_refused_in_a_sentence(library):
    with pytest.raises(UserError, match="jax:jaxmarl:none cannot be made"):
        make_pool("jax:jaxmarl:none")
    with pytest.raises(UserError, match="does not take these options"):
        make_pool("jax:jaxmarl:MPE_simple_spread_v3", colour=1)
    with pytest.raises(UserError, match="by the names of its agents"):
        make_pool("jax:jaxmarl:storm_2p")
    with pytest.raises(UserError, match="MPE_simple_spread_v3 gives no shaped_reward"):
        make_pool("jax:jaxmarl:MPE_simple_spread_v3", shaped_reward=0.5)
    with pytest.raises(UserError, match="no layout 'hall'; it has cramped_room"):
        make_pool("jax:jaxmarl:overcooked", layout="hall")


def test_a_library_that_is_absent_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jumanji", None)
    with pytest.raises(UserError, match=r"-m pip install '?jumanji"):
        make_pool("jax:jumanji:Snake-v1")


@needs("jaxmarl")
def test_overcooked_has_helping_rewards_where_they_are_asked_for(library):
    """A cook takes an onion and puts it into the pot, which 3 rewards."""
    up, right, left, interact = 0, 2, 3, 5
    plan = [left, interact, right, up, interact]

    def rewards(weight):
        with make_pool("jax:jaxmarl:overcooked", 1, shaped_reward=weight) as pool:
            pool.reset(seed=0)
            steps = [pool.step(np.array([action, 4])) for action in plan]
            return [step.reward.tolist() for step in steps]

    assert rewards(0.0) == [[0, 0]] * 5
    assert rewards(0.5) == [[0, 0]] * 4 + [[1.5, 0]]
