"""The root of all failures the runtime reports.

::

    RuntimeFault
    ├── ConfigurationInvalid      a setting, a kubeconfig or a credential file cannot be used
    ├── (runtime.client.errors)   ApiError …, TransportError
    ├── (runtime.cache)           NotCached, CacheNotSynced, WatchRejected
    └── (runtime.fence)           LeadershipLost

Each layer draws its own branch in its own module; this one holds what belongs to none of them.
"""

__all__ = ["ConfigurationInvalid", "RuntimeFault"]


class RuntimeFault(Exception):
    """Something in the runtime failed; the message says what, to which object, and what happens next."""


class ConfigurationInvalid(RuntimeFault):
    """A setting, a kubeconfig or a credential file cannot be used."""
