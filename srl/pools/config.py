"""Configurations of environments, as experiment files and command lines give them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from srl.core.backends import task_ids
from srl.core.errors import UserError
from srl.core.field_types import read, text_types
from srl.core.settings import Settings
from srl.core.types import Timestep
from srl.pools.pool import Pool


@dataclass(frozen=True)
class Contest:
    """The statistic that measures how a game between two kinds of agents goes."""

    statistic: str
    """The name of one of the environment's statistics."""
    meaning: str
    """A description of the statistic."""
    raised_by: str
    """The kind of agents with the aim to raise it: hider, of hider_0 and hider_1."""
    raising: str
    """The verb for their action against the others: evade."""
    lowered_by: str
    """The kind with the aim to lower it: seeker."""
    lowering: str
    """The verb for their action: catch."""


class Painter(Protocol):
    """Pictures of environments that have none of their own."""

    @property
    def frames_per_second(self) -> float:
        """The rate that a person can follow, with a picture for each step."""
        ...

    def paint(self, pool: Pool, env_id: int, timestep: Timestep) -> np.ndarray:
        """A picture of an environment as it stands, uint8 [height, width, 3].

        Args:
            pool: Of this kind of environment.
            env_id: The environment.
            timestep: The pool's last.
        """
        ...

    def close(self) -> None:
        """Frees what painting needs."""


class Animation(Protocol):
    """A drawing that moves, collected step by step."""

    def add(self, pool: Pool, env_id: int, timestep: Timestep) -> None:
        """Takes the next step of an environment, as `Painter.paint` does."""

    def text(self) -> str:
        """The SVG file."""
        ...


class Recorder(Protocol):
    """Recording of an environment for a page in a browser (`srl watch`)."""

    @property
    def script(self) -> Path:
        """JavaScript that shows what was recorded; docs/seeing.md lists what it has to define."""
        ...

    def record(self, pool: Pool, env_id: int, timestep: Timestep) -> Mapping[str, np.ndarray]:
        """Named numbers of an environment as it stands; floats are kept to three decimals.

        Names and shapes are the same at all steps of an episode.

        Args:
            pool: Of this kind of environment.
            env_id: The environment.
            timestep: The pool's last.
        """
        ...


@dataclass(frozen=True)
class EnvConfig(Settings):
    """Base of environment configurations such as `HideAndSeek(scenario="full")`.

    Its fields are the environment's options; None leaves one to the environment.
    """

    pool_id: ClassVar[str]
    """The id for `make_pool`, such as native:HideAndSeek-v1."""
    contest: ClassVar[Contest | None] = None
    """The measure for comparing teams in evaluations; by default their returns."""
    statistics: ClassVar[Mapping[str, str]] = {}
    """Descriptions of the environment's statistics, by name, with their units."""

    @classmethod
    def painter(cls, drawing: bool = False, camera: str | None = None) -> Painter | None:
        """Gives the painter of the environment for videos, if there is one.

        Args:
            drawing: Ask for a drawing, which is quick and needs no OpenGL, where there is one.
            camera: The name of a view that the environment has.

        Raises:
            UserError: If there is no such camera.
        """
        return None

    @classmethod
    def animation(cls) -> Animation | None:
        """Gives the animation of the environment as one SVG file, if there is one."""
        return None

    @classmethod
    def recorder(cls) -> Recorder | None:
        """Gives the recorder of the environment for a browser, if there is one."""
        return None

    @property
    def tasks_of_mixture(self) -> tuple[Any, ...]:
        """The environments of a mixture's tasks; none of another environment."""
        return tuple(task_ids(self.pool_id).values())

    def options(self) -> dict[str, Any]:
        """The options that are set."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def with_options(self, options: Mapping[str, Any]) -> EnvConfig:
        """Gives the configuration with some options changed.

        Raises:
            UserError: For an option that there is not.
        """
        known = [field.name for field in fields(self)]
        if unknown := [name for name in options if name not in known]:
            raise UserError(
                f"{type(self).__name__} has no option {unknown[0]!r}; it has {', '.join(known)}"
            )
        return replace(self, **options)


@dataclass(frozen=True)
class NamedEnv(EnvConfig):
    """An environment by its id, with options: `NamedEnv("Taxi-v3", {"is_rainy": True})`."""

    id: str
    """The id for `make_pool`, such as CartPole-v1 or native:HideAndSeek-v1."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The environment's options by name: booleans, numbers and text."""

    @property
    def pool_id(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The id."""
        return self.id

    def options(self) -> dict[str, Any]:
        """The options that are set."""
        return dict(self.arguments)

    def with_options(self, options: Mapping[str, Any]) -> NamedEnv:
        """Gives the environment with some options changed, which are checked as it is made."""
        return replace(self, arguments={**self.arguments, **options})

    def __str__(self) -> str:
        """The id and the options, for messages."""
        settings = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.id}({settings})" if settings else self.id


def with_options(setting: str, env: Any, options: Mapping[str, Any]) -> Any:
    """Gives an environment with some options changed.

    Args:
        setting: The setting that gives them, for messages.
        env: An id, a configuration, or a callable.
        options: By name.

    Raises:
        UserError: If it has no such option.
    """
    if not options:
        return env
    env = NamedEnv(env) if isinstance(env, str) else env
    if not isinstance(env, EnvConfig):
        raise UserError(
            f"{setting}: the environment is a function, which has no options; name it by an id "
            "such as module:Name-v0"
        )
    try:
        return env.with_options(options)
    except UserError as error:
        raise UserError(f"{setting}: {error}") from None


def environment_options(
    arguments: Sequence[str], types: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`--env.scenario full --env.hiders=3` as {"scenario": "full", "hiders": 3}.

    The prefix may be left out, where no other options can be meant. `--env.wrappers` may be given
    several times, the innermost first, as may `--env.metrics` and `--env.ignore`, or with commas.

    Args:
        arguments: The options.
        types: Annotations of options, as far as they are known; the text of any other is taken for
            a flag or a number where it is one.

    Raises:
        UserError: If an option has no value, or one that its type does not allow.
    """
    options: dict[str, Any] = {}
    rest = iter(arguments)
    for argument in rest:
        flag, has_value, text = argument.partition("=")
        if not flag.startswith("--"):
            raise UserError(
                f"not expected: {argument}; options of the environment are --env.NAME VALUE"
            )
        text = text if has_value else next(rest, "--")
        if not has_value and text.startswith("--"):
            raise UserError(f"{flag} has no value; give {flag} VALUE")
        name = flag[2:].removeprefix("env.").replace("-", "_")
        if name in ("wrappers", "metrics", "ignore"):
            more = [text] if name == "wrappers" else text.split(",")
            options[name] = (*options.get(name, ()), *more)
            continue
        annotation = (types or {}).get(name)
        try:
            options[name] = read(annotation, text) if text_types(annotation) else _value(text)
        except ValueError as error:
            raise UserError(f"{flag} is {text!r}; expected {error}") from None
    return options


def _value(text: str) -> Any:
    """A flag or a number where the text is one."""
    try:
        value = json.loads(text.lower())
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
