"""The import reconciler: rebuilds a Trainer's Checkpoint objects and timelines from its store alone (RS6, CK6).

A user sets the annotation `import` on a Trainer at rest. A janitor lists what exists in the store, a page at a time;
each checkpoint that no object stands for gets one. The annotation goes last, so another leader begins anew, which
changes nothing: an object's name follows from the id in the store.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from runtime.cache.index import OWNER_UID
from runtime.client.errors import AlreadyExists, NotFound
from runtime.client.rest import Client, PatchKind
from runtime.clock import Clock, format_time
from runtime.controller.reconciler import Request, Result
from runtime.objects import ObjectKey
from trainer_operator.api import names
from trainer_operator.api.checkpoint import Checkpoint
from trainer_operator.api.meta import API_VERSION
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS
from trainer_operator.api.status import AT_REST, Timeline
from trainer_operator.api.timelines import KEPT
from trainer_operator.api.trainer import Trainer, readable
from trainer_operator.topology.beat import DirectiveResult, janitor_of
from trainer_operator.topology.members import JANITOR, Directive, Members
from trainer_operator.trainer.apply import EventSink
from trainer_operator.trainer.pods import owner_reference
from trainer_operator.trainer.surroundings import Cache

RECHECK = 1.0
SOURCE = "import"


@dataclass(slots=True)
class _Course:
    """How far an import is, as far as this process knows."""

    asked: str
    after: str = ""
    made: int = 0


class ImportReconciler:
    """Carries imports out.

    Guarantees: an object is made only of what the store's DECISION says; one that is there stays as it is.
    """

    def __init__(
        self,
        *,
        client: Client,
        trainers: Cache[Mapping[str, Any]],
        checkpoints: Cache[Mapping[str, Any]],
        members: Members,
        events: EventSink,
        clock: Clock,
        call_janitor: Callable[[ObjectKey], None],
    ) -> None:
        self._client = client
        self._trainers = trainers
        self._checkpoints = checkpoints
        self._members = members
        self._events = events
        self._clock = clock
        self._call_janitor = call_janitor
        self._courses: dict[str, _Course] = {}

    async def reconcile(self, request: Request) -> Result | None:
        """Make one pass over one Trainer."""
        cached = self._trainers.get(request.key)
        asked = (cached["metadata"].get("annotations") or {}).get(names.IMPORT_ANNOTATION) if cached else None
        if cached is None or not asked or asked.startswith(names.IMPORT_FAILED):
            return None
        trainer = readable(cached)
        if trainer is None:
            return None
        if trainer.metadata.deletion_timestamp is not None:
            return None
        if trainer.status.phase not in AT_REST or trainer.spec.checkpoint is None:
            text = "only a Trainer at rest that has spec.checkpoint can import: suspend it first"
            await self._end(trainer, "Warning", "ImportRefused", text)
            return None
        uid = trainer.metadata.uid
        course = self._courses.get(uid)
        if course is None or course.asked != asked:
            course = self._courses[uid] = _Course(asked)
        wanted = Directive(
            f"store:inventory:{asked}:{course.after}", "Store", {"op": "inventory", "after": course.after}
        )
        answer = self._answer(uid, wanted.id)
        if answer is None:
            self._members.declare(janitor_of(uid), SOURCE, {JANITOR: (wanted,)})
            self._call_janitor(request.key)
            return Result(requeue_after=RECHECK)
        if not answer.ok:
            await self._end(trainer, "Warning", "ImportFailed", str(answer.error or "it failed"))
            return None
        value = answer.value if isinstance(answer.value, dict) else {}
        for entry in value.get("found") or ():
            course.made += await self._make(trainer, entry, str(value.get("storeId") or ""))
        course.after = str(value.get("last") or "")
        if course.after:
            return Result(requeue_after=0.0)
        await self._keep_timelines(trainer, value.get("timelines"))
        text = f"{course.made} Checkpoint objects were rebuilt from the store"
        await self._end(trainer, "Normal", "CheckpointsImported", text)
        return None

    def _answer(self, uid: str, directive: str) -> DirectiveResult | None:
        janitor = self._members.view(janitor_of(uid)).get(JANITOR)
        return janitor.results.get(directive) if janitor is not None else None

    async def _make(self, trainer: Trainer, entry: object, store_id: str) -> bool:
        """Make the object of one checkpoint; false when there is one, or the entry is none."""
        if not isinstance(entry, dict) or None in (entry.get("id"), entry.get("step")):
            return False
        known = {
            (obj.get("status") or {}).get("id")
            for obj in self._checkpoints.by_index(OWNER_UID, trainer.metadata.uid)
            if (obj.get("status") or {}).get("state") == "Committed"
        }
        if entry.get("id") in known:
            return False
        namespace, owner = trainer.metadata.namespace or "", trainer.metadata
        body: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": "Checkpoint",
            "metadata": {
                "name": names.checkpoint_name(owner.name, str(entry.get("id"))),
                "namespace": namespace,
                "labels": {names.TRAINER_LABEL: owner.name},
                "ownerReferences": [owner_reference(trainer)],
            },
            "spec": {"trainerRef": {"name": owner.name, "uid": owner.uid}, "id": entry.get("id")},
        }
        timeline = entry.get("timeline")
        status = {
            **({"timeline": timeline} if timeline else {}),
            **{
                name: entry.get(name)
                for name in ("id", "step", "epoch", "shards", "copies", "bytes", "digest")
            },
            "state": "Committed",
            "storeId": store_id,
            "committedAt": format_time(self._clock.utcnow()),
        }
        try:
            Checkpoint.read({**body, "status": status})
        except ValidationError:
            return False  # an agent that makes no sense
        try:
            made = await self._client.create(CHECKPOINTS, body, namespace=namespace)
        except AlreadyExists:
            made = await self._client.get(CHECKPOINTS, body["metadata"]["name"], namespace)
            if (made.get("status") or {}).get("state"):
                return False
        status["observedGeneration"] = made["metadata"].get("generation")
        await self._client.replace(CHECKPOINTS, {**made, "status": status}, subresource="status")
        return True

    async def _keep_timelines(self, trainer: Trainer, listed: object) -> None:
        """Take over what the store knows of timelines; the object may know of it, too, but of no other (CK6)."""
        known = {each.number: each for each in trainer.status.timelines}
        try:
            found = [Timeline.read(each) for each in listed] if isinstance(listed, list) else []
        except ValidationError:
            return  # an agent that makes no sense
        merged = {**known, **{each.number: each for each in found}}
        timelines = [merged[number] for number in sorted(merged)][-KEPT:]
        if timelines == trainer.status.timelines:
            return
        await self._client.patch(
            TRAINERS,
            trainer.metadata.name,
            {"status": {"timelines": [each.dump() for each in timelines]}},
            namespace=trainer.metadata.namespace,
            subresource="status",
            kind=PatchKind.MERGE,
        )

    async def _end(
        self, trainer: Trainer, kind: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        uid = trainer.metadata.uid
        reference = {"apiVersion": API_VERSION, "kind": "Trainer", "metadata": trainer.metadata.dump()}
        self._events.event(reference, type=kind, reason=reason, message=message[:1024])
        self._courses.pop(uid, None)
        self._members.declare(janitor_of(uid), SOURCE, {})
        self._call_janitor(ObjectKey(trainer.metadata.namespace or "", trainer.metadata.name))
        left = None if kind == "Normal" else f"{names.IMPORT_FAILED}{message}"[:1024]
        body = {"metadata": {"annotations": {names.IMPORT_ANNOTATION: left}}}
        try:
            await self._client.patch(
                TRAINERS,
                trainer.metadata.name,
                body,
                namespace=trainer.metadata.namespace,
                kind=PatchKind.MERGE,
            )
        except NotFound:
            return
