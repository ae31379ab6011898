"""Steps a list of simulators: episodes, next-step autoreset, and what is checked of results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from srl.core.errors import described
from srl.core.spaces import space_tree
from srl.core.tree import leaves_of, map_tree, rows_of
from srl.core.types import Array, Specs, Timestep, Tree
from srl.pools.python.simulator import InvalidOutput, Simulator, signature_hint
from srl.pools.timestep_arrays import Allocate, aligned_zeros


class Control(NamedTuple):
    """The memory shared by a pool and its steppers, one row for each environment."""

    action: Tree  # [N, A, ...], what to do next
    reset_next: Array  # bool [N], where the next step starts an episode instead
    seed: Array  # uint64 [N], for that reset
    seeded: Array  # bool [N], whether there is one; else chance goes on
    episode_return: Array  # float64 [N, A], so far; float32 would lose small rewards
    episode_length: Array  # int32 [N], so far
    absent: Array  # bool [N, A], agents that do not act next
    stepping: Array  # int32 [W], the environment that each stepper is in
    busy: Array  # bool [W], steppers that are still stepping, or about to
    asked_at: Array  # float64 [1], when they were asked, by `time.monotonic`


def empty_control(
    specs: Specs, num_envs: int, steppers: int, allocate: Allocate = aligned_zeros
) -> Control:
    """Memory for a pool's control; `reset` is still to be called."""
    agents = len(specs.agents)
    return Control(
        action=map_tree(
            lambda leaf: allocate((num_envs, agents, *(leaf.shape or ())), leaf.dtype),
            space_tree(specs.action),
        ),
        reset_next=allocate((num_envs,), np.bool_),
        seed=allocate((num_envs,), np.uint64),
        seeded=allocate((num_envs,), np.bool_),
        episode_return=allocate((num_envs, agents), np.float64),
        episode_length=allocate((num_envs,), np.int32),
        absent=allocate((num_envs, agents), np.bool_),
        stepping=allocate((steppers,), np.int32),
        busy=allocate((steppers,), np.bool_),
        asked_at=allocate((1,), np.float64),
    )


class Target:
    """A pool's timestep to write into, and one stepper's part of it by environment."""

    def __init__(self, rows: Timestep, agents: int, part: slice = slice(None)) -> None:
        """Takes the slots of all environments; `part` are those of the stepper."""

        def by_env(array: np.ndarray) -> np.ndarray:
            return array.reshape(-1, agents, *array.shape[1:])[part]

        self.rows = rows
        self.place: Any = None  # where a process pool has it
        self.episode_return = by_env(rows.episode_return)
        self.episode_length, self.lost = rows.episode_length[part], rows.lost[part]
        floats = [by_env(x) for x in leaves_of(rows.observation) if x.dtype.kind == "f"]
        flags = by_env(rows.terminated), by_env(rows.truncated)
        self.results = [by_env(rows.reward), *flags, *floats]


class Failure(NamedTuple):
    """An environment that raised or gave invalid output; its next step is a reset."""

    env: int
    text: str
    error: BaseException | None


class Episodes:
    """The episodes of some consecutive environments of a pool, into which steps are counted."""

    def __init__(self, control: Control, first: int, count: int) -> None:
        """Takes `count` environments of the control, from `first` on."""
        part = slice(first, first + count)
        self._first = first
        self.returns, self.length = control.episode_return[part], control.episode_length[part]
        self.reset_next, self.absent = control.reset_next[part], control.absent[part]

    def count(self, envs: Sequence[int], any_fresh: bool, target: Target) -> list[Failure]:
        """Counts what was stepped into the episodes, for all at once; checks that it is finite.

        Args:
            envs: Those that were stepped or reset.
            any_fresh: Whether any was reset.
            target: Where their results are written.
        """
        mine = [self.returns, self.length, self.reset_next, self.absent]
        episodes, results, where = mine, target.results, None
        if len(envs) < len(self.length):
            where = np.array(envs) - self._first
            episodes, results = [x[where] for x in episodes], [x[where] for x in results]
        returns, length, reset_next, absent = episodes
        reward, terminated, truncated, *floats = results
        returns += reward
        length += 1
        if any_fresh:
            returns[reset_next] = 0  # which may be NaN
            length[reset_next] = 0
        np.logical_or(terminated, truncated, out=absent)
        absent.all(1, out=reset_next)
        if where is None:
            where = ...
        else:
            for whole, part in zip(mine, episodes, strict=True):
                whole[where] = part
        with np.errstate(over="ignore"):  # reported as not finite
            reported = returns.astype(np.float32)
        target.episode_return[where] = reported
        target.episode_length[where] = length
        target.lost[where] = False
        if _all_finite(reported) and all(_all_finite(x) for x in floats):
            return []
        failures = self._not_finite(envs, target)
        for failure in failures:
            self.reset_next[failure.env - self._first] = True
        return failures

    def _not_finite(self, envs: Sequence[int], target: Target) -> list[Failure]:
        reward, _, _, *floats = target.results
        causes = [("reward", reward), *(("observation", x) for x in floats)]
        causes.append(("an episode return", target.episode_return))
        failures: list[Failure] = []
        for env in envs:
            k = env - self._first
            name = next((name for name, x in causes if not np.isfinite(x[k]).all()), None)
            if name is not None:
                step = self.length[k]
                error = InvalidOutput(
                    f"gave {name} that is not finite, at step {step} of its episode; "
                    "float32, which pools give, holds numbers up to 3.4e38"
                )
                failures.append(failure_of(env, "step", error))
        return failures


class Stepper:
    """Some consecutive environments of a pool, known by their indices in the pool."""

    def __init__(
        self,
        simulators: Sequence[Simulator],
        control: Control,
        first: int = 0,
        number: int = 0,
        action_repeat: int = 1,
    ) -> None:
        """Takes the simulators of the environments from `first` on.

        `number` is this stepper's among the pool's. An episode's end is the last of
        `action_repeat` steps with an action.
        """
        self._action_repeat = action_repeat
        self._simulators = simulators
        self._steps = [simulator.step for simulator in simulators]
        self._resets = [simulator.reset for simulator in simulators]
        self._control = control
        self._first = first
        self._part = slice(first, first + len(simulators))
        self._episodes = Episodes(control, first, len(simulators))
        self._stepping = control.stepping[number : number + 1]

    def advance(self, envs: Iterable[int] | None, target: Target) -> list[Failure]:
        """Steps, or resets, each of the environments, all by default, and writes its row.

        One that fails does not hold up the others.
        """
        episodes = self._episodes
        length, reset_next, absent = episodes.length, episodes.reset_next, episodes.absent
        before = absent.copy() if self._action_repeat > 1 else absent
        stepped, failures = self._advance_once(envs, target)
        reward = target.results[0]
        for _ in range(1, self._action_repeat):
            places = np.array(stepped, np.intp) - self._first
            # Not where an episode is over or has just begun, nor where an agent has left or joined.
            going = (length[places] > 0) & ~reset_next[places]
            places = places[going & (absent[places] == before[places]).all(1)]
            if not len(places):
                break
            earlier = reward[places]
            stepped, further = self._advance_once((places + self._first).tolist(), target)
            reward[places] += earlier
            failures += further
        return failures

    def _advance_once(
        self, envs: Iterable[int] | None, target: Target
    ) -> tuple[list[int], list[Failure]]:
        """Also gives the environments that did not raise."""
        first, rows, stepping = self._first, target.rows, self._stepping
        # Copied, as an environment may keep its action while the next is written.
        actions = rows_of(map_tree(lambda x: x[self._part].copy(), self._control.action))
        reset_next: Any = self._episodes.reset_next
        if envs is None:  # a list is quicker to look into
            envs = range(first, first + len(self._simulators))
            reset_next = reset_next.tolist()
        resets, steps = self._resets, self._steps
        stepped: list[int] = []
        failures: list[Failure] = []
        any_fresh = False
        for env in envs:
            stepping[0] = env
            k = env - first
            fresh = reset_next[k]
            try:
                if fresh:
                    any_fresh = True
                    resets[k](self._take_seed(env), rows, env)
                else:
                    steps[k](actions[k], rows, env)
            except (Exception, SystemExit) as error:
                failures.append(failure_of(env, "reset" if fresh else "step", error))
                self._control.reset_next[env] = True
            else:
                stepped.append(env)
        if stepped:
            failures += self._episodes.count(stepped, any_fresh, target)
        return stepped, failures

    def _take_seed(self, env: int) -> int | None:
        if not self._control.seeded[env]:
            return None
        self._control.seeded[env] = False
        return int(self._control.seed[env])


def _all_finite(array: np.ndarray) -> bool:
    return np.count_nonzero(np.isfinite(array)) == array.size  # several times as quick as all()


def failure_of(env: int, call: str, error: BaseException) -> Failure:
    """Describes the failure of an environment that raised in a call."""
    if isinstance(error, InvalidOutput):
        return Failure(env, f"environment {env} {error}", error)
    kind, _, text = described(error).partition(": ")
    hint = signature_hint(call, error)
    return Failure(env, f"environment {env} raised {kind} in {call}: {text}{hint}", error)
