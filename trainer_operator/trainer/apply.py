"""The only part that writes: a decision's actions, after its status is stored (rule 3 of design/architecture.md)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import structlog

from runtime.cache.barrier import Barrier
from runtime.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    ResponseMalformed,
    TransportError,
)
from runtime.client.rest import Client, PatchKind
from runtime.controller.slowstart import slow_start_batch
from runtime.objects import PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES, JsonObject, Resource, key_of
from trainer_operator.api.meta import API_VERSION
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS
from trainer_operator.api.trainer import Trainer
from trainer_operator.topology.members import Members
from trainer_operator.trainer.draft import (
    Action,
    CloseAgents,
    CreateCheckpoint,
    CreatePod,
    CreateService,
    DeleteAttachment,
    DeleteClaim,
    DeletePod,
    DeletePodGroup,
    DeleteTrainer,
    EmitEvent,
    ForceDeletePod,
    MarkCorrupt,
    PinCheckpoint,
    TaintNode,
    WritePodGroup,
)
from trainer_operator.trainer.noderecovery import NodeRecovery
from trainer_operator.trainer.podgroup import group_manifest, kind_of
from trainer_operator.trainer.pods import owner_reference, pod_manifest
from trainer_operator.trainer.service import service_manifest
from trainer_operator.trainer.unreadable import REASON, Unreadable
from trainer_operator.trainer.views import Settings
from trainer_operator.trainer.volumes import claim_manifest

FIRST_BATCH = 4
EventType = Literal["Normal", "Warning"]
_log = structlog.get_logger("trainer")


class EventSink(Protocol):
    """The part of the event recorder that is used here."""

    def event(self, obj: JsonObject, *, type: EventType, reason: str, message: str) -> None:
        """Record an event; never blocks."""


class NameTaken(ApiError):
    """An object of the wanted name exists and is not ours."""


class Applier:
    """Carries out actions.

    Guarantees: an object that exists already and is ours counts as created (R1); a delete names the uid it means;
    what is not found is deleted.
    Raises: the first ApiError, after all actions were tried.
    """

    def __init__(
        self,
        client: Client,
        members: Members,
        events: EventSink,
        settings: Settings,
        *,
        barriers: Mapping[Resource, Barrier[str]],
        authority: Callable[[], str],
    ) -> None:
        self._client = client
        self._members = members
        self._events = events
        self._settings = settings
        self._barriers = barriers
        self._authority = authority
        """What agents trust; asked for each pod, since certificates are exchanged while the operator runs."""
        self._ending: set[str] = set()
        """Uids of Trainers whose namespace is being deleted."""
        self._recovery = NodeRecovery(client)
        self._refusals: dict[str, str] = {}

    def forget(self, uid: str) -> None:
        """Forget a Trainer that no longer exists."""
        self._ending.discard(uid)
        self._refusals.pop(uid, None)

    async def status(self, trainer: Trainer, status: dict[str, Any]) -> Trainer:
        """Store the status and return the Trainer as it is now.

        Raises: Conflict when somebody else wrote meanwhile.
        """
        body = {
            "apiVersion": API_VERSION,
            "kind": "Trainer",
            "metadata": {
                "name": trainer.metadata.name,
                "namespace": trainer.metadata.namespace,
                "uid": trainer.metadata.uid,
                "resourceVersion": trainer.metadata.resource_version,
            },
            "status": status,  # the API server takes nothing else from this, and keeps the spec that it has
        }
        return Trainer.read(await self._client.replace(TRAINERS, body, subresource="status"))

    async def complain(self, found: Unreadable, status: dict[str, Any] | None) -> None:
        """Store the status of a Trainer that cannot be read and record an Event; one that the API server refuses stays.

        Raises: Conflict when somebody else wrote meanwhile.
        """
        about = {"apiVersion": API_VERSION, "kind": "Trainer", "metadata": found.stored["metadata"]}
        if status is not None:
            try:
                await self._client.replace(TRAINERS, {**about, "status": status}, subresource="status")
            except Invalid as error:
                _log.warning(
                    "the condition could not be stored", trainer=str(key_of(about)), problem=str(error)
                )
        self._events.event(about, type="Warning", reason=REASON, message=found.fault)

    async def actions(self, trainer: Trainer, actions: Sequence[Action]) -> None:
        """Carry out the actions of one decision; pods that are replaced are deleted after their successors are there.

        The order costs nobody anything: names hold the attempt, and a pod that still ends is there for a while anyway.
        """
        errors: list[Exception] = []
        creates = [action for action in actions if isinstance(action, CreatePod)]
        replaced = [action for action in actions if isinstance(action, DeletePod)] if creates else []
        for action in actions:
            match action:
                case EmitEvent():
                    self._emit(trainer, action)
                case CloseAgents():
                    self._members.close(trainer.metadata.uid)
                case CreateService():
                    manifest = service_manifest(trainer, owner_reference(trainer))
                    await _try(errors, self._create(trainer, SERVICES, manifest))
                case DeletePod() if not creates:
                    await _try(errors, self._delete_pod(trainer, action))
                case DeleteClaim():
                    await _try(errors, self._delete_claim(trainer, action))
                case WritePodGroup():
                    await _try(errors, self._write_pod_group(trainer, action))
                case DeletePodGroup():
                    await _try(errors, self._delete_pod_group(trainer, action))
                case ForceDeletePod() | DeleteAttachment() | TaintNode():
                    await _try(errors, self._free(trainer, action))
                case CreateCheckpoint():
                    await _try(errors, self._create_checkpoint(trainer, action))
                case MarkCorrupt():
                    await _try(errors, self._mark_corrupt(trainer, action))
                case PinCheckpoint():
                    await _try(errors, self._pin(trainer, action))
                case _:
                    pass
        if creates:
            outcome = await slow_start_batch(
                creates, lambda action: self._create_pod(trainer, action), initial=FIRST_BATCH
            )
            errors += outcome.errors
        for action in replaced:
            await _try(errors, self._delete_pod(trainer, action))
        if any(isinstance(action, DeleteTrainer) for action in actions):
            await _try(errors, self._delete_trainer(trainer))
        if errors:
            raise errors[0]

    def _emit(self, trainer: Trainer, action: EmitEvent) -> None:
        reference = {"apiVersion": API_VERSION, "kind": "Trainer", "metadata": trainer.metadata.dump()}
        self._events.event(reference, type=action.type, reason=action.reason, message=action.message)

    async def _create_pod(self, trainer: Trainer, action: CreatePod) -> None:
        claim = claim_manifest(trainer, action.member, action.attempt, owner_reference(trainer))
        if claim is not None:
            await self._create(trainer, PERSISTENT_VOLUME_CLAIMS, claim)
        settings = replace(self._settings, agent_ca=self._authority())
        manifest = pod_manifest(trainer, action.member, action.attempt, settings)
        await self._create(trainer, PODS, manifest)

    async def _write_pod_group(self, trainer: Trainer, action: WritePodGroup) -> None:
        kind = kind_of(trainer)
        if kind is None:
            return
        manifest = group_manifest(trainer, kind, owner_reference(trainer))
        if not action.exists:
            await self._create(trainer, kind.resource, manifest)
            return
        body = {"spec": manifest["spec"]}
        try:
            changed = await self._client.patch(
                kind.resource, trainer.metadata.name, body, namespace=trainer.metadata.namespace
            )
        except NotFound:
            return  # its deletion is on its way to the cache, and brings the next pass
        self._barriers[kind.resource].wrote(trainer.metadata.uid, changed)

    async def _delete_pod_group(self, trainer: Trainer, action: DeletePodGroup) -> None:
        namespace = trainer.metadata.namespace
        try:
            await self._client.delete(action.resource, action.name, namespace, uid=action.uid)
        except (NotFound, Conflict):
            return
        child = {"metadata": {"namespace": namespace, "name": action.name, "uid": action.uid}}
        self._barriers[action.resource].deleted(trainer.metadata.uid, child)

    async def _create_checkpoint(self, trainer: Trainer, action: CreateCheckpoint) -> None:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "Checkpoint",
            "metadata": {
                "name": action.name,
                "namespace": trainer.metadata.namespace,
                "labels": {"trainer-name": trainer.metadata.name},
                "ownerReferences": [owner_reference(trainer)],
            },
            "spec": {
                "trainerRef": {"name": trainer.metadata.name, "uid": trainer.metadata.uid},
                "reason": str(action.reason),
                "pause": action.pause,
            },
        }
        await self._create(trainer, CHECKPOINTS, manifest)

    async def _create(self, trainer: Trainer, resource: Resource, manifest: dict[str, Any]) -> None:
        namespace, name = trainer.metadata.namespace or "", manifest["metadata"]["name"]
        if trainer.metadata.uid in self._ending:
            return
        try:
            created = await self._client.create(resource, manifest, namespace=namespace)
        except AlreadyExists as error:
            created = await self._client.get(resource, name, namespace)
            owners = created["metadata"].get("ownerReferences") or ()
            if not any(
                owner.get("controller") and owner.get("uid") == trainer.metadata.uid for owner in owners
            ):
                message = f"{resource.kind} {name} exists and belongs to somebody else; delete or rename it"
                self._emit(trainer, EmitEvent("Warning", "NameTaken", message))
                raise NameTaken(message, status=error.status, reason=error.reason) from error
        except ApiError as error:
            if error.has_cause("NamespaceTerminating"):  # for good: nothing is created there any more (EC7)
                self._ending.add(trainer.metadata.uid)
                _log.info("nothing is created in a namespace that is being deleted", namespace=namespace)
                return
            self._emit(
                trainer, EmitEvent("Warning", "CreateFailed", f"{resource.kind} {name}: {error}"[:1024])
            )
            raise
        if resource in self._barriers:
            self._barriers[resource].wrote(trainer.metadata.uid, created)

    async def _delete_pod(self, trainer: Trainer, action: DeletePod) -> None:
        try:
            gone = await self._client.delete(
                PODS, action.name, trainer.metadata.namespace, uid=action.uid, grace_seconds=action.grace
            )
        except (NotFound, Conflict):
            return  # it is gone, or another pod has its name by now
        child = {
            "metadata": {"namespace": trainer.metadata.namespace, "name": action.name, "uid": action.uid}
        }
        self._barriers[PODS].deleted(trainer.metadata.uid, child, answer=gone)

    async def _delete_claim(self, trainer: Trainer, action: DeleteClaim) -> None:
        try:
            await self._client.delete(
                PERSISTENT_VOLUME_CLAIMS, action.name, trainer.metadata.namespace, uid=action.uid
            )
        except (NotFound, Conflict):
            return

    async def _free(self, trainer: Trainer, action: ForceDeletePod | DeleteAttachment | TaintNode) -> None:
        refusal = await self._recovery.carry_out(trainer.metadata.namespace or "", action)
        if self._refusals.get(trainer.metadata.uid, "") == refusal:
            return  # said before; it is tried again every few seconds
        self._refusals.pop(trainer.metadata.uid, None)
        if refusal:
            self._refusals[trainer.metadata.uid] = refusal
            _log.warning("a lost node was left alone", trainer=trainer.metadata.name, reason=refusal)
            self._emit(trainer, EmitEvent("Warning", "NodeRecoveryRefused", refusal))

    async def _mark_corrupt(self, trainer: Trainer, action: MarkCorrupt) -> None:
        body = {"status": {"health": "Corrupt"}}
        _log.warning("checkpoint is corrupt", checkpoint=action.name, reason=action.message)
        try:
            await self._client.patch(
                CHECKPOINTS,
                action.name,
                body,
                namespace=trainer.metadata.namespace,
                subresource="status",
                kind=PatchKind.MERGE,
            )
        except NotFound:
            return

    async def _pin(self, trainer: Trainer, action: PinCheckpoint) -> None:
        """Pin a checkpoint that is committed and not marked (GC2); of any other one the next pass takes notice."""
        try:
            found = await self._client.get(CHECKPOINTS, action.name, trainer.metadata.namespace)
        except NotFound:
            return
        status = found.get("status") or {}
        pins = list(status.get("pins") or ())
        if status.get("state") != "Committed" or status.get("markedAt") or action.pin in pins:
            return
        body = {**found, "apiVersion": API_VERSION, "kind": "Checkpoint"}
        body["status"] = {**status, "pins": [*pins, action.pin]}
        await self._client.replace(CHECKPOINTS, body, subresource="status")

    async def _delete_trainer(self, trainer: Trainer) -> None:
        try:
            await self._client.delete(
                TRAINERS,
                trainer.metadata.name,
                trainer.metadata.namespace,
                uid=trainer.metadata.uid,
                propagation="Background",
            )
        except (NotFound, Conflict):
            return


async def _try(errors: list[Exception], work: Awaitable[None]) -> None:
    try:
        await work
    except (ApiError, TransportError, ResponseMalformed) as error:
        errors.append(error)
