"""A free port on the pod's address, kept from others until the process binds it (ME2).

The socket stays bound, not listening, from Prepare to the spawn: neither a bind(0) nor the kernel's choice for an
outgoing connection takes a port that is bound. It is let go just before the spawn, and taken again, if possible,
when the process ended, since an in-place restart listens on the same port.
"""

from __future__ import annotations

import socket
from typing import Optional


class PortReservation:
    """At most one reserved port."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: Optional[socket.socket] = None
        self.port = 0

    def renew(self) -> int:
        """Give up the old port and reserve another one.

        Raises: OSError when the address is not ours or no port is free.
        """
        self.release()
        self._socket = self._bound(0)
        self.port = int(self._socket.getsockname()[1])
        return self.port

    def retake(self) -> None:
        """Try to hold the same port again; the process may still have left-overs on it, then it stays free."""
        if self._socket is None and self.port:
            try:
                self._socket = self._bound(self.port)
            except OSError:
                self._socket = None

    def release(self) -> None:
        """Let the process have the port."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _bound(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.bind((self._address, port))
        except OSError:
            bound.close()
            raise
        return bound
