"""The controller: from changed objects to calls of a reconciler, level-triggered (C1-C9).

Sources turn changes into keys (`predicate` and `mapping` decide which), the queue of `runtime.workqueue` orders
them, workers call the reconciler. `slowstart` and `finalizer` are the two write patterns that reconcilers share.
Nothing here may know a kind by name, and no event type may reach a reconciler (C4).
"""

from runtime.controller.controller import Controller
from runtime.controller.finalizer import add_finalizer, has_finalizer, remove_finalizer
from runtime.controller.mapping import Mapping, own_key, owner_of
from runtime.controller.predicate import (
    Predicate,
    all_of,
    annotations_changed,
    any_of,
    deletion_changed,
    finalizers_changed,
    generation_changed,
    labels_changed,
    negate,
    version_changed,
)
from runtime.controller.reconciler import Reconciler, Request, Result, TerminalError
from runtime.controller.slowstart import BatchOutcome, slow_start_batch
from runtime.controller.source import (
    BACKGROUND_PRIORITY,
    URGENT_PRIORITY,
    ChannelSource,
    InformerSource,
    Newcomer,
    Patience,
)

__all__ = [
    "BACKGROUND_PRIORITY",
    "URGENT_PRIORITY",
    "BatchOutcome",
    "ChannelSource",
    "Controller",
    "InformerSource",
    "Mapping",
    "Newcomer",
    "Patience",
    "Predicate",
    "Reconciler",
    "Request",
    "Result",
    "TerminalError",
    "add_finalizer",
    "all_of",
    "annotations_changed",
    "any_of",
    "deletion_changed",
    "finalizers_changed",
    "generation_changed",
    "has_finalizer",
    "labels_changed",
    "negate",
    "own_key",
    "owner_of",
    "remove_finalizer",
    "slow_start_batch",
    "version_changed",
]
