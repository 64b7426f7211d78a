"""The janitor reconciler: one pod for each Trainer whose store has work and nobody to do it.

It reads what the checkpoint reconciler declared for the janitor, and creates or deletes the pod. What must outlast a
restart of the operator does: the pod, and the reason for its work; how often it failed is counted anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from runtime.cache.index import OWNER_UID
from runtime.cache.projection import Pod
from runtime.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from runtime.client.rest import Client
from runtime.clock import Clock, parse_time
from runtime.controller.reconciler import Request, Result
from runtime.objects import PODS, ObjectKey, uid_of
from trainer_operator.api import names
from trainer_operator.api.meta import API_VERSION
from trainer_operator.api.trainer import Trainer, readable
from trainer_operator.topology.beat import janitor_of
from trainer_operator.topology.members import JANITOR, Members
from trainer_operator.trainer.apply import EventSink
from trainer_operator.trainer.janitor import Move, janitor_manifest, next_move, pause_after
from trainer_operator.trainer.observe import pod_view
from trainer_operator.trainer.surroundings import Cache
from trainer_operator.trainer.views import PodView, Settings

SETTLED = 20.0
"""Seconds after taking leadership in which not all work is declared again, so no janitor is sent away."""
_log = structlog.get_logger("janitor")


@dataclass(slots=True)
class _Past:
    """What is remembered of a Trainer's janitors, for as long as this process leads."""

    busy_at: float
    """When something was last wanted."""
    failures: int = 0
    ended_at: float = 0.0


class JanitorReconciler:
    """Keeps the janitor's pod of each Trainer.

    Guarantees: at most one, since its name is the Trainer's; none without work, and none for longer than `LIMIT`.
    """

    def __init__(
        self,
        *,
        client: Client,
        trainers: Cache[Mapping[str, Any]],
        pods: Cache[Pod],
        members: Members,
        events: EventSink,
        clock: Clock,
        settings: Settings,
        authority: Callable[[], str],
    ) -> None:
        self._client = client
        self._trainers = trainers
        self._pods = pods
        self._members = members
        self._events = events
        self._clock = clock
        self._settings = settings
        self._authority = authority
        self._past: dict[str, _Past] = {}
        self._uids: dict[ObjectKey, str] = {}
        self._refused: set[str] = set()

    def is_refused(self, uid: str) -> bool:
        """Whether no janitor can be made for this Trainer any more: its namespace is being deleted (EC7)."""
        return uid in self._refused

    async def reconcile(self, request: Request) -> Result | None:
        """Make one pass over one Trainer."""
        cached = self._trainers.get(request.key)
        uid, now = self._follow(request.key, cached), self._clock.monotonic()
        if cached is None:
            return None
        pod = self._pod(uid)
        wanted = bool(self._members.declared(janitor_of(uid), JANITOR))
        if not wanted and pod is None:  # nearly all, so the Trainer is read after this
            self._forget(uid)
            return None
        trainer = readable(cached)
        if trainer is None:
            return None
        past = self._past.setdefault(uid, _Past(now))
        if wanted:
            past.busy_at = now
        move = next_move(
            wanted=wanted,
            pod=pod,
            age=self._age(pod),
            idle=min(now - past.busy_at, self._members.led_for - SETTLED),
            pause=past.ended_at + pause_after(past.failures) - now,
        )
        if move.unfinished:
            past.failures, past.ended_at = past.failures + 1, now
            self._complain(trainer, past)
        await self._act(trainer, pod, move)
        return Result(requeue_after=move.again) if move.again is not None else None

    def _follow(self, key: ObjectKey, cached: Mapping[str, Any] | None) -> str:
        """Return the uid of the Trainer of this name, and forget another one that had it."""
        uid = uid_of(cached) if cached is not None else ""
        if self._uids.get(key, uid) != uid:
            self._forget(self._uids.pop(key))
        if cached is not None:
            self._uids[key] = uid
        return uid

    def _forget(self, uid: str) -> None:
        self._members.drop(janitor_of(uid))
        self._past.pop(uid, None)
        self._refused.discard(uid)

    def _pod(self, uid: str) -> PodView | None:
        mine = (
            pod
            for pod in self._pods.by_index(OWNER_UID, uid)
            if pod.labels.get(names.ROLE_LABEL) == JANITOR.role
            and any(owner.controller and owner.uid == uid for owner in pod.metadata.owner_references or ())
        )
        return next(map(pod_view, mine), None)

    def _age(self, pod: PodView | None) -> float:
        if pod is None or not pod.created:
            return 0.0
        return (self._clock.utcnow() - parse_time(pod.created)).total_seconds()

    async def _act(self, trainer: Trainer, pod: PodView | None, move: Move) -> None:
        namespace = trainer.metadata.namespace or ""
        if move.act == "create":
            manifest = janitor_manifest(trainer, replace(self._settings, agent_ca=self._authority()))
            try:
                await self._client.create(PODS, manifest, namespace=namespace)
            except AlreadyExists:
                return  # ours, and the cache is behind; or somebody else's, and then nothing is done
            except ApiError as error:
                if not error.has_cause("NamespaceTerminating"):
                    raise
                self._refused.add(trainer.metadata.uid)
                _log.info("no janitor in a namespace that is being deleted", namespace=namespace)
        elif move.act == "delete" and pod is not None:
            try:
                await self._client.delete(PODS, pod.name, namespace, uid=pod.uid)
            except (NotFound, Conflict):
                return

    def _complain(self, trainer: Trainer, past: _Past) -> None:
        reference = {"apiVersion": API_VERSION, "kind": "Trainer", "metadata": trainer.metadata.dump()}
        why = self._why(trainer.metadata.uid)
        again = pause_after(past.failures)
        message = f"the janitor ended before its work did: {why}; the next one comes in {again:.0f} s"
        self._events.event(reference, type="Warning", reason="StoreWorkUnfinished", message=message[:1024])

    def _why(self, uid: str) -> str:
        agent = self._members.view(janitor_of(uid)).get(JANITOR)
        if agent is None:
            return "it was never heard; see its pod"
        errors = [result.error for result in agent.results.values() if not result.ok and result.error]
        return errors[-1] if errors else "it needs more time"
