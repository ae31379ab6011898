"""The sockets of connections between hosts: options, limits, keys and ports; their frames."""

from __future__ import annotations

import ipaddress
import math
import resource
import select
import socket
import time
from typing import Any, cast

import zmq

from srl.core.errors import RunError, UserError
from srl.streams.transport.interface import check_size
from srl.streams.transport.keys import Keys
from srl.streams.transport.message import HEADER_BYTES, Identity, Message, as_bytes, encode
from srl.streams.transport.sealing import Guests, Invitation
from srl.streams.transport.tcp_watch import KEEPALIVE_PROBES, KEEPALIVE_SECONDS
from srl.streams.transport.zap import answer_about_keys

Security = Keys | Guests | Invitation | None
"""The means by which two ends recognize each other: the run's keys, with which ZeroMQ encrypts all,
or an invitation, with which messages are sealed (`sealing`). None for neither."""
COPIED_BYTES = 1 << 17
"""A smaller body is copied, which is faster than to share it with ZeroMQ's thread; listeners read
ahead until one that is as large waits."""
EARLY_BYTES = 1 << 17
"""The most bytes that are sent over a sealed connection before the answer to JOINED."""
MOST_UNREAD = 1024
"""Messages that wait on each side of a connection, if they are small."""
STRANGE = {
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): "it left before the handshake",
    int(
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    ): "it does not speak the protocol of a worker with the run's keys",
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH): "its key is not the run's, or it was not invited",
}
"""The events of connections that failed, as text."""
_QUEUED_BYTES = 1 << 24  # of large messages on each side of a connection, before its sender waits
_LEAST_QUEUED = 16
# A plain number, whose operators are faster than those of enums.
_READABLE = int(zmq.POLLIN)
_LINGER_MS = 2000
_CURVE_BYTES = 33  # that CURVE adds to a frame (a seal less): a word, a nonce, a code, flags
_SHORT_FRAME, _SHORT_HEADER, _LONG_HEADER = 255, 2, 9  # of ZMTP, in bytes
_HANDSHAKE_BYTES = 1 << 16  # of ZMTP and CURVE, and what ZeroMQ reads at a time; plenty
_PART_BYTES = 1 << 18
_MOST_UNIDENTIFIED = 4096


def part_bytes(limit_bytes: int, security: Security) -> int:
    """The most bytes of a body in one frame.

    ZeroMQ receives a whole frame before it checks the sender. So where that is done frames are
    small, or strangers could fill the memory.
    """
    return max(1, min(limit_bytes, _PART_BYTES) if security else limit_bytes)


def wire_bytes(frame_bytes: int, encrypted: bool) -> int:
    """Gives the bytes on the wire of a frame (ZMTP 3.1, RFC 37; CurveZMQ, RFC 26)."""
    size = frame_bytes + (_CURVE_BYTES if encrypted else 0)
    return size + (_SHORT_HEADER if size <= _SHORT_FRAME else _LONG_HEADER)


def frames_of(identity: Identity, message: Message, limit_bytes: int, part: int) -> list[Any]:
    """The header of a message, and its body in even parts of at most `part` bytes.

    Raises:
        RunError: If it is too large, or has descriptors.
    """
    check_size(message, limit_bytes)
    if message.fds:
        raise RunError("descriptors cannot be sent to another host")
    body = as_bytes(message.body)
    if body is None:
        return [encode(identity, message, 0)]
    header, size = encode(identity, message, len(body)), len(body)
    if size <= part:
        return [header, body]
    step = -(-size // -(-size // part))
    return [header, *(body[start : start + step] for start in range(0, size, step))]


def read_bodies(
    socket: zmq.Socket, header: zmq.Frame, limit_bytes: int, part: int, encrypted: bool
) -> tuple[list[memoryview], int]:
    """The frames that follow a header, and what they and the header took on the wire.

    Of what is too much, little is kept.
    """
    most = 2 * limit_bytes // part + 2  # as each is at least half as long as it may be
    largest = limit_bytes + most * _CURVE_BYTES  # as each may have a seal
    bodies: list[memoryview] = []
    last, size, wire = header, 0, wire_bytes(len(header), encrypted)
    while last.more:
        last = socket.recv(copy=False)
        wire += wire_bytes(len(last), encrypted)
        if size <= largest and len(bodies) < most:
            bodies.append(last.buffer)
            size += len(last)
    return bodies, wire


def _unread_messages(limit_bytes: int) -> int:
    """High-water mark: messages that may wait on each side of a connection."""
    return min(max(_QUEUED_BYTES // max(limit_bytes, 1), _LEAST_QUEUED), MOST_UNREAD)


def most_unread_bytes(limit_bytes: int, security: Security) -> int:
    """Gives the most bytes that can wait unread on a connection, if all messages keep to the limit.

    ZeroMQ's high-water mark counts whole messages, and takes in one of any number of frames.
    """
    part = part_bytes(limit_bytes, security)
    frames = [HEADER_BYTES, *[part] * -(-limit_bytes // part)]
    largest = sum(wire_bytes(size, security is not None) for size in frames)
    return (_unread_messages(limit_bytes) + 1) * largest + _HANDSHAKE_BYTES


def most_early_bytes(limit_bytes: int, security: Security) -> int:
    """Gives the most bytes that can wait unread before the first message was opened.

    Whoever shows an invitation gets through ZeroMQ's handshake, perhaps without the keys.
    """
    most = most_unread_bytes(limit_bytes, security)
    sealed = isinstance(security, Guests | Invitation)
    return min(most, _HANDSHAKE_BYTES + EARLY_BYTES) if sealed else most


def most_unidentified() -> int:
    """Gives the most connections of a port that have sent nothing yet; a listener may have two."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MOST_UNIDENTIFIED, files // 4)


def _keep_freed_memory() -> None:
    """Has glibc keep the memory of messages for the next ones: copying them is twice as fast.

    It returns blocks of M_MMAP_THRESHOLD and more to the kernel, which is raised, together with
    M_TRIM_THRESHOLD, to the size of the largest block that was freed. Other allocators do nothing.
    """
    bytearray(1 << 22)  # freed at once


def open_socket(
    kind: int,
    limit_bytes: int,
    security: Security,
) -> zmq.Socket:
    """A socket that neither waits for ever nor buffers too much.

    Args:
        kind: ROUTER to listen, DEALER to connect.
        limit_bytes: Of one body.
        security: By which both ends recognize each other.
    """
    context = zmq.Context.instance()
    _keep_freed_memory()
    opened = context.socket(kind)
    opened.maxmsgsize = max(part_bytes(limit_bytes, security), HEADER_BYTES)
    opened.maxmsgsize += _CURVE_BYTES if security else 0
    opened.linger = _LINGER_MS
    opened.tcp_keepalive = 1
    opened.tcp_keepalive_idle = opened.tcp_keepalive_intvl = KEEPALIVE_SECONDS
    opened.tcp_keepalive_cnt = KEEPALIVE_PROBES
    opened.handshake_ivl = 5000
    opened.rcvhwm = opened.sndhwm = _unread_messages(limit_bytes)
    opened.copy_threshold = COPIED_BYTES
    _secure(opened, security)
    return opened


def _secure(opened: zmq.Socket, security: Security) -> None:
    """Sets the options of a socket by which it recognizes the other end."""
    if isinstance(security, Invitation):
        opened.setsockopt_string(zmq.PLAIN_USERNAME, security.number.hex())
        opened.setsockopt_string(zmq.PLAIN_PASSWORD, security.word.hex())
    elif isinstance(security, Guests):
        opened.plain_server = True
        _ask(opened, security.domain)
    elif security is not None:
        opened.curve_publickey, opened.curve_secretkey = security.public, security.secret
        if opened.type == zmq.ROUTER:
            opened.curve_server = True
            _ask(opened, security.public)
        else:
            opened.curve_serverkey = security.public


def _ask(opened: zmq.Socket, domain: bytes) -> None:
    """Has a socket ask about each peer."""
    answer_about_keys(opened.context)
    opened.zap_domain = domain
    opened.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # refuses all peers if nothing answers


def securing(what: str, host: str, keys: Keys | None, encrypt: bool) -> Keys | None:
    """The keys to encrypt with, or None where nothing is encrypted.

    Args:
        what: The operation: "listen at" or "connect to".
        host: Address, or name of a network interface.
        keys: Of the run, if it has some.
        encrypt: Whether they are wanted.

    Raises:
        UserError: If others could read and write the messages, and that was not asked for.
    """
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        alone = False
    else:
        if address.is_unspecified:
            raise UserError(
                f"cannot {what} {host}, which is every interface of this host; name the one that "
                "the run's other hosts are reached by, such as eth0 or its address"
            )
        alone = address.is_loopback
    if not (keys or alone) and encrypt:
        raise UserError(
            f"cannot {what} {host} without the run's keys: others could read and write everything; "
            "expected an address of this machine alone, such as 127.0.0.1, or keys"
        )
    return keys if encrypt else None


def bind(opened: zmq.Socket, interface: str) -> str:
    """Takes a free port of the interface; gives the address in numbers.

    Raises:
        UserError: If there is no such interface; the socket is closed then.
    """
    if ":" in interface:
        opened.ipv6 = True
        interface = f"[{interface.strip('[]')}]"
    try:
        opened.bind(f"tcp://{interface}:*")
    except zmq.ZMQError as error:
        opened.close(0)
        raise UserError(
            f"cannot listen at {interface}: {error.strerror}; expected an address of this host or "
            "the name of one of its network interfaces (`ip address` lists them)"
        ) from error
    return opened.getsockopt_string(zmq.LAST_ENDPOINT)


def monitor(opened: zmq.Socket, events: int) -> zmq.Socket:
    """A socket that receives the events of another."""
    address = f"inproc://monitor-{id(opened)}-{time.monotonic_ns()}"
    opened.monitor(address, events | zmq.EVENT_MONITOR_STOPPED)
    events_of = opened.context.socket(zmq.PAIR)
    events_of.rcvhwm = 0
    events_of.connect(address)
    return events_of


def has_events(monitor: zmq.Socket) -> bool:
    """True if an event waits on a monitor."""
    return bool(cast(int, monitor.get(zmq.EVENTS)) & _READABLE)


def milliseconds(timeout: float | None) -> int | None:
    """Seconds as ZeroMQ takes them."""
    return None if timeout is None else math.ceil(1000 * max(timeout, 0))


def epoll_of(*sockets: zmq.Socket) -> select.epoll:
    """Readable when something may have come to a socket."""
    epoll = select.epoll()
    for each in sockets:
        epoll.register(cast(int, each.get(zmq.FD)), select.EPOLLIN)
    return epoll


def accepted_from(fd: int, surplus: bool) -> str:
    """The peer's address of a TCP connection that ZeroMQ has accepted; closes a surplus one."""
    try:
        with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as accepted:
            peer = accepted.getpeername()
            if surplus and isinstance(peer, tuple):
                accepted.shutdown(socket.SHUT_RDWR)
    except OSError:
        peer = None
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "an unknown peer that has left"
