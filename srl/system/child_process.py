"""Child processes: their start, and the stacks that they leave."""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Sequence

from srl.core.errors import PACKAGE, is_own
from srl.system.lasting_output import keep_output
from srl.system.xla_log import quiet_xla

DUMP_SIGNAL = signal.SIGRTMIN + 8
"""The signal by which a process is asked for its stacks; unlikely to be used by a simulator."""
own_dump = -1
"""The descriptor that this process' stacks are written into; -1 if there is none."""
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_RESET_HANDLER = -(1 << 31)  # SA_RESETHAND, as a C int
_CHILD = """
import sys
sys.path[:] = sys.argv[1].split("\\n")
from srl.system.child_process import begin
begin()
"""
# SIGTERM by a handler, which programs that it starts do not inherit, and forks are not to have.
_IGNORE_SIGNALS = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: None)
os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
"""


def program_command(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """The command that runs a module of srl's by itself, for scripts and other hosts.

    -P keeps the current folder off the path: Python would look for modules there first.

    Args:
        module: It is run as `__main__`.
        arguments: Its arguments.
        python: The interpreter.
    """
    return [python, "-P", "-m", module, *arguments]


def child_command(
    module: str,
    *arguments: str,
    options: Sequence[str] = (),
    ignores_signals: bool = False,
    dies_with_parent: bool = False,
    dump: int = -1,
    nice: int = 0,
) -> list[str]:
    """The command of a process that looks for modules where this one does, and nowhere else.

    Args:
        module: Its `main` is called with the arguments, and gives the exit code.
        arguments: Strings.
        options: Of Python, such as -u.
        ignores_signals: Whether Ctrl-C and SIGTERM do nothing to it, from the first moment on.
            SIGTERM still ends what it starts.
        dies_with_parent: See `die_with`. The parent is the thread that starts the process.
        dump: See `dump_stacks_into`; none if negative.
        nice: See `lower_priority`, which it calls before it loads anything.
    """
    path = "\n".join(entry for entry in sys.path if isinstance(entry, str))
    code = _IGNORE_SIGNALS * ignores_signals + _CHILD
    settings = json.dumps([os.getpid() if dies_with_parent else 0, dump, nice])
    return [sys.executable, "-P", *options, "-c", code, path, settings, module, *arguments]


def begin() -> None:
    """Does what `child_command` has written: the whole of a process."""
    settings, module, *arguments = sys.argv[2:]
    del sys.argv[1:]  # simulators may look at it, too
    parent, dump, nice = json.loads(settings)
    keep_output()
    quiet_xla()
    if parent:
        die_with(parent)
    if dump >= 0:
        dump_stacks_into(dump)
    if nice:
        from srl.system.background.priority import lower_priority

        lower_priority(nice)
    sys.exit(importlib.import_module(module).main(arguments))


def die_with(parent: int) -> None:
    """Has the kernel kill this process, even a stopped one, when its parent ends.

    Args:
        parent: Process id, for the case that it has ended already.
    """
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(f"process {parent}, which started this one, has ended")


class _Action(ctypes.Structure):
    """The C library's `struct sigaction`, as on Linux with glibc or musl."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def die_of_the_second(number: int) -> None:
    """Has the kernel forget this signal's handler once it was called: the next one kills.

    Without it a process that is in C code, and holds Python's lock there, could not be interrupted.
    """
    action, library = _Action(), ctypes.CDLL(None)
    if library.sigaction(number, None, ctypes.byref(action)) == 0:
        action.flags |= _RESET_HANDLER
        library.sigaction(number, ctypes.byref(action), None)


def dump_stacks_into(fd: int) -> None:
    """Writes all stacks into `fd` at `DUMP_SIGNAL` and in a crash."""
    global own_dump
    own_dump = fd
    os.set_inheritable(fd, False)
    faulthandler.enable(fd)
    faulthandler.register(DUMP_SIGNAL, fd)


_POOLS = f"{PACKAGE}pools{os.sep}"


def innermost_frames(dump: str) -> str:
    """The part of a faulthandler's dump that is a simulator's, innermost frame first.

    These are the frames that srl called, of the thread that crashed; of a process that hangs, of
    the threads that step environments, else of the main thread. Where srl itself was innermost, it
    is the whole dump of a crash, and empty of a hang.
    """
    threads = re.findall(r"^(Current t|T)hread 0x.*\n((?:  .*\n?)*)", dump, re.MULTILINE)
    if not threads:
        return dump
    main = threads[-1][1]
    if dump.startswith("Fatal"):
        faulting = next((part for kind, part in threads if kind == "Current t"), main)
        return _called_by(faulting, PACKAGE) or dump
    stepping = [frames for _, part in threads if (frames := _called_by(part, _POOLS))]
    return "\n".join(stepping) or _called_by(main, PACKAGE)


def _called_by(stack: str, folder: str) -> str:
    """The frames of a stack, innermost first, that srl called from a file in a folder; or none."""
    frames: list[str] = []
    for line in stack.splitlines():
        frame = re.match(r' *File "([^"]*)"', line)
        if frame is None:  # such as "Garbage-collecting", before the frames
            continue
        if is_own(frame[1]):
            return "\n".join(frames) if frame[1].startswith(folder) else ""
        frames.append(line)
    return "\n".join(frames) if folder == PACKAGE else ""


def crash_place(dump: str) -> str:
    """Why a process crashed, by faulthandler's dump, and where; empty without a dump."""
    reason = dump.partition("\n")[0]
    return dump and f"{reason}; it was here:\n{innermost_frames(dump)}"
