"""Episodes of a worker process that dies before it has reported their ends."""

import pytest
from peculiar_envs import END, KILL, RAISE, act


@pytest.mark.parametrize(
    ("options", "actions"),
    [({}, {"e0": RAISE, "e1": KILL}), ({"action_repeat": 2, "crash_every": 4}, {"e0": END})],
    ids=["a failure", "an end"],
)
def test_what_a_dying_worker_did_not_report_is_a_lost_episode(pools, options, actions):
    pool = pools(2, workers=1, **options)
    pool.reset(seed=0)
    before = act(pool)
    lost = act(pool, **actions)
    assert lost.lost.tolist() == lost.truncated.tolist() == [True, True]
    assert (lost.episode_length >= before.episode_length).all()
    assert act(pool).episode_length.tolist() == [0, 0]
