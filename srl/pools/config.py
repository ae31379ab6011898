"""An environment by its id together with options, as command lines and experiment files give it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from srl.errors import UserError
from srl.pools.pool import EnvConfig


@dataclass(frozen=True)
class NamedEnv(EnvConfig):
    """An environment by its id, with options: `NamedEnv("Taxi-v3", {"is_rainy": True})`."""

    id: str
    """What `make_pool` takes, such as CartPole-v1 or native:HideAndSeek-v1."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The environment's options by name: booleans, numbers and text."""

    @property
    def pool_id(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The id."""
        return self.id

    def options(self) -> dict[str, Any]:
        """The options that are set."""
        return dict(self.arguments)

    def __str__(self) -> str:
        """The id and the options, for messages."""
        settings = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.id}({settings})" if settings else self.id


def environment_options(words: Sequence[str]) -> dict[str, Any]:
    """`--scenario full --hiders 3` as {"scenario": "full", "hiders": 3}.

    Raises:
        UserError: If an option has no value.
    """
    if len(words) % 2 or any(not word.startswith("--") for word in words[::2]):
        raise UserError(f"{' '.join(words)!r} is not made of pairs --option value")
    return {
        name[2:].replace("-", "_"): _value(text)
        for name, text in zip(words[::2], words[1::2], strict=True)
    }


def _value(text: str) -> Any:
    """A flag or a number where the text is one."""
    try:
        value = json.loads(text.lower())
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
