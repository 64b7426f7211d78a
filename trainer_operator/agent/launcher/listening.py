"""Whether the training process listens on its port yet (TR47).

Read from the kernel's table of sockets: a connection, just to see, could be taken for a peer's. Others are started when
a parameter server or a master listens, since not every framework tries again when nobody answers.
"""

from __future__ import annotations

import socket
import struct
from typing import Optional, Set

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"
_MAPPED = b"\0" * 10 + b"\xff\xff"


def is_listening(address: str, port: int) -> Optional[bool]:
    """Whether a socket listens on the port, at this address or at any; None where the kernel doesn't tell."""
    wanted = {"%s:%04X" % (each, port) for each in _addresses(address)}
    told = False
    for table in TABLES:
        try:
            with open(table) as file:
                next(file, None)
                for line in file:
                    fields = line.split(None, 4)
                    if fields[3] == _LISTEN and fields[1] in wanted:
                        return True
        except OSError:
            continue
        told = True
    return False if told else None


def _addresses(address: str) -> Set[str]:
    """Return how the kernel writes the address and the wildcards: words in the machine's byte order."""
    packed = {b"\0" * 4, b"\0" * 16}
    try:
        own = socket.inet_pton(socket.AF_INET, address)
        packed |= {own, _MAPPED + own}
    except OSError:
        packed.add(socket.inet_pton(socket.AF_INET6, address))
    return {
        "".join("%08X" % word for word in struct.unpack("=%dI" % (len(each) // 4), each)) for each in packed
    }
