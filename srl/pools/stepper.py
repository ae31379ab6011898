"""Steps a list of simulators: episodes, next-step autoreset, and what is checked of results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from srl.pools.pool import Allocate, aligned_zeros, leaves
from srl.pools.simulator import Misfit, Simulator
from srl.types import Array, Specs, Timestep


class Control(NamedTuple):
    """What a pool and its steppers share, one row for each environment."""

    action: Array  # [N, A, ...], what to do next
    reset_next: Array  # bool [N], where the next step starts an episode instead
    seed: Array  # int64 [N], for that reset; below 0 for none
    episode_return: Array  # float32 [N, A], so far
    episode_length: Array  # int32 [N], so far
    stepping: Array  # int32 [W], the environment that each stepper is in


def empty_control(
    specs: Specs, num_envs: int, steppers: int, allocate: Allocate = aligned_zeros
) -> Control:
    """Memory for a pool's control; `reset` is still to be called."""
    agents, space = len(specs.agents), specs.action
    return Control(
        action=allocate((num_envs, agents, *(space.shape or ())), space.dtype),
        reset_next=allocate((num_envs,), np.bool_),
        seed=allocate((num_envs,), np.int64),
        episode_return=allocate((num_envs, agents), np.float32),
        episode_length=allocate((num_envs,), np.int32),
        stepping=allocate((steppers,), np.int32),
    )


class Target:
    """A pool's timestep to write into, seen by slot and by environment."""

    def __init__(self, rows: Timestep, agents: int) -> None:
        """Takes memory of N environments with `agents` slots each."""

        def by_env(array: np.ndarray) -> np.ndarray:
            return array.reshape(-1, agents, *array.shape[1:])

        self.rows = rows
        self.place: Any = None  # where a process pool has it
        self.floats = [by_env(x) for x in leaves(rows.observation) if x.dtype.kind == "f"]
        self.reward, self.episode_return = by_env(rows.reward), by_env(rows.episode_return)
        self.terminated, self.truncated = by_env(rows.terminated), by_env(rows.truncated)


class Failure(NamedTuple):
    """An environment that raised, or gave what does not fit; its next step is a reset."""

    env: int
    text: str
    error: BaseException | None


class Stepper:
    """Some consecutive environments of a pool, known by their indices in the pool."""

    def __init__(
        self, simulators: Sequence[Simulator], control: Control, first: int = 0, number: int = 0
    ) -> None:
        """Takes the simulators.

        Args:
            simulators: Of the environments from `first` on.
            control: The pool's.
            first: Index of the first environment.
            number: Of this stepper among the pool's.
        """
        self._simulators = simulators
        self._control = control
        self._first = first
        self._all = slice(first, first + len(simulators))
        self._stepping = control.stepping[number : number + 1]

    def advance(self, envs: Iterable[int], target: Target) -> list[Failure]:
        """Steps, or resets, each of the environments and writes its row.

        One that fails does not hold up the others.
        """
        simulators, first, rows = self._simulators, self._first, target.rows
        reset_next, stepping = self._control.reset_next, self._stepping
        # Copied, as an environment may keep its action while the next is written.
        actions = self._control.action[self._all].copy()
        stepped: list[int] = []
        failures: list[Failure] = []
        any_fresh = False
        for env in envs:
            stepping[0] = env
            fresh = reset_next[env]
            try:
                if fresh:
                    any_fresh = True
                    simulators[env - first].reset(self._take_seed(env), rows, env)
                else:
                    simulators[env - first].step(actions[env - first], rows, env)
            except (Exception, SystemExit) as error:
                failures.append(_failure(env, "reset" if fresh else "step", error))
                reset_next[env] = True
            else:
                stepped.append(env)
        if stepped:
            failures += self._finish(stepped, any_fresh, target)
        return failures

    def _take_seed(self, env: int) -> int | None:
        seed = int(self._control.seed[env])
        self._control.seed[env] = -1
        return None if seed < 0 else seed

    def _finish(self, envs: list[int], any_fresh: bool, target: Target) -> list[Failure]:
        """Counts what was stepped into the episodes, for all at once."""
        control = self._control
        where = self._all if len(envs) == len(self._simulators) else np.array(envs)
        returns = control.episode_return[where] + target.reward[where]
        length = control.episode_length[where] + 1
        if any_fresh:
            fresh = control.reset_next[where]
            returns[fresh], length[fresh] = 0, 0
        good = _all_finite(returns) and all(_all_finite(x[where]) for x in target.floats)
        failures = [] if good else self._not_finite(envs, target)
        control.episode_return[where] = target.episode_return[where] = returns
        control.episode_length[where] = target.rows.episode_length[where] = length
        ended = target.terminated[where] | target.truncated[where]
        control.reset_next[where] = ended.all(1) if ended.shape[1] > 1 else ended[:, 0]
        target.rows.lost[where] = False
        for failure in failures:
            control.reset_next[failure.env] = True
        return failures

    def _not_finite(self, envs: list[int], target: Target) -> list[Failure]:
        failures: list[Failure] = []
        for env in envs:
            reward = np.isfinite(target.reward[env]).all()
            if reward and all(np.isfinite(x[env]).all() for x in target.floats):
                continue
            fresh = self._control.reset_next[env]
            step = 0 if fresh else self._control.episode_length[env] + 1
            name = "observation" if reward else "reward"
            error = Misfit(f"gave {name} that is not finite, at step {step} of its episode")
            failures.append(_failure(env, "step", error))
        return failures


def _all_finite(array: np.ndarray) -> bool:
    return np.count_nonzero(np.isfinite(array)) == array.size  # several times as quick as all()


def _failure(env: int, call: str, error: BaseException) -> Failure:
    if isinstance(error, Misfit):
        return Failure(env, f"environment {env} {error}", error)
    return Failure(
        env, f"environment {env} raised {type(error).__name__} in {call}: {error}", error
    )
