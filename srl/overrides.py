"""Fields of an experiment set from the command line; the only file that knows tyro."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_type_hints

from srl.arguments import wrapped
from srl.dataflow.plan import Plan
from srl.dataflow.plans import named
from srl.errors import UserError
from srl.pools import NamedEnv
from srl.pools.config import environment_options

T = TypeVar("T")


def override(value: T, words: Sequence[str]) -> T:
    """`value` with fields replaced as words such as `--algorithm.learning-rate 3e-4` say.

    Raises:
        UserError: Naming the word that is wrong, and the nearest right one.
    """
    value, words = _choose_plan(value, words)
    value, words = _choose_environment(value, words)
    value = _with_parts(value, words)
    if not words:
        return value
    given = [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]
    known = flags(value)
    for flag in given:
        if flag not in known:
            field = flag[2:].partition(".")[0]
            if callable(getattr(value, field, None)):
                raise UserError(f"{field} is a function; change it in the experiment file")
            near = difflib.get_close_matches(flag, known, n=1, cutoff=0.5)
            cure = f"did you mean {near[0]}?" if near else "--help lists what there is"
            raise UserError(f"unknown option {flag}; {cure}")
    if "--env-steps" in given and "--updates" in given:
        raise UserError("--env-steps and --updates were both given; give the one that ends the run")
    result = _parse(value, words)
    if "--env-steps" in given and getattr(result, "updates", None) is not None:
        result = dataclasses.replace(result, updates=None)  # type: ignore[type-var]
    return result


def without(words: Sequence[str], *options: str) -> list[str]:
    """The words without these options, such as --plan, and their values."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        flag, has_value, _ = word.partition("=")
        if flag.replace("_", "-") not in options:
            kept.append(word)
        elif not has_value:
            next(rest, None)
    return kept


def flags(value: Any, prefix: str = "--") -> list[str]:
    """Every option that `override` takes for `value`."""
    found = []
    for name, item in _items(value):
        flag = prefix + name.replace("_", "-")
        if isinstance(item, NamedEnv):
            found.append(flag)
        elif dataclasses.is_dataclass(item) or (isinstance(item, Mapping) and item):
            found += flags(item, flag + ".")
        elif not callable(item):
            found.append(flag)
        if isinstance(item, bool):
            found.append(f"{prefix}no-{name.replace('_', '-')}")
    return found


def help_text(value: Any) -> str:
    """What each option means, with its present value."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit), _columns(100):
        _tyro(value, ["--help"])
    return "\n".join(wrapped(text, hanging) for text, hanging in _paragraphs(output.getvalue()))


@contextlib.contextmanager
def _columns(count: int) -> Iterator[None]:
    """Lets tyro write its help in one column, wherever it is going to be shown."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(count)
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


def _paragraphs(text: str) -> Iterator[tuple[str, int]]:
    """The options in tyro's help, each paragraph as a line, and the indentation of what follows.

    Tyro breaks lines at its own width and also where the source of a docstring does.
    """
    lines = [line.rstrip() for line in text.partition("\n\n")[2].splitlines()]
    joined: list[str] = []
    for line in lines:
        bare = line.strip()
        if bare.startswith("---"):  # a rule
            continue
        fresh = not bare or not joined or not joined[-1] or bare.startswith("-")
        if fresh or _indentation(line) != _indentation(joined[-1]):
            joined.append(line)
        else:
            joined[-1] += f" {bare}"
    own_help = next((n for n, line in enumerate(joined) if line.startswith("  -h,")), len(joined))
    for line in joined[:own_help] + joined[own_help + 2 :]:  # the command's own help has that one
        yield line, _indentation(line) + 4 * line.lstrip().startswith("-")


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _choose_plan(value: T, words: Sequence[str]) -> tuple[T, list[str]]:
    """Takes `--plan NAME` out of the words; options of the plan's fragments then fit that one.

    The unbounded staleness may be written in lower case, as the metrics do.
    """
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        flag, has_value, text = word.partition("=")
        if flag.replace("_", "-") not in ("--plan", "--max-staleness"):
            kept.append(word)
            continue
        text = text if has_value else next(rest, "")
        if flag == "--plan":
            plan = text if text == "auto" else named(text)
            value = dataclasses.replace(value, plan=plan)  # type: ignore[type-var]
        else:
            kept += [flag, "None" if text == "none" else text]
    return value, kept


def _choose_environment(value: T, words: Sequence[str]) -> tuple[T, list[str]]:
    """Takes `--env ID` and `--env.OPTION VALUE` out of the words where the environment is an id.

    Nothing is known of an id's options before it is made, so they are read as `srl check-env`
    reads them. Options that the experiment has stay unless another id is given.
    """
    env = getattr(value, "env", None)
    if not isinstance(env, str | NamedEnv):
        return value, list(words)
    name, options = (env, {}) if isinstance(env, str) else (env.id, env.options())
    given: dict[str, Any] = {}
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        flag, has_value, text = word.partition("=")
        if flag != "--env" and not flag.startswith("--env."):
            kept.append(word)
            continue
        text = text if has_value else next(rest, None)
        if text is None or (not has_value and text.startswith("--")):
            raise UserError(f"{flag} has no value; give {flag} VALUE")
        if flag == "--env":
            name, options = text, options if text == name else {}
        else:
            given |= environment_options([f"--{flag.removeprefix('--env.')}", text])
    options |= given
    chosen = NamedEnv(name, options) if options else name
    return dataclasses.replace(value, env=chosen), kept  # type: ignore[type-var]


def _with_parts(value: T, words: Sequence[str]) -> T:
    """Makes a part that was none, where one of its options is given: --self-play.past 0.2."""
    hints = get_type_hints(type(value)) if dataclasses.is_dataclass(value) else {}
    made: Any = value
    for name, hint in hints.items():
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        option = f"--{name.replace('_', '-')}."
        asked = any(word.replace("_", "-").startswith(option) for word in words)
        if asked and getattr(value, name) is None and len(kinds) == 1:
            made = dataclasses.replace(made, **{name: kinds[0]()})
    return made


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, Plan):
        return list(value.fragments.items())
    return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init]


def _parse(value: T, words: Sequence[str]) -> T:
    """Runs tyro; its boxed error becomes one line."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            return _tyro(value, list(words))
    except SystemExit as stop:
        raise UserError(_told(output.getvalue())) from stop


def _told(box: str) -> str:
    """What the box says above its first rule, in one line."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│╭╮╰╯ ") for line in text.splitlines()]
    body = "\n".join(line for line in lines[1:] if line).lstrip("─-\n")  # without its title
    told = re.split(r"\n[─-]{9,}|\nGot errors:", body)[0].replace("\n", " ")
    stray = told.removeprefix("Unrecognized options: ")
    if stray != told:
        return f"not expected: {stray}; a switch is --NAME or --no-NAME, other options take a value"
    return told or "the options cannot be read; see --help"


def _tyro(value: T, words: list[str]) -> T:
    """Parses against a twin of the value's class whose fields have their values' own types.

    A field that may hold several things (an id, a callable, a configuration) then offers the
    options of what it does hold, without subcommands; a callable cannot be written in words and
    stays as it is.
    """
    import tyro

    narrowed: list[tuple[str, Any]] = []
    values = dict(_items(value))
    for name, item in values.items():
        if isinstance(item, Plan):
            values[name] = _plan_options(item)
            narrowed.append((name, type(values[name])))
        elif isinstance(item, NamedEnv):  # chosen already
            narrowed.append((name, tyro.conf.Fixed[Any]))
        elif dataclasses.is_dataclass(item) or (name == "env" and isinstance(item, str)):
            narrowed.append((name, type(item)))
        elif callable(item):
            narrowed.append((name, tyro.conf.Fixed[Any]))
    kind = type(value)
    twin = dataclasses.make_dataclass(
        kind.__name__, narrowed, bases=(kind,), frozen=True, kw_only=True
    )
    twin.__doc__ = kind.__doc__
    config = (tyro.conf.AvoidSubcommands,)
    parsed = tyro.cli(twin, args=words, default=twin(**values), prog="srl run", config=config)
    plans = {k: _plan_of(v, getattr(parsed, k)) for k, v in _items(value) if isinstance(v, Plan)}
    return kind(**{**dict(_items(parsed)), **plans})


def _plan_options(plan: Plan) -> Any:
    """A value with a field for each fragment, in place of the plan's mapping of them."""
    values = dict(_items(plan))
    types = {name: type(item) for name, item in values.items()}
    options = dataclasses.make_dataclass("Plan", list(types.items()), frozen=True)
    return options(**values)


def _plan_of(plan: Plan, options: Any) -> Plan:
    """The plan with the values of its options."""
    return dataclasses.replace(plan, fragments=dict(_items(options)))
