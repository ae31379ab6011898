"""The keys of a run: one CURVE pair, by which its workers on several hosts recognize each other.

Both ends of a connection use the same pair. A listener proves that it has the secret half, and
admits only peers that prove the same. A process that can read the pair is a worker of the run.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from srl.core.errors import UserError

VARIABLE = "SRL_KEYS"
"""The environment variable with a run's keys, where its folder cannot be read."""
_FOLDER = "keys"
_FILE = "curve.secret"
_MOST_BYTES = 1000


@dataclass(frozen=True)
class Keys:
    """A CURVE pair, each half as 40 letters of Z85."""

    public: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def new(cls) -> Keys:
        """A new random pair."""
        import zmq

        return cls(*zmq.curve_keypair())

    @classmethod
    def from_text(cls, text: str, origin: str) -> Keys:
        """The pair that `to_text` wrote; `origin` names the text in an error.

        Raises:
            UserError: If it is not a pair.
        """
        import zmq

        halves = text.encode("ascii", "replace").split()
        try:
            if len(halves) == 2 and zmq.curve_public(halves[1]) == halves[0]:
                return cls(*halves)
        except (zmq.ZMQError, ValueError):
            pass
        raise UserError(
            f"{origin} holds no pair of keys; expected a public and its secret key, 40 letters "
            "each: a new run makes new ones"
        )

    @property
    def run(self) -> int:
        """A number of 64 bits that all messages of the run carry, and that is not secret."""
        return int.from_bytes(hashlib.sha256(self.public).digest()[:8], "little")

    def to_text(self) -> str:
        """The pair as text for an environment variable or a file: a secret."""
        return f"{self.public.decode()} {self.secret.decode()}"


def key_file(folder: Path) -> Path:
    """The file with the keys of the run in this folder."""
    return folder / _FOLDER / _FILE


def create_keys(folder: Path) -> Keys:
    """Makes the keys of a run, in a file of its folder that only this user can read."""
    keys, file = Keys.new(), key_file(folder)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    file.parent.chmod(0o700)
    unfinished = file.with_suffix(f".{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w") as opened:
        opened.write(keys.to_text() + "\n")
        opened.flush()
        os.fsync(fd)
    unfinished.replace(file)
    return keys


def read_keys(folder: Path) -> Keys:
    """The keys of the run in this folder.

    Raises:
        UserError: If there are none, others could have read or written them, or they are broken.
    """
    file = key_file(folder)
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise UserError(f"cannot read the run's keys, {file}: {error.strerror}") from error
    with open(fd, "rb") as opened:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            raise UserError(f"{file} is not a file; expected the run's keys there")
        if state.st_uid != os.geteuid():
            raise UserError(
                f"{file} belongs to user {state.st_uid}, not to {os.geteuid()}, which runs this "
                "process; only the user that began a run can take part in it"
            )
        if state.st_mode & 0o077:
            raise UserError(
                f"others can read the run's keys (mode {stat.S_IMODE(state.st_mode):04o}); if none "
                f"has done so: chmod 600 {file}"
            )
        text = opened.read(_MOST_BYTES)
    return Keys.from_text(text.decode("ascii", "replace"), str(file))


def keys_of(folder: Path) -> Keys:
    """The keys of a run: from the environment, or else from its folder.

    Raises:
        UserError: As `read_keys`.
    """
    return keys_from_environment() or read_keys(folder)


def keys_from_environment() -> Keys | None:
    """The keys in `SRL_KEYS`; None if it is not set.

    Raises:
        UserError: If it holds something else.
    """
    text = os.environ.get(VARIABLE)
    return Keys.from_text(text, f"the variable {VARIABLE}") if text else None
