"""Sealed messages: AES-128-GCM above connections that ZeroMQ does not encrypt.

Each direction of a connection has a key, which has crossed under CURVE (`door`). The nonce counts
its frames and is never sent, so a frame that is changed, repeated, moved or left out does not open.
The header of a message authenticates its body. A new key follows from the old one long before the
counter or the safe number of blocks ends (TLS 1.3 has the same limit, RFC 8446, 5.5).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from srl.streams.transport.message import HEADER_BYTES, Identity, Message, Refused, decode
from srl.streams.transport.zap import admit_guests

TAG_BYTES = 16
"""A sealed frame is longer by so much."""
KEY_BYTES = 16
_KEY_FRAMES = 1 << 20  # of 256 KiB at most: 2^34 blocks
_MOST_INVITED = 4096
_INVITATION = struct.Struct("<H16s32s16s16s")


def processor_has_aes() -> bool:
    """True if the processor has instructions for AES; without them CURVE is faster."""
    return "aes" in Path("/proc/cpuinfo").read_text().split()


class Unsealed:
    """Frames as they are: without encryption, or with ZeroMQ's own."""

    broken = False
    """True if nothing more can be opened."""

    def __init__(self, limit_bytes: int) -> None:
        """Opens bodies of up to `limit_bytes`."""
        self._limit_bytes = limit_bytes

    def close(self, frames: list[Any]) -> list[Any]:
        """The frames to send for a header and the parts of its body."""
        return frames

    def take_back(self) -> None:
        """Undoes the last `close`, if none of its frames was sent; they must be dropped."""

    def open(self, header: bytes | memoryview, parts: list[memoryview]) -> tuple[Identity, Message]:
        """The message of received frames, a header and the parts of its body.

        Raises:
            Refused: If they are not a message.
        """
        identity, message, size = decode(header, self._limit_bytes)
        _check_frames(header, [len(part) for part in parts], size)
        if len(parts) > 1:
            return identity, message._replace(body=b"".join(parts))
        return identity, message._replace(body=parts[0]) if size else message


class Sealed(Unsealed):
    """Frames under a key for each direction."""

    def __init__(self, limit_bytes: int, outward: bytes, inward: bytes) -> None:
        """Closes with the key `outward`, and opens with `inward`."""
        super().__init__(limit_bytes)
        self._outward, self._inward = _Key(outward), _Key(inward)
        self._before_last = self._outward.position

    def close(self, frames: list[Any]) -> list[Any]:
        """Copies of the frames, sealed."""
        header, *parts = frames
        self._before_last = self._outward.position
        sealed = [self._outward.seal(header, b"")]
        sealed += [self._outward.seal(part, header) for part in parts]
        return sealed

    def take_back(self) -> None:
        """Undoes the last `close`, if none of its frames was sent; they must be dropped.

        The next frames have their nonces, and two frames under one nonce would reveal each other.
        """
        self._outward.position = self._before_last

    def open(self, header: bytes | memoryview, parts: list[memoryview]) -> tuple[Identity, Message]:
        """The message of sealed frames.

        Raises:
            Refused: If the other end has not sealed them as the next ones; then all later ones are
                refused, too.
        """
        if self.broken:
            raise Refused("a message after one that did not open")
        self.broken = True  # unless all of it opens
        clear = self._inward.open(header, b"")
        identity, message, size = decode(clear, self._limit_bytes)
        _check_frames(clear, lengths := [len(part) - TAG_BYTES for part in parts], size)
        if len(parts) == 1:
            message = message._replace(body=self._inward.open(parts[0], clear))
        elif parts:
            body, start = np.empty(size, np.uint8).data, 0
            for part, length in zip(parts, lengths, strict=True):
                self._inward.open(part, clear, body[start : start + length])
                start += length
            message = message._replace(body=body)
        self.broken = False
        return identity, message


class _Key:
    """The key of one direction, with the count of frames that it has sealed or opened."""

    def __init__(self, key: bytes) -> None:
        self._use(key)

    @property
    def position(self) -> tuple[bytes, int]:
        """The present key, and the count of its frames."""
        return self._key, self._count

    @position.setter
    def position(self, position: tuple[bytes, int]) -> None:
        key, count = position
        if key != self._key:
            self._use(key)
        self._count = count

    def seal(self, frame: Any, context: bytes) -> bytes:
        nonce = self._nonce()  # first, as it may come with a new key
        return self._aes.encrypt(nonce, frame, context)

    def open(self, frame: Any, context: bytes, into: memoryview | None = None) -> Any:
        nonce = self._nonce()
        try:
            if into is None:
                return self._aes.decrypt(nonce, frame, context)
            return self._aes.decrypt_into(nonce, frame, context, into)
        except InvalidTag as error:
            raise Refused(
                "a message that was changed, repeated, left out or moved on its way"
            ) from error

    def _use(self, key: bytes) -> None:
        self._key, self._aes, self._count = key, AESGCM(key), 0

    def _nonce(self) -> bytes:
        if self._count == _KEY_FRAMES:
            self._use(hmac.digest(self._key, b"the next key", hashlib.sha256)[:KEY_BYTES])
        self._count += 1
        return self._count.to_bytes(12, "little")


def _check_frames(header: Any, lengths: list[int], size: int) -> None:
    """Raises Refused unless a header is followed by the body that it announces."""
    if sum(lengths) != size or min(lengths, default=1) < 1 or len(header) != HEADER_BYTES:
        found = f"{len(lengths)} bodies of {sum(lengths):,} bytes in all"
        raise Refused(f"{found} after a header of {len(header)} for {size:,}")


class Invitation(NamedTuple):
    """A single admission to a listener, with the keys of the connection: a secret."""

    port: int
    number: bytes
    """Names the invitation; not secret once it was used."""
    word: bytes
    """Proves, once, that it is the invitation's owner that connects."""
    to_listener: bytes
    """The key of one direction."""
    from_listener: bytes

    def to_bytes(self) -> bytes:
        """The invitation as the body of a message."""
        return _INVITATION.pack(*self)

    @classmethod
    def from_bytes(cls, body: bytes) -> Invitation:
        """The invitation that `to_bytes` wrote.

        Raises:
            Refused: If it is none.
        """
        if len(body) != _INVITATION.size:
            raise Refused(f"an invitation of {len(body)} bytes; expected {_INVITATION.size}")
        return cls(*_INVITATION.unpack(body))

    def codec(self, limit_bytes: int) -> Sealed:
        """Seals for the end that connects."""
        return Sealed(limit_bytes, self.to_listener, self.from_listener)


class Guests:
    """The invitations of a listener; each admits one connection. For several threads."""

    def __init__(self) -> None:
        self.domain = secrets.token_hex(16).encode()
        """Names the listener where ZeroMQ asks who may come."""
        self._lock = threading.Lock()
        self._invited: dict[str, Invitation] = {}
        self._admitted: dict[str, Invitation] = {}
        admit_guests(self.domain, self.admits)

    def invite(self, port: int) -> Invitation:
        """A new invitation to this port; the oldest ones lapse if too many were not used."""
        number, word = secrets.token_bytes(16), secrets.token_bytes(32)
        keys = secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)
        invitation = Invitation(port, number, word, *keys)
        with self._lock:
            _keep(self._invited, invitation)
        return invitation

    def admits(self, number: bytes, word: bytes) -> bool:
        """True for the first that shows an invitation."""
        with self._lock:
            invitation = self._invited.get(number.decode("ascii", "replace"))
            if invitation is None or not hmac.compare_digest(invitation.word.hex().encode(), word):
                return False
            del self._invited[invitation.number.hex()]
            _keep(self._admitted, invitation)
            return True

    def codec(self, number: str, limit_bytes: int) -> Sealed:
        """Seals for a connection that was admitted; once, as its keys must not count twice.

        Raises:
            Refused: If there is none.
        """
        with self._lock:
            invitation = self._admitted.pop(number, None)
        if invitation is None:
            raise Refused("a message on a connection that has ended")
        return Sealed(limit_bytes, invitation.from_listener, invitation.to_listener)


def _keep(invitations: dict[str, Invitation], new: Invitation) -> None:
    """Adds an invitation; drops the oldest if there are too many."""
    invitations[new.number.hex()] = new
    if len(invitations) > _MOST_INVITED:
        del invitations[next(iter(invitations))]
