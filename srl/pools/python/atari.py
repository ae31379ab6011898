"""Atari's games in their usual form, by the vector environment of `ale_py`: `atari:Pong`.

As in Mnih et al. (2015) and Machado et al. (2018, https://arxiv.org/abs/1709.06009): each action is
taken for four frames, of the last two of which the larger values are seen, in grey and 84 by 84; up
to 30 actions at the beginning are none; with probability 0.25 the game repeats the action before
(sticky actions); only the end of the game ends an episode. Stacks of frames and the signs of
rewards are for the algorithm: memory holds each frame once, and returns are the game's own.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from srl.core.errors import UserError
from srl.core.optional_packages import install_command

_PREFIX = "atari:"
FRAME_STACK = 4
"""Frames that are seen at a time."""
REWARDS = "sign"
"""The rewards to learn from."""


def is_atari(source: object) -> bool:
    """Tells if a source of environments is one of these games."""
    return isinstance(source, str) and source.startswith(_PREFIX)


def atari_maker(game: str) -> Callable[..., gymnasium.vector.VectorEnv]:
    """Gives the maker of vector environments of a game; its options are ale_py's.

    Raises:
        UserError: Without ale_py, or if it has no such game.
    """
    try:
        importlib.import_module("ale_py")  # which registers them
    except ModuleNotFoundError as error:
        raise UserError(f"ale_py is not installed: {install_command('atari')}") from error
    known = [spec.name for spec in gymnasium.registry.values() if spec.namespace == "ALE"]
    if game not in known:
        near = difflib.get_close_matches(game, known, 1, 0.5)
        hint = f"did you mean {_PREFIX}{near[0]}?" if near else "as in atari:Pong"
        raise UserError(f"Atari has no game {game!r}; {hint}")
    spec = gymnasium.spec(f"ALE/{game}-v5")
    entry: Any = spec.vector_entry_point

    @functools.wraps(load_env_creator(entry) if isinstance(entry, str) else entry)
    def make(num_envs: int, **options: Any) -> gymnasium.vector.VectorEnv:
        options = {"stack_num": 1, "reward_clipping": False, **options}
        return gymnasium.make_vec(spec, num_envs, "vector_entry_point", **options)

    return make
