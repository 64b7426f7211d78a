"""The client of a Jupyter Kernel Gateway: kernels by REST, code and its output by websocket (JK1)."""

from trainer_operator.notebook.faults import (
    AnswerMalformed,
    GatewayFault,
    GatewayRefused,
    GatewayUnreachable,
    KernelLost,
    TooSlow,
    UrlRefused,
)
from trainer_operator.notebook.gateway import Gateway
from trainer_operator.notebook.outputs import Output, OutputKind

__all__ = [
    "AnswerMalformed",
    "Gateway",
    "GatewayFault",
    "GatewayRefused",
    "GatewayUnreachable",
    "KernelLost",
    "Output",
    "OutputKind",
    "TooSlow",
    "UrlRefused",
]
