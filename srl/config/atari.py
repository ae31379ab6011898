"""The usual settings of an algorithm on Atari's games."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from srl.algorithms import Algorithm
from srl.core.backends import id_of
from srl.core.errors import UserError
from srl.pools.mixture import mixture_of
from srl.pools.python.atari import FRAME_STACK, REWARDS, is_atari


def with_atari_settings(algorithm: Algorithm, env: Any) -> Algorithm:
    """Gives the algorithm, on Atari's games with their usual settings in place of open ones.

    Raises:
        UserError: If only some tasks are such games, and the algorithm leaves these settings open.
    """
    mixture = mixture_of(env)
    tasks = [env] if mixture is None else mixture.tasks.values()
    games = [is_atari(id_of(task)) for task in tasks]
    if not any(games) or (algorithm.frame_stack and algorithm.rewards != "usual"):
        return algorithm
    if not all(games):
        raise UserError(
            "some tasks of the mixture are games of Atari, with another usual frame_stack "
            f"({FRAME_STACK}) and other rewards ({REWARDS}) than the rest; give "
            "--algorithm.frame-stack and --algorithm.rewards for all"
        )
    rewards = REWARDS if algorithm.rewards == "usual" else algorithm.rewards
    return replace(algorithm, frame_stack=algorithm.frame_stack or FRAME_STACK, rewards=rewards)
