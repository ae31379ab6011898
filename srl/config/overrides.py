"""Fields of an experiment set from the command line."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args

from srl.algorithms import ALGORITHMS
from srl.core.backends import backend_of
from srl.core.console.arguments import wrapped
from srl.core.errors import UserError, nearest
from srl.core.field_types import FromText, item_count, item_type, read, text_types
from srl.core.other_names import unknown_option
from srl.core.schedule import Schedule
from srl.core.settings import setting_types
from srl.dataflow.plan import Plan
from srl.dataflow.plans import PLANS, resolve
from srl.pools import NamedEnv
from srl.pools.config import environment_options
from srl.pools.mixture import Mixture
from srl.pools.python.sources import option_types

if TYPE_CHECKING:
    from srl.config.experiment import Experiment

    Chosen = tuple[Experiment, list[str]]
    """The experiment, and the arguments that are left."""

Path = tuple[str, ...]  # names of fields, and keys of mappings, from the experiment inwards


@dataclasses.dataclass(frozen=True)
class Option:
    """A command-line option, which sets one field."""

    path: Path
    annotation: Any
    value: Any

    @property
    def flag(self) -> str:
        """Such as --algorithm.learning-rate."""
        return _flag(self.path)

    @property
    def off(self) -> str | None:
        """The flag that turns a switch off, such as --algorithm.no-anneal."""
        *outer, name = self.path
        return _flag((*outer, f"no-{name}")) if self.annotation is bool else None


def override(
    value: Experiment, arguments: Sequence[str], flags: Sequence[str] = (), *, here: bool = True
) -> Experiment:
    """`value` with the fields replaced that arguments such as `--algorithm.learning-rate 3e-4` set.

    Args:
        value: The experiment.
        arguments: These, each with its value.
        flags: Options of the command itself, which may be meant by a wrong one.
        here: Whether this machine runs it; see `resolve`.

    Raises:
        UserError: Naming the argument that is wrong, and the nearest right one.
    """
    value, arguments = _choose_plan(value, arguments, here=here)
    value, arguments = _choose_algorithm(value, arguments)
    value, arguments = _choose_environment(value, arguments)
    value, arguments = _choose_evaluation_options(value, arguments)
    given = _read(value, arguments, flags)
    if ("env_steps",) in given and ("updates",) in given:
        raise UserError("--env-steps and --updates were both given; give the one that ends the run")
    if ("env_steps",) in given and value.updates is not None:
        given[("updates",)] = None
    return _replaced(value, given)


def _read(
    value: Experiment, arguments: Sequence[str], flags: Sequence[str] = ()
) -> dict[Path, Any]:
    """The values that arguments set, by the fields' paths; see `override`."""
    known = {option.flag: option for option in _options(value)}
    off = {option.off: option for option in known.values() if option.off}
    given: dict[Path, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        flag, has_value, text = argument.partition("=")
        flag = flag.replace("_", "-")
        if not flag.startswith("--"):
            raise UserError(
                f"not expected: {argument}; a switch is --NAME or --no-NAME, other options take a "
                "value"
            )
        if flag in off:
            if has_value:
                raise UserError(f"{flag} takes no value; give it alone, or {off[flag].flag}={text}")
            given[off[flag].path] = False
            continue
        if flag not in known:
            raise UserError(_unknown(value, flag, [*known, *off, *flags]))
        if has_value:
            rest.insert(0, text)
        given[known[flag].path] = _take(known[flag], rest, after_equals=bool(has_value))
    return given


def _take(option: Option, rest: list[str], *, after_equals: bool) -> Any:
    """Takes an option's value out of the arguments that follow it."""
    following = list(itertools.takewhile(lambda text: not text.startswith("--"), rest))
    following = rest[:1] if after_equals else following
    if option.annotation is bool and not after_equals:
        if not following or following[0].lower() not in ("true", "false"):
            return True
    if not following:
        raise UserError(f"{option.flag} has no value; give {option.flag} {_metavar(option)}")
    many = item_type(option.annotation)
    taken, count = following if many else following[:1], item_count(option.annotation)
    given = " ".join(taken)
    cure = "; put spaces between its values, not commas" if many and "," in given else ""
    if count and len(taken) != count:
        raise UserError(
            f"{option.flag} is {given!r}; expected {count} values: {_metavar(option)}{cure}"
        )
    del rest[: len(taken)]
    kind, annotation = many or (None, option.annotation)
    if kind and not count and taken == ["none"]:
        return kind()
    try:
        values = [read(annotation, text) for text in taken]
    except ValueError as error:
        raise UserError(f"{option.flag} is {given!r}; expected {error}{cure}") from None
    return kind(values) if kind else values[0]


def _unknown(value: Experiment, flag: str, known: list[str]) -> str:
    """The error text for a flag that is none of an experiment's options."""
    whole: Any = value
    names = flag.removeprefix("--").replace("-", "_").split(".")
    name = names[0]
    for name in names:
        part = dict(_items(whole)).get(name) if _is_nested(whole) else None
        if part is None:
            break
        if callable(part) and not _is_nested(part):
            return f"{name} is a function; change it in the experiment file"
        whole = part
    else:
        if parts := [option.flag for option in _options(whole, tuple(names))]:
            return f"{flag} alone sets nothing; give a part of it, such as {parts[0]}"
    if names[0] == "plan" and value.plan == "auto":
        return f"{flag} with --plan auto, which chooses such numbers itself; give one of the two"
    others = [other for other in PLANS if name in PLANS[other]().fragments]
    if isinstance(whole, Plan) and others:
        there = f"the plan {whole.name} has {', '.join(whole.fragments)}"
        return f"unknown option {flag}; {there}: take --plan {' or '.join(others)}"
    if names[0] in _names(type(value)) and not any(k.startswith(_flag((names[0],))) for k in known):
        return f"{flag} is no option; give {names[0]} in an experiment file"
    plain = getattr(type(whole), name, None)
    if name == names[-1] and isinstance(plain, bool | int | float | str):
        return (
            f"{type(whole).__name__}.{name} has no type annotation, and so is no setting: write "
            f"`{name}: {type(plain).__name__} = {plain!r}`"
        )
    owners = [k.__name__ for k in ALGORITHMS if names[0] == "algorithm" and name in _names(k)]
    if len(names) > 1 and owners and name == names[1]:
        return (
            f"{_flag(('algorithm', name))} is a setting of {', '.join(owners)}, and not of "
            f"{type(whole).__name__}"
        )
    otherwise = "--help lists what there is"
    if len(names) == 1 and isinstance(value.env, str | NamedEnv):
        otherwise = f"an option of the environment is --env.{flag[2:]}; {otherwise}"
    return unknown_option(flag, known, otherwise)


def _names(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def split(
    arguments: Sequence[str], wanted: Callable[[str], bool]
) -> tuple[list[tuple[str, str]], list[str]]:
    """The options whose flags are wanted, each with its value, and all other arguments.

    Raises:
        UserError: If one of these options has no value.
    """
    given: list[tuple[str, str]] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        flag, has_value, value = argument.partition("=")
        if not wanted(flag.replace("_", "-")):
            others.append(argument)
            continue
        value = value if has_value else next(rest, "--")
        if not has_value and value.startswith("--"):
            raise UserError(f"{flag} has no value; give {flag} VALUE")
        given.append((flag, value))
    return given, others


def setting_type(value: Any, flag: str) -> Any:
    """The type of the setting that a flag sets; None where there is none, or it is not known."""
    return next((option.annotation for option in _options(value) if option.flag == flag), None)


def without(arguments: Sequence[str], *options: str) -> list[str]:
    """The arguments without these options, such as --plan, and their values."""
    return split(arguments, options.__contains__)[1]


def _choose_plan(value: Experiment, arguments: Sequence[str], *, here: bool) -> Chosen:
    """Makes the plan, `--plan NAME` or the experiment's, a value whose options may be given."""
    given, others = split(arguments, lambda flag: flag == "--plan")
    name = given[-1][1] if given else value.plan
    decided = resolve(name, _divided(value, arguments), here=here)
    return dataclasses.replace(value, plan=decided), others


_DIVIDING = {"--env", "--num-envs", "--groups", "--max-staleness", "--workers", "--self-play.past"}
"""The options on which the usual plan of an experiment depends."""


def _divided(value: Experiment, arguments: Sequence[str]) -> Experiment:
    """The experiment with the environments that the arguments name, which its usual plan needs.

    What is wrong with their values is reported later, as of all options.
    """
    with suppress(UserError):
        given, _ = split(arguments, _DIVIDING.__contains__)
        value, rest = _choose_environment(value, [f"{flag}={text}" for flag, text in given])
        value = _replaced(value, _read(value, rest))
    return value


def _choose_algorithm(value: Experiment, arguments: Sequence[str]) -> Chosen:
    """Applies `--algorithm NAME`; options of the algorithm then fit that one."""
    given, others = split(arguments, lambda flag: flag == "--algorithm")
    for _, name in given:
        kinds = {kind.__name__.lower(): kind for kind in ALGORITHMS}
        plain = name.lower().replace("_", "").replace("-", "")
        if plain not in kinds:
            raise UserError(f"there is no algorithm {name!r}; {nearest(plain, kinds)}")
        kind = kinds[plain]
        if type(value.algorithm) is not kind:
            value = dataclasses.replace(value, algorithm=kind())
    return value, others


def _choose_environment(value: Experiment, arguments: Sequence[str]) -> Chosen:
    """Applies `--env ID` and `--env.OPTION VALUE` where the environment is an id.

    Of an option whose type the environment's signature does not show, the text is read as
    `srl check-env` reads it. Options that the experiment has stay unless another id is given.
    """
    env = value.env
    if isinstance(env, Mixture):
        return _choose_mixture(value, env, arguments)
    if not isinstance(env, str | NamedEnv):
        return value, list(arguments)
    name, options = (env, {}) if isinstance(env, str) else (env.id, env.options())
    settings: list[str] = []
    given, others = split(arguments, lambda flag: flag == "--env" or flag.startswith("--env."))
    for flag, text in given:
        if flag == "--env":
            name, options = text, options if text == name else {}
        else:
            settings.append(f"{flag}={text}")
    options |= environment_options(settings, _option_types(name) if settings else None)
    chosen = NamedEnv(name, options) if options else name
    return dataclasses.replace(value, env=chosen), others


def _choose_mixture(value: Experiment, env: Mixture, arguments: Sequence[str]) -> Chosen:
    """Applies `--env.OPTION VALUE` as a mixture by its id takes it; its fields stay options."""
    own = tuple(f"--env.{name}." for name, item in _items(env) if _is_nested(item))
    given, others = split(
        arguments, lambda flag: flag.startswith("--env.") and not flag.startswith(own)
    )
    if not given:
        return value, others
    options = environment_options([f"{flag}={text}" for flag, text in given])
    changed = env.with_options(options)
    return dataclasses.replace(value, env=changed), others


_EVALUATION_OPTION = "--evaluation.options."


def _choose_evaluation_options(value: Experiment, arguments: Sequence[str]) -> Chosen:
    """Applies `--evaluation.options.NAME VALUE`, which is read as an option of the environment."""
    given, others = split(arguments, lambda flag: flag.startswith(_EVALUATION_OPTION))
    evaluation = dict(_items(value)).get("evaluation") if given else None
    if evaluation is None:
        return value, list(arguments)
    env = value.env
    if isinstance(env, str | NamedEnv):
        types = _option_types(env if isinstance(env, str) else env.id)
    else:
        types = setting_types(type(env))
    settings = [f"--{flag.removeprefix(_EVALUATION_OPTION)}={text}" for flag, text in given]
    options = {**evaluation.options, **environment_options(settings, types)}
    changed = dataclasses.replace(evaluation, options=options)
    return dataclasses.replace(value, evaluation=changed), others


def _option_types(env: str) -> dict[str, Any]:
    """Gives the known option types of a Python environment; making it reports any error."""
    if not backend_of(env).made_by_python:
        return {}
    try:
        return option_types(env)
    except Exception:  # of the user's module, which is imported
        return {}


def _is_nested(item: Any) -> bool:
    """Tells if a value has options for its parts in place of a single option."""
    if isinstance(item, NamedEnv | Schedule):  # chosen already, or one value
        return False
    return dataclasses.is_dataclass(item) or (isinstance(item, Mapping) and bool(item))


def _is_text(annotation: Any, item: Any) -> bool:
    """Tells if a nested value is one text where its field is annotated so."""
    return isinstance(item, FromText) and type(item) in get_args(annotation)


def _options(value: Any, outer: Path = ()) -> Iterator[Option]:
    """The options that set the fields of a value and of the values in it."""
    annotations = setting_types(type(value))
    for name, item in _items(value):
        annotation = annotations.get(name, type(item))
        if _is_nested(item) and not _is_text(annotation, item):
            yield from _options(item, (*outer, name))
            continue
        if isinstance(item, NamedEnv) or item_type(annotation) or text_types(annotation):
            if not callable(item) or isinstance(item, NamedEnv):
                yield Option((*outer, name), annotation, item)


def _items(value: Any) -> list[tuple[str, Any]]:
    """The parts of a value by name; one that is none is made where its options could make it."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, Plan):
        return list(value.fragments.items())
    annotations = setting_types(type(value))
    items = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init]
    return [(n, _made(annotations.get(n)) if item is None else item) for n, item in items]


def _made(annotation: Any) -> Any:
    """The default of the dataclass that may stand in a field, such as self_play; else None."""
    kinds = [kind for kind in get_args(annotation) if dataclasses.is_dataclass(kind)]
    missing = dataclasses.MISSING
    for kind in kinds if len(kinds) == 1 else []:
        if all({f.default, f.default_factory} != {missing} for f in dataclasses.fields(kind)):
            return kind()  # type: ignore[operator]
    return None


def _replaced(value: Any, given: Mapping[Path, Any]) -> Any:
    if () in given:
        return given[()]
    parts, changed = dict(_items(value)) if given else {}, {}
    for name in {path[0]: None for path in given}:
        inner = {path[1:]: item for path, item in given.items() if path[0] == name}
        changed[name] = _replaced(parts[name], inner)
    if isinstance(value, Mapping):
        return {**value, **changed}
    if isinstance(value, Plan):
        return dataclasses.replace(value, fragments={**value.fragments, **changed})
    return dataclasses.replace(value, **changed) if changed else value


def _flag(path: Path) -> str:
    return "--" + ".".join(path).replace("_", "-")


def _metavar(option: Option) -> str:
    many = item_type(option.annotation)
    name = "|".join(way.metavar for way in text_types(many[1] if many else option.annotation))
    if count := item_count(option.annotation):
        return " ".join([name] * count)
    return f"none|{name} [{name} ...]" if many else name


def help_text(value: Experiment) -> str:
    """Describes each option, with its present value."""
    lines, group = [f"{_summary(type(value))}\n\n options", *_choices(value)], ()
    for option in sorted(_options(value), key=lambda option: len(option.path) > 1):
        if option.path[:-1] != group:
            group = option.path[:-1]
            lines.append(f"\n {'.'.join(group)} options")
            about = _about(value, group) or _summary(type(_at(value, group)))
            lines += [wrapped(f"  {about}", 2)] if about else []
        head = f"{option.flag}, {option.off}" if option.off else f"{option.flag} {_metavar(option)}"
        text = f"{_about(value, option.path)} (default: {_shown(option.value)})".strip()
        lines += _entry(head, text)
    return "\n".join(lines)


def _choices(value: Experiment) -> Iterator[str]:
    """Describes the options that choose parts, whose own options follow."""
    names = [kind.__name__.lower() for kind in ALGORITHMS]
    chosen = type(value.algorithm).__name__.lower()
    text = f"Another algorithm comes with its own defaults. (default: {chosen})"
    yield from _entry(f"--algorithm {'|'.join(names)}", text)
    if isinstance(value.plan, Plan):
        text = f"The division into workers; auto measures. (default: {value.plan.name})"
        yield from _entry(f"--plan {'|'.join(PLANS)}|auto", text)


def _entry(head: str, text: str) -> list[str]:
    return [wrapped(f"  {head}", 4), wrapped(f"{' ' * 8}{text}", 8)]


def _at(value: Any, path: Path) -> Any:
    return functools.reduce(lambda outer, name: dict(_items(outer))[name], path, value)


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _about(value: Any, path: Path) -> str:
    """The text below a field in the source of its class."""
    return _field_docs(type(_at(value, path[:-1]))).get(path[-1], "")


def _summary(kind: type) -> str:
    """The first paragraph of a dataclass's docstring."""
    text = inspect.getdoc(kind) if dataclasses.is_dataclass(kind) else None
    return " ".join((text or "").partition("\n\n")[0].split())


@functools.cache
def _field_docs(kind: type) -> dict[str, str]:
    """The text below each field in the source of a dataclass and of those that it extends."""
    found: dict[str, str] = {}
    for each in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0].body  # type: ignore[attr-defined]
        except (OSError, TypeError, SyntaxError):  # a class that was not written in a file
            continue
        for field, text in itertools.pairwise(body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(about))):
                    found[name] = " ".join(about.split())
    return found
