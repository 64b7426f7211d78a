"""What is done by force to a node that is down: pods, VolumeAttachments and the out-of-service taint (ND2 to ND4, RB4).

Each act looks again first, at the API server instead of at caches: the node must still not be ready, its Lease not
renewed since the decision, and no other pod may use the claim. A watch that fell behind can therefore delay an act,
never cause one.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from runtime.cache.projection import Node
from runtime.client.errors import Conflict, NotFound
from runtime.client.rest import Client, PatchKind
from runtime.controller.reconciler import Request, Result
from runtime.objects import LEASES, NODES, PODS
from trainer_operator.trainer.draft import (
    DeleteAttachment,
    ForceDeletePod,
    NodeAction,
    NodeEvidence,
    TaintNode,
)
from trainer_operator.trainer.nodes import (
    LEASE_NAMESPACE,
    OUR_TAINT_VALUE,
    OUT_OF_SERVICE_TAINT,
    SHUTDOWN_TAINT,
    VOLUME_ATTACHMENTS,
    NodeLeases,
    has_our_taint,
    is_back,
)
from trainer_operator.trainer.surroundings import Listed
from trainer_operator.trainer.volumes import others_using

RETURN_CHECK = 5.0
_log = structlog.get_logger("node-recovery")


class NodeRecovery:
    """Carries out what frees a lost node's pods and volumes.

    Guarantees: nothing is done to a node that the API server shows alive, nor to a claim that another pod uses.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def carry_out(self, namespace: str, action: NodeAction) -> str:
        """Do it, or return in a sentence why not; what is gone already counts as done."""
        refusal = await self._still_down(action.evidence)
        if refusal:
            return refusal
        try:
            match action:
                case ForceDeletePod():
                    return await self._force(namespace, action)
                case DeleteAttachment():
                    return await self._detach(namespace, action)
                case TaintNode():
                    await self._taint(action.evidence.node)
        except (NotFound, Conflict):
            return ""  # gone, or changed since: the next pass sees it
        return ""

    async def _still_down(self, evidence: NodeEvidence) -> str:
        try:
            node = await self._client.get(NODES, evidence.node)
        except NotFound:
            return f"node {evidence.node} is not there any more; Kubernetes frees its pods and volumes itself"
        if any(taint.get("key") == SHUTDOWN_TAINT for taint in _taints(node)):
            return ""
        conditions = (node.get("status") or {}).get("conditions") or ()
        if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            return f"node {evidence.node} is ready again; nothing is forced"
        try:
            lease = await self._client.get(LEASES, evidence.node, LEASE_NAMESPACE)
        except NotFound:
            return f"node {evidence.node} has no Lease any more, so nothing tells whether it runs"
        if ((lease.get("spec") or {}).get("renewTime") or "") != evidence.renewed:
            return f"node {evidence.node} renews its Lease again; nothing is forced"
        return ""

    async def _force(self, namespace: str, action: ForceDeletePod) -> str:
        refusal = await self._in_use(namespace, action.claim, but=frozenset({action.uid}))
        if not refusal:
            _log.warning("pod is deleted without its kubelet", pod=action.name, node=action.evidence.node)
            await self._client.delete(PODS, action.name, namespace, grace_seconds=0, uid=action.uid)
        return refusal

    async def _detach(self, namespace: str, action: DeleteAttachment) -> str:
        refusal = await self._in_use(namespace, action.claim, but=frozenset())
        if not refusal:
            _log.warning("volume is detached", attachment=action.name, node=action.evidence.node)
            await self._client.delete(VOLUME_ATTACHMENTS, action.name)
        return refusal

    async def _in_use(self, namespace: str, claim: str, *, but: frozenset[str]) -> str:
        if not claim:
            return ""
        pods = (await self._client.list(PODS, namespace)).items
        others = others_using(claim, pods, but=but)
        return f"claim {claim} is used by pod {others[0]}; its volume is not taken away" if others else ""

    async def _taint(self, name: str) -> None:
        node = await self._client.get(NODES, name)
        if any(taint.get("key") == OUT_OF_SERVICE_TAINT for taint in _taints(node)):
            return
        ours = {"key": OUT_OF_SERVICE_TAINT, "value": OUR_TAINT_VALUE, "effect": "NoExecute"}
        _log.warning("node is declared out of service", node=name)
        await _set_taints(self._client, node, [*_taints(node), ours])


class NodeReturn:
    """Removes our out-of-service taint from nodes that are back; taints of others are never touched (ND3)."""

    def __init__(self, client: Client, nodes: Listed[Node], leases: NodeLeases) -> None:
        self._client = client
        self._nodes = nodes
        self._leases = leases

    async def reconcile(self, request: Request) -> Result | None:
        """Look at one node."""
        found = next((node for node in self._nodes.list() if node.name == request.key.name), None)
        if found is None or not has_our_taint(found):
            return None
        if not is_back(found, self._leases):
            return Result(requeue_after=RETURN_CHECK) if found.is_ready else None
        try:
            node = await self._client.get(NODES, found.name)
            kept = [taint for taint in _taints(node) if not _is_ours(taint)]
            await _set_taints(self._client, node, kept)
        except NotFound:
            return None
        _log.info("node is back, its out-of-service taint is removed", node=found.name)
        return None


async def _set_taints(client: Client, node: Mapping[str, Any], taints: list[Mapping[str, Any]]) -> None:
    """Write the taints, provided that the node has not changed since it was read."""
    metadata = node["metadata"]
    body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": {"taints": taints}}
    await client.patch(NODES, metadata["name"], body, kind=PatchKind.MERGE)


def _taints(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((node.get("spec") or {}).get("taints") or ())


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return taint.get("key") == OUT_OF_SERVICE_TAINT and taint.get("value") == OUR_TAINT_VALUE
