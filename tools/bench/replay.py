"""A large replay: its memory, its checkpoints, and how it is read again."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from srl.algorithms.replay import Replay, empty, insert
from srl.core.console.arguments import Arguments, number
from srl.core.console.stages import Stages
from srl.core.lazy import jax
from srl.core.types import Unroll
from srl.extras.bench.rounds import show
from srl.loop.learning.replay_files import ReplayFiles, expect_room, tree_bytes
from srl.pools.memory_check import resident_bytes
from srl.record import block_files
from tools.bench import PROGRAM

_FRAME = (84, 84)
_NOTES = """Frames are 84 x 84 bytes of noise, each stored once. An unroll stores one row more than
its steps: long unrolls take less. Files go to a new folder in --folder, and are removed; they are
read from the disk, as far as the system can be asked to forget them."""


def main(argv: list[str]) -> int:
    """`bench replay [--frames N] [--num-slots N] [--unroll-length N] ... [--json]`."""
    parser = Arguments("replay", program=PROGRAM, epilog=_NOTES)
    add, count = parser.add_argument, number(1)
    add("--frames", type=count, default=1_000_000, metavar="N", help="steps; default 1,000,000")
    add("--num-slots", type=count, default=64, metavar="N", help="default 64")
    add("--unroll-length", type=count, default=64, metavar="N", help="default 64")
    add("--new", type=count, default=10, metavar="N", help="unrolls after the first; default 10")
    add("--folder", type=Path, default=None, metavar="DIR", help="for the files")
    add("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(argv)
    steps = options.num_slots * options.unroll_length
    blocks = max(1, options.frames // steps)
    config = {
        "frames": blocks * steps,
        "num_slots": options.num_slots,
        "unroll_length": options.unroll_length,
        "new_frames": options.new * steps,
    }
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, Stages() as stages:
        for name, value, unit, text, more in _measured(Path(folder), blocks, options, stages):
            line = {"name": f"replay-{name}", "config": config, "value": value, "unit": unit}
            show({**line, **more}, text, options.json)
    return 0


def _measured(
    folder: Path, blocks: int, options: Any, stages: Stages
) -> Iterator[tuple[str, float, str, str, dict[str, float]]]:
    """The name, value, unit and text of each figure, and more values."""
    unroll = jax.device_put(_unroll(options.num_slots, options.unroll_length))
    expect_room(jax.eval_shape(lambda: empty(unroll, blocks)))
    write = jax.jit(insert, donate_argnums=0)
    files, took = ReplayFiles(), _Took()

    stages.show("filling", f"{blocks} unrolls")
    before, replay = resident_bytes(), empty(unroll, blocks)
    for n in range(blocks):
        replay = write(replay, unroll, n)
    jax.block_until_ready(replay)
    held, size = resident_bytes() - before, tree_bytes(replay)
    text = f"{held:,} bytes of memory, of which {size:,} are the replay"
    yield "memory", held, "B", text, {"replay_bytes": size}

    stages.show("saving", "all of it")
    with took.measured():
        saved = files.save(folder, {"policy": replay}, blocks, _go_on).files
    first = sum((folder / name).stat().st_size for name in saved)
    yield (
        "first-checkpoint",
        took.seconds,
        "s",
        f"{took} to write {first:,} bytes",
        {"cpu_seconds": took.cpu_seconds, "bytes": first},
    )

    updates = blocks + options.new
    for n in range(blocks, updates):
        replay = write(replay, unroll, n)
    jax.block_until_ready(replay)
    stages.show("saving again", "what is new")
    with took.measured():
        again = files.save(folder, {"policy": replay}, updates, _go_on).files
    new = sum((folder / name).stat().st_size for name in again if name not in saved)
    yield (
        "next-checkpoint",
        took.seconds,
        "s",
        f"{took} to write {new:,} new bytes",
        {"cpu_seconds": took.cpu_seconds, "bytes": new},
    )

    expected = _sample(replay)
    del replay
    for name in again:
        _forget(folder / name)
    stages.show("reading")
    with took.measured():
        assert not block_files.damaged(folder, again, _go_on)
        nothing = {"policy": empty(unroll, blocks)}
        read = ReplayFiles().load(folder, again, nothing, updates, _go_on)
        jax.block_until_ready(read)
    assert np.array_equal(_sample(read["policy"]), expected)
    yield (
        "resume",
        took.seconds,
        "s",
        f"{took} to check and to read them",
        {"cpu_seconds": took.cpu_seconds},
    )


def _go_on() -> None:
    """Has nothing to show between two files."""


def _unroll(slots: int, length: int) -> Unroll:
    generator = np.random.default_rng(0)
    rows, flags = (length + 1, slots), np.zeros((length + 1, slots), bool)
    return Unroll(
        observation=generator.integers(0, 256, (*rows, *_FRAME), np.uint8),
        reward=generator.random(rows, np.float32),
        terminated=flags,
        truncated=flags,
        action=generator.integers(0, 18, (length, slots), np.int32),
        log_prob=np.zeros((length, slots), np.float32),
        memory=(),
        version=np.zeros((length, 1, 2), np.int32),
        slot=np.arange(slots, dtype=np.int32),
    )


def _sample(replay: Replay) -> np.ndarray:
    """A row of each block, to compare."""
    return np.array(replay.observation[:, 1, 0, 40])


class _Took:
    seconds = cpu_seconds = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        before, cpu_before = time.perf_counter(), time.process_time()
        yield
        self.seconds = time.perf_counter() - before
        self.cpu_seconds = time.process_time() - cpu_before

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.cpu_seconds:.2f} s of processors)"


def _forget(file: Path) -> None:
    """Asks the system to forget what it has in memory of a file."""
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
