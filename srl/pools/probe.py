"""A probe of an environment in Python: one is made in another process, which may hang or crash."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from srl.core.errors import UserError
from srl.core.types import Specs
from srl.pools.pool import Pool
from srl.pools.python.processes.protocol import (
    FAILED,
    READY,
    CommandKind,
    CommandReader,
    receive_message,
    send_command,
    send_message,
)
from srl.pools.python.processes.setup import pack_setup, unpack_setup
from srl.pools.python.sources import SimulatorSource
from srl.system.supervised import Child


def probed(source: SimulatorSource, options: dict[str, Any], seconds: float) -> Specs | None:
    """Makes an environment, or a vector environment of one, in another process, and ends that.

    Args:
        source: As for `make_pool`.
        options: Likewise.
        seconds: The longest wait.

    Returns:
        Its specs; None if it fails or takes longer, which the run's own workers explain.

    Raises:
        UserError: If there is no such environment, or it takes no such options.
    """
    try:
        setup = pack_setup(source, options, 1, 1)
    except UserError:  # other processes of the run may import it
        return None
    try:
        ours, theirs = socket.socketpair()
        ours.settimeout(seconds)
        with ours, theirs:
            fd = theirs.fileno()
            with Child("srl.pools.make", str(fd), pass_fds=(fd,), dies_with_parent=True):
                theirs.close()
                send_command(ours, CommandKind.SETUP, payload=setup)
                kind, content = receive_message(ours)
    except (EOFError, OSError):  # a timeout or a lack of processes among them
        return None
    if kind == FAILED:
        raise UserError(content)
    return content


def answer(descriptor: int, make_pool: Callable[..., Pool]) -> None:
    """Makes what comes from the socket of this descriptor, and sends its specs."""
    with socket.socket(fileno=descriptor) as launcher:
        (setup,) = CommandReader(launcher).read(wait=True)
        source, options, num_envs, _ = unpack_setup(setup.payload)
        try:
            with make_pool(source, num_envs, **options) as pool:
                send_message(launcher, READY, pool.specs)
        except (UserError, ImportError) as error:
            send_message(launcher, FAILED, str(error))
        except (Exception, SystemExit):
            return  # which closes the socket
