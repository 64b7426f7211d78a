"""The deletion reconciler: keeps the finalizer of a Trainer whose checkpoints go with it, and lets it go in the end.

What is being waited for stands in the condition `CheckpointsDeleted` of the Trainer, together with the way out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import structlog

from runtime.cache.index import OWNER_UID
from runtime.cache.projection import Pod
from runtime.client.errors import Conflict, NotFound
from runtime.client.rest import Client, PatchKind
from runtime.clock import Clock
from runtime.conditions import set_condition
from runtime.controller import add_finalizer, has_finalizer, remove_finalizer
from runtime.controller.reconciler import Request, Result
from runtime.objects import PODS, ObjectKey
from trainer_operator.api.meta import API_VERSION
from trainer_operator.api.resources import TRAINERS
from trainer_operator.api.trainer import Trainer, readable
from trainer_operator.topology.beat import DirectiveResult, janitor_of
from trainer_operator.topology.members import JANITOR, Members
from trainer_operator.trainer.apply import EventSink
from trainer_operator.trainer.deletion import (
    CONDITION,
    FINALIZER,
    PURGE,
    Facts,
    concerns,
    next_act,
    order,
    remedy,
    retry_after,
    wants_deletion,
)
from trainer_operator.trainer.observe import pods_by_member
from trainer_operator.trainer.surroundings import Cache
from trainer_operator.trainer.views import PodView

RECHECK = 2.0
SOURCE = "deletion"
_log = structlog.get_logger("deletion")


@dataclass(slots=True)
class _Tries:
    """How often the janitor failed at it, as far as this process saw, and when the next try is."""

    failures: int = 0
    next_at: float = 0.0
    why: str = ""


class DeletionReconciler:
    """Holds and releases Trainers.

    Guarantees: the finalizer goes last; a Trainer that is not held costs no write.
    """

    def __init__(
        self,
        *,
        client: Client,
        trainers: Cache[Mapping[str, Any]],
        checkpoints: Cache[Mapping[str, Any]],
        pods: Cache[Pod],
        members: Members,
        events: EventSink,
        clock: Clock,
        call_janitor: Callable[[ObjectKey], None],
        namespace_ends: Callable[[str], bool],
    ) -> None:
        self._client = client
        self._trainers = trainers
        self._checkpoints = checkpoints
        self._pods = pods
        self._members = members
        self._events = events
        self._clock = clock
        self._call_janitor = call_janitor
        self._namespace_ends = namespace_ends
        """Asked for a Trainer's uid: whether no pod can be made for it any more."""
        self._tries: dict[str, _Tries] = {}

    async def reconcile(self, request: Request) -> Result | None:
        """Make one pass over one Trainer."""
        cached = self._trainers.get(request.key)
        if cached is None or not concerns(cached):  # nearly all, so the others are read after this
            return None
        trainer = readable(cached)
        if trainer is None:
            return None
        obj, uid = dict(cached), trainer.metadata.uid
        running = [
            pod for pods in pods_by_member(self._pods.by_index(OWNER_UID, uid), uid).values() for pod in pods
        ]
        running = [pod for pod in running if pod.phase in {"Pending", "Running", "Unknown"}]
        results = self._results(uid)
        act, reason = next_act(
            Facts(
                held=has_finalizer(obj, FINALIZER),
                deleting=trainer.metadata.deletion_timestamp is not None,
                wants=wants_deletion(trainer),
                namespace_ends=self._namespace_ends(uid),
                members=len(running),
                waited=self._waited(trainer),
                done=self._has_nothing(trainer) or any(result.ok for result in results.values()),
            )
        )
        match act:
            case "hold":
                await add_finalizer(self._client, TRAINERS, obj, finalizer=FINALIZER)
            case "let go":
                await self._let_go(trainer, obj, reason, results)
            case "end members":
                await self._end(trainer, running)
                await self._say(
                    trainer, "MembersEnd", f"{len(running)} pods of members end first; {remedy(trainer)}"
                )
                return Result(requeue_after=RECHECK)
            case "collect":
                await self._collect(trainer, results)
                return Result(requeue_after=RECHECK)
            case "nothing":
                pass
        return None

    def _results(self, uid: str) -> dict[str, DirectiveResult]:
        janitor = self._members.view(janitor_of(uid)).get(JANITOR)
        found = janitor.results if janitor is not None else {}
        return {name: result for name, result in found.items() if name.partition("#")[0] == PURGE}

    def _has_nothing(self, trainer: Trainer) -> bool:
        """Whether no checkpoint was ever asked for."""
        status = trainer.status
        asked = status.checkpoint_sequence or status.last_checkpoint is not None
        return not asked and not any(
            True for _ in self._checkpoints.by_index(OWNER_UID, trainer.metadata.uid)
        )

    def _waited(self, trainer: Trainer) -> float:
        deleted = trainer.metadata.deletion_timestamp
        if deleted is None:
            return 0.0
        grace = trainer.spec.topology.pod_spec.termination_grace_period_seconds
        return (self._clock.utcnow() - deleted).total_seconds() - grace

    async def _end(self, trainer: Trainer, running: Iterable[PodView]) -> None:
        for pod in running:
            if pod.terminating:
                continue
            try:
                await self._client.delete(PODS, pod.name, trainer.metadata.namespace, uid=pod.uid)
            except (NotFound, Conflict):
                continue

    async def _collect(self, trainer: Trainer, results: Mapping[str, DirectiveResult]) -> None:
        uid, now = trainer.metadata.uid, self._clock.monotonic()
        if uid not in self._tries:
            text = f"a janitor deletes its checkpoints; {remedy(trainer)}"
            self._emit(trainer, "Normal", "DeletingCheckpoints", text)
        tries = self._tries.setdefault(uid, _Tries())
        wanted = order(tries.failures, store=self._store(uid))
        answer = results.get(wanted.id)
        if answer is not None:
            tries.failures, tries.why = tries.failures + 1, answer.error or "it failed"
            tries.next_at = now + retry_after(tries.failures)
            wanted = order(tries.failures, store=self._store(uid))
        if tries.why:
            await self._say(trainer, "StoreFails", f"{tries.why}; it is tried again. {remedy(trainer)}")
        else:
            await self._say(trainer, "Deleting", f"a janitor deletes its checkpoints; {remedy(trainer)}")
        if now >= tries.next_at:
            self._members.declare(janitor_of(uid), SOURCE, {JANITOR: (wanted,)})
            self._call_janitor(ObjectKey(trainer.metadata.namespace or "", trainer.metadata.name))

    def _store(self, uid: str) -> str:
        """Return the id of the store that the newest committed checkpoint lies in; empty if none is known (CK7)."""
        found = [checkpoint.get("status") or {} for checkpoint in self._checkpoints.by_index(OWNER_UID, uid)]
        committed = [status for status in found if status.get("state") == "Committed"]
        newest = max(committed, key=lambda status: status.get("step") or 0, default={})
        return str(newest.get("storeId") or "")

    async def _let_go(
        self, trainer: Trainer, obj: dict[str, Any], reason: str, results: Mapping[str, DirectiveResult]
    ) -> None:
        uid = trainer.metadata.uid
        self._tries.pop(uid, None)
        self._members.declare(janitor_of(uid), SOURCE, {})
        if reason == "CheckpointsDeleted":
            value = next((result.value for result in results.values() if result.ok), None)
            left = value.get("left") if isinstance(value, dict) else None
            told = (
                f"; left, since they are not ours or cannot be read: {', '.join(map(str, left))}"
                if left
                else ""
            )
            self._emit(trainer, "Normal", reason, f"its checkpoints are deleted{told}"[:1024])
        elif reason == "CheckpointsKept":
            self._emit(trainer, "Normal", reason, "checkpoint.retainOnDelete is true: they stay in the store")
        elif reason:
            text = "they stay in the store: no janitor can be made in a namespace that is being deleted"
            _log.warning("checkpoints stay in the store", trainer=trainer.metadata.name, why=text)
            self._emit(trainer, "Warning", reason, text)
        await remove_finalizer(self._client, TRAINERS, obj, finalizer=FINALIZER)

    async def _say(self, trainer: Trainer, reason: str, message: str) -> None:
        before = [condition.dump() for condition in trainer.status.conditions]
        conditions, changed = set_condition(
            before,
            type=CONDITION,
            status="False",
            reason=reason,
            message=message[:1024],
            generation=trainer.metadata.generation,
            now=self._clock.utcnow(),
        )
        if not changed:
            return
        try:
            await self._client.patch(
                TRAINERS,
                trainer.metadata.name,
                {
                    "metadata": {"resourceVersion": trainer.metadata.resource_version},
                    "status": {"conditions": conditions},
                },
                namespace=trainer.metadata.namespace,
                subresource="status",
                kind=PatchKind.MERGE,
            )
        except (NotFound, Conflict):
            return  # it is looked at again

    def _emit(self, trainer: Trainer, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        reference = {"apiVersion": API_VERSION, "kind": "Trainer", "metadata": trainer.metadata.dump()}
        self._events.event(reference, type=kind, reason=reason, message=message)
