"""May a cache begin with a streaming list? One answer for the whole process (W13).

A server, or a proxy in front of it, that cannot stream a list will not learn it while we run. So the first collection
that fails to arrive this way settles the question for all of them, those that start later included, and the operator
of the cluster is told once rather than once a kind.
"""

from collections.abc import Callable

from runtime.logs import get_logger

__all__ = ["StreamingLists"]


class StreamingLists:
    """Remembers whether streaming lists work here.

    Guarantees: once abandoned never asked for again, and warned of at most once.
    """

    def __init__(self, *, allowed: bool, warn: Callable[..., object] | None = None) -> None:
        self._allowed = allowed
        self._warn = warn or get_logger("runtime.cache").warning

    @property
    def allowed(self) -> bool:
        """Whether the next cache may begin with one."""
        return self._allowed

    def abandon(self, selection: object, *, reason: str) -> None:
        """Use ordinary lists for the rest of the process."""
        if self._allowed:
            self._allowed = False
            self._warn(
                "streaming lists do not work here, ordinary lists are used from now on",
                selection=str(selection),
                reason=reason,
            )
