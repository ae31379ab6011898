"""The promises of a pool's environments, as far as the pool's interface shows them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from srl.core.errors import RunError, UserError
from srl.core.tree import leaves_of, map_tree
from srl.core.types import Timestep, Tree
from srl.extras.check_env.report import (
    Check,
    Fault,
    Finding,
    Settings,
    Watch,
    draw_action,
    ends_finding,
    mask_error,
    observation_errors,
    spaces_findings,
)
from srl.pools.pool import Pool


class PoolChecks:
    """Checks of a pool, by name, in the order in which they make sense."""

    def __init__(
        self,
        make: Callable[[int], Pool],
        settings: Settings,
        watch: Watch,
        shares_chance: bool = False,
    ) -> None:
        """Prepares the checks; with `shares_chance`, environments may draw from one stream."""
        self._make, self._watch, self._shares_chance = make, watch, shares_chance
        self._steps, self._seconds, self._seed = settings.steps, settings.seconds, settings.seed
        self._stepping = 0.0  # seconds within the pool's step

    def checks(self) -> dict[str, Check]:
        """The checks; see `run_checks` for `needed`."""
        return {
            "making": self._making,
            "spaces": self._spaces,
            "results": self._results,
            "determinism": self._determinism,
            "seeds": self._seeds,
            "independence": self._independence,
            "autoreset": self._autoreset,
            "speed": self._speed,
            "close": self._close,
        }

    needed = ("making", "results")

    def _making(self) -> Iterator[Finding]:
        self._pool = self._made(2)
        agents = len(self._pool.specs.agents)
        text = f"a pool of 2 environments, {agents} agent{'s' * (agents > 1)} in each"
        yield Finding("making", "ok", text)

    def _spaces(self) -> Iterator[Finding]:
        specs = self._pool.specs
        yield from spaces_findings(specs.observation, specs.action)

    def _results(self) -> Iterator[Finding]:
        specs, agents = self._pool.specs, len(self._pool.specs.agents)
        masked = False
        for number, timestep in self._play(self._pool, self._seed):
            here = ~np.logical_or(timestep.terminated, timestep.truncated)
            for slot in range(2 * agents):
                observation = _part(timestep.observation, slot)
                texts = list(observation_errors(specs.observation, observation))
                if not np.isfinite(timestep.reward[slot]):
                    texts.append(f"the reward is not finite: {timestep.reward[slot]}")
                if (mask := _mask(observation)) is not None and here[slot]:
                    masked = True
                    if np.any(mask) or not _another_may_act(timestep, here, slot, agents):
                        texts.append(mask_error(mask, specs.action))
                if any(texts):
                    agent = f"environment {slot // agents}, {specs.agents[slot % agents]}"
                    step = timestep.episode_length[slot // agents]
                    when = f"step {step} of its episode, {number} steps after the first reset"
                    raise Fault(f"{agent}, {when}: {next(filter(None, texts))}")
        mask = ", masks allow an action" if masked else ""
        yield Finding("results", "ok", f"in their spaces and finite{mask}")

    def _determinism(self) -> Iterator[Finding]:
        with self._made(2) as other:
            expected = self._record(self._pool, self._seed)
            for pool, what in ((other, "another pool"), (self._pool, "the same pool again")):
                self._agree(expected, self._record(pool, self._seed), f"{what} with the same seed")
        text = f"the same seed and actions give the same {len(expected)} results"
        yield Finding("determinism", "ok", text)

    def _seeds(self) -> Iterator[Finding]:
        one, other = (self._record(self._pool, self._seed + i) for i in (0, 1))
        try:
            self._agree(one, other, "")
        except Fault:
            yield Finding("seeds", "ok", "two seeds give two episodes")
        else:
            text = "two seeds give the same episode: right if there is no chance in it"
            yield Finding("seeds", "warning", text)

    def _independence(self) -> Iterator[Finding]:
        """An environment's episode is the same with others beside it and without."""
        agents = len(self._pool.specs.agents)
        both = self._record(self._pool, self._seed)
        first = [_rows(timestep, 1, agents) for timestep in both]
        with self._made(1) as alone:
            others = self._record(alone, self._seed)
        try:
            self._agree(first, others, "environment 0 without the other")
        except _Rounding:
            text = (
                "alike but for rounding: results depend a little on how many are in a group, as "
                "where a compiler or a GPU steps all of them at once"
            )
            yield Finding("independence", "warning", text)
            return
        except Fault:
            if not self._shares_chance:
                raise
            text = "environments share their chance: results depend on how many are in a group"
            yield Finding("independence", "warning", text)
            return
        text = "an environment plays the same alone and next to another"
        yield Finding("independence", "ok", text)

    def _autoreset(self) -> Iterator[Finding]:
        agents, limit = len(self._pool.specs.agents), self._pool.specs.max_episode_steps
        over = np.zeros(2, bool)
        lengths: list[int] = []
        number = 0
        for number, timestep in self._play(self._pool, self._seed):
            begun = np.asarray(timestep.episode_length == 0)
            if number and (begun != over).any():
                raise Fault(f"step {number}: an episode's end and the next beginning do not meet")
            if timestep.reward.reshape(2, agents)[begun].any():
                raise Fault(f"step {number}: the first row of an episode has a reward")
            flags = np.logical_or(timestep.terminated, timestep.truncated)
            over = flags.reshape(2, agents).all(axis=1)
            lengths += timestep.episode_length[over].tolist()
        yield ends_finding("autoreset", lengths, number, limit, "give it one")

    def _speed(self) -> Iterator[Finding]:
        self._stepping = 0.0
        numbers = [number for number, _ in self._play(self._pool, None)]
        rate = self._pool.num_envs * numbers[-1] / self._stepping
        text = f"{rate:,.0f} env steps/s with 2 environments; srl bench pool measures more"
        yield Finding("speed", "ok", text)

    def _close(self) -> Iterator[Finding]:
        self._pool.close()
        failure = self._pool.close_failure
        yield Finding("close", "fix", failure) if failure else Finding("close", "ok", "works")

    def _made(self, num_envs: int) -> Pool:
        self._watch(making=True)
        return _guarded(lambda: self._make(num_envs))

    # ---- playing ----

    def _play(
        self, pool: Pool, seed: int | None, steps: int | None = None
    ) -> Iterator[tuple[int, Timestep]]:
        """Steps with actions that depend on the seed and the slot alone."""
        agents = len(pool.specs.agents)
        rngs = [np.random.default_rng([self._seed, slot]) for slot in range(pool.num_envs * agents)]
        end = time.perf_counter() + self._seconds
        self._watch()
        timestep = _guarded(lambda: pool.reset(seed))
        yield 0, timestep
        for number in range(1, (steps or self._steps) + 1):
            here = ~np.logical_or(timestep.terminated, timestep.truncated)
            actions = []
            for slot, rng in enumerate(rngs):
                mask = _mask(_part(timestep.observation, slot)) if here[slot] else None
                actions.append(draw_action(pool.specs.action, mask, rng))
            step = functools.partial(pool.step, map_tree(lambda *rows: np.stack(rows), *actions))
            self._watch()
            start = time.perf_counter()
            timestep = _guarded(step)
            self._stepping += time.perf_counter() - start
            yield number, timestep
            if steps is None and time.perf_counter() > end:
                return

    def _record(self, pool: Pool, seed: int) -> list[Timestep]:
        return [timestep for _, timestep in self._play(pool, seed, min(self._steps, 100))]

    def _agree(self, expected: list[Timestep], given: list[Timestep], what: str) -> None:
        for number, pair in enumerate(zip(expected, given, strict=True)):
            for name in ("observation", "reward", "terminated", "truncated"):
                one, other = (leaves_of(getattr(timestep, name)) for timestep in pair)
                if not all(map(np.array_equal, one, other)):
                    call = "the reset" if number == 0 else f"step {number}"
                    kind = _Rounding if all(map(_close, one, other)) else Fault
                    raise kind(f"{what} gives another {name} at {call}")


class _Rounding(Fault):
    """The first difference between two episodes is one of rounding."""


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype.kind == "f":
        return np.allclose(one, other, rtol=1e-5, atol=1e-5)
    return np.array_equal(one, other)


def _another_may_act(timestep: Timestep, here: np.ndarray, slot: int, agents: int) -> bool:
    """Tells if a mask allows an action of another agent: then it may be that agent's turn."""
    first = slot - slot % agents
    return any(
        here[other] and np.any(_mask(_part(timestep.observation, other)))
        for other in range(first, first + agents)
        if other != slot
    )


def _guarded(call: Callable[[], Any]) -> Any:
    """Gives the result of a call; a failure of the environment becomes a Fault."""
    try:
        return call()
    except RunError as error:
        raise Fault(str(error)) from error
    except UserError as error:
        if "not supported" in str(error):  # the spaces: to be fixed in the environment
            raise Fault(str(error)) from error
        raise


def _rows(timestep: Timestep, envs: int, agents: int) -> Timestep:
    first = (map_tree(lambda x: x[: envs * agents], tree) for tree in timestep[:5])
    return Timestep(*first, *(array[:envs] for array in timestep[5:]))


def _part(tree: Tree, slot: int) -> Tree:
    return map_tree(lambda x: np.asarray(x[slot]), tree)


def _mask(observation: Tree) -> Tree:
    return observation.get("action_mask") if isinstance(observation, dict) else None
