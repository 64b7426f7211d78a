"""Jobs that a scenario starts, and what can be done to a pod of them."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from benchmarks.stock.arm import NAMESPACE, Broken
from benchmarks.stock.cluster import KWOK_LABEL
from benchmarks.stock.recovery import Mark, Pod, pods_of
from benchmarks.stock.scenario import Room
from benchmarks.stock.waiting import pause_after
from runtime.tasks import run_all

__all__ = [
    "PODS_PER_JOB",
    "Injection",
    "delete",
    "evict",
    "fail",
    "kill_operator",
    "lose_node",
    "pods_by_job",
    "started",
]

PODS_PER_JOB = 4
_PODS = f"api/v1/namespaces/{NAMESPACE}/pods"
_MERGE = "application/merge-patch+json"
_POLL = 0.05  # seconds; the audit log is the clock, so a slow look costs no accuracy
_START_PATIENCE = 300.0

Injection = Callable[[Room, Pod], Coroutine[Any, Any, Mark]]


async def fail(room: Room, pod: Pod) -> Mark:
    """Say what a node says when a pod's container was killed and may not be restarted in place.

    The times matter: the Job controller counts its backoff from them.
    """
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    terminated = {"exitCode": 137, "reason": "Error", "startedAt": now, "finishedAt": now}
    statuses = [
        {
            "name": name,
            "image": "",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": terminated},
        }
        for name in pod.containers
    ]
    conditions = [
        {"type": name, "status": "False", "lastTransitionTime": now} for name in ("Ready", "ContainersReady")
    ]
    status = {"phase": "Failed", "containerStatuses": statuses, "conditions": conditions}
    await room.cluster.request("PATCH", f"{_PODS}/{pod.name}/status", {"status": status}, content_type=_MERGE)
    return Mark("patch", "pods/status", pod.name)


async def delete(room: Room, pod: Pod) -> Mark:
    """Delete a pod as `kubectl delete` does."""
    await room.cluster.request("DELETE", f"{_PODS}/{pod.name}")
    return Mark("delete", "pods", pod.name)


async def evict(room: Room, pod: Pod) -> Mark:
    """Evict a pod as `kubectl drain` does."""
    metadata = {"name": pod.name, "namespace": NAMESPACE}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    await room.cluster.request("POST", f"{_PODS}/{pod.name}/eviction", body)
    return Mark("create", "pods/eviction", pod.name)


async def lose_node(room: Room, pod: Pod) -> Mark:
    """Have kwok forget a pod's node: heartbeats end, and what is deleted on it stays."""
    change = {"metadata": {"labels": {KWOK_LABEL: "lost"}}}
    await room.cluster.request("PATCH", f"api/v1/nodes/{pod.node}", change, content_type=_MERGE)
    return Mark("patch", "nodes", pod.node)


async def kill_operator(room: Room, pod: Pod) -> Mark:
    """Kill the operator, fail a pod while it is gone, and start it again as its Deployment would."""
    await room.arm.kill()
    mark = await fail(room, pod)
    await room.arm.start(room.cluster)
    return mark


async def started(room: Room, names: Sequence[str], *, with_server: bool = False) -> dict[str, list[Pod]]:
    """Submit jobs, and return their pods once all of them run.

    Raises: Broken when they do not, or when jobs with a parameter server are not offered.
    """
    for name in names if with_server else ():
        if (body := room.arm.served_job(name, pods=PODS_PER_JOB)) is None:
            raise Broken("it offers no parameter servers")
        path = f"{room.arm.job_resource.rpartition('/')[0]}/{body['kind'].lower()}s"
        await room.cluster.request("POST", path, body)
    if not with_server:
        bodies = [room.arm.job(name, pods=PODS_PER_JOB) for name in names]
        await run_all(*(room.cluster.request("POST", room.arm.job_resource, body) for body in bodies))
    deadline = time.monotonic() + _START_PATIENCE
    while True:
        began = time.monotonic()
        pods = await pods_by_job(room, names)
        running = sum(pod.is_running for found in pods.values() for pod in found)
        if running == PODS_PER_JOB * len(names):
            return pods
        if time.monotonic() > deadline:
            raise Broken(f"{running} of {PODS_PER_JOB * len(names)} pods ran after {_START_PATIENCE:.0f} s")
        await asyncio.sleep(pause_after(time.monotonic() - began, at_least=_POLL))


async def pods_by_job(room: Room, jobs: Collection[str]) -> dict[str, list[Pod]]:
    """Return the pods of these jobs."""
    label = room.arm.pod_label
    found = pods_of(
        await room.cluster.request("GET", f"{_PODS}?labelSelector={label}%20in%20({','.join(sorted(jobs))})"),
        label=label,
    )
    return {job: [pod for pod in found if pod.job == job] for job in jobs}
