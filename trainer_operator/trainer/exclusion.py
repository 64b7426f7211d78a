"""Nodes that were lost: new pods keep away from them for half an hour, doubling to a day (RC, row "node").

The scheduler knows of a lost node only when its lease runs out, long after the agents fell silent; without this the
replacement would be put on the very node that was lost.
"""

from collections.abc import Iterable
from datetime import timedelta

from trainer_operator.api.status import ExcludedNode, TrainerStatus
from trainer_operator.api.topology import StorageRecovery
from trainer_operator.trainer.affinity import Affinity, requiring_nodes
from trainer_operator.trainer.draft import Draft

FIRST = 30 * 60.0
LONGEST = 24 * 3600.0
LIMIT = 16


def exclude(draft: Draft, node: str) -> None:
    """Keep new pods away from a node, unless they wait for a volume that may be there (ND3, Wait)."""
    storage = draft.observed.trainer.spec.topology.storage
    if storage is not None and storage.recovery is StorageRecovery.WAIT:
        return
    known = next((entry for entry in draft.status.excluded_nodes if entry.name == node), None)
    count = known.count + 1 if known is not None else 1
    duration = min(LONGEST, FIRST * 2.0 ** min(count - 1, 8))
    entry = ExcludedNode(name=node, until=draft.observed.now + timedelta(seconds=duration), count=count)
    others = [other for other in draft.status.excluded_nodes if other.name != node]
    draft.status.excluded_nodes = sorted([*others[-LIMIT + 1 :], entry], key=lambda other: other.name)


def refresh(draft: Draft) -> None:
    """End exclusions whose time is over, and all of them when they would leave no ready node."""
    away = {entry.name for entry in draft.status.excluded_nodes if entry.until is not None}
    ready = {name for name, node in draft.observed.nodes.items() if node.ready}
    nowhere_left = bool(ready) and ready <= away
    for entry in draft.status.excluded_nodes:
        if entry.until is not None and (nowhere_left or entry.until <= draft.observed.now):
            entry.until = None  # the count stays: a node that is lost again stays away for longer


def excluded_names(status: TrainerStatus) -> list[str]:
    """Return the nodes that new pods keep away from now."""
    return [entry.name for entry in status.excluded_nodes if entry.until is not None]


def away_from(affinity: Affinity | None, nodes: Iterable[str]) -> Affinity | None:
    """Add to an affinity that pods keep away from nodes."""
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in nodes]
    return requiring_nodes(affinity or None, "matchFields", fields)
