"""Addresses of nodes and pods, each its own in the loopback range.

A node owns 127.<n>.0.0/16: itself is 127.<n>.0.1, its pods are 127.<n>.0.2 and up. Two clusters on one machine must
not share an address, for their pods listen on the same ports. The claim on <n> is an abstract Unix socket: it is
visible to every user, it is per network namespace as loopback is, and the kernel drops it when the node dies.
"""

from __future__ import annotations

import errno
import socket

NETWORKS = range(1, 255)
_NAME = "\0trainer-operator-node-127.{}"
_FIRST, _LAST = 2, 65534


class NoNetwork(Exception):
    """Every loopback network of this machine is taken."""


def node_address(number: int) -> str:
    """Return the address of the node that owns a network."""
    return f"127.{number}.0.1"


NODE_ADDRESSES = tuple(node_address(number) for number in NETWORKS)
"""Every address a node can have: the names that a node's serving certificate must hold."""


class Network:
    """A node's addresses; `close` gives them back."""

    def __init__(self, number: int, claim: socket.socket) -> None:
        self.number = number
        self._claim = claim
        self._used: set[str] = set()
        self._next = _FIRST

    @property
    def address(self) -> str:
        """The node's own address."""
        return node_address(self.number)

    def allocate(self) -> str:
        """Return an address that no pod of this node has; freed ones come last, their ports may linger."""
        for _ in range(_FIRST, _LAST + 1):
            address = f"127.{self.number}.{self._next // 256}.{self._next % 256}"
            self._next = self._next + 1 if self._next < _LAST else _FIRST
            if address not in self._used:
                self._used.add(address)
                return address
        raise NoNetwork(f"all {_LAST - _FIRST + 1} pod addresses of 127.{self.number}.0.0/16 are taken")

    def keep(self, address: str) -> None:
        """Note an address that a pod has from before this process was started; later ones come after it."""
        parts = address.split(".")
        if len(parts) == 4 and parts[:2] == ["127", str(self.number)]:
            self._used.add(address)
            self._next = max(self._next, int(parts[2]) * 256 + int(parts[3]) + 1)

    def release(self, address: str) -> None:
        """Give an address back."""
        self._used.discard(address)

    def close(self) -> None:
        """Give up the network."""
        self._claim.close()


def claim_network(preferred: int) -> Network:
    """Claim the first free network, beginning with the preferred one.

    Raises: NoNetwork when none is left.
    """
    count = len(NETWORKS)
    start = (preferred - NETWORKS.start) % count
    for offset in range(count):
        number = NETWORKS.start + (start + offset) % count
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(_NAME.format(number))
        except OSError as failure:
            claim.close()
            if failure.errno != errno.EADDRINUSE:
                raise
        else:
            return Network(number, claim)
    raise NoNetwork(f"all {count} loopback networks of this machine belong to other process nodes")
