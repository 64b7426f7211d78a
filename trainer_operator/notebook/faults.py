"""What can go wrong with a gateway.

GatewayFault
├── UrlRefused           the address is none that is opened
├── GatewayUnreachable   no connection, or it was cut
├── GatewayRefused       an answer with an error code
├── AnswerMalformed      an answer that is none of the protocol
├── KernelLost           the kernel ended, or the gateway closed its channel
└── TooSlow              no end within the time that was given
"""


class GatewayFault(Exception):
    """A gateway did not do what it was asked; the message is one sentence."""


class UrlRefused(GatewayFault):
    """The address is none that is opened."""


class GatewayUnreachable(GatewayFault):
    """No connection, or it was cut."""


class GatewayRefused(GatewayFault):
    """An answer with an error code."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class AnswerMalformed(GatewayFault):
    """An answer that is none of the protocol."""


class KernelLost(GatewayFault):
    """The kernel ended, or the gateway closed its channel."""


class TooSlow(GatewayFault):
    """No end within the time that was given."""
