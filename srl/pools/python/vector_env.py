"""Pools over a vector environment of Gymnasium's interface, which steps all its environments.

Pools have next-step autoreset, and vector environments one of three modes, which
`metadata["autoreset_mode"]` names (https://farama.org/Vector-Autoreset-Mode):

* NEXT_STEP is the pool's own.
* SAME_STEP: the step that ends an episode begins the next one; its true last observation is in
  `info["final_obs"]`.
* DISABLED: the caller of `step` has to reset, by `reset(options={"reset_mask": mask})`.

In the last two no step is left for the row that begins an episode, while the other environments
have to be stepped: the environment is stepped along with any action, and reset after that by a
mask. So its episodes begin as they should, at the cost of a step and a reset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from srl.core.backends import AT_ONCE
from srl.core.errors import RunError, UserError, described
from srl.core.spaces import choice_counts, has_choices, limits
from srl.core.tree import leaves_of, map_tree
from srl.core.types import Specs, Timestep, Tree
from srl.pools.pool import Pool
from srl.pools.python.closing import close_here
from srl.pools.python.gymnasium import space_of
from srl.pools.python.ignoring import without_parts
from srl.pools.python.masks import (
    MASK,
    add_mask,
    check_mask,
    expect_no_mask,
    flat_mask,
    has_mask,
    num_choices,
    with_mask,
)
from srl.pools.python.metrics import metric_names, vector_metrics
from srl.pools.python.own_options import split_options
from srl.pools.python.python_pool import PythonPool
from srl.pools.python.simulator import (
    OF_SEVERAL,
    WEIGH,
    InvalidOutput,
    Rendered,
    add_part,
    observed_space,
    rendered,
    results,
    supported_action,
)
from srl.pools.python.sources import (
    SimulatorSource,
    VectorMaker,
    check_effect,
    explained_errors,
    source_name,
    vector_maker,
)
from srl.pools.python.stepper import Episodes, Failure, empty_control
from srl.pools.python.wrappers import wrapped
from srl.pools.python.writer import observation_writer
from srl.pools.timestep_arrays import Row, empty_observation
from srl.system.started import StartedHere

_SEEDS = 2**31
"""Simulators in C++ take no larger seeds."""


class _Masks:
    """Masks of allowed actions, as parts of observations or in infos."""

    def __init__(self, action: gymnasium.Space, num_envs: int, *, observed: bool) -> None:
        self.action, self.observed = action, observed
        self.added = False
        """True if infos have them, so that they are added to observations."""
        self._num_envs = num_envs
        self._latest: np.ndarray | None = None  # int8 [N, n]

    def joined(self, observation: Tree, info: Any, call: str, envs: Any) -> Tree:
        """Gives the observations with the masks in infos, if these have them.

        Raises:
            InvalidOutput: If there are masks though there were none when the environment was made.
        """
        if self.added:
            if self._latest is None:
                self._latest = self.of({})
            self._latest[envs] = self.of(info)[envs]
            return add_part(observation, MASK, self._latest)
        if info and not self.observed:
            expect_no_mask(info, call, self.action)
        return observation

    def of(self, info: Mapping[str, Any]) -> np.ndarray:
        """The masks in infos, which allow every action where there is none: int8 [N, n]."""
        masks = np.ones((self._num_envs, num_choices(self.action)), np.int8)
        if MASK in info:
            given = info[MASK]
            there = info.get(f"_{MASK}", np.ones(self._num_envs, bool))
            for env in np.flatnonzero(_array(there)):
                own = given[env]
                masks[env] = flat_mask(own if isinstance(own, tuple | list) else _array(own))
        return masks

    def allow(self, actions: Tree, envs: np.ndarray, observation: Tree) -> None:
        """Replaces the actions of some environments by allowed ones, where masks are observed."""
        if not (self.added or self.observed):
            return
        given = observation[MASK]
        masks = np.concatenate(given, axis=1) if isinstance(given, tuple) else given
        counts = choice_counts(self.action).reshape(-1)
        parts = np.split(masks[envs] != 0, np.cumsum(counts)[:-1], axis=1)
        first = np.stack([part.argmax(axis=1) for part in parts], axis=1)
        actions[envs] = first.reshape(actions[envs].shape) + limits(self.action)[0]


class VectorEnvPool(PythonPool):
    """A pool of the environments of one `gymnasium.vector.VectorEnv`, stepped in this process.

    What it gives may be arrays of NumPy or JAX, or tensors of PyTorch on any device. Its `reset` is
    given one seed, from which it makes those of its environments: those of Gymnasium give
    environment i the seed plus i, others draw from one stream. Seeds are taken modulo 2**31.
    """

    def __init__(
        self, source: SimulatorSource, maker: VectorMaker, num_envs: int, options: dict[str, Any]
    ) -> None:
        """Makes the vector environment.

        Raises:
            UserError: If it is none, or its spaces, masks or mode are not supported.
            RunError: If making it raised.
        """
        super().__init__(source_name(source), num_envs, num_envs)
        self._chosen = split_options(options)[1].metrics
        self._given_limit = options.get("max_episode_steps")
        self._started = StartedHere()
        with self._started.making():
            self._env = _made(source, maker, num_envs, options)
        try:
            self._mode = _mode_of(self._env, self.name)
            with self._started:
                specs = self._specs()
        except BaseException:
            self._end()
            raise
        space = batch_space(specs.observation, num_envs)
        self._write = observation_writer(space)
        self._write_one = observation_writer(specs.observation)
        self._other = empty_observation(specs.observation, (num_envs,))  # rows copied from in part
        self._asked = np.zeros(num_envs, bool)  # to be reset because the caller wants it
        self._asked_seed: int | None = None
        self._last_given: Any = None
        self._begin(specs, empty_control(specs, num_envs, steppers=1))
        self._episodes = Episodes(self._control, 0, num_envs)

    def _specs(self) -> Specs:
        """Gives the specs of the environments.

        Only a reset shows if infos hold masks, so the environments are reset here where actions
        could be masked.
        """
        action = supported_action(space_of(self._env, "single_action_space"), self.name)
        space = space_of(self._env, "single_observation_space")
        observed = observed_space(space, self.name)
        check_mask(observed, action, self.name)
        self._masks = masks = _Masks(action, self.num_envs, observed=has_mask(observed))
        self._metrics = metric_names(self._env, self._chosen, self.name)
        if has_choices(action) and not masks.observed:
            try:
                masks.added = MASK in self._env.reset(seed=0)[1]
            except (Exception, SystemExit) as error:
                raise RunError(f"{self.name}: reset raised {described(error)}") from error
        return Specs(
            observation=with_mask(observed, action) if masks.added else observed,
            action=action,
            agents=("agent",),
            statistics=self._metrics,
            max_episode_steps=self._longest(),
        )

    def _longest(self) -> int | None:
        """The steps of an episode at most: by the option, or by the environment's own limit."""
        given = self._given_limit
        own = getattr(self._env.spec, "max_episode_steps", None)
        return own if given is None else given if given > 0 else None

    # ---- the pool's work ----

    def _prepare_reset(self, seed: int | None, ids: np.ndarray) -> None:
        super()._prepare_reset(seed, ids)
        self._asked[ids] = True
        self._asked_seed = None if seed is None else seed % _SEEDS

    def _advance(self, ids: np.ndarray | None, row: Row) -> None:
        envs = range(self.num_envs) if ids is None else ids.tolist()
        begins = self._control.reset_next.any()
        call = "reset" if self._asked.any() else "step"
        try:
            with self._started:
                if call == "step":
                    self._step_all(row.timestep)
                elif len(envs):
                    self._reset_asked(row.timestep)
            self._failures = self._episodes.count(envs, bool(begins), row.core)
        except InvalidOutput as error:
            self._failures = [Failure(0, f"the vector environment {error}", error)]
        except (Exception, SystemExit) as error:
            text = f"the vector environment raised {described(error)} in {call}"
            self._failures = [Failure(0, text, error)]
        if self._failures:  # it cannot be known how the others stand
            self._control.reset_next[:] = self._asked[:] = True

    def _start(self, ids: np.ndarray) -> None:
        """Does nothing: a batch is of all environments, and steps when it is received."""

    def _work(self, seconds: float = math.inf, others: Sequence[int] = ()) -> None:
        assert self._slots is not None
        self._advance(None, self._slots)
        if not self._failures:
            self._ready.extend(range(self.num_envs))

    def _finish_started(self) -> None:
        """Does nothing: there is never anything under way."""

    def _picture(self, env: int) -> Rendered:
        def picture() -> np.ndarray:
            pictures: Any = self._env.render()
            return np.asarray(None if pictures is None else _array(pictures[env]))

        with self._started:
            return rendered(picture)

    def _end(self) -> None:
        self.close_failure = close_here(self.name, [self._env.close], self._started)

    # ---- resets ----

    def _reset_asked(self, rows: Timestep) -> None:
        """Starts the episodes that the caller asked for."""
        mask, seed = self._asked.copy(), self._asked_seed
        if mask.all():
            observation = self._reset(..., seed=seed)
            self._write(observation, rows.observation, ...)
        else:
            self._reset_where(mask, rows, seed)
        rows.reward[mask], rows.statistics[mask] = 0, np.nan
        rows.terminated[mask] = rows.truncated[mask] = False
        self._asked[:], self._asked_seed = False, None

    def _reset_where(self, mask: np.ndarray, rows: Timestep, seed: int | None = None) -> None:
        """Starts episodes where the mask is set, and writes their first observations there."""
        before = self._last_given
        observation = self._reset(mask, seed=seed, options={"reset_mask": mask.copy()})
        if before is not None and _differ(before, observation, ~mask):
            raise InvalidOutput(
                "gave other observations of environments that reset(options={'reset_mask': mask}) "
                f"leaves out; with the autoreset mode {self._mode.value} it has to leave these "
                "alone: let it honour the mask, or make it with the mode NextStep"
            )
        self._write(observation, self._other, ...)
        _copy(self._other, rows.observation, mask)

    # ---- steps ----

    def _step_all(self, rows: Timestep) -> None:
        """Steps all; where an episode ended in the row before, gives the first row of the next."""
        over = self._control.reset_next.copy()
        actions = map_tree(lambda x: x[:, 0].copy(), self._control.action)
        begins = self._mode is not AutoresetMode.NEXT_STEP and over.any()
        if begins:
            if self._mode is AutoresetMode.DISABLED:
                self._reset(over, options={"reset_mask": over.copy()})
            self._masks.allow(actions, over, self._last_given)
        given = results(self._env.step(actions), "step", OF_SEVERAL)
        observation, reward, terminated, truncated, info = given
        rows.reward[:] = self._numbers("rewards", reward)
        rows.terminated[:] = self._numbers("terminations", terminated)
        rows.truncated[:] = self._numbers("truncations", truncated)
        if self._metrics:
            rows.statistics[:] = vector_metrics(info, self._metrics, self.num_envs)
        self._write(self._observation(observation, info, "step"), rows.observation, ...)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._expect_reset(rows, over)
        if self._mode is AutoresetMode.SAME_STEP:
            ended = (rows.terminated | rows.truncated) & ~over
            if ended.any():
                self._write_last(info, rows, ended)
                if self._metrics:
                    final = info.get("final_info", {})
                    last = vector_metrics(final, self._metrics, self.num_envs)
                    there = ended[:, None] & ~np.isnan(last)
                    np.copyto(rows.statistics, last, where=there)
        if begins:
            rows.reward[over], rows.statistics[over] = 0, np.nan
            rows.terminated[over] = rows.truncated[over] = False
            self._reset_where(over, rows)

    def _expect_reset(self, rows: Timestep, over: np.ndarray) -> None:
        """Checks that the steps after the ends of episodes were no more than resets."""
        wrong = over & ((rows.reward != 0) | rows.terminated | rows.truncated)
        if wrong.any():
            env = int(np.argmax(wrong))
            raise InvalidOutput(
                f"gave environment {env} a reward of {rows.reward[env]:g} or an end in the step "
                "after the end of its episode, which only resets by the autoreset mode NextStep; "
                "name the right mode in its metadata"
            )

    def _write_last(self, info: Mapping[str, Any], rows: Timestep, ended: np.ndarray) -> None:
        """Writes the true last observations of the episodes that ended."""
        name = next((name for name in ("final_obs", "final_observation") if name in info), None)
        if name is None:
            raise InvalidOutput(
                "gave no info['final_obs'] where an episode ended, which the autoreset mode "
                "SameStep promises; episodes that are truncated cannot be learned from without it"
            )
        final, of_final = info[name], info.get("final_info", {})
        masks = self._masks.of(of_final) if self._masks.added else None
        if isinstance(final, np.ndarray) and final.dtype == object:
            for env in np.flatnonzero(ended):
                last = _arrays(final[env])
                if masks is not None:
                    last = add_mask(last, masks[env], self._masks.action)
                self._write_one(last, rows.observation, int(env))
            return
        last = _arrays(final)
        if masks is not None:
            last = add_part(last, MASK, masks)
        self._write(last, self._other, ...)
        _copy(self._other, rows.observation, ended)

    # ---- what it gave ----

    def _reset(self, envs: Any, **options: Any) -> Tree:
        observation, info = results(self._env.reset(**options), "reset", OF_SEVERAL)
        return self._observation(observation, info, "reset", envs)

    def _observation(self, given: Any, info: Any, call: str, envs: Any = ...) -> Tree:
        """The observations of all as NumPy has them, with masks where infos have these.

        Args:
            given: By the vector environment.
            info: Likewise.
            call: Which of its calls it was.
            envs: bool [N], those that the call was for; all by default.
        """
        self._last_given = self._masks.joined(_arrays(given), info, call, envs)
        return self._last_given

    def _numbers(self, name: str, given: Any) -> np.ndarray:
        array = _array(given)
        if array.shape == (self.num_envs, 1):
            array = array[:, 0]
        if name == "rewards" and array.ndim == 2:
            raise InvalidOutput(f"gave {array.shape[1]} numbers as each reward; {WEIGH}")
        if array.shape != (self.num_envs,) or array.dtype.kind not in "biuf":
            raise InvalidOutput(
                f"gave {name} of shape {array.shape}, dtype {array.dtype}; expected "
                f"({self.num_envs},) numbers"
            )
        return array


def _made(
    source: SimulatorSource, maker: VectorMaker, num_envs: int, options: dict[str, Any]
) -> VectorEnv:
    """The vector environment.

    Raises:
        UserError: For options that it does not take, or for what is no vector environment.
        RunError: If making it raised.
    """
    name = source_name(source)
    own, chosen = split_options(options)
    with explained_errors(f"{num_envs} environments", source, options):
        made = maker(num_envs=num_envs, **own)
        made = wrapped(made, chosen.wrappers, "gymnasium.wrappers.vector")
    if not isinstance(made, VectorEnv):
        raise UserError(
            f"{name} was given num_envs={num_envs} and made {type(made).__name__}; expected a "
            "gymnasium.vector.VectorEnv: what makes one environment must not take num_envs"
        )
    if made.num_envs != num_envs:
        made.close()
        raise UserError(f"{name} was asked for {num_envs} environments and made {made.num_envs}")
    return without_parts(made, chosen.ignore, name)


def _mode_of(env: VectorEnv, name: str) -> AutoresetMode:
    try:
        return AutoresetMode(env.metadata.get("autoreset_mode"))
    except ValueError:
        modes = ", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode)
        raise UserError(
            f"{name}: metadata['autoreset_mode'] is {env.metadata.get('autoreset_mode')!r}; "
            f"expected the one that it follows of {modes}"
        ) from None


def _array(given: Any) -> np.ndarray:
    """An array of NumPy, from one of JAX or a tensor of PyTorch on any device."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
    return np.asarray(given)


def _arrays(given: Any) -> Tree:
    """A tree of such arrays."""
    if isinstance(given, Mapping):
        return {name: _arrays(part) for name, part in given.items()}
    if isinstance(given, tuple):
        return tuple(map(_arrays, given))
    return _array(given)


def _copy(source: Tree, target: Tree, mask: np.ndarray) -> None:
    """Copies the rows where the mask is set."""
    for one, other in zip(leaves_of(source), leaves_of(target), strict=True):
        other[mask] = one[mask]


def _differ(one: Tree, other: Tree, mask: np.ndarray) -> bool:
    """Tells if observations differ where the mask is set."""
    pairs = zip(leaves_of(one), leaves_of(other), strict=True)
    return any(not np.array_equal(a[mask], b[mask]) for a, b in pairs)


def make(source: SimulatorSource, num_envs: int, options: dict[str, Any], workers: int = 0) -> Pool:
    """Makes a pool of an id or a callable; see `make_pool`."""
    maker = vector_maker(source)
    assert maker is not None
    check_effect(source, {"workers": workers} if workers else {}, AT_ONCE)
    return VectorEnvPool(source, maker, num_envs, options)
