"""Checks in a process of their own, which an environment may abort, exit or hang."""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

from srl.core.errors import RunError, UserError, formatted
from srl.extras.check_env.report import Finding, Settings
from srl.system import child_process
from srl.system.supervised import Child, Ended

_MAKING_SECONDS = 60.0  # that making an environment may take, if --seconds is not more
_SILENT_SECONDS = 10.0  # of a check, before it is shown that it goes on
_CALLS_OF_A_CHECK = 2  # seconds of one call, in those of a check, from which on it is a hang


def findings_of_child(settings: Settings) -> Iterator[Finding]:
    """Runs `checks.findings` in another process; the last finding is the end of that process.

    Raises:
        UserError: If there is no such environment.
        RunError: If the checks themselves failed.
    """
    results, theirs = os.pipe()
    child = Child(
        "srl.extras.check_env.child",
        json.dumps([theirs, dataclasses.asdict(settings)]),
        stdout=2,  # what the environment prints is no finding
        pass_fds=(theirs,),
        dies_with_parent=True,
    )
    os.close(theirs)
    with child, os.fdopen(results, "rb"):
        check, silent = "making", ""
        patience = min(_SILENT_SECONDS, _CALLS_OF_A_CHECK * settings.seconds)
        for kind, content in _messages(results, child.pidfd, patience):
            if kind == "check":
                check = content
            elif kind == "silence":
                if check != silent:
                    making = _making_seconds(settings.seconds)
                    sys.stderr.write(
                        f"still in the check of {check}; a call that makes an environment is given "
                        f"up after {making:g} s\n"
                    )
                silent = check
            elif kind == "finding":
                yield Finding(**content)
            elif kind == "end":
                return
            else:
                raise (UserError if kind == "user" else RunError)(content)
        yield Finding("survival", "fix", _verdict(check, child.reap()))


def _making_seconds(seconds: float) -> float:
    """The longest that making an environment may take, by --seconds."""
    return max(_MAKING_SECONDS, _CALLS_OF_A_CHECK * seconds)


def _messages(results: int, pidfd: int, patience: float) -> Iterator[tuple[str, Any]]:
    """Reads the process's messages until it ends, without a wait for others that hold the pipe.

    Each time that nothing has come for `patience` seconds, there is a message "silence".
    """
    os.set_blocking(results, False)
    poll = select.poll()
    poll.register(results, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    data, ended = b"", False
    while not ended:
        if not (came := poll.poll(1000 * patience)):
            yield "silence", None
        ended = any(fd == pidfd for fd, _ in came)
        with suppress(BlockingIOError):
            while part := os.read(results, 1 << 16):
                data += part
            ended = True
        *lines, data = data.split(b"\n")
        yield from (tuple(json.loads(line)) for line in lines)


def _verdict(check: str, ended: Ended) -> str:
    """Describes the end of a process that had not finished its checks."""
    stack = child_process.innermost_frames(ended.dump)
    if ended.dump.startswith("Timeout"):
        return (
            f"in the check of {check} a call of the environment did not return; if it may take "
            f"longer, give more --seconds; it was here:\n{stack}"
        )
    text = f"in the check of {check} the environment's process {ended.how}"
    return f"{text}; it was here:\n{stack}" if stack else text


# ---- in the process ----


def main(arguments: Sequence[str]) -> None:
    """Checks an environment and sends what is found.

    Args:
        arguments: In JSON, the descriptor of the pipe for findings, and the settings.
    """
    from srl.extras.check_env.checks import findings

    def send(kind: str, content: Any) -> None:
        os.write(results, json.dumps([kind, content]).encode() + b"\n")

    results, settings = json.loads(arguments[0])
    os.set_inheritable(results, False)
    try:
        compiles = settings["env"].startswith("jax:")
        with closing(_Alarm(settings["seconds"], compiles)) as alarm:
            for found in findings(Settings(**settings), alarm):
                if isinstance(found, str):
                    send("check", found)
                else:
                    send("finding", dataclasses.asdict(found))
        send("end", None)
    except UserError as error:
        send("user", str(error))
    except RunError as error:
        send("run", str(error))
    except (Exception, KeyboardInterrupt) as error:  # a Ctrl-C does not reach this process
        send("run", f"the checks failed:\n{formatted(error)}")


class _Alarm:
    """Ends the process, with its stack in a file, once a call takes too long.

    The stack is written by a thread that needs no interpreter, so that a call into native code that
    keeps the interpreter to itself is found too.
    """

    def __init__(self, seconds: float, compiles: bool) -> None:
        """Sets no alarm yet; where any call may compile it has as long as making has."""
        self._seconds, self._compiles = seconds, compiles
        self._armed, self._limit = 0.0, 0.0

    def __call__(self, making: bool = False) -> None:
        seconds, long = self._seconds, making or self._compiles
        limit = _making_seconds(seconds) if long else _CALLS_OF_A_CHECK * seconds
        now = time.monotonic()
        slack = min(1.0, limit / 4)  # arming takes longer than a quick step
        if limit != self._limit or now - self._armed > slack:
            self._armed, self._limit = now, limit
            faulthandler.dump_traceback_later(limit + slack, exit=True, file=child_process.own_dump)

    def close(self) -> None:
        faulthandler.cancel_dump_traceback_later()
