"""Several learners that add their sums: `learn` over all devices of all replicas."""

from __future__ import annotations

import importlib
import ipaddress
import math
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Tree, Unroll
from srl.system.gpus import jax_gpus

HEARTBEAT_SECONDS = 20
"""The least time after which the others give up a replica that is silent."""
_COMPILE_SECONDS = 600  # that replicas may differ by in compiling
_AXIS = "slots"
_UNIX = "unix:"
_STATE = "jax._src.distributed:global_state"


def meeting_place(interface: str) -> str:
    """A free address for the first of the replicas, at which the others meet it.

    Those of one host meet at a Unix socket, in a folder that only its user can enter: whoever
    reaches that address can end them all.

    Args:
        interface: The address at which the run's other hosts reach this one.
    """
    address = ipaddress.ip_address(interface)
    if address.is_loopback:
        return f"{_UNIX}{tempfile.mkdtemp(prefix='srl-')}/replicas"
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((interface, 0))
        port = probe.getsockname()[1]
    return f"[{interface}]:{port}" if address.version == 6 else f"{interface}:{port}"


def join(
    address: str,
    replica: int,
    replicas: int,
    interface: str,
    silent_seconds: float = HEARTBEAT_SECONDS,
) -> None:
    """Meets the other replicas; comes before anything else that JAX is asked.

    Args:
        address: Of the first replica.
        replica: Which of them this is.
        replicas: How many there are.
        interface: The address of this host, at which alone this process listens for the others.
        silent_seconds: That one may be silent for before the others give it up.

    Raises:
        UserError: If the installed JAX has other internals than srl needs.
    """
    _internal(_STATE)  # or it would be missed after minutes of compiling
    _add_over(interface)
    _never_preempt_on_waking()
    limit = math.ceil(max(HEARTBEAT_SECONDS, silent_seconds))
    jax.distributed.initialize(
        *(address, replicas, replica),
        coordinator_bind_address=address,  # JAX would listen at all addresses
        heartbeat_timeout_seconds=limit,
    )
    if replica == 0 and address.startswith(_UNIX):  # all are there, and nobody else is to come
        shutil.rmtree(Path(address.removeprefix(_UNIX)).parent, ignore_errors=True)


def _add_over(interface: str) -> None:
    """Has Gloo and NCCL, which add the sums of replicas, listen at one address of this host."""
    config: Any = jax.config
    if config.jax_cpu_collectives_implementation == "gloo":  # no public name takes its address
        make_client = _internal("jax._src.xla_bridge:make_cpu_client")
        make_collectives = _internal("jaxlib._jax:make_gloo_tcp_collectives")
        register = _internal("jax._src.xla_bridge:register_backend_factory")

        def cpu_client() -> Any:
            return make_client(make_collectives(_coordinator(), hostname=interface))

        register("cpu", cpu_client, priority=0, fail_quietly=False)
    if ipaddress.ip_address(interface).is_loopback:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")


def _coordinator() -> Any:
    """This process's connection to the first of the replicas, to which no public name leads."""
    return _internal(_STATE).client


def _internal(name: str) -> Any:
    """A part of JAX without a public name, given as module:name.

    Raises:
        UserError: If the installed JAX has no such part.
    """
    module, _, part = name.partition(":")
    try:
        return getattr(importlib.import_module(module), part)
    except (ImportError, AttributeError):
        raise UserError(
            f"JAX {jax.__version__} has no {module}.{part}, by which learners in several processes "
            "add their sums: install another JAX, or take a plan with one learner"
        ) from None


def _never_preempt_on_waking() -> None:
    """Has this thread, and what it starts from now on, wait for the processor in turn.

    Between CPUs Gloo adds the sums. Its thread asks for events again and again while another
    thread holds the lock of a connection (`Pair::handleEvents` only tries to lock). Where it has
    just preempted that other one, both wait until its time slice is over: on two cores, two
    learners were twenty times slower.
    """
    if jax_gpus():  # between which NCCL adds them
        return
    with suppress(OSError):  # a container may refuse it: then learning is slower
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


class Sharded:
    """`learn`, for a batch whose slots lie on several devices, of this process and of others.

    Each device looks at its own slots; their sums are added by an all-reduce, and so every device
    computes the same states. They stay there from update to update.
    """

    def __init__(self, learn: Callable[..., Any], example: Unroll, replays: Any) -> None:
        """Compiles nothing yet.

        Args:
            learn: (states, replays, unroll, losses, settings, total) to (states, replays,
                policies, losses), as `PolicySet.learn`.
            example: An unroll of this process' slots.
            replays: The shapes of those of the same slots.
        """
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        mesh = Mesh(np.array(jax.devices()), (_AXIS,))
        whole, rows = PartitionSpec(), PartitionSpec(_AXIS)
        example = example._replace(version=())  # of groups, which may be fewer than devices
        by_slot = jax.tree.map(lambda _: PartitionSpec(None, _AXIS), example)
        specs = by_slot._replace(slot=rows)
        remembered = jax.tree.map(lambda _: PartitionSpec(None, None, _AXIS), replays)

        def total(sums: Tree) -> Tree:
            return _tree_of(jax.lax.psum(_vectors_of(sums), _AXIS), like=sums)

        def one(
            states: Any, replays: Any, unroll: Unroll, losses: Any, settings: Any, wishes: Any
        ) -> Any:
            learned = learn(states, replays, unroll, losses, settings, total)
            return *learned, jax.lax.psum(wishes, _AXIS)

        self._learn = jax.jit(
            jax.shard_map(
                one,
                mesh=mesh,
                in_specs=(whole, remembered, specs, whole, whole, rows),
                out_specs=(whole, remembered, whole, whole, rows),
                check_vma=False,
            ),
            donate_argnums=(0, 1),
        )
        self._compiled: dict[int, Any] = {}  # by the length of the unroll
        self._everywhere = NamedSharding(mesh, whole)
        self._rows = NamedSharding(mesh, rows)
        self._shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
        self._replays = jax.tree.map(lambda spec: NamedSharding(mesh, spec), remembered)
        self._devices = jax.local_devices()
        self._local = len(self._devices)
        self._wishes = (False, False)
        self._wish_arrays: dict[tuple[bool, ...], Any] = {}  # on the devices
        self._granted: Any = None  # of the last update; on its devices

    def agree(self, *wishes: bool) -> tuple[bool, ...]:
        """Gives the wishes that any replica had before the last update; keeps these for later."""
        self._wishes = wishes
        if self._granted is None:
            return tuple(False for _ in wishes)
        return tuple((np.asarray(self._granted.addressable_data(0))[0] > 0).tolist())

    def compile(
        self, states: Any, replays: Any, unroll: Unroll, losses: Any, settings: Any
    ) -> None:
        """Compiles, and waits until the other replicas have: a collective waits half a minute."""
        steps = len(unroll.log_prob)
        operands = states, replays, unroll, losses, settings, self._wished()
        self._compiled[steps] = self._learn.lower(*operands).compile()
        if jax.process_count() > 1:
            name, patience = f"srl compiled {steps}", 1000 * _COMPILE_SECONDS
            _coordinator().wait_at_barrier(name, timeout_in_ms=patience)

    def _wished(self) -> Any:
        if self._wishes not in self._wish_arrays:
            wishes = np.tile(np.array(self._wishes, np.int32), (self._local, 1))
            placed = jax.make_array_from_process_local_data(self._rows, wishes)
            self._wish_arrays[self._wishes] = placed
        return self._wish_arrays[self._wishes]

    def replicated(self, tree: Tree) -> Tree:
        """A tree of NumPy's arrays, which all replicas have alike, on each device of them all."""
        place = partial(jax.make_array_from_process_local_data, self._everywhere)
        return jax.tree.map(lambda x: place(np.asarray(x)), tree)

    def place(self, unroll: Unroll) -> Unroll:
        """The batch of all replicas, of which this process has its part."""
        unroll = unroll._replace(version=())
        return jax.tree.map(jax.make_array_from_process_local_data, self._shardings, unroll)

    def empty_replays(self, make: Callable[[Unroll], Any], example: Unroll) -> list[Any]:
        """Makes the replays of each device here, on it.

        Args:
            make: Gives them, from an unroll of the slots that they are for.
            example: An unroll of this process' slots.
        """
        each = len(example.slot) // self._local
        made = []
        for k, device in enumerate(self._devices):
            own = slice(k * each, (k + 1) * each)
            part = example._replace(version=(), slot=())
            part = jax.tree.map(lambda x, own=own: x[:, own], part)
            with jax.default_device(device):
                made.append(make(part._replace(slot=example.slot[own])))
        return made

    def joined(self, replays: list[Any]) -> Any:
        """The replays of all replicas, from those of each device here, in whose memory they are."""

        def join(sharding: Any, *parts: Any) -> Any:
            _, _, slots, *_ = shape = list(parts[0].shape)
            shape[2] = slots * jax.device_count()
            return jax.make_array_from_single_device_arrays(tuple(shape), sharding, list(parts))

        return jax.tree.map(join, self._replays, *replays)

    def parted(self, replays: Any) -> list[Any]:
        """The replays of each device here, from those of all replicas."""

        def part(k: int, x: Any) -> Any:
            return next(s.data for s in x.addressable_shards if s.device == self._devices[k])

        return [jax.tree.map(partial(part, k), replays) for k in range(self._local)]

    def __call__(
        self, states: Any, replays: Any, unroll: Unroll, losses: Any, settings: Any
    ) -> Any:
        """Learns; the states and the replays that it takes are donated.

        All are arrays of all devices, but for the policies that it gives: they are to act with, on
        the first device of this process, in whose memory they are already.
        """
        learn = self._compiled.get(len(unroll.log_prob), self._learn)
        operands = states, replays, unroll, losses, settings, self._wished()
        states, replays, policies, losses, self._granted = learn(*operands)
        return states, replays, first_copy(policies), losses


def first_copy(tree: Tree) -> Tree:
    """The copies on the first device of this process, of arrays that all devices have alike."""
    return jax.tree.map(lambda x: x.addressable_data(0), tree)


def _vectors_of(tree: Tree) -> dict[str, Array]:
    """The numbers of a tree as one vector for each type, by the type's name.

    To send a tree of many arrays costs more: each of them as much as a vector of thousands.
    """
    leaves = jax.tree.leaves(tree)
    names = sorted({str(leaf.dtype) for leaf in leaves})
    return {
        name: jnp.concatenate([leaf.reshape(-1) for leaf in leaves if str(leaf.dtype) == name])
        for name in names
    }


def _tree_of(vectors: Mapping[str, Array], like: Tree) -> Tree:
    """The tree that vectors were made of, whose shapes and types `like` has."""
    leaves, structure = jax.tree.flatten(like)
    used = dict.fromkeys(vectors, 0)
    parts = []
    for leaf in leaves:
        name, start = str(leaf.dtype), used[str(leaf.dtype)]
        used[name] = start + leaf.size
        parts.append(vectors[name][start : start + leaf.size].reshape(leaf.shape))
    return jax.tree.unflatten(structure, parts)


def gathered(body: np.ndarray) -> list[np.ndarray]:
    """The bytes of every replica: uint8 [size]. All call this at the same time."""
    from jax.experimental.multihost_utils import process_allgather

    sizes = process_allgather(np.array([len(body)], np.int32)).reshape(-1)
    padded = np.zeros(max(sizes), np.uint8)
    padded[: len(body)] = body
    bodies = np.asarray(process_allgather(padded)).reshape(len(sizes), -1)
    return [part[:size] for part, size in zip(bodies, sizes, strict=True)]
