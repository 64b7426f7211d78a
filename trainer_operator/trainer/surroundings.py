"""What surrounds pods, from caches: nodes with their Leases, claims, and which volume is attached where."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from runtime.cache.index import OWNER_UID
from runtime.cache.projection import Node, PartialObject, Pod
from runtime.objects import ObjectKey
from trainer_operator.topology.members import Members
from trainer_operator.trainer.nodes import NodeLeases, NodeView, node_views
from trainer_operator.trainer.views import ClaimView
from trainer_operator.trainer.volumes import Attachment, Claim, claim_view

T_co = TypeVar("T_co", covariant=True)
NODE_INDEX = "node"
"""Index of pods by the node that they run on."""


class Listed(Protocol[T_co]):
    """The part of an informer that is used here."""

    def list(self, namespace: str | None = None) -> Iterable[T_co]:
        """Return all objects, of one namespace if named."""

    def by_index(self, index: str, value: str) -> Iterable[T_co]:
        """Return the objects under an index value."""


class Cache(Listed[T_co], Protocol[T_co]):
    """An informer, as far as reconcilers use it."""

    def get(self, key: ObjectKey) -> T_co | None:
        """Return the object or None."""


class Surroundings:
    """Reads views of nodes, claims and attachments; `attachments` is None without the rights for them (RB4)."""

    def __init__(
        self,
        *,
        nodes: Cache[Node],
        pods: Listed[Pod],
        claims: Listed[Claim],
        services: Listed[PartialObject],
        attachments: Listed[Attachment] | None,
        leases: NodeLeases,
        members: Members,
    ) -> None:
        self._nodes = nodes
        self._pods = pods
        self._claims = claims
        self._services = services
        self._attachments = attachments
        self._leases = leases
        self._members = members

    def nodes(self, wanted: set[str] | None) -> dict[str, NodeView]:
        """Return the nodes that are wanted, or all; those cost a look at each node of the cluster."""
        found = self._nodes.list() if wanted is None else self._named(wanted)
        return node_views(found, self._leases, silence=self._silence)

    def _named(self, names: set[str]) -> Iterator[Node]:
        found = (self._nodes.get(ObjectKey("", name)) for name in names)
        return (node for node in found if node is not None)

    def node_labels(self) -> frozenset[str]:
        """Return the labels that nodes have."""
        return frozenset(label for node in self._nodes.list() for label in node.labels)

    def domains(self, label: str) -> dict[str, str]:
        """Return the value of a label of every node that has it."""
        return {node.name: node.labels[label] for node in self._nodes.list() if label in node.labels}

    def claims(self, uid: str) -> tuple[ClaimView, ...]:
        """Return the claims that a Trainer owns."""
        found = (claim_view(claim) for claim in self._claims.by_index(OWNER_UID, uid))
        return tuple(view for view in found if view is not None)

    def has_service(self, uid: str) -> bool:
        """Whether the Service that a Trainer owns is there."""
        return any(True for _ in self._services.by_index(OWNER_UID, uid))

    def attachments(self, nodes: set[str]) -> Mapping[tuple[str, str], str]:
        """Return the VolumeAttachments of some nodes by volume and node."""
        listed = self._attachments.list() if self._attachments is not None else ()
        return {
            (each.spec.source.persistent_volume_name or "", each.spec.node_name): each.name
            for each in listed
            if each.spec.node_name in nodes
        }

    def _silence(self, node: str) -> float:
        return self._members.silence(pod.uid for pod in self._pods.by_index(NODE_INDEX, node))
