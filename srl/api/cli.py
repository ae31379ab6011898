"""The command `srl`. Each subcommand's module is imported when it is called, not before."""

from __future__ import annotations

import ast
import faulthandler
import importlib
import json
import math
import signal
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from srl.core.console.arguments import Arguments, table
from srl.core.errors import RunError, UserError, explained, nearest
from srl.launch.engines.options import add_engine, refuse_engine_options
from srl.system.lasting_output import lasting_output
from srl.system.xla_log import quiet_xla

if TYPE_CHECKING:
    from srl.config.experiment import Resolved

EXTRAS = Path(__file__).parents[1] / "extras"


def extra_commands(folder: Path) -> dict[str, tuple[str, str]]:
    """Finds the commands of extras: each folder with a `command.py` is one, of the folder's name.

    Its `main` takes the arguments after the name and gives the exit code. The first line of its
    package's docstring is the help; it is read without an import.
    """
    found = {}
    for file in sorted(folder.glob("*/command.py")):
        package = file.parent
        module = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
        line = (ast.get_docstring(module) or "").partition("\n")[0].removesuffix(".")
        place = f"srl.extras.{package.name}.command:main"
        found[package.name.replace("_", "-")] = place, line[:1].lower() + line[1:]
    return found


COMMANDS = {
    "run": ("srl.api.cli:run", "train an experiment"),
    "resume": ("srl.api.cli:resume", "go on with a run"),
    "top": ("srl.api.cli:top", "show a run that another process, or a cluster, trains"),
    "stop": (
        "srl.api.cli:stop",
        "end a run that another process, or a cluster, trains, after a checkpoint",
    ),
    "eval": ("srl.api.cli:evaluate", "play whole episodes with a run's policies"),
    "watch": ("srl.api.cli:watch", "make a page that shows episodes of a run, step by step"),
    "share": ("srl.api.cli:share", "make a folder of a run's policies to publish"),
    "export": ("srl.api.cli:export", "write a run's policies to a file for use without srl"),
    **extra_commands(EXTRAS),
}
"""Name -> (module:function taking the arguments after the name and giving the exit code, help)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives its exit code.

    Args:
        argv: After `srl`. By default this process's own, which ends after the command: a later
            Ctrl-C ends it without a traceback.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    code = exit_code(lambda: _run_command(words))
    if argv is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


def _run_command(argv: list[str]) -> int:
    name = argv[0] if argv else "--help"
    if name in COMMANDS:
        module, _, function = COMMANDS[name][0].partition(":")
        return getattr(importlib.import_module(module), function)(argv[1:])
    if name in ("-h", "--help"):
        return _print(_usage())
    if name == "--version":
        return _print(_versions())
    raise UserError(f"unknown command {name!r}; {nearest(name, COMMANDS)}")


def exit_code(command: Callable[[], int]) -> int:
    """Runs a command, and prints its error in a line or two; gives the exit code.

    A reader of the output that leaves is no error.
    """
    with lasting_output(hangup=True):
        return _exit_code(command)


def _exit_code(command: Callable[[], int]) -> int:
    quiet_xla()
    with suppress(OSError, ValueError):
        if not faulthandler.is_enabled():  # a crash in native code leaves its stack at least
            faulthandler.enable(2)
    try:
        return command()
    except UserError as error:
        return _fail(str(error), 2)
    except RunError as error:
        return _fail(explained(error), 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)


def arguments(command: str, **settings: Any) -> Arguments:
    """A parser for one command."""
    return Arguments(command, description=COMMANDS[command][1].capitalize() + ".", **settings)


def run_arguments(command: str) -> Arguments:
    """A parser for a command whose first argument is a run's folder."""
    parser = arguments(command)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    return parser


def _add_trust(parser: Arguments) -> None:
    """Adds the option by which a folder of others may have any module imported."""
    parser.add_argument(
        "--trust", action="store_true", help="run code of a folder that others have made"
    )


@lasting_output()
def run(argv: list[str]) -> int:
    """`srl run FILE[:NAME]|ENV_ID [--plan NAME] [--run-dir DIR] [--dry-run] [--FIELD VALUE]`."""
    synopsis = (
        *("FILE[:NAME]|ENV_ID", "[--plan NAME]", "[--run-dir DIR]", "[--on local|slurm|ray]"),
        *("[--dry-run [--compile]]", "[--FIELD VALUE ...]"),
    )
    parser = arguments("run", synopsis=synopsis, add_help=False)
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="in place of runs/NAME/TIME")
    add_engine(parser)
    parser.add_argument("--dry-run", action="store_true", help="show what would run, and stop")
    rest = "with --dry-run: compile the programs, so that the run starts sooner"
    parser.add_argument("--compile", action="store_true", help=rest)
    parser.add_argument("-h", "--help", action="store_true", help="with a target: its options too")
    target = argv.pop(0) if argv and not argv[0].startswith("-") else None
    options, overrides = parser.parse_known_args(argv)
    from srl.config.effects import expect_effect
    from srl.config.experiment import load_experiment
    from srl.core.config_values import config_values

    if options.help:
        from srl.config.overrides import help_text

        experiment = load_experiment(target or "ENV_ID", overrides, flags=parser.flags).experiment
        return _print(f"{parser.format_help()}\n{help_text(experiment)}")
    if target is None:
        raise UserError("srl run needs an experiment file or an environment id first")
    here = options.on == "local"
    if options.compile and not (options.dry_run and here):
        raise UserError("--compile goes with --dry-run, on this machine")
    refuse_engine_options(options)
    resolved = load_experiment(target, overrides, flags=parser.flags, here=here)
    expect_effect(resolved.experiment)
    if options.on != "local":
        from srl.launch.submit import run_elsewhere

        return run_elsewhere(resolved, options, _print)
    experiment = resolved.experiment
    if options.dry_run:
        from srl.loop.policy_set import PolicySet
        from srl.loop.stepping.environments import make_group

        with make_group(experiment, 1) as pool:  # or impossible options would pass
            PolicySet.of_experiment(experiment, pool.specs)
        _print(json.dumps(config_values(experiment), indent=2))
        return _compile(resolved, parser.flags) if options.compile else 0
    from srl.launch.local import train
    from srl.launch.start import begin

    folder, resolved = begin(resolved, options.run_dir, _print)
    return train(resolved.experiment, folder)


def _compile(resolved: Resolved, flags: Sequence[str]) -> int:
    """Trains for an update in a folder that is thrown away: every process fills the cache.

    Evaluation and the later lessons of a curriculum compile their programs when they begin.
    """
    from srl.config.experiment import load_experiment
    from srl.config.overrides import without
    from srl.launch.local import train
    from srl.launch.start import begin
    from srl.system.compilation import cache_environment

    if not cache_environment():
        raise UserError(
            "--compile: compiled programs cannot be kept for the next start; let "
            "SRL_COMPILATION_CACHE be a folder that can be written, or leave it out"
        )
    kept = without(resolved.overrides, "--env-steps", "--updates", "--pause-at")
    brief = [*kept, "--updates", "1", "--trackers", "none"]
    if resolved.experiment.evaluation is not None:
        brief += ["--evaluation.episodes", "1"]
    with TemporaryDirectory(prefix="srl-compile-") as folder:
        _print("compiling ...")
        resolved = load_experiment(resolved.target, brief, flags=flags)
        run, resolved = begin(resolved, Path(folder) / "run", lambda text: None)
        began, code = time.monotonic(), train(resolved.experiment.without_hooks, run, quiet=True)
    if code == 0:
        _print(f"compiled in {time.monotonic() - began:.0f} s, for the next start")
    return code


@lasting_output()
def resume(argv: list[str]) -> int:
    """`srl resume RUN_DIR [--version V] [--env-steps N|--updates N] [--minutes M] [...]`."""
    parser = run_arguments("resume")
    parser.advice = (
        "a resumed run keeps its settings, and `srl run ... --init-from RUN_DIR` begins one with "
        "others from its parameters; "
    )
    parser.add_argument(
        "--version", type=int, metavar="V", help="go on from this checkpoint; default: the newest"
    )
    parser.add_argument("--env-steps", type=int, metavar="N", help="train to this many in all")
    parser.add_argument("--updates", type=int, metavar="N", help="the same, counted in updates")
    parser.add_argument(
        "--minutes", type=_minutes, metavar="M", help="for at most so many, or none"
    )
    rest = "go on without the blocks of the replay that are damaged"
    parser.add_argument("--partial-replay", action="store_true", help=rest)
    anew = "where there is no checkpoint, train from the beginning; what was recorded is kept"
    parser.add_argument("--anew", action="store_true", help=anew)
    _add_trust(parser)
    add_engine(parser)
    options = parser.parse_args(argv)
    refuse_engine_options(options)
    from srl.launch.auto import settled
    from srl.launch.local import train
    from srl.run.folder import open_run
    from srl.run.resume import made_ready

    folder, resolved = open_run(options.run_dir, to_train=True, trust=options.trust)
    from srl.launch.submit import comes_back, refuse_running, resume_elsewhere

    refuse_running(folder)
    names = ("env_steps", "updates", "minutes", "version", "partial_replay", "anew")
    given = {name: getattr(options, name) for name in names}
    if options.on != "local":
        return resume_elsewhere(folder, resolved, options, _print, **given)
    resolved = made_ready(folder, resolved, _print, **given)
    comes_back(folder)
    return train(settled(folder, resolved, _print).experiment, folder, resume=True)


@lasting_output()
def top(argv: list[str]) -> int:
    """`srl top RUN_DIR`."""
    options = run_arguments("top").parse_args(argv)
    from srl.launch.submit import attach

    return attach(options.run_dir, _print)


def stop(argv: list[str]) -> int:
    """`srl stop RUN_DIR`."""
    options = run_arguments("stop").parse_args(argv)
    from srl.launch.submit import stop

    return stop(options.run_dir, _print)


def _version(text: str) -> int | str:
    """A version's number, or the name of the best."""
    if text != "best" and not text.isdecimal():
        raise ArgumentTypeError(f"{text!r}; expected a version's number, or best")
    return text if text == "best" else int(text)


def _minutes(text: str) -> float:
    """Minutes; infinity for none."""
    try:
        return math.inf if text == "none" else float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r}; expected a number of minutes, or none") from None


_SAMPLED = "draw actions as in training; by default the most probable ones are taken"


def _played_arguments(command: str, episodes: int, unit: str) -> Arguments:
    """A parser for a command that plays so many episodes of each `unit` of two sides."""
    parser = run_arguments(command)
    add = parser.add_argument
    add("--version", type=_version, metavar="V|best", help="default: the newest")
    sides = "let the teams of both sides play each other in all combinations"
    add("--against", metavar="RUN_DIR[:V]|untrained", help=sides)
    count = f"of each {unit}; default {episodes}"
    add("--episodes", type=int, default=episodes, metavar="N", help=count)
    add("--sampled", action="store_true", help=_SAMPLED)
    add("--seed", type=int, default=0, metavar="S", help="default 0")
    _add_trust(parser)
    return parser


def evaluate(argv: list[str]) -> int:
    """`srl eval RUN_DIR [--version V|best] [--against RUN_DIR[:V]|untrained] [--episodes N]`."""
    parser = _played_arguments("eval", 100, "combination")
    parser.set_defaults(episodes=None)
    parser.add_argument("--num-envs", type=int, default=100, metavar="N", help="default 100")
    parser.add_argument(
        "--video",
        type=Path,
        nargs="?",
        const=True,
        default=False,
        metavar="OUT.mp4",
        help="film the run's policies, by default into the run's folder, videos/; "
        "OUT.svg: an animated drawing",
    )
    live = "show them in a window, 3 by default"
    parser.add_argument("--live", action="store_true", help=live)
    parser.add_argument("--video-episodes", type=int, metavar="K", help="default 1")
    parser.add_argument("--drawing", action="store_true", help="film a drawing; needs no OpenGL")
    parser.add_argument(
        "--camera",
        metavar="top|corner|follow[:AGENT]",
        help="film hide-and-seek from here; default corner, of the drawing top",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    from srl.evaluation.evaluate import evaluate
    from srl.loop.devices import expect_devices

    expect_devices()
    settings = vars(options)
    as_json = settings.pop("json")
    evaluation = evaluate(**settings)
    return _print(json.dumps(evaluation) if as_json else evaluation.text)


def watch(argv: list[str]) -> int:
    """`srl watch RUN_DIR [--out FILE.html] [--episodes N] [--version V] [--against ...] ...`."""
    parser = _played_arguments("watch", 3, "lineup")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.html", help="default watch.html in the run's folder"
    )
    options = parser.parse_args(argv)
    from srl.evaluation.watch import watch
    from srl.loop.devices import expect_devices

    expect_devices()
    return _print(f"open {watch(**vars(options))} in a browser")


def export(argv: list[str]) -> int:
    """`srl export RUN_DIR OUT.safetensors|OUT.onnx [--version V|best] [--policy NAME]`."""
    parser = run_arguments("export")
    parser.add_argument("output", type=Path, metavar="OUT.safetensors|OUT.onnx")
    parser.add_argument("--version", type=_version, metavar="V|best", help="default: the newest")
    one = "one of several; an ONNX file holds no more"
    parser.add_argument("--policy", metavar="NAME", help=one)
    _add_trust(parser)
    options = parser.parse_args(argv)
    from srl.loop.devices import expect_devices
    from srl.policies.export import export

    expect_devices()
    if options.output.suffix == ".onnx":
        _print("translating the policy to ONNX, which can take a minute")
    version = export(**vars(options))
    return _print(f"version {version} is in {options.output}")


def share(argv: list[str]) -> int:
    """`srl share RUN_DIR FOLDER [--version V|best] [--episodes N] [--sampled] [--seed S]`."""
    parser = run_arguments("share")
    add = parser.add_argument
    add("output", type=Path, metavar="FOLDER", help="new or empty")
    add("--version", type=_version, metavar="V|best", help="default: the newest")
    add("--episodes", type=int, default=100, metavar="N", help="of the evaluation; default 100")
    add("--sampled", action="store_true", help=_SAMPLED)
    add("--seed", type=int, default=0, metavar="S", help="default 0")
    _add_trust(parser)
    options = parser.parse_args(argv)
    from srl.loop.devices import expect_devices
    from srl.policies.share import share

    expect_devices()
    missing = share(**vars(options))
    return _print("\n".join([*missing, f"{options.output} is ready; docs/sharing.md publishes it"]))


def _usage() -> str:
    commands = table({name: text for name, (_, text) in COMMANDS.items()})
    return (
        f"usage: srl COMMAND ...\n\n{commands}\n\nsrl COMMAND --help describes one; srl --version"
    )


def _versions() -> str:
    """The versions of srl and of what it runs on, in a line; imports none of these."""
    import platform

    from srl.core.optional_packages import installed_version

    libraries = f"JAX {installed_version('jax')}, NumPy {installed_version('numpy')}"
    return f"srl {installed_version()}, Python {platform.python_version()}, {libraries}"


def _print(text: str) -> int:
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()  # also into a file, as more may take a while
    return 0


@lasting_output()
def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"srl: {text}\n")
    return code
