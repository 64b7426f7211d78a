"""Spans, as a seam: the runtime says where work begins and ends, and somebody else may write it down (C3).

No tracing library is required. Whoever has one gives a controller a :class:`Tracer`; its spans carry the same
`reconcile_id` as the log lines, so that a slow reconcile is found in both.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

__all__ = ["NO_TRACING", "Tracer"]


class Tracer(Protocol):
    """Opens spans."""

    def span(self, name: str, /, **attributes: str) -> AbstractContextManager[object]:
        """Return a block that is one span; an exception that passes through it is the span's failure.

        Assumptions: entering and leaving neither fail nor block.
        """
        ...


class _NoTracing:
    def span(self, name: str, /, **attributes: str) -> AbstractContextManager[object]:
        del name, attributes
        return nullcontext()


NO_TRACING: Tracer = _NoTracing()
"""Writes nothing down."""
