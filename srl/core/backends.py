"""The kinds of environments, by the prefix of their ids: a row of the table for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Backend:
    """A kind of environments, and the module that makes pools of them."""

    module: str
    """The module with `make(source, num_envs, options, **arguments)`, which gives a pool."""
    takes: tuple[str, ...]
    """Arguments of `make_pool` and options of srl's own that have an effect."""
    lacks: str
    """The reason why others have none, after "which"."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Other reasons of single arguments."""
    language: Literal["Python", "C++", "JAX"] = "Python"
    """The language that steps; C++ does it without Python's lock."""
    compiled: bool = False
    """True if a compiled program can step it: one in JAX anywhere, one in C++ on a CPU."""
    maker: str = ""
    """"module:function" that gives the maker of an environment by its id without the prefix."""
    own_ids: bool = False
    """True if ids are names of the backend's own; those with a colon, a slash or ".so" are not."""

    @property
    def threaded(self) -> bool:
        """True if the pool steps on its own threads."""
        return "threads" in self.takes

    @property
    def made_by_python(self) -> bool:
        """True if a Python callable makes single environments, or a vector of them."""
        return not self.threaded and self.language != "JAX"


AT_ONCE = "steps all its environments at once, by itself"
"""The reason of vector environments."""
_WRAPPERS = ("wrappers", "metrics", "ignore")
_PROCESSES = ("restarts", "step_timeout", "start_timeout")
_STATE = "world_state"
_NO_PYTHON: dict[str, str] = dict.fromkeys((*_WRAPPERS, _STATE), "is not written in Python")
_THREADS = "steps on threads: give threads=N"
_VECTOR = "srl.pools.python.vector_env", ("workers", *_WRAPPERS), AT_ONCE
_PYTHON = (
    "srl.pools.python.make",
    ("batch_size", "workers", "action_repeat", *_PROCESSES, *_WRAPPERS, _STATE),
    "steps no threads",
)

BACKENDS = {
    # native:CartPole-v1, or native:libwalk.so:Walk-v0 of a library
    "native": Backend(
        "srl.pools.native.pool",
        ("batch_size", "threads", "cores", "action_repeat"),
        _THREADS,
        _NO_PYTHON,
        language="C++",
        compiled=True,
        own_ids=True,
    ),
    # envpool:Pong-v5
    "envpool": Backend(
        "srl.pools.envpool",
        ("batch_size", "threads", "metrics"),
        _THREADS,
        _NO_PYTHON
        | {
            "cores": "pins by thread_affinity_offset=N",
            "action_repeat": "has its own options to repeat actions, such as frame_skip=N",
        },
        language="C++",
        own_ids=True,
    ),
    # jax:gymnax:CartPole-v1, jax:brax:ant, or jax:module:maker of a FunctionalEnv
    "jax": Backend(
        "srl.pools.functional.pool",
        ("action_repeat", _STATE),
        "steps all its environments in one compiled call",
        language="JAX",
        compiled=True,
    ),
    # vector:CartPole-v1 or vector:module:Name-v0, by a vector_entry_point; vector:module:factory
    "vector": Backend(*_VECTOR),
    # atari:Pong, in its usual form
    "atari": Backend(
        *_VECTOR, language="C++", maker="srl.pools.python.atari:atari_maker", own_ids=True
    ),
    # pettingzoo:mpe2.simple_tag_v3, a module of the parallel kind, or pettingzoo:module:factory
    "pettingzoo": Backend(*_PYTHON, maker="srl.pools.python.pettingzoo:parallel_maker"),
    # CartPole-v1, module:Name-v0, module:factory or a callable
    "": Backend(*_PYTHON),
}
"""Backends by prefix; "" has the ids without one, and callables."""


def backend_of(env: Any) -> Backend:
    """Gives the backend of an environment: an id, a configuration with one, or a callable."""
    id = id_of(env)
    if tasks := task_ids(id):
        return _joint([backend_of(task) for task in tasks.values()])
    prefix, colon, _ = id.partition(":")
    return BACKENDS.get(prefix if colon else "", BACKENDS[""])


def id_of(env: Any) -> str:
    """Gives the id of an environment: an id, a configuration with one, or a callable, with none."""
    return env if isinstance(env, str) else getattr(env, "pool_id", "")


MIXTURE = "mixture:"
"""The beginning of ids such as mixture:run=native:HalfCheetah-v5,hop=native:Hopper-v5."""


def task_ids(id: str) -> dict[str, str]:
    """The ids of a mixture's tasks by their names; none of another environment.

    A task without a name is named as its id is without what it comes from.
    """
    if not id.startswith(MIXTURE):
        return {}
    parts = [part.rpartition("=") for part in id.removeprefix(MIXTURE).split(",")]
    return {name or task.rpartition(":")[2]: task for name, _, task in parts}


def _joint(parts: list[Backend]) -> Backend:
    """The backend of a mixture: what all have in common, and the arguments that any takes."""
    languages = {part.language for part in parts}
    return Backend(
        "srl.pools.mixture",
        tuple({name: None for part in parts for name in part.takes if name not in _NOT_MIXED}),
        "mixes environments that take none",
        {name: "steps the environments of all its tasks at once" for name in _AT_ONCE}
        | {name: "gives such options to tasks: TASK.OPTION" for name in _OF_TASKS},
        next(language for language in ("C++", "Python", "JAX") if language in languages),
        all(part.compiled for part in parts),
    )


_OF_TASKS = (*_WRAPPERS, _STATE)
_AT_ONCE = ("batch_size", "cores")
_NOT_MIXED = (*_AT_ONCE, *_OF_TASKS)
