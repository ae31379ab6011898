"""Opens the ends of connections by the name of their transport, or by an address.

listener = listen("host", identity, limit_bytes=1 << 20)
connection = connect(listener.address, other_identity, limit_bytes=1 << 20)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from srl.core.errors import expect
from srl.streams.transport.interface import Connection, Listener
from srl.streams.transport.message import Identity

if TYPE_CHECKING:
    from srl.streams.transport.keys import Keys

Transport = Literal["thread", "host", "network", "cluster"]


def listen(
    transport: Transport,
    identity: Identity,
    *,
    limit_bytes: int,
    interface: str = "127.0.0.1",
    keys: Keys | None = None,
    encrypt: bool = True,
    host: str = "",
) -> Listener:
    """Waits for peers in this process, on this host, or over the network.

    Args:
        transport: "thread", "host", "network", or "cluster" for both of these at once.
        identity: Of this end.
        limit_bytes: Of one body.
        interface: For "network" and "cluster", where to take peers from: an address of this host,
            or the name of one of its network interfaces.
        keys: The run's; over the network only peers that have them are admitted, and all is
            encrypted. None if only this host can connect.
        encrypt: False to do without keys, though others can then read and write everything.
        host: A name for this host, for "cluster"; peers that connect with the same share memory.

    Raises:
        UserError: If there is no such transport or interface, or strangers could connect.
    """
    if transport == "thread":
        from srl.streams.transport.thread import ThreadListener

        return ThreadListener(identity, limit_bytes)
    if transport == "host":
        from srl.streams.transport.unix import UnixListener

        return UnixListener(identity, limit_bytes)
    known = transport in ("network", "cluster")
    expect(known, "the transport", transport, "thread, host, network or cluster")
    from srl.streams.transport.door import listen_between_hosts

    network = listen_between_hosts(identity, limit_bytes, interface, keys, encrypt)
    if transport == "network":
        return network
    from srl.streams.transport.cluster import ClusterListener

    return ClusterListener(network, host)


def connect(
    address: str,
    identity: Identity,
    *,
    limit_bytes: int,
    timeout: float = 30.0,
    keys: Keys | None = None,
    encrypt: bool = True,
    host: str = "",
) -> Connection:
    """Connects to a listener's address; if it refuses, the next `receive` raises.

    Args:
        address: Begins with `thread:`, `unix:`, `tcp://` or `tcp+aes://`, or names a host and its
            addresses.
        identity: Of this end.
        limit_bytes: As of the listener.
        timeout: Seconds to wait for the other host.
        keys: The run's, if it has some.
        encrypt: As of the listener.
        host: A name for this host, as of listeners here.

    Raises:
        UserError: If the address is of no transport, or of another host and there are no keys.
        Disconnected: If nothing listens there.
    """
    if " " in address:
        from srl.streams.transport.unix import this_host

        theirs, within, beyond = address.split(" ")
        chosen = within if theirs == (host or this_host()) else beyond
        connection = connect(
            chosen, identity, limit_bytes=limit_bytes, timeout=timeout, keys=keys, encrypt=encrypt
        )
        connection.address = address  # by which connections to one listener are recognized
        return connection
    if address.startswith("thread:"):
        from srl.streams.transport.thread import ThreadConnection

        return ThreadConnection(address, identity, limit_bytes)
    if address.startswith("unix:"):
        from srl.streams.transport.unix import UnixConnection

        return UnixConnection(address, identity, limit_bytes)
    known = address.startswith(("tcp://", "tcp+aes://"))
    expect(known, "the address", address, "thread:..., unix:..., tcp://... or tcp+aes://...")
    from srl.streams.transport.door import connect_between_hosts

    return connect_between_hosts(address, identity, limit_bytes, timeout, keys, encrypt)
