"""Options of environments in Python that are srl's own, and not passed on to the environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from srl.core.errors import UserError
from srl.pools.python.world_state import asked_for_state
from srl.pools.python.wrappers import Wrapper

OPTIONS = ("wrappers", "metrics", "ignore", "world_state")
"""Their names."""


@dataclass(frozen=True)
class OwnOptions:
    """The values of these options."""

    wrappers: Sequence[Wrapper] = ()
    """Wrappers, the innermost first."""
    metrics: tuple[str, ...] = ()
    """Numbers in infos that are statistics of an episode."""
    ignore: tuple[str, ...] = ()
    """Parts of Dict observations that are left out."""
    world_state: bool = False
    """True if each agent of several observes the state of their environment, too."""


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], OwnOptions]:
    """The options of the environment itself, and srl's.

    Raises:
        UserError: If one of srl's has another type.
    """
    options = dict(options)
    world_state = asked_for_state(options)
    own = {name: value for name, value in options.items() if name not in OPTIONS}
    wrappers = options.get("wrappers", ())
    if not isinstance(wrappers, Sequence) or isinstance(wrappers, str):
        raise UserError(f"wrappers is {wrappers!r}; expected a list of wrappers, innermost first")
    lists = {name: names_in(name, options.get(name, ())) for name in ("metrics", "ignore")}
    return own, OwnOptions(wrappers, **lists, world_state=world_state)


def names_in(option: str, given: Any) -> tuple[str, ...]:
    """The names in a list, or in a text between commas.

    Raises:
        UserError: If there are none; `option` is what messages call it.
    """
    listed = given.split(",") if isinstance(given, str) else given
    good = isinstance(listed, list | tuple) and all(isinstance(x, str) and x for x in listed)
    if not good:
        raise UserError(f"{option} is {given!r}; expected a list of names, or names between commas")
    return tuple(dict.fromkeys(listed))
