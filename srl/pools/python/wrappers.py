"""Wrappers around environments: Gymnasium's, or any function of an environment, by their names."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from srl.core.errors import UserError

Wrapper = str | Callable[[Any], Any]
"""A callable that takes an environment and gives one, or a text that names it, with arguments if
need be: "GrayscaleObservation", "TimeLimit(max_episode_steps=100)", "my_module:MyWrapper"."""


def wrapped(env: Any, wrappers: Sequence[Wrapper], module: str = "gymnasium.wrappers") -> Any:
    """The environment in its wrappers.

    Args:
        env: Made already; closed if a wrapper raises.
        wrappers: The innermost first.
        module: That of names without one.

    Raises:
        UserError: If a text names no wrapper.
    """
    try:
        for wrapper in wrappers:
            env = (_named(wrapper, module) if isinstance(wrapper, str) else wrapper)(env)
    except BaseException:
        with suppress(Exception):
            env.close()
        raise
    return env


def _named(text: str, module: str) -> Callable[[Any], Any]:
    """Finds the wrapper that a text such as "my_module:MyWrapper(size=3)" names."""
    path, bracket, arguments = text.strip().partition("(")
    where, _, name = path.rpartition(":")
    given = _arguments(text, bracket + arguments) if bracket else {}
    try:
        found = getattr(importlib.import_module(where or module), name, None)
    except ModuleNotFoundError as error:
        raise UserError(f"wrapper {text!r}: {error}") from error
    if not callable(found):
        raise UserError(f"wrapper {text!r}: {where or module} has no {name or path!r}")
    return lambda env: found(env, **given)


def _arguments(text: str, call: str) -> dict[str, Any]:
    """The arguments of a call such as "(size=3)"; they are literals."""
    try:
        node = ast.parse(f"_{call}", mode="eval").body
        if isinstance(node, ast.Call) and not node.args:
            return {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
        raise ValueError(call)
    except (SyntaxError, ValueError):
        raise UserError(
            f"wrapper {text!r}: expected NAME(name=value, ...) with numbers, texts and tuples"
        ) from None
