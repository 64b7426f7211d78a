"""The pods of a node: a reconciler on our own runtime, with one worker a pod.

The API server is told only what it does not know yet. The last answer to a status write is kept until the cache has
caught up with it, so that a sync in between neither repeats it nor takes a step back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import aiohttp

from runtime.cache import Informer
from runtime.client import Client, Conflict, NotFound, PatchKind
from runtime.clock import Clock
from runtime.controller import Request, Result
from runtime.events import EventRecorder
from runtime.objects import PODS, JsonObject, ObjectKey, key_of, resource_version_of, uid_of
from runtime.resourceversion import compare
from runtime.tasks import TaskScope
from trainer_operator.devcluster.node.addresses import Network
from trainer_operator.devcluster.node.attachments import Attachments
from trainer_operator.devcluster.node.container import check_sandbox
from trainer_operator.devcluster.node.containerstate import ContainerRecord, recorded
from trainer_operator.devcluster.node.folders import PodFolders, remove_strangers
from trainer_operator.devcluster.node.host import Host, NodeSettings
from trainer_operator.devcluster.node.podstatus import differs, is_terminal
from trainer_operator.devcluster.node.worker import PodWorker


class PodReconciler:
    """Runs the pods that are bound to this node.

    Guarantees: a pod's object is deleted for good only after its last process ended and its end was reported; a pod
    of the same name starts only after the one before it ended.
    """

    def __init__(
        self,
        settings: NodeSettings,
        network: Network,
        pods: Informer[JsonObject],
        *,
        attachments: Attachments,
        client: Client,
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._network = network
        self._pods = pods
        self._attachments = attachments
        self._client = client
        self._events = events
        self._clock = clock
        self._workers: dict[ObjectKey, PodWorker] = {}
        self._answers: dict[ObjectKey, JsonObject] = {}
        self._host: Host | None = None
        self._running = asyncio.Event()
        self._trigger: Callable[[ObjectKey], None] = lambda _: None

    def wake_with(self, trigger: Callable[[ObjectKey], None]) -> None:
        """Say how to ask for a reconcile."""
        self._trigger = trigger

    async def run(self) -> None:
        """Own the tasks of all pods until cancelled; then end their processes."""
        folder = self._settings.state_dir / "pods"
        known = self._pods.list()
        remove_strangers(folder, [uid_of(pod) for pod in known])
        for pod in known:
            self._network.keep((pod.get("status") or {}).get("podIP") or "")
        base = PodFolders(self._settings.state_dir).container("check") / "base"
        # Pods on one machine talk to the node a lot and briefly: a connection per probe, as the kubelet does.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session, TaskScope() as scope:
            self._host = Host(
                settings=self._settings,
                network=self._network,
                client=self._client,
                clock=self._clock,
                events=self._events,
                session=session,
                scope=scope,
                attachments=self._attachments,
                sandbox_problem=await check_sandbox(str(base)),
            )
            self._running.set()
            try:
                await asyncio.Event().wait()
            finally:
                for worker in self._workers.values():
                    worker.kill()

    async def reconcile(self, request: Request) -> Result | None:
        """Bring one pod nearer to what its object says, and its status nearer to what is."""
        await self._running.wait()
        key = request.key
        pod = self._newest(key)
        worker = self._workers.get(key)
        if worker is not None and (pod is None or uid_of(pod) != worker.uid):
            outcome = await worker.sync(None)
            if not outcome.ended:
                return _later(outcome.wake)
            worker.close()
            del self._workers[key]
            worker = None
        if pod is None:
            self._answers.pop(key, None)
            return None
        deleting = bool((pod.get("metadata") or {}).get("deletionTimestamp"))
        if worker is None:
            if is_terminal(pod.get("status") or {}):
                # It ended before this process began; only its deletion is left to do.
                if deleting:
                    await self._delete(pod)
                return None
            worker = self._workers[key] = self._work_on(pod)
        outcome = await worker.sync(pod)
        if differs(outcome.status, pod.get("status") or {}):
            await self._report(pod, outcome.status)
        if deleting and outcome.ended:
            await self._delete(pod)
            return None
        return _later(outcome.wake)

    def pod(self, key: ObjectKey) -> JsonObject | None:
        """Return a pod of this node."""
        return self._newest(key)

    def record(self, key: ObjectKey, container: str) -> ContainerRecord | None:
        """Return what is known of a container, from its status if it ended before this process began."""
        if (worker := self._workers.get(key)) is not None:
            return worker.records.get(container)
        status = (self._newest(key) or {}).get("status") or {}
        for entry in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            if entry.get("name") == container:
                return recorded(entry, now=self._clock.utcnow())
        return None

    def folders(self, uid: str) -> PodFolders:
        """Return the folders of a pod."""
        return PodFolders(self._settings.state_dir / "pods" / uid)

    def _work_on(self, pod: JsonObject) -> PodWorker:
        if self._host is None:
            raise RuntimeError("a pod came before the node was running")
        key = key_of(pod)
        return PodWorker(pod, self._host, wake=lambda: self._trigger(key))

    def _newest(self, key: ObjectKey) -> JsonObject | None:
        cached, answer = self._pods.get(key), self._answers.get(key)
        if cached is None or answer is None or uid_of(cached) != uid_of(answer):
            return cached
        if compare(resource_version_of(answer), resource_version_of(cached)) == 1:
            return answer
        del self._answers[key]
        return cached

    async def _report(self, pod: JsonObject, status: dict[str, Any]) -> None:
        key = key_of(pod)
        body = {"metadata": {"uid": uid_of(pod)}, "status": status}
        with contextlib.suppress(NotFound, Conflict):  # it is gone, the cache will say so
            self._answers[key] = await self._client.patch(
                PODS, key.name, body, namespace=key.namespace, subresource="status", kind=PatchKind.STRATEGIC
            )

    async def _delete(self, pod: JsonObject) -> None:
        key = key_of(pod)
        with contextlib.suppress(NotFound, Conflict):
            await self._client.delete(PODS, key.name, key.namespace, grace_seconds=0, uid=uid_of(pod))


def _later(wake: float | None) -> Result | None:
    return None if wake is None else Result(requeue_after=wake)
