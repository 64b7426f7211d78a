"""What a cache refuses, all below RuntimeFault.

::

    RuntimeFault
    ├── NotCached         the question is out of the cache's scope; it is not an answer of "not found" (S8)
    ├── CacheNotSynced    a cache did not fill in time (S9)
    └── WatchRejected     the server refuses the selection; asking again would not help (S8)
"""

from runtime.errors import RuntimeFault

__all__ = ["CacheNotSynced", "NotCached", "WatchRejected"]


class NotCached(RuntimeFault):
    """The object may exist, but this cache does not hold its namespace."""


class CacheNotSynced(RuntimeFault):
    """Caches did not fill in time; the message names them."""


class WatchRejected(RuntimeFault):
    """The server refuses to list this selection; start-up fails."""
