"""Connections that a redirect cannot turn inward: nobody outside sends a pod to where only insiders get (NE2, NE4).

The check is made on the address that is connected to, whatever name, literal or mapped form led there. Where the hub
itself is says how far a redirect of it may lead: a mirror inside the cluster may keep its files there, too.
"""

from __future__ import annotations

import ipaddress
import socket
from enum import IntEnum
from typing import Optional, Tuple, Union

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


class Inwardness(IntEnum):
    """How far inside an address is."""

    OUTSIDE = 0
    PRIVATE = 1
    LOCAL = 2


class Refused(Exception):
    """The host has no address that a redirect may lead to."""


def inwardness(address: str) -> Inwardness:
    """Judge an address; what is none is as far inside as can be."""
    try:
        found = _unmapped(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return Inwardness.LOCAL
    if found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast:
        return Inwardness.LOCAL
    return Inwardness.OUTSIDE if found.is_global and not found.is_reserved else Inwardness.PRIVATE


def connect(
    host: str, port: int, *, timeout: float, most: Optional[Inwardness]
) -> Tuple[socket.socket, Inwardness]:
    """Connect to a host, at an address that is no further inside than `most`; None for the hub itself.

    Raises: Refused; OSError.
    """
    failure: Optional[OSError] = None
    for family, kind, protocol, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        place = inwardness(str(where[0]))
        if most is not None and place > most:
            continue
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(timeout)
            connection.connect(where)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection, place
    if failure is not None:
        raise failure
    raise Refused(host)


def _unmapped(address: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
