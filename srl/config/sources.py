"""The policies of other runs in an experiment: those that play, its teachers, its first parameters.

    experiment = Experiment(..., teacher="runs/large:best", init_from="runs/small")

Each has a name, under which a run keeps its copy. Importing this loads no JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srl.algorithms import Algorithm
from srl.algorithms.imitation import Imitating, no_teacher
from srl.config.fixed import Fixed
from srl.core.errors import PlanError, UserError, expect

if TYPE_CHECKING:
    from srl.config.experiment import Experiment

TEACHER, INIT_FROM = "teacher:", "init_from"
"""The names of a teacher, with a number, and of first parameters."""


def as_fixed(given: Any) -> Any:
    """Gives the policy of another run that RUN_DIR[:V] or a path names; other values as they are.

    A value that stands for several, in a tuple, gives a tuple.
    """
    if isinstance(given, list | tuple):
        return tuple(map(as_fixed, given))
    return Fixed.read(str(given)) if isinstance(given, str | Path) and str(given) else given


def sources_of(policies: Mapping[str, Any], teacher: Any, init_from: Any) -> dict[str, Fixed]:
    """Gives all policies of other runs in an experiment's settings, by the names of their copies.

    Those that play have their agents' pattern for a name.
    """
    fixed = {pattern: p for pattern, p in policies.items() if isinstance(p, Fixed)}
    teachers = {f"{TEACHER}{i}": given for i, given in enumerate(teachers_of(teacher))}
    return fixed | teachers | ({INIT_FROM: as_fixed(init_from)} if init_from else {})


def teachers_of(teacher: Any) -> tuple[Any, ...]:
    """Gives the teachers that an experiment's setting names: none, one or several."""
    given = as_fixed(teacher or ())
    return given if isinstance(given, tuple) else (given,)


def plays(name: str) -> bool:
    """Tells if a policy of this name in `sources_of` plays agents, and so acts in evaluations."""
    return name != INIT_FROM and not name.startswith(TEACHER)


def setting_of(name: str) -> str:
    """Gives the setting that holds a policy of another run, of its name in `sources_of`."""
    number = name.removeprefix(TEACHER)
    if name == INIT_FROM:
        return INIT_FROM
    return f"policies[{name!r}]" if number == name else f"teacher[{number}]"


def expect_sources(sources: Mapping[str, Any]) -> None:
    """Raises UserError unless all these are policies of other runs; see `sources_of`."""
    for name, source in sources.items():
        good = isinstance(source, Fixed)
        expect(good, setting_of(name), source, "RUN_DIR[:V], or Fixed(RUN_DIR)")
        source.validate(setting_of(name))


def expect_teacher(teacher: Any, key: str, algorithm: Algorithm, *, asked: bool) -> None:
    """Raises UserError where an experiment's teachers and its algorithm do not fit."""
    number, name = len(teachers_of(teacher)), type(algorithm).__name__
    if number and not isinstance(algorithm, Imitating):
        raise UserError(f"teacher: {name} learns from none; take PPO, APPO or IMPALA")
    if number and not asked:
        raise PlanError(f"teacher: the loop of {name} never calls run.teach(...)")
    if not number and asked and algorithm.instance.teach is no_teacher:
        raise UserError(
            "algorithm.imitation_cost and teacher_share are weights of a teacher, and there is "
            "none: give teacher=RUN_DIR[:V], or leave them at 0"
        )
    if (number > 1) != bool(key):
        cure = "the key of an integer observation" if number > 1 else "several, or leave it out"
        raise UserError(
            f"teacher_key={key!r} chooses among several teachers, and there "
            f"{'is' if number == 1 else 'are'} {number}; give {cure}"
        )


def with_sources(experiment: Experiment, sources: Mapping[str, Fixed]) -> Experiment:
    """Gives the same experiment with other values of all its `sources`."""
    return replace(
        experiment,
        policies={name: sources.get(name, p) for name, p in experiment.policies.items()},
        teacher=tuple(own for name, own in sources.items() if name.startswith(TEACHER)),
        init_from=sources.get(INIT_FROM),
    )


def pinned(experiment: Experiment, recorded: Mapping[str, Any]) -> Experiment:
    """Gives the same experiment with all its `sources` as `Fixed.pinned` gives them.

    Args:
        experiment: Validated.
        recorded: These, as they were when the run began; empty of a new one.

    Raises:
        UserError: As `Fixed.pinned`.
    """
    sources = experiment.sources
    for name, source in sources.items():
        known = recorded.get(name)
        # Acting needs no teacher, so that a run without its copy is opened all the same.
        if isinstance(known, Fixed) and source.may_be(known) and not plays(name):
            sources[name] = known
        else:
            # First parameters are arrays alone, so none of the other run's code is imported.
            read = replace(source, trust=True) if name == INIT_FROM else source
            sources[name] = read.pinned(setting_of(name), known)
    return with_sources(experiment, sources)
