"""What is known of nodes: readiness, how long their Lease stands still, whether anybody on them was heard (DT3, ND4).

A Lease's age is counted from the moment at which its last renewal was *seen*, by our own monotonic clock: clocks of
nodes never enter, and a cache that was just filled makes every node look fresh, never lost.

    ready, lease < 15 s            healthy
    not ready or lease >= 15 s     suspicious: silence of a member there means that it is lost (DT3)
    not ready and lease > 60 s and no beat from any pod there for 60 s, or a shutdown taint of the cloud
                                   down: nothing there can write any more as far as can be known (ND4)
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from runtime.cache.projection import Node, Projection
from runtime.clock import Clock
from runtime.objects import Resource

LEASE_NAMESPACE = "kube-node-lease"
SUSPICIOUS_AFTER = 15.0
"""Age of a Lease from which a node is suspicious (DT3); kubelets renew every 10 s."""
DOWN_AFTER = 60.0
"""Age of a Lease, and silence of all agents, from which a node that is not ready counts as down (ND4)."""
SHUTDOWN_TAINT = "node.cloudprovider.kubernetes.io/shutdown"
OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"
OUR_TAINT_VALUE = "trainer-operator"
"""Tells our taints from an administrator's: only these are removed again (ND3)."""
VOLUME_ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)


class LeaseSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The one field of a node's Lease that is read."""

    renew_time: str | None = None


class NodeLease(Projection, frozen=True):
    """The Lease of a node; kubelet renews it while it runs and reaches the API server."""

    spec: LeaseSpec = LeaseSpec()


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: ready says that its kubelet reports, and reports no trouble."""

    ready: bool
    lease_age: float | None = None
    """Seconds since a renewal of its Lease was last seen; None when it has none."""
    renewed: str = ""
    """The renewal that was seen last, as it is written in the Lease."""
    silence: float = 0.0
    """Seconds since any agent on it was heard; 0 where nobody asked."""
    shut_down: bool = False
    """Whether the cloud says that the machine is off."""
    out_of_service: bool = False
    """Whether somebody declared it out of service."""

    @property
    def is_suspicious(self) -> bool:
        """Whether silence of a member on it means that the member is lost (DT3)."""
        return not self.ready or self.shut_down or (self.lease_age or 0.0) >= SUSPICIOUS_AFTER

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why it may still be running, as parts of a sentence; empty when it is down for certain (ND4)."""
        if self.shut_down:
            return ()
        found = []
        if self.ready:
            found.append("it is Ready")
        if self.lease_age is None or self.lease_age <= DOWN_AFTER:
            found.append(f"its Lease was not seen to rest for {DOWN_AFTER:.0f} s")
        if self.silence <= DOWN_AFTER:
            found.append(f"its agents were not silent for {DOWN_AFTER:.0f} s")
        return tuple(found)

    @property
    def is_down(self) -> bool:
        """Whether everything agrees that nothing runs there any more (ND4)."""
        return not self.doubts


class NodeLeases:
    """When the Lease of each node was last seen to change; a handler for the informer of Leases."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    def on_add(self, obj: NodeLease, *, initial: bool) -> None:
        """Take a Lease that is new to us; its age begins now."""
        del initial
        self._note(obj)

    def on_update(self, old: NodeLease, new: NodeLease) -> None:
        """Take a renewal."""
        del old
        self._note(new)

    def on_delete(self, obj: NodeLease, *, final_state_unknown: bool) -> None:
        """Forget the Lease of a node that is gone."""
        del final_state_unknown
        self._seen.pop(obj.name, None)

    def age(self, node: str) -> float | None:
        """Seconds since the last renewal was seen; None without a Lease."""
        seen = self._seen.get(node)
        return None if seen is None else self._clock.monotonic() - seen[1]

    def renewed(self, node: str) -> str:
        """Return the last renewal as it is written in the Lease."""
        return self._seen.get(node, ("", 0.0))[0]

    def _note(self, lease: NodeLease) -> None:
        renewal = lease.spec.renew_time or ""
        if lease.name not in self._seen or self._seen[lease.name][0] != renewal:
            self._seen[lease.name] = (renewal, self._clock.monotonic())


def node_view(node: Node, leases: NodeLeases, *, silence: Callable[[str], float]) -> NodeView:
    """Reduce a node; `silence` is asked only for a node that is not ready."""
    taints = {taint.key for taint in node.spec.taints or ()}
    return NodeView(
        ready=node.is_ready,
        lease_age=leases.age(node.name),
        renewed=leases.renewed(node.name),
        silence=0.0 if node.is_ready else silence(node.name),
        shut_down=SHUTDOWN_TAINT in taints,
        out_of_service=OUT_OF_SERVICE_TAINT in taints,
    )


def node_views(
    nodes: Iterable[Node], leases: NodeLeases, *, silence: Callable[[str], float]
) -> dict[str, NodeView]:
    """Reduce nodes, by name."""
    return {node.name: node_view(node, leases, silence=silence) for node in nodes}


def has_our_taint(node: Node) -> bool:
    """Whether we declared the node out of service."""
    return any(
        taint.key == OUT_OF_SERVICE_TAINT and taint.value == OUR_TAINT_VALUE
        for taint in node.spec.taints or ()
    )


def is_back(node: Node, leases: NodeLeases) -> bool:
    """Whether a node that was out of service works again: ready, and its Lease is being renewed."""
    age = leases.age(node.name)
    return node.is_ready and age is not None and age < SUSPICIOUS_AFTER
