"""Pools in the form of PettingZoo's parallel environments."""

import numpy as np
import pytest

from srl import UserError, make_pool
from srl.pools import ParallelPool

AGENTS = ["hider_0", "seeker_0"]


@pytest.fixture(scope="module")
def games():
    options = {"hiders": 1, "seekers": 1, "horizon": 6}
    with ParallelPool(make_pool("native:HideAndSeek-v1", num_envs=3, **options)) as games:
        yield games


def actions(games, seed=0):
    random = np.random.default_rng(seed)
    size = games.action_space("hider_0").nvec
    return {agent: random.integers(0, size, (games.num_envs, len(size))) for agent in AGENTS}


def test_everything_is_a_dict_by_agent_with_a_row_for_each_environment(games):
    assert games.possible_agents == games.agents == AGENTS
    observations, infos = games.reset(seed=0)
    assert list(observations) == list(infos) == AGENTS
    results = games.step(actions(games))
    for by_agent in results:
        assert list(by_agent) == AGENTS
    observations, rewards, terminations, truncations, infos = results
    for agent in AGENTS:
        for i in range(3):
            row = {name: value[i] for name, value in observations[agent].items()}
            assert row in games.observation_space(agent)
        assert (rewards[agent].shape, rewards[agent].dtype) == ((3,), np.float32)
        assert terminations[agent].dtype == truncations[agent].dtype == bool
        assert infos[agent]["episode_length"].tolist() == [1, 1, 1]
        assert set(games.pool.specs.statistics) < infos[agent].keys()


def test_rows_are_those_of_the_pool(games):
    chosen = actions(games)
    games.reset(seed=4)
    _, rewards, _, _, _ = games.step(chosen)
    games.pool.reset(seed=4)
    flat = np.stack([chosen[agent] for agent in AGENTS], axis=1).reshape(6, -1)
    timestep = games.pool.step(flat)
    for i, agent in enumerate(AGENTS):
        np.testing.assert_array_equal(rewards[agent], timestep.reward[i::2])


def test_the_step_after_an_episodes_end_resets_and_what_was_returned_stays(games):
    first, _ = games.reset(seed=1)
    kept = {agent: first[agent]["observation_self"].copy() for agent in AGENTS}
    ends = [False]
    for t in range(14):
        ended = ends[-1]
        # Nobody is asked for an action that would be ignored.
        _, rewards, terminations, truncations, infos = games.step(
            {} if ended else actions(games, t)
        )
        ends.append(all((terminations[a] | truncations[a]).all() for a in AGENTS))
        if ended:
            assert not any(rewards[agent].any() for agent in AGENTS)
            assert not infos["hider_0"]["episode_length"].any()
    assert ends[1:] == [t % 7 == 5 for t in range(14)]
    for agent in AGENTS:
        np.testing.assert_array_equal(first[agent]["observation_self"], kept[agent])


def test_actions_of_nobody_none_and_of_a_wrong_shape_are_told(games):
    games.reset(seed=0)
    good = actions(games)
    with pytest.raises(
        UserError, match=r"no agents \['hidr'\]; there are \['hider_0', 'seeker_0'\]"
    ):
        games.step({**good, "hidr": good["hider_0"]})
    with pytest.raises(UserError, match="no actions for agent 'seeker_0'"):
        games.step({"hider_0": good["hider_0"]})
    with pytest.raises(UserError, match=r"agent 'seeker_0' have shape \(2, .*expected \(3, "):
        games.step({**good, "seeker_0": good["seeker_0"][:2]})
    with pytest.raises(UserError, match="'seeker_0' are float64; expected int32"):
        games.step({**good, "seeker_0": good["seeker_0"].astype(float)})


def test_an_asynchronous_pool_is_refused():
    with (
        make_pool("native:CartPole-v1", 4, batch_size=2) as pool,
        pytest.raises(UserError, match="batch_size=2 of 4"),
    ):
        ParallelPool(pool)
