"""Pools of EnvPool's environments, stepped by EnvPool's own C++ threads (Weng et al., 2022).

Steps go through the compiled class below EnvPool's Python classes, for two reasons: those merge
what must be kept apart (an episode that terminates at its time limit), and they take about ten
microseconds a call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.core.errors import RunError, UserError
from srl.core.spaces import has_choices, limits
from srl.core.tree import leaves_of
from srl.core.types import Specs, Timestep, Tree
from srl.pools.envpool_specs import (
    action_key,
    import_envpool,
    make_spec,
    nested,
    observation_paths,
    observation_space,
    space_of,
)
from srl.pools.exclusive import ExclusivePool, exclusive
from srl.pools.memory_check import check_memory_by_sample
from srl.pools.pool import as_actions, checked_seed
from srl.pools.python.own_options import names_in
from srl.pools.timestep_arrays import Row, empty_observation, expect_finite
from srl.system.cores import cores_to_fill

_ENDED_BY_THE_LIMIT_ALONE = ("envpool.classic_control", "envpool.box2d", "envpool.mujoco.gym")
"""Families where the time limit ends the episode and does nothing else."""

_ONE = np.int32(1)
_INFO = "info:"
"""Begins EnvPool's names of what it reports beside observations."""

_State = dict[str, np.ndarray]
"""EnvPool's output for a batch, by EnvPool's names."""


class EnvpoolPool(ExclusivePool):
    """A pool of one of EnvPool's environments, such as envpool:Pong-v5.

    EnvPool seeds environments only when it makes them: the first reset makes them, and a later
    one with a seed makes them anew. Environment i gets the seed s + i, modulo 2**31.

    Results without `into` are EnvPool's own arrays, but that numbers of 64 bits become 32 as in
    every pool. An exception within an environment ends the process, as always with EnvPool.
    """

    family = "envpool:"

    def __init__(
        self, name: str, num_envs: int, batch_size: int, threads: int, options: dict[str, Any]
    ) -> None:
        """Checks the name and the options.

        Raises:
            UserError: Without EnvPool, for an unknown name or option, or for an environment that
                has no place in a pool.
        """
        super().__init__(name, num_envs, batch_size)
        options = dict(options)
        metrics = names_in("metrics", options.pop("metrics", ()))
        self.threads = threads = threads or min(batch_size, cores_to_fill())
        self._envpool = import_envpool()
        sizes = {"num_envs": num_envs, "batch_size": batch_size, "num_threads": threads}
        spec = make_spec(self._envpool, name, options, sizes)
        self._options = options | sizes
        action, agents = action_key(name, spec)
        self._action_dtype = np.dtype(spec.action_array_spec[action].dtype)
        paths = observation_paths(spec)
        self._by_slot = {k for k, v in spec.state_array_spec.items() if v.shape[:1] == [-1]}
        limit = getattr(spec.config, "max_episode_steps", 0)
        self.specs = Specs(
            observation=observation_space(spec, paths),
            action=space_of(spec.action_array_spec[action], acts=True),
            agents=tuple(f"player_{i}" for i in range(agents)) if agents > 1 else ("agent",),
            statistics=metrics,
            max_episode_steps=limit or None,
        )
        self._expect_metrics(spec)
        narrowed = leaves_of(empty_observation(self.specs.observation, ()))
        self._names = list(spec.state_array_spec)
        self._parts = [(*path, leaf.dtype) for path, leaf in zip(paths, narrowed, strict=True)]
        action_space = self.specs.action
        self._bounds = limits(action_space) if has_choices(action_space) else None
        # EnvPool reports of an end whether the limit was reached, not whether the episode
        # terminated as well. Set one step later, its limit is out of the way: what still ends has
        # terminated.
        family = self._envpool.registration.registry.specs[name][0]
        self._limit = limit
        self._limits = limit > 0 and family in _ENDED_BY_THE_LIMIT_ALONE
        if self._limits:
            self._options["max_episode_steps"] = limit + 1
        self._ordered = batch_size == num_envs and agents == 1  # EnvPool's synchronous mode
        self._all = np.arange(num_envs, dtype=np.int32)
        self._pool: Any = None  # until the first reset
        self._forget()

    @exclusive
    def reset(
        self, seed: int | None = None, into: Row | None = None, mask: np.ndarray | None = None
    ) -> Timestep:
        """Starts new episodes; see the base class.

        A seed makes all environments anew, which takes about 2 ms for one of MuJoCo and 100 ms
        for one of Atari; it goes with no mask.
        """
        self._check_synchronous("reset")
        ids = self._masked(mask, into)
        self._check_row(into)
        if mask is None:
            self._ask_resets(seed)
            self._flying[:] = False
            return _copied(self._timestep(self._receive()), into)
        if seed is not None or not self._ordered:
            what = "a seed, for EnvPool makes all anew" if self._ordered else "several agents"
            raise UserError(f"envpool:{self.name}: a reset with a mask cannot have {what}")
        self._check_reset()
        assert into is not None
        if ids.size:
            self._begin(ids)
            self._pool._reset(ids)
            _copied(self._timestep(self._recv()), into, ids)
        return into.timestep

    @exclusive
    def step(self, actions: Tree, into: Row | None = None) -> Timestep:
        """Steps all environments; see the base class."""
        self._check_synchronous("step")
        self._check_row(into)
        self._check_reset()
        self._launch(self._all, self._actions(actions, self._all))
        return _copied(self._timestep(self._receive()), into)

    @exclusive
    def async_reset(self, seed: int | None = None) -> None:
        """Asks for new episodes everywhere; what is in flight is dropped."""
        self._ask_resets(seed)

    def _ask_resets(self, seed: int | None) -> None:
        seed = checked_seed(seed)
        if seed is not None or self._pool is None:
            self._pool = self._made(seed)
        else:
            self._land()
        self._begin(self._all)
        self._flying[:] = True
        self._pool._reset(self._all)

    @exclusive
    def send(self, actions: Tree, env_ids: np.ndarray) -> None:
        """Asks for a step of the given environments; see the base class."""
        self._check_reset()
        ids = self._idle_ids(env_ids)
        array = self._actions(actions, ids)
        self._flying[ids] = True
        if not self._ordered:
            self._launch(ids, array)
            return
        # In its synchronous mode EnvPool puts row i of a call into row i of the batch, whichever
        # environment it is of: the batch goes as one call, in order.
        if self._waiting is None:
            self._waiting = np.zeros((self.num_envs, *array.shape[1:]), array.dtype)
        self._waiting[ids] = array
        if self._flying.all():
            array, self._waiting = self._waiting, None
            self._launch(self._all, array)

    @exclusive
    def recv(self) -> Timestep:
        """Waits for the first environments that are ready; see the base class."""
        self._check_in_flight()
        state = self._receive()
        self._flying[state["info:env_id"]] = False
        return self._timestep(state)

    @exclusive
    def render(self, env_id: int) -> np.ndarray:
        """A picture of one environment, uint8 [height, width, 3]; needs render_mode="rgb_array"."""
        self._check_reset()
        ids = self._idle_ids(np.array([env_id]))
        try:
            return np.asarray(self._pool.render(ids))[0]
        except RuntimeError as error:
            raise UserError(f"envpool:{self.name} cannot be rendered: {error}") from None

    def _end(self) -> None:
        self._pool = None  # ends the threads and frees all, which EnvPool's own `close` does not

    # ---- checks ----

    def _check_reset(self) -> None:
        if self._pool is None:
            raise UserError("environment 0 was never reset; call reset first")

    def _check_synchronous(self, call: str) -> None:
        super()._check_synchronous(call)
        if call == "step" and _any(self._flying):
            raise UserError(
                f"step: {self._flying.sum()} environments are in flight; receive them first"
            )

    def _actions(self, actions: Tree, ids: np.ndarray) -> np.ndarray:
        """A copy of the actions as EnvPool takes them, which looks only at the first it is sent."""
        space, agents = self.specs.action, len(self.specs.agents)
        array = as_actions(actions, space, len(ids) * agents)
        if self._bounds is None:
            wrong = ~np.isfinite(array)
        else:
            wrong = (array < self._bounds[0]) | (array > self._bounds[1])
        if _any(wrong):
            slot = int(np.argwhere(wrong)[0][0])
            raise UserError(
                f"environment {ids[slot // agents]}: action {array[slot]} is not in {space}"
            )
        return np.array(array, self._action_dtype, order="C")

    # ---- EnvPool's side ----

    def _made(self, seed: int | None) -> Any:
        """Makes the environments, and ends those there were."""
        self._pool = None
        self._forget()
        first = int(np.random.default_rng().integers(2**31)) if seed is None else seed
        seeds = [(first + i) % 2**31 for i in range(self.num_envs)]
        try:
            return self._envpool.make_gymnasium(self.name, env_seed=seeds, **self._options)
        except Exception as error:
            raise RunError(f"envpool:{self.name} cannot be made: {error}") from error

    def _forget(self) -> None:
        """No episode has begun and nothing is in flight."""
        self._length = np.full(self.num_envs, -1, np.int32)  # the next step gives the first row
        self._cut = np.zeros(self.num_envs, np.bool_)  # ended by this pool, unknown to EnvPool
        self._return = np.zeros((self.num_envs, len(self.specs.agents)), np.float64)
        self._flying = np.zeros(self.num_envs, np.bool_)
        self._early: list[_State] = []  # rows of the batch in flight that came before the others
        self._waiting: np.ndarray | None = None  # actions of a synchronous batch not yet complete

    def _begin(self, ids: np.ndarray) -> None:
        """Marks the environments' next rows as the first of their episodes."""
        self._length[ids], self._return[ids], self._cut[ids] = -1, 0, False

    def _launch(self, ids: np.ndarray, actions: np.ndarray) -> None:
        """Starts the steps, or the resets where this pool has ended the episode."""
        if _any(self._cut) and _any(cut := self._cut[ids]):
            self._cut[ids] = False
            self._pool._reset(ids[cut])
            if self._ordered:  # rows of two calls at a time would take each other's places
                self._early.append(self._recv())
            ids, actions = ids[~cut], actions[~cut]
            if not ids.size:
                return
        slots = ids if len(self.specs.agents) == 1 else ids.repeat(len(self.specs.agents))
        self._pool._send([ids, slots, actions])

    def _recv(self) -> _State:
        return dict(zip(self._names, self._pool._recv(), strict=True))

    def _receive(self) -> _State:
        """A whole batch; of a synchronous pool in the order of the environments."""
        parts, self._early = self._early, []
        if not parts or sum(len(part["reward"]) for part in parts) < self.batch_size:
            parts.append(self._recv())
        state = parts[0]
        slots = len(state["info:players.env_id"])
        if len(parts) == 1 and slots != self.batch_size * len(self.specs.agents):
            raise RunError(f"envpool:{self.name} gave {slots} agents; expected the same always")
        if len(parts) == 1 and (self._ordered or self.batch_size < self.num_envs):
            return state
        if len(parts) > 1:
            state = {name: np.concatenate([part[name] for part in parts]) for name in state}
        envs = np.argsort(state["info:env_id"], kind="stable")
        rows = np.argsort(state["info:players.env_id"], kind="stable")
        return {k: v[rows if k in self._by_slot else envs] for k, v in state.items()}

    def _land(self) -> None:
        """Receives and drops what is in flight: EnvPool must not reset it meanwhile."""
        self._waiting = None
        if self._ordered:
            if self._flying.all():
                self._receive()
            return
        while self._flying.any():
            # EnvPool gives whole batches only, so that idle environments fill up the last one.
            missing = max(self.batch_size - int(self._flying.sum()), 0)
            idle = self._all[~self._flying][:missing]
            if idle.size:
                self._pool._reset(idle)
            self._flying[idle] = True
            self._flying[self._recv()["info:env_id"]] = False

    # ---- our side ----

    def _timestep(self, state: _State) -> Timestep:
        """EnvPool's results as a pool's timestep."""
        ids, reward = state["info:env_id"], state["reward"]
        agents = len(self.specs.agents)
        rows = slice(None) if len(ids) == self.num_envs else ids
        length = self._length[rows] + _ONE
        begins = length == 0
        if _any(begins):  # some environments reward a reset
            reward.reshape(-1, agents)[begins] = 0
        total = self._return[rows] + reward.reshape(-1, agents)
        terminated, truncated = self._ends(state, length)
        self._length[rows], self._return[rows] = length, total
        over = terminated | truncated
        if _any(over):
            ended = ids[over]
            self._length[ended], self._return[ended] = -1, 0
            if self._limits:
                self._cut[ended] = ~terminated[over]
        if agents > 1:
            terminated, truncated = terminated.repeat(agents), truncated.repeat(agents)
        timestep = Timestep(
            observation=self._observation(state),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            episode_return=total.reshape(-1).astype(np.float32),
            episode_length=length,
            statistics=self._statistics(state),
            env_id=ids,
            lost=np.zeros(len(ids), np.bool_),
        )
        expect_finite(f"envpool:{self.name}", timestep, len(self.specs.agents))
        return timestep

    def _ends(self, state: _State, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Terminated and truncated, bool [n] each; both where both came at once."""
        done, truncated = state["done"], state["trunc"]
        if self._limits:
            return done, length >= self._limit
        if not _any(truncated):
            return done, truncated
        terminated = done & ~truncated
        if "info:terminated" in state:  # which some environments report
            terminated |= done & state["info:terminated"].astype(np.bool_)
        return terminated, truncated

    def _expect_metrics(self, spec: Any) -> None:
        """Raises UserError for statistics that infos do not have as one number each."""
        shapes = [[], [-1]] if len(self.specs.agents) == 1 else [[]]
        known = [
            key.removeprefix(_INFO)
            for key, array in spec.state_array_spec.items()
            if key.startswith(_INFO) and "env_id" not in key and list(array.shape) in shapes
        ]
        for metric in self.specs.statistics:
            if metric not in known:
                has = f"its infos have {', '.join(known)}" if known else "its infos have no numbers"
                raise UserError(f"envpool:{self.name} reports no {metric!r}; {has}")

    def _statistics(self, state: _State) -> np.ndarray:
        columns = [state[f"{_INFO}{name}"].reshape(-1) for name in self.specs.statistics]
        if not columns:
            return np.zeros((len(state["info:env_id"]), 0), np.float32)
        return np.stack(columns, 1).astype(np.float32)

    def _observation(self, state: _State) -> Tree:
        parts = {}
        for path, key, dtype in self._parts:
            array = state[key]
            if array.dtype != dtype:
                with np.errstate(over="ignore"):  # reported as not finite
                    array = array.astype(dtype)
            parts[path] = array
        return nested(parts)


def _any(flags: np.ndarray) -> bool:
    return bool(np.count_nonzero(flags))  # a sixth of the time of flags.any()


def _copied(timestep: Timestep, into: Row | None, places: Any = ...) -> Timestep:
    if into is None:
        return timestep
    for memory, values in zip(_arrays(into.timestep), _arrays(timestep), strict=True):
        memory[places] = values
    return into.timestep


def _arrays(timestep: Timestep) -> list[np.ndarray]:
    return [*leaves_of(timestep.observation), *timestep[1:]]


def make(
    source: str,
    num_envs: int,
    options: dict[str, Any],
    batch_size: int | None = None,
    threads: int = 0,
) -> EnvpoolPool:
    """Makes a pool of an id; see `make_pool`."""
    name = source.partition(":")[2]
    check_memory_by_sample(source, num_envs, lambda n: EnvpoolPool(name, n, n, 1, options))
    return EnvpoolPool(name, num_envs, batch_size or num_envs, threads, options)
