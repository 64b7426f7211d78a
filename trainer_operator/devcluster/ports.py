"""Free loopback ports that are likely to stay free.

Ports come from below the kernel's ephemeral range, so that no outgoing connection takes one between our look and the
program's bind, nor while a crashed component is being restarted on the port its peers know. A port can still be
lost to another program: who starts one looks for `is_port_conflict` in its output and tries again with new ports.
"""

from __future__ import annotations

import random
import socket

from trainer_operator.devcluster.errors import ClusterFault

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 20_000, 31_999  # Linux' default ephemeral range begins at 32768
_ATTEMPTS = 200


def free_ports(count: int, *, rng: random.Random, address: str = LOOPBACK) -> list[int]:
    """Return distinct ports of `address` that nothing listens on now.

    Raises: ClusterFault when hardly any port is free.
    """
    ports: list[int] = []
    for _ in range(_ATTEMPTS):
        if len(ports) == count:
            return ports
        port = rng.randint(_FIRST, _LAST)
        if port not in ports and is_free(port, address=address):
            ports.append(port)
    raise ClusterFault(
        f"found fewer than {count} free ports between {_FIRST} and {_LAST} on {address}: stop some programs"
    )


def is_free(port: int, *, address: str = LOOPBACK) -> bool:
    """Tell whether a program could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as Go's servers do: TIME_WAIT is no obstacle
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def is_port_conflict(output: str) -> bool:
    """Tell whether a program's output says that its port was taken."""
    return "address already in use" in output
