"""The physics of native environments alone, as `srl bench pool --vs physics` measures it."""

from pathlib import Path

import pytest

import srl
from srl.core.errors import UserError
from srl.extras.bench.backends import BarePhysics, Case


def physics(env, num_envs=1, **options):
    return BarePhysics(Case(env, num_envs, num_envs, threads=2, options=options, sticky=True))


def test_the_physics_alone_gives_steps_per_second():
    assert physics("HalfCheetah-v5", 4).rate(0.1) > 0
    assert physics("HideAndSeek-v1", 3).rate(0.1) > 0


def test_the_physics_is_of_the_game_and_not_of_tasks():
    with pytest.raises(UserError, match="leave out task"):
        physics("HideAndSeek-v1", task="object_counting")


def test_the_physics_is_of_mujoco_alone():
    with pytest.raises(UserError, match=r"'CartPole-v1' has no bare physics .* Ant-v5"):
        physics("CartPole-v1", 4)
    with pytest.raises(UserError, match="unknown option 'wings'"):
        physics("Ant-v5", 4, wings=2)
    with pytest.raises(UserError, match="num_envs = 0"):
        physics("Ant-v5", 0)


def test_authors_of_environments_see_nothing_of_the_benchmark():
    headers = Path(srl.get_include()).rglob("*.h")
    assert [header for header in headers if "physics" in header.read_text()] == []
