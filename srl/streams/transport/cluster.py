"""One listener for peers of this host, which share memory, and for those of other hosts."""

from __future__ import annotations

from srl.core.errors import UserError
from srl.streams.transport.interface import Listener, Peer, PolledListener
from srl.streams.transport.message import JOINED, LEFT, Message
from srl.streams.transport.network import NetworkListener
from srl.streams.transport.unix import UnixListener, this_host

_LOOK_SECONDS = 0.5  # between two attempts to send what a peer had no room for


class ClusterListener(PolledListener):
    """A listener on the network and one on this host, as one.

    A sender has one connection, whichever way it comes: a new one replaces the one before.
    """

    shares_memory = True

    def __init__(self, network: NetworkListener, host: str = "") -> None:
        """Takes the network's listener over, and listens on this host, too.

        Args:
            network: Where peers of other hosts connect.
            host: A name for this host; by default one that no other host has.

        Raises:
            UserError: If it is more than a word.
        """
        if len(host.split()) > 1:
            network.close()
            raise UserError(f"this host is called {host!r}; expected one word")
        super().__init__(network.identity, network.limit_bytes)
        self._ways = network, UnixListener(network.identity, network.limit_bytes)
        self.address = " ".join([host or this_host(), self._ways[1].address, network.address])
        self._wait_for(*(way.fileno() for way in self._ways))

    @property
    def refused(self) -> int:
        """The number of refused messages and connections."""
        return self._refused + sum(way.refused for way in self._ways)

    def close(self) -> None:
        """Ends all connections."""
        if not self._epoll.closed:
            for unread in filter(None, self._ready):
                unread[1].close_fds()
            self._ready.clear()
            self._wait_no_more()
            for way in self._ways:
                way.close()

    def _way(self, peer: Peer) -> Listener:
        return self._ways[peer.shares_memory]

    def _collect(self, timeout: float | None) -> bool:
        """Takes one message of each listener, so that both have their turn."""
        found = [got for way in self._ways if (got := way.receive(0))]
        for peer, message in found:
            self._take_in(peer, message)
        patience = _LOOK_SECONDS if timeout is None else min(max(timeout, 0), _LOOK_SECONDS)
        events = self._epoll.poll(0 if found else patience)
        if self._wakeup in dict(events):
            self._woken()
        return bool(found or events or timeout is None or timeout > _LOOK_SECONDS)

    def _take_in(self, peer: Peer, message: Message) -> None:
        known = self._peers.get(peer.identity.sender)
        if message.kind == JOINED:
            self._register(peer, message, self._superseded(peer.identity))
        elif known is not peer:
            message.close_fds()  # of one that was replaced
        elif message.kind == LEFT:
            self._lose(peer)
        else:
            self._ready.append((peer, message))

    def _fence_off(self, sender: int, least: int) -> None:
        for way in self._ways:
            way._fence_off(sender, least)
        super()._fence_off(sender, least)

    def _transmit(self, peer: Peer, message: Message) -> None:
        self._way(peer).send(peer, message)

    def _hang_up(self, peer: Peer, reason: str) -> None:
        self._way(peer).cut_off(peer, reason)
