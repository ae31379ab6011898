"""A native pool's calls for use inside `jax.jit`, so that a whole rollout is one compiled program.

    xla = pool.xla()

    @jax.jit
    def rollout(params, state, keys):
        def step(carry, key):
            state, timestep = carry
            actions = policy(params, timestep.observation, key)
            state, timestep = xla.step(state, actions)
            return (state, timestep), timestep

        return jax.lax.scan(step, xla.reset(state, seed=0), keys)

    (state, last), timesteps = rollout(params, xla.init(), keys)  # as often as you like

The environments themselves stay in the pool, on the processor; a state only names the pool that is
meant and which call came before. A call takes the state that the call before it gave: that keeps
them in order, and a state from before another call is an error while the program runs. `init`
gives a state to begin with wherever the pool stands, for any number of programs and of their runs;
JAX runs the programs of one thread one after the other.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Timestep, Tree
from srl.system.native_module import register_xla_calls

if TYPE_CHECKING:
    from srl.pools.native.pool import NativePool


class PoolState(NamedTuple):
    """Stands for a pool in a compiled program; a pytree of two numbers, committed to the CPU."""

    handle: Array  # uint32 []; which pool, so that a program serves any pool of its kind
    token: Array  # uint32 []; which call came before


class Xla:
    """The calls of one pool; see the module.

    They take and give what the pool's own do, as JAX arrays, and may be mixed with `step`, `save`
    and `restore` between programs. A call whose state and timestep are both thrown away may be left
    out by JAX, so return the last state. Gradients stop at the actions.

    Wrong shapes and dtypes are UserErrors while tracing. What shows only while the program runs
    (actions out of the space, an environment that fails, a state that is not the present one, a
    closed pool) is raised by JAX, as a JaxRuntimeError or ValueError with the pool's message;
    `init` gives a state to go on with.
    """

    def __init__(self, pool: NativePool) -> None:
        self._pool = pool
        specs = pool.specs
        self._num_agents = len(specs.agents)
        slots, envs = (pool.num_envs * self._num_agents,), (pool.num_envs,)
        self._fields = pool.observation_fields
        results = [((*slots, *shape), dtype) for _, shape, dtype in self._fields]
        results += [(slots, "float32"), (slots, "bool"), (slots, "bool"), (slots, "float32")]
        results += [(envs, "int32"), ((*envs, len(specs.statistics)), "float32"), (envs, "int32")]
        self._results = tuple(results)

    def init(self) -> PoolState:
        """A state to begin with: calls that take it go on from wherever the pool then stands.

        It may be given to several programs, or be made inside one. Two calls that take it in one
        program have no order.

        Raises:
            UserError: If the pool is closed.
        """
        handle, token = self._pool.xla_state()
        numbers = PoolState(np.uint32(handle), np.uint32(token))
        return jax.device_put(numbers, jax.local_devices(backend="cpu")[0])

    @property
    def progress(self) -> int:
        """A number that each call changes; any thread may ask, also while a program runs."""
        return self._pool.xla_token()

    def keep(self, state: PoolState) -> None:
        """Does nothing: the environments are in the pool itself, wherever a program has led."""

    def reset(
        self, state: PoolState, seed: int | Array | None = None
    ) -> tuple[PoolState, Timestep]:
        """Starts new episodes everywhere; environment i is seeded with `seed + i`.

        Args:
            state: Before the call.
            seed: 0 to 2^32 - 1, or an integer array []; by default chance goes on as it stands.
        """
        return self._call("reset", state, _seed(seed))

    def step(self, state: PoolState, actions: Array) -> tuple[PoolState, Timestep]:
        """Steps all environments.

        Args:
            state: Before the call.
            actions: [B, ...].
        """
        return self._call("step", state, self._actions(actions))

    def _call(self, name: str, state: PoolState, operand: Array) -> tuple[PoolState, Timestep]:
        token, *arrays = _primitive().bind(
            *state, operand, name=f"srl_pool_{name}", results=self._results
        )
        fields = {name: arrays[i] for i, (name, _, _) in enumerate(self._fields)}
        observation: Tree = fields[""] if list(fields) == [""] else fields
        lost = jnp.zeros(self._pool.num_envs, bool)  # nothing is ever lost in this process
        timestep = Timestep(observation, *arrays[len(fields) :], lost=lost)
        return PoolState(state.handle, token), timestep

    def _actions(self, actions: Array) -> Array:
        space = self._pool.specs.action
        actions = jax.lax.stop_gradient(jnp.asarray(actions))
        shape = (self._pool.num_envs * self._num_agents, *(space.shape or ()))
        if actions.shape != shape:
            raise UserError(f"actions have shape {actions.shape}; expected {shape}")
        kinds = [jnp.integer] if np.dtype(space.dtype).kind == "i" else [jnp.integer, jnp.floating]
        if not any(jnp.issubdtype(actions.dtype, kind) for kind in kinds):
            raise UserError(f"actions are {actions.dtype}; expected {space.dtype}")
        return actions.astype(space.dtype)


def _seed(seed: int | Array | None) -> Array:
    """The seed as uint32 [2]: whether one is given, and its value."""
    if seed is None:
        return jnp.zeros(2, jnp.uint32)
    if isinstance(seed, int | np.integer):
        if not 0 <= seed < 2**32:
            raise UserError(f"seed={seed}; expected 0 to {2**32 - 1}")
        seed = np.uint32(seed)
    seed = jnp.asarray(seed)
    if seed.shape != () or not jnp.issubdtype(seed.dtype, jnp.integer):
        raise UserError(
            f"the seed has shape {seed.shape}, dtype {seed.dtype}; expected one integer"
        )
    return jnp.stack([jnp.uint32(1), seed.astype(jnp.uint32)])


@cache
def _primitive() -> Any:
    """The JAX primitive that all calls are: a custom call that XLA neither drops nor doubles."""
    from jax.extend.core import Primitive
    from jax.interpreters import batching, mlir

    register_xla_calls()
    primitive = Primitive("srl_pool")
    primitive.multiple_results = True

    def avals(*_: Any, results: tuple, **__: Any) -> list[Any]:
        token = jax.core.ShapedArray((), np.dtype(np.uint32))
        return [token, *(jax.core.ShapedArray(shape, np.dtype(t)) for shape, t in results)]

    @cache
    def compiled(name: str, results: tuple) -> Any:
        return jax.jit(lambda *operands: primitive.bind(*operands, name=name, results=results))

    def lower(context: Any, *operands: Any, name: str, **_: Any) -> Any:
        return jax.ffi.ffi_lowering(name, has_side_effect=True)(context, *operands)

    def report_platform(*_: Any, **__: Any) -> Any:
        raise UserError(
            "a pool steps on the CPU: a program that calls one must run there. Its state is "
            "committed to the CPU; pass it to the program and leave the device to JAX"
        )

    def report_vmap(*_: Any, **__: Any) -> Any:
        raise UserError(
            "vmap of a pool's call: a pool is one thing and already steps many environments; "
            "make it with more of them (num_envs) in place of vmap"
        )

    primitive.def_abstract_eval(avals)
    primitive.def_impl(lambda *operands, **parameters: compiled(**parameters)(*operands))
    mlir.register_lowering(primitive, report_platform)
    mlir.register_lowering(primitive, lower, platform="cpu")
    batching.primitive_batchers[primitive] = report_vmap
    return primitive
