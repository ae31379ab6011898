"""Sources of a pool's environments: ids, dotted paths and callables."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv

from srl.core.backends import BACKENDS, backend_of
from srl.core.errors import RunError, UserError, described
from srl.core.types import Specs
from srl.pools.memory_check import SAMPLE, Growth, check_memory
from srl.pools.python.closing import close_each
from srl.pools.python.gymnasium import GymnasiumSimulator
from srl.pools.python.ignoring import without_parts
from srl.pools.python.own_options import split_options
from srl.pools.python.pettingzoo import PettingZooSimulator, is_parallel_env
from srl.pools.python.simulator import Simulator
from srl.pools.python.world_state import with_world_state
from srl.pools.python.wrappers import wrapped

_VECTOR = "vector:"

SimulatorSource = str | Callable[..., Any]
"""An id of Gymnasium, a dotted path to a callable, or a callable that makes an environment."""


VectorMaker = Callable[..., VectorEnv]
"""Makes a vector environment of `num_envs`, given by this name, with the options."""


class UnknownOption(UserError):
    """An environment was given an option that it does not take."""


def source_name(source: SimulatorSource) -> str:
    """Names the environment in messages."""
    return source if isinstance(source, str) else getattr(source, "__name__", repr(source))


def check_effect(source: Any, given: dict[str, Any], reason: str) -> None:
    """Raises UserError for the first setting that is given and would have no effect."""
    for name, value in given.items():
        raise UserError(f"{name}={value} does nothing for {source_name(source)}, which {reason}")


def make_simulator(
    source: SimulatorSource, index: int, options: dict[str, Any], masked: bool | None = None
) -> Simulator:
    """Makes environment `index` of a pool.

    Args:
        source: What makes it.
        index: Its own.
        options: Passed on to it.
        masked: Whether it gives masks of allowed actions in its infos; None finds out.

    Raises:
        UserError: For an unknown id, a missing module, or what is no environment.
        UnknownOption: If it does not take one of the options.
        RunError: If making it raised, with the cause.
    """
    name, metrics = source_name(source), split_options(options)[1].metrics
    with explained_errors(f"environment {index}", source, options):
        made = make_environment(source, options)
        if is_parallel_env(made):
            return PettingZooSimulator(made, name, masked, metrics)
    if isinstance(made, gymnasium.Env):
        return GymnasiumSimulator(made, name, masked, metrics)
    raise UserError(
        f"{name} made {type(made).__name__}; expected a gymnasium.Env or a pettingzoo.ParallelEnv"
    )


def make_simulators(
    source: SimulatorSource, indices: range, options: dict[str, Any], num_envs: int
) -> list[Simulator]:
    """Makes some of a pool's environments, all alike; `num_envs` are in the whole pool.

    Raises:
        UserError: As `make_simulator`, if their spaces differ, or if memory is too small for all.
        RunError: If making one raised, with the cause.
    """
    made: list[Simulator] = []
    growth: Growth | None = None
    try:
        for index in indices:
            masked = made[0].masked if made else None
            made.append(make_simulator(source, index, options, masked))
            check_alike(made[0].specs, indices[0], made[-1].specs, index, source_name(source))
            if len(made) == 1 and len(indices) > SAMPLE:
                growth = Growth()  # what the first one loads is there for all
            elif growth is not None and len(made) == SAMPLE + 1:
                check_memory(source_name(source), num_envs, growth.nbytes, SAMPLE)
    except BaseException:
        close_each(source_name(source), [simulator.close for simulator in made])
        raise
    return made


def check_alike(first: Specs, first_index: int, other: Specs, index: int, name: str) -> None:
    """Raises UserError where two environments of a pool differ in what they give and take."""
    if found := difference(first, other):
        kind, mine, others = found
        raise UserError(
            f"{name}: environment {index} has {kind} {others}, but environment {first_index} "
            f"has {mine}; all copies must be alike"
        )


def difference(first: Specs, other: Specs) -> tuple[str, Any, Any] | None:
    """The first thing in which environments differ, by name, and what either has; None if alike."""
    for field in ("observation", "action", "agents", "agent_spaces", "statistics"):
        mine, others = getattr(first, field), getattr(other, field)
        if mine != others:
            return f"{field} space" if field in ("observation", "action") else field, mine, others
    return None


def make_environment(source: SimulatorSource, options: dict[str, Any]) -> Any:
    """Makes one environment, in the wrappers and without the parts that options name."""
    if made := made_already(source):
        raise UserError(f"the source is {made}")
    if not callable(source) and not isinstance(source, str):
        raise UserError(f"{source!r} is no environment; expected an id or a callable")
    maker = maker_of(source) if isinstance(source, str) else source
    own, chosen = split_options(options)
    made = wrapped(maker(**own), chosen.wrappers)
    if chosen.world_state:
        made = with_world_state(made, source_name(source))
    return without_parts(made, chosen.ignore, source_name(source))


def made_already(source: Any) -> str:
    """Describes an environment that stands where what makes one is expected; empty for others."""
    if isinstance(source, type):
        return ""
    vector = isinstance(source, VectorEnv)
    if not (vector or isinstance(source, gymnasium.Env) or is_parallel_env(source)):
        return ""
    id = getattr(getattr(source, "spec", None), "id", None)
    name = f'"{"vector:" * vector}{id}"' if id else "its id, or its class"
    return (
        f"an environment that is made already, {type(source).__name__}, and a pool makes many: "
        f"give {name}, or a function that makes one"
    )


@contextmanager
def explained_errors(what: str, source: SimulatorSource, options: dict[str, Any]) -> Iterator[None]:
    """Raises what `make_simulator` does, in place of errors of making something of a source."""
    name = source_name(source)
    try:
        yield
    except UserError:
        raise
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise UserError(f"{name!r} cannot be made: {error}") from error
    except (Exception, SystemExit) as error:
        refuse_options(error, source, options)
        raise RunError(f"{name}: making {what} raised {described(error)}") from error


def refuse_options(error: BaseException, source: SimulatorSource, options: dict[str, Any]) -> None:
    """Explains an error of making an environment by its options.

    Raises:
        UnknownOption: If it has no such option.
        UserError: If an option is missing.
    """
    if not isinstance(error, TypeError):
        return
    text, name = described(error), source_name(source)
    found = re.search(r"unexpected keyword argument '(\w+)'", text)
    if found and found[1] in options:
        hint = _hint(found[1], source)
        raise UnknownOption(f"{name} has no option {found[1]!r}; {hint}") from error
    names = r"arguments?: ('\w+'(?:(?:,|,? and) '\w+')*)"
    found = re.search(rf"missing \d+ required (?:positional|keyword-only) {names}", text)
    missing = re.findall(r"'(\w+)'", found[1]) if found else []
    if missing and set(missing) <= option_types(source).keys() - options.keys():
        values = ", ".join(f"{each}=..." for each in missing)
        flags = " ".join(f"--env.{each.replace('_', '-')} VALUE" for each in missing)
        raise UserError(
            f"{name} cannot be made without {' and '.join(missing)}: "
            + (
                f"give {flags}, or env=NamedEnv({name!r}, dict({values})) in a file"
                if isinstance(source, str)
                else f"give env=functools.partial({name}, {values})"
            )
        ) from error


def _hint(unknown: str, source: SimulatorSource) -> str:
    """The options that there are, the nearest first."""
    known = list(option_types(source))
    near = difflib.get_close_matches(unknown, known, 1, 0.5)
    if near:
        return f"did you mean {near[0]}?"
    return f"it has {', '.join(known)}" if known else "its signature names none"


def option_types(source: SimulatorSource) -> dict[str, Any]:
    """The options of what makes an environment, as far as its signature names them.

    Each has its annotation, or else what its default shows; None where neither is known.

    Raises:
        ModuleNotFoundError: If there is no such module.
        UserError: If there is no such environment.
    """
    maker: Any = source
    if isinstance(source, str):
        maker = _prefixed_maker(source) or named_maker(source.removeprefix(_VECTOR))
        if maker is None:
            spec = _spec(source)
            if spec is None:
                return {}
            maker = spec.vector_entry_point if vector_maker(source) else spec.entry_point
        if isinstance(maker, str):
            maker = load_env_creator(maker)
    try:
        parameters = _signature(maker).parameters.values()
    except ValueError:  # of a class that is written in C
        return {}
    fixed = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    options = {p.name: _type_of(p) for p in parameters if p.kind not in fixed}
    if vector_maker(source):
        del options["num_envs"]
    return options


def _signature(maker: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(maker, eval_str=True)
    except NameError:  # of an import for type checkers alone
        return inspect.signature(maker)


def _type_of(parameter: inspect.Parameter) -> Any:
    """Gives the type of a parameter; an integer as the default does not exclude other numbers."""
    if parameter.annotation is not inspect.Parameter.empty:
        return parameter.annotation
    return {bool: bool, int: int | float, float: float}.get(type(parameter.default))


def named_maker(source: str) -> Callable[..., Any] | None:
    """Finds the maker "module:factory" or "module.factory"; None for an id of Gymnasium's.

    Raises:
        ModuleNotFoundError: If there is no such module, or no such name in it.
    """
    if source in gymnasium.registry or not (
        parts := re.fullmatch(r"(\w+(?:\.\w+)*)([.:])(\w[\w-]*)", source)
    ):
        return None
    module, colon, name = parts[1], parts[2] == ":", parts[3]
    maker = getattr(importlib.import_module(module), name, None)
    if maker is None and colon:  # "module:Name-v0": importing the module registers the id
        return None
    if maker is None:
        raise ModuleNotFoundError(f"{module} has no {name}")
    return maker


def _prefixed_maker(source: str) -> Callable[..., Any] | None:
    """Finds the maker of an id by the prefix; None where its backend names no function for it."""
    module, _, function = backend_of(source).maker.partition(":")
    if not module:
        return None
    return getattr(importlib.import_module(module), function)(source.partition(":")[2])


def maker_of(source: str) -> Callable[..., Any]:
    """Finds the maker of an environment by an id or a dotted path; makes no environment.

    Raises:
        UserError: If it names nothing, with the nearest name that there is.
        ModuleNotFoundError: If there is no such module.
    """
    if maker := _prefixed_maker(source) or named_maker(source):
        return maker
    _expect_registered(source)

    def make(**options: Any) -> gymnasium.Env:
        # Pools check every observation and action themselves.
        return gymnasium.make(source, **{"disable_env_checker": True, **options})

    return make


def _expect_registered(source: str) -> None:
    """Raises UserError unless Gymnasium knows the id; a module that it names is imported."""
    module, _, name = source.rpartition(":")
    if module:
        importlib.import_module(module)
    known = list(gymnasium.registry)
    if name in known or any(other.startswith(f"{name}-v") for other in known):  # of any version
        return
    near = difflib.get_close_matches(name, known, 1, 0.7)
    if re.sub(r"-v\d+$", "", name) in {re.sub(r"-v\d+$", "", other) for other in known}:
        try:
            gymnasium.spec(name)  # which knows why this version is gone
        except gymnasium.error.Error as error:
            raise UserError(f"{source!r} cannot be made: {error}") from error
    if near:
        hint = f"did you mean {near[0]}?"
    elif module:
        hint = f"the module {module} has no such name either"
    else:
        hint = (
            "nor is there such a file; experiment files end in .py, and ids of others than "
            "Gymnasium have a prefix, as native:CartPole-v1 or my_module:MyEnv-v0"
        )
    raise UserError(f"Gymnasium has no environment {name!r}; {hint}")


def vector_maker(source: SimulatorSource) -> VectorMaker | None:
    """Gives the maker of a source's vector environment; None for a source of others.

    These sources have one: a game after "atari:"; an id or a dotted path after "vector:"; an id
    that is registered with a `vector_entry_point` alone; a callable with a parameter `num_envs`,
    or the dotted path to one.

    Raises:
        UserError: If the source after "vector:" makes no vector environment.
        ModuleNotFoundError: If there is no such module.
    """
    if not isinstance(source, str):
        return source if _takes_num_envs(source) else None
    asked = source.startswith(_VECTOR)
    name = source.removeprefix(_VECTOR)
    backend = backend_of(source)
    if backend.module != BACKENDS["vector"].module and backend is not BACKENDS[""]:
        return None
    if maker := _prefixed_maker(source):
        return maker
    if maker := named_maker(name):
        if _takes_num_envs(maker):
            return maker
        if asked:
            raise UserError(
                f"{source}: {name} has no parameter num_envs; it has to make a "
                "gymnasium.vector.VectorEnv of so many environments"
            )
        return None
    if asked:
        _expect_registered(name)
    spec = _spec(name)
    if spec is None or not (asked or spec.entry_point is None):
        return None
    if spec.vector_entry_point is None:
        raise UserError(
            f"{source}: {spec.id} is registered without a vector_entry_point; take {name}, of "
            "which a pool makes many"
        )

    def make(num_envs: int, **options: Any) -> VectorEnv:
        return gymnasium.make_vec(spec, num_envs, "vector_entry_point", **options)

    return make


def _spec(name: str) -> Any:
    """Gymnasium's entry for an id, whose module is imported; None if there is none."""
    module, _, id = name.removeprefix(_VECTOR).rpartition(":")
    if module:
        importlib.import_module(module)
    try:
        return gymnasium.spec(id)
    except gymnasium.error.Error:  # an id without a version, or an unknown one
        return None


def _takes_num_envs(maker: Any) -> bool:
    if inspect.isclass(maker):
        if issubclass(maker, gymnasium.Env):
            return False
        if issubclass(maker, VectorEnv):
            return True
    try:
        return "num_envs" in inspect.signature(maker).parameters
    except (TypeError, ValueError):  # not callable, or written in C
        return False
