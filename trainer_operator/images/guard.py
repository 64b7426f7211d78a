"""Which addresses the operator connects to when a tenant names the host (NE1, NE2). Pure, but for making the socket.

The check is made on the final address, whatever name led to it: names that resolve to other addresses the second time,
literals in any spelling and mapped addresses all end here.
"""

import ipaddress
import socket
from typing import Any, Protocol

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(OSError):
    """No connection is made to this address; the message says which rule refuses it."""


def refusal(host: str, *, private: bool) -> str:
    """Say why an address is refused; empty if it is not.

    `private`: the administrator has named this registry, so that it may be inside, in a private network or the cluster.
    """
    try:
        address = unmapped(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return f"{host} is no IP address"
    if private:
        return ""
    if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
        return f"{address} is a local address"
    if not address.is_global or address.is_reserved:
        return f"{address} is a private address; the administrator can allow the registry with --registry"
    return ""


class Judge(Protocol):
    """Says why an address is refused; empty if it is not."""

    def __call__(self, host: str, *, private: bool) -> str:
        """Judge an address; `private`: its host may be inside."""
        ...


def guarded_socket(info: tuple[Any, ...], *, private: bool, judge: Judge = refusal) -> socket.socket:
    """Make the socket for a connection to an address that is allowed; `info` is an entry of `getaddrinfo`.

    Raises: AddressRefused.
    """
    family, kind, protocol, _, where = info
    found = judge(where[0], private=private)
    if found:
        raise AddressRefused(found)
    return socket.socket(family, kind, protocol)


def unmapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
