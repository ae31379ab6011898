"""The promises of one environment written in Python."""

from __future__ import annotations

import copy
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from srl.core.console.number_text import number_text
from srl.core.errors import UserError, described
from srl.extras.check_env.report import (
    Check,
    Fault,
    Finding,
    Settings,
    Watch,
    draw_action,
    ends_finding,
    flag_error,
    mask_error,
    observation_errors,
    reward_error,
    spaces_findings,
)
from srl.pools.python.gymnasium import space_of
from srl.pools.python.masks import mask_method
from srl.pools.python.simulator import signature_hint
from srl.pools.timestep_arrays import empty_observation

SLOW = 5_000
"""Steps per second below which a process of its own for some environments pays."""


class Result(NamedTuple):
    """A copy of the result of a reset or a step."""

    observation: Any
    reward: Any = 0.0
    terminated: Any = False
    truncated: Any = False
    mask: Any = None

    @property
    def ended(self) -> bool:
        """True if the episode is over."""
        return bool(self.terminated) or bool(self.truncated)


class Subject:
    """An environment whose calls are guarded: what it raises becomes a Fault."""

    def __init__(self, make: Callable[[], Any], watch: Watch) -> None:
        self._watch = watch
        self.env: Any = self._guarded("making the environment", make)
        if not isinstance(self.env, gymnasium.Env):
            raise Fault(f"what was made is {type(self.env).__name__}; expected a gymnasium.Env")
        try:
            self.observation_space = space_of(self.env, "observation_space")
            self.action_space = space_of(self.env, "action_space")
            self._masks = mask_method(self.env, self.action_space, "the environment")
        except UserError as error:
            raise Fault(str(error)) from error
        self.steps, self.episode = 0, 0  # of the episode, and which since a seed was given
        self.raw: Any = None  # the last observation, the environment's own object

    def reset(self, seed: int | None = None) -> Result:
        """Starts an episode."""
        given = self._guarded("reset", lambda: self.env.reset(seed=seed))
        self.steps, self.episode = 0, self.episode + 1 if seed is None else 1
        if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], dict)):
            raise Fault(f"reset gave {_shape_of(given)}; expected (observation, info)")
        return self._result(given[0], info=given[1])

    def step(self, action: Any) -> Result:
        """Acts once."""
        self.steps += 1
        given = self._guarded(self.where, lambda: self.env.step(action))
        if not (isinstance(given, tuple) and len(given) == 5 and isinstance(given[4], dict)):
            raise Fault(
                f"step gave {_shape_of(given)}; expected (observation, reward, terminated, "
                "truncated, info)"
            )
        return self._result(*given[:4], info=given[4])

    @property
    def where(self) -> str:
        """The call that was last begun."""
        return _call(self.steps, self.episode)

    def close(self) -> None:
        """Ends the environment."""
        self._guarded("close", self.env.close)

    def _result(self, observation: Any, *rest: Any, info: dict[str, Any]) -> Result:
        self.raw = observation
        mask = info.get("action_mask")
        if isinstance(observation, dict) and "action_mask" in observation:
            mask = observation["action_mask"]
        elif self._masks is not None:
            mask = self._guarded("action_masks", self._masks)
        values = [*rest, *(0.0, False, False)[len(rest) :]]
        return Result(*copy.deepcopy([observation, *values, mask]))

    def _guarded(self, call: str, body: Callable[[], Any]) -> Any:
        self._watch(making=call.startswith("making"))
        try:
            return body()
        except UserError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.filename}, line {last.lineno}"
            text = f"{described(error)} ({where}){signature_hint(call, error)}"
            raise Fault(f"{call} raised {text}") from error


class GymnasiumChecks:
    """Checks of an environment, by name, in the order in which they make sense."""

    def __init__(self, make: Callable[[], Any], settings: Settings, watch: Watch) -> None:
        """Prepares the checks; `make` makes a copy of the environment."""
        self._make, self._watch = make, watch
        self._steps, self._seconds, self._seed = settings.steps, settings.seconds, settings.seed
        self._alike = True  # what a seed gives is the same again

    def checks(self) -> dict[str, Check]:
        """The checks; see `run_checks` for `needed`."""
        return {
            "making": self._making,
            "spaces": self._spaces,
            "results": self._results,
            "determinism": self._determinism,
            "seeds": self._seeds,
            "independence": self._independence,
            "fresh arrays": self._fresh_arrays,
            "episode end": self._episode_end,
            "reset": self._reset,
            "speed": self._speed,
            "close": self._close,
        }

    needed = ("making", "spaces", "results")

    def _making(self) -> Iterator[Finding]:
        self._one, self._two = (Subject(self._make, self._watch) for _ in range(2))
        self.name = getattr(self._one.env.spec, "id", None) or type(self._one.env).__name__
        for kind in ("observation_space", "action_space"):
            one, two = (getattr(subject, kind) for subject in (self._one, self._two))
            if one != two:
                raise Fault(f"two copies have {kind} {one} and {two}; all copies must be alike")
        yield Finding("making", "ok", f"two copies of {self.name}")

    def _spaces(self) -> Iterator[Finding]:
        space = self._one.observation_space
        try:
            empty_observation(space, (1,))
        except (UserError, AssertionError) as error:
            raise Fault(str(error) or f"observation space {space} is incomplete") from error
        yield from spaces_findings(space, self._one.action_space)

    def _results(self) -> Iterator[Finding]:
        """Shapes, types, bounds, masks, of all that is given."""
        seen: dict[str, str] = {}  # the first text of each kind
        masked = False
        space, one = self._one.observation_space, self._one
        for _, result in self._play(one, self._seed):
            texts = [*observation_errors(space, result.observation), reward_error(result.reward)]
            texts += [flag_error("terminated", result.terminated)]
            texts += [flag_error("truncated", result.truncated)]
            if result.mask is not None:
                masked = True
                texts.append(mask_error(result.mask, one.action_space))
            for text in filter(None, texts):
                seen.setdefault(" ".join(text.split()[:3]), f"{one.where}: {text}")
            if any(texts):
                break  # the values are no longer to be relied on
        for text in seen.values():
            yield Finding("results", "fix", text)
        if not seen:
            mask = ", masks allow an action" if masked else ""
            yield Finding("results", "ok", f"in their spaces, finite, of the right types{mask}")

    def _determinism(self) -> Iterator[Finding]:
        expected = self._record(self._one, self._seed)
        for subject, what in ((self._one, "the same copy again"), (self._two, "another copy")):
            given = self._record(subject, self._seed)
            for number, (a, b) in enumerate(zip(expected, given, strict=False)):
                if (differs := _difference(a, b)) is not None:
                    self._alike = False
                    ends = [place for place in range(number) if expected[place].ended]
                    call = _call(number - (ends[-1] + 1 if ends else 0), len(ends) + 1)
                    raise Fault(
                        f"with the same seed and actions {what} gives another {differs} at {call}; "
                        "take all chance from self.np_random, which super().reset(seed=seed) "
                        "seeds, and let reset restore everything"
                    )
        text = f"the same seed and actions give the same {len(expected)} results"
        yield Finding("determinism", "ok", text)

    def _seeds(self) -> Iterator[Finding]:
        if not self._alike:
            return
        one, other = (self._record(self._one, self._seed + i) for i in (0, 1))
        if all(_difference(a, b) is None for a, b in zip(one, other, strict=False)):
            text = "two seeds give the same episode: right if it has no chance in it, else pass"
            yield Finding("seeds", "warning", f"{text} the seed on: super().reset(seed=seed)")
        else:
            yield Finding("seeds", "ok", "two seeds give two episodes")

    def _independence(self) -> Iterator[Finding]:
        if not self._alike:
            return
        expected = self._record(self._one, self._seed)
        first = self._one.reset(self._seed)
        other = self._two.reset(self._seed + 1)
        rng, other_rng = self._rngs()
        for number, wanted in enumerate(expected):
            if (differs := _difference(wanted, first)) is not None:
                raise Fault(
                    f"stepping one copy moves the other: another {differs} after {number} steps; "
                    "look for state in class attributes, module globals or shared files"
                )
            if wanted.ended or number + 1 == len(expected):
                break
            first = self._one.step(draw_action(self._one.action_space, first.mask, rng))
            if other.ended:
                other = self._two.reset()
            else:
                action = draw_action(self._two.action_space, other.mask, other_rng)
                other = self._two.step(action)
        yield Finding("independence", "ok", "two copies stepped in turns do not meet")

    def _fresh_arrays(self) -> Iterator[Finding]:
        """Checks that later steps leave an observation unchanged."""
        held, before = (None, None), ""
        for _, result in self._play(self._one, self._seed, 50):
            if not _same(*held):
                raise Fault(
                    f"the observation of {before} changes in {self._one.where}: an array is used "
                    "again; return a copy of it"
                )
            held, before = (self._one.raw, result.observation), self._one.where
        yield Finding("fresh arrays", "ok", "observations stay as they were given")

    def _episode_end(self) -> Iterator[Finding]:
        limit = getattr(self._one.env.spec, "max_episode_steps", None)
        lengths: list[int] = []
        began = number = 0
        for number, result in self._play(self._one, self._seed):
            if result.ended:
                lengths.append(number - began)
                began = number
        advice = "set max_episode_steps when registering it, or gymnasium.wrappers.TimeLimit"
        yield ends_finding("episode end", lengths, number, limit, advice)

    def _reset(self) -> Iterator[Finding]:
        """Checks that a reset gives a fresh episode, in the middle of one and after its end."""
        subject = self._one
        fresh = subject.reset(self._seed)
        subject.step(draw_action(subject.action_space, fresh.mask, self._rngs()[0]))
        again = {"in the middle of an episode": subject.reset(self._seed)}
        for _, result in self._play(subject, self._seed):
            if result.ended:
                again["after an episode's end"] = subject.reset(self._seed)
                break
        for where, result in again.items():
            if self._alike and (differs := _difference(fresh, result)) is not None:
                raise Fault(
                    f"reset(seed={self._seed}) {where} gives another {differs} than at first; let "
                    "reset restore everything"
                )
        yield Finding("reset", "ok", f"begins afresh {' and '.join(again)}")

    def _speed(self) -> Iterator[Finding]:
        """Steps and resets, timed apart."""
        times: dict[bool, list[float]] = {True: [], False: []}
        last = time.perf_counter()
        for _ in self._play(self._one, self._seed):
            now = time.perf_counter()
            times[self._one.steps == 0].append(now - last)
            last = now
        step, reset = (float(np.median(times[kind])) for kind in (False, True))
        each, one_reset = (number_text(seconds * 1e3, digits=2) for seconds in (step, reset))
        text = f"{1 / step:,.0f} steps/s ({each} ms each), a reset {one_reset} ms"
        if 1 / step < SLOW:
            text += "; step it in worker processes: make_pool(..., workers=N)"
        yield Finding("speed", "ok", text)

    def _close(self) -> Iterator[Finding]:
        for subject in (self._one, self._two):
            subject.close()
        yield Finding("close", "ok", "works")

    # ---- playing ----

    def _rngs(self) -> tuple[np.random.Generator, np.random.Generator]:
        return np.random.default_rng(self._seed), np.random.default_rng(self._seed + 1)

    def _play(
        self, subject: Subject, seed: int, steps: int | None = None
    ) -> Iterator[tuple[int, Result]]:
        """Episodes one after the other: steps so far, and the result."""
        rng, _ = self._rngs()
        end = time.perf_counter() + self._seconds
        result = subject.reset(seed)
        yield 0, result
        for number in range(1, (steps or self._steps) + 1):
            if result.ended:
                result = subject.reset()
                yield number - 1, result
            result = subject.step(draw_action(subject.action_space, result.mask, rng))
            yield number, result
            if time.perf_counter() > end:
                return

    def _record(self, subject: Subject, seed: int) -> list[Result]:
        return [result for _, result in self._play(subject, seed, min(self._steps, 200))]


def _call(step: int, episode: int) -> str:
    """Names a reset or a step in messages."""
    return f"step {step} of episode {episode}" if step else f"the reset of episode {episode}"


def _difference(one: Result, other: Result) -> str | None:
    """The first field in which two results differ."""
    for name in Result._fields:
        if not _same(getattr(one, name), getattr(other, name)):
            return name
    return None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return isinstance(other, dict) and all(_same(one[k], other.get(k)) for k in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    return np.array_equal(np.asarray(one), np.asarray(other))


def _shape_of(given: Any) -> str:
    if isinstance(given, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in given)}"
    return type(given).__name__
