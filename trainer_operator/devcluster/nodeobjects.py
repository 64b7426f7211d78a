"""The Node objects of a development cluster, as its supervisor reads and tidies them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from trainer_operator.devcluster.adminapi import AdminAPI
from trainer_operator.devcluster.errors import ClusterFault

_OURS = re.compile(r"node-\d+")
_NODES = "/api/v1/nodes"

NodeObject = Mapping[str, Any]  # Any: the JSON edge


def ready_names(nodes: Iterable[NodeObject]) -> set[str]:
    """Return the names of the nodes that say they are Ready."""
    return {
        node["metadata"]["name"]
        for node in nodes
        if any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node.get("status", {}).get("conditions", ())
        )
    }


def surplus_names(nodes: Iterable[NodeObject], *, wanted: Collection[str]) -> set[str]:
    """Return our nodes that the cluster does not have any more; nodes that somebody else made are left alone."""
    names = {node["metadata"]["name"] for node in nodes}
    return {name for name in names if _OURS.fullmatch(name) and name not in wanted}


def not_yet_back(now: dt.datetime) -> dict[str, Any]:
    """Return the status of a node that was Ready when its cluster went down and has not reported since."""
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "ClusterWasDown",
        "message": "the cluster was started again and the node has not reported yet",
        "lastHeartbeatTime": time,
        "lastTransitionTime": time,
    }
    return {"status": {"conditions": [condition]}}


def list_ready(admin: AdminAPI) -> set[str]:
    """Return the names of the nodes that are Ready; none when the API server does not answer."""
    try:
        return ready_names(_list(admin))
    except ClusterFault:
        return set()


def tidy(admin: AdminAPI, *, wanted: Collection[str]) -> None:
    """Put the Node objects of an earlier run in order before the nodes start.

    Surplus ones are deleted. Ready ones are Unknown until they report: nobody may take a memory for a running node.

    Raises: ClusterFault when the API server does not answer.
    """
    nodes = _list(admin)
    surplus = surplus_names(nodes, wanted=wanted)
    for name in surplus:
        admin.request("DELETE", f"{_NODES}/{name}")
    status = not_yet_back(dt.datetime.now(dt.UTC))
    for name in ready_names(nodes) - surplus:
        admin.request(
            "PATCH", f"{_NODES}/{name}/status", status, content_type="application/strategic-merge-patch+json"
        )


def _list(admin: AdminAPI) -> list[NodeObject]:
    nodes: list[NodeObject] = admin.request("GET", _NODES).json().get("items", [])
    return nodes
