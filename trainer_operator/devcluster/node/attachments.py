"""Volumes of storage drivers, which are attached to a node before its pods may use them: the kubelet's part of it.

The attach-detach controller of kube-controller-manager decides what is attached where. A node only says which volumes
it uses (`volumesInUse`: none of them is detached by order meanwhile) and waits until the controller says that one is
here (`volumesAttached`). A node without power goes on saying that it uses them; that is why a volume stays with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.client import Client, PatchKind
from runtime.objects import NODES
from trainer_operator.devcluster.node.environment import Unresolved


class Attachments:
    """What this node's pods use, and whether it is attached.

    Guarantees: a volume is in `volumesInUse` before a pod gets it, until the last process of its pods ended.
    """

    def __init__(self, node: str, client: Client) -> None:
        self._node = node
        self._client = client
        self._used: dict[str, set[str]] = {}

    def in_use(self) -> list[str]:
        """Return the volumes that pods of this node use, in order."""
        return sorted(set().union(*self._used.values()))

    async def use(self, pod: str, volume: str) -> None:
        """Note that a pod, named by its uid, uses a volume, which is attached.

        Raises: Unresolved while the volume is not attached here; ApiError, TransportError.
        """
        self._used.setdefault(pod, set()).add(volume)
        node: Mapping[str, Any] = await self._client.get(NODES, self._node)
        if volume not in ((node.get("status") or {}).get("volumesInUse") or ()):
            node = await self._report()
        attached = (node.get("status") or {}).get("volumesAttached") or ()
        if all(each.get("name") != volume for each in attached):
            raise Unresolved(f"volume {volume} is not attached to node {self._node} yet")

    async def release(self, pod: str) -> None:
        """Note that a pod uses nothing any more.

        Raises: ApiError, TransportError; the node's next report says it then.
        """
        if self._used.pop(pod, None):
            await self._report()

    async def _report(self) -> Mapping[str, Any]:
        status = {"volumesInUse": self.in_use()}
        return await self._client.patch(
            NODES, self._node, {"status": status}, subresource="status", kind=PatchKind.MERGE
        )
