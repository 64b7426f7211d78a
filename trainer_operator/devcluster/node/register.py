"""The node's own objects: a Node with its resources, and the Lease that shows that it lives."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any

from runtime.client import AlreadyExists, ApiError, Client, NotFound, PatchKind, TransportError
from runtime.clock import Clock, format_microtime, format_time
from runtime.logs import get_logger
from runtime.objects import LEASES, NODES, JsonObject, owner_reference
from trainer_operator.devcluster.node.host import NodeSettings

LEASE_NAMESPACE = "kube-node-lease"
RENEW_INTERVAL = 5.0
"""Seconds between renewals: a quarter of the 20 s after which the development cluster gives a node up."""
RETRY_INTERVAL = 1.0
LEASE_DURATION = 40
CHECK_EVERY = 2
"""Renewals between two looks at the Node object."""
PRETEND_LABEL = "trainer-operator.dev/pretend-gpus"
VERSION = "v1.36.3+process"
ANNOTATIONS = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
"""Says that kube-controller-manager attaches volumes to the node, as every kubelet says."""

_HEALTHY = (
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "process node does not watch the machine's memory",
    ),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "process node does not watch the machine's disks"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "process node does not watch the machine's PIDs"),
    ("Ready", "True", "KubeletReady", "process node is running pods as local processes"),
)


def node_labels(settings: NodeSettings) -> dict[str, str]:
    """Return the labels of the Node; pretended GPUs say that they are."""
    machine = platform.machine()
    labels = {
        "kubernetes.io/hostname": settings.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine),
        "node.kubernetes.io/instance-type": "process",
    }
    if settings.gpus:
        labels[PRETEND_LABEL] = "true"
    return labels | dict(settings.labels)


def node_status(
    settings: NodeSettings,
    *,
    address: str,
    port: int,
    observed: JsonObject,
    now: str,
    in_use: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the status of the Node; a condition that did not change keeps its transition time."""
    before = {condition.get("type"): condition for condition in observed.get("conditions") or ()}
    conditions = []
    for kind, status, reason, message in _HEALTHY:
        known = before.get(kind) or {}
        same = known.get("status") == status and known.get("lastTransitionTime")
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": known["lastTransitionTime"] if same else now,
            }
        )
    return {
        "capacity": settings.capacity(),
        "allocatable": settings.capacity(),
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": settings.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "volumesInUse": list(in_use),
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": platform.release(),
            "osImage": "this machine, without containers",
            "containerRuntimeVersion": "process://1",
            "kubeletVersion": VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": node_labels(settings)["kubernetes.io/arch"],
        },
    }


def needs_report(status: JsonObject, observed: JsonObject) -> bool:
    """Tell whether the Node object says something else than the node does, heartbeats aside."""
    told = {c.get("type"): c.get("status") for c in observed.get("conditions") or ()}
    return (
        any(told.get(c["type"]) != c["status"] for c in status["conditions"])
        or any(status[field] != observed.get(field) for field in ("capacity", "addresses", "daemonEndpoints"))
        or status["volumesInUse"] != (observed.get("volumesInUse") or [])
    )


class Registrar:
    """Keeps the Node and its Lease.

    Guarantees: a Node that somebody deleted, or that was given up while this process could not reach the API server,
    is put right within two renewals of its Lease.
    """

    def __init__(
        self,
        settings: NodeSettings,
        client: Client,
        *,
        address: str,
        port: int,
        in_use: Callable[[], Sequence[str]],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._client = client
        self._address = address
        self._port = port
        self._in_use = in_use
        self._clock = clock
        self._log = get_logger("process-node", node=settings.name)

    async def run(self) -> None:
        """Register, then renew until cancelled; the API server may come and go."""
        turn = 0
        node: JsonObject | None = None
        while True:
            try:
                if node is None or turn % CHECK_EVERY == 0:
                    node = await self._ensure_node()
                await self._renew(node)
            except (ApiError, TransportError) as failure:
                self._log.warning("the node could not show that it lives", error=str(failure))
                await self._clock.sleep(RETRY_INTERVAL)
                continue
            turn += 1
            await self._clock.sleep(RENEW_INTERVAL)

    async def _ensure_node(self) -> JsonObject:
        name = self._settings.name
        labels = node_labels(self._settings)
        try:
            node = await self._client.get(NODES, name)
        except NotFound:
            metadata = {"name": name, "labels": labels, "annotations": ANNOTATIONS}
            body = {"metadata": metadata, "status": self._status({})}
            try:
                return await self._client.create(NODES, body)
            except AlreadyExists:
                node = await self._client.get(NODES, name)
        wanted = {"labels": labels, "annotations": ANNOTATIONS}
        if any(
            not values.items() <= (node["metadata"].get(field) or {}).items()
            for field, values in wanted.items()
        ):
            node = await self._client.patch(NODES, name, {"metadata": wanted})
        status = self._status(node.get("status") or {})
        if needs_report(status, node.get("status") or {}):
            node = await self._client.patch(
                NODES, name, {"status": status}, subresource="status", kind=PatchKind.MERGE
            )
        return node

    def _status(self, observed: JsonObject) -> dict[str, Any]:
        now = format_time(self._clock.utcnow())
        return node_status(
            self._settings,
            address=self._address,
            port=self._port,
            observed=observed,
            now=now,
            in_use=self._in_use(),
        )

    async def _renew(self, node: JsonObject) -> None:
        name = self._settings.name
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_DURATION,
            "renewTime": format_microtime(self._clock.utcnow()),
        }
        try:
            await self._client.patch(LEASES, name, {"spec": spec}, namespace=LEASE_NAMESPACE)
        except NotFound:
            metadata = {
                "name": name,
                "namespace": LEASE_NAMESPACE,
                "ownerReferences": [
                    owner_reference(NODES, node, controller=False) | {"blockOwnerDeletion": False}
                ],
            }
            await self._client.create(LEASES, {"metadata": metadata, "spec": spec})
