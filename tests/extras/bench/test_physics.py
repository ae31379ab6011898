"""The physics of native environments alone, as `srl bench pool --vs physics` measures it."""

from pathlib import Path

import pytest

import srl
from srl.core.errors import UserError
from srl.extras.bench.physics import physics_rate


def test_the_physics_alone_gives_steps_per_second():
    assert physics_rate("HalfCheetah-v5", num_envs=4, threads=2, seconds=0.1) > 0
    assert physics_rate("HideAndSeek-v1", num_envs=3, threads=2, seconds=0.1, hold=10) > 0


def test_the_physics_is_of_the_game_and_not_of_tasks():
    with pytest.raises(UserError, match="leave out task"):
        physics_rate("HideAndSeek-v1", num_envs=1, task="object_counting")


def test_the_physics_is_of_mujoco_alone():
    with pytest.raises(UserError, match=r"'CartPole-v1' has no bare physics .* Ant-v5"):
        physics_rate("CartPole-v1", num_envs=4)
    with pytest.raises(UserError, match="unknown option 'wings'"):
        physics_rate("Ant-v5", num_envs=4, wings=2)
    with pytest.raises(UserError, match="num_envs = 0"):
        physics_rate("Ant-v5", num_envs=0)
    with pytest.raises(UserError, match=r"hold = 0; expected .* at least 1"):
        physics_rate("HideAndSeek-v1", num_envs=1, hold=0)


def test_authors_of_environments_see_nothing_of_the_benchmark():
    headers = Path(srl.get_include()).rglob("*.h")
    assert [header for header in headers if "physics" in header.read_text()] == []
