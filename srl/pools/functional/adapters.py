"""Environments of other libraries as functional environments, and what ids name.

`jax:gymnax:CartPole-v1`, `jax:playground:CheetahRun`, `jax:jumanji:Snake-v1`, `jax:jaxmarl:SMAX`,
`jax:brax:ant`, and `jax:module:maker`, whose maker gives an environment. Each library has a file.
"""

from __future__ import annotations

import importlib
from typing import Any

from srl.core.errors import RunError, UserError, described
from srl.pools.functional.environment import FunctionalEnv
from srl.pools.functional.library import PREFIX

LIBRARIES = {
    "gymnax": "Gymnax",
    "brax": "Brax",
    "jumanji": "Jumanji",
    "jaxmarl": "JaxMARL",
    "playground": "Playground",
}
"""The adapter's class of each library, in the module of this package with the library's name."""


def make_functional(name: str, options: dict[str, Any]) -> FunctionalEnv:
    """The environment of an id without its prefix.

    Args:
        name: Such as gymnax:CartPole-v1.
        options: Of the environment.

    Raises:
        UserError: If there is none of this name, or it does not take an option.
        RunError: If making it raised.
    """
    library, _, own = name.partition(":")
    if not own:
        raise UserError(
            f"{PREFIX}{name} names no environment; expected {PREFIX}gymnax:CartPole-v1, "
            f"{PREFIX}playground:CheetahRun or {PREFIX}module:maker"
        )
    if library in LIBRARIES:
        adapter = importlib.import_module(f"{__package__}.{library}")
        return getattr(adapter, LIBRARIES[library])(own, options)
    try:
        maker = getattr(importlib.import_module(library), own)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{PREFIX}{name} cannot be made: {error}") from error
    try:
        return maker(**options)
    except TypeError as error:
        raise UserError(f"{PREFIX}{name} does not take these options: {error}") from error
    except (Exception, SystemExit) as error:
        raise RunError(f"{PREFIX}{name}: making it raised {described(error)}") from error
