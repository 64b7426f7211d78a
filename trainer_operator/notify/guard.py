"""Which addresses messages go to (NE1 to NE3, ATK16).

Services are the administrator's, and yet a name that he wrote may lead elsewhere tomorrow. So the final address of
each connection is judged: loopback, link-local (where clouds keep their metadata), unspecified and multicast addresses
are refused always, private ones unless the configuration lists the host in `privateHosts`.

Libraries that make their own sockets, as apprise does, are judged by an audit hook, the one place that every
connection of a thread passes whoever makes it. It is installed with the first such service, and looks at nothing but
connections of threads inside `guarded`.
"""

import contextlib
import functools
import ipaddress
import sys
import threading
from collections.abc import Iterator
from typing import Any

from trainer_operator.images.guard import AddressRefused, unmapped

_policy = threading.local()


def refusal(host: str, *, private: bool) -> str:
    """Say why no message goes to this address; empty if one may. `private`: its name is listed in `privateHosts`."""
    try:
        address = unmapped(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return f"{host} is no IP address"
    if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
        return f"{address} is a local address, to which no message is sent"
    if not private and (not address.is_global or address.is_reserved):
        return f"{address} is a private address; list its host in privateHosts to allow it"
    return ""


@contextlib.contextmanager
def guarded(*, private: bool) -> Iterator[list[str]]:
    """Judge every connection that this thread makes in the block; the list tells what was refused."""
    _install()
    refused: list[str] = []
    _policy.current = (private, refused)
    try:
        yield refused
    finally:
        _policy.current = None


@functools.cache
def _install() -> None:
    """Install the hook, once: Python keeps hooks until the process ends."""
    sys.addaudithook(_judge)


def _judge(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.connect":
        return
    current = getattr(_policy, "current", None)
    if current is None:
        return
    private, refused = current
    where = arguments[1]
    found = (
        refusal(where[0], private=private)
        if isinstance(where, tuple)
        else f"{where!r} is no internet address"
    )
    if found:
        refused.append(found)
        raise AddressRefused(found)
