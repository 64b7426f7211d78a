"""Local copies of collections, kept equal to the server's by list and watch, and the means to trust them."""

from runtime.cache.barrier import Barrier
from runtime.cache.errors import CacheNotSynced, NotCached, WatchRejected
from runtime.cache.index import NAMESPACE, OWNER_UID
from runtime.cache.informer import Handler, Informer, Registration
from runtime.cache.informers import Informers
from runtime.cache.projection import Node, PartialObject, Pod
from runtime.cache.transform import METADATA_ONLY

__all__ = [
    "METADATA_ONLY",
    "NAMESPACE",
    "OWNER_UID",
    "Barrier",
    "CacheNotSynced",
    "Handler",
    "Informer",
    "Informers",
    "Node",
    "NotCached",
    "PartialObject",
    "Pod",
    "Registration",
    "WatchRejected",
]
