"""Volumes of members, and what becomes of them and of pods whose node is lost (ND1 to ND4).

Two parts, both pure. Claims: which claim an attempt uses, and which are of no use any more. Old pods: a replacement
never waits for the pod of a lost node; that pod gets an ordinary delete and stays Terminating until its node is back.
With the opt-in component more is done, once the node is known to be down and only while it is:

    policy                step by step
    none, FreshVolume     force the pod
    Reattach              force the pod ──▶ delete the VolumeAttachment ──▶ attached elsewhere by Kubernetes
    OutOfService          taint the node; Kubernetes does the rest
    Wait                  nothing

`step` is the whole machine. Orders depend on what is seen in the same pass, never on the phase that was written
before: a node that comes back half-way stops everything (no order without a confirmation of its own).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from runtime.cache.projection import Projection
from trainer_operator.api import names
from trainer_operator.api.meta import condition_of
from trainer_operator.api.status import OldPod, OldPodPhase
from trainer_operator.api.topology import StorageRecovery
from trainer_operator.api.trainer import Trainer
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.draft import (
    DeleteAttachment,
    DeleteClaim,
    Draft,
    ForceDeletePod,
    NodeEvidence,
    TaintNode,
)
from trainer_operator.trainer.membership import desired_members
from trainer_operator.trainer.nodes import NodeView
from trainer_operator.trainer.views import ClaimView, PodView

LIMIT = 64
RECHECK = 2.0
"""Seconds between looks at a node that is not yet known to be down; its Lease makes no event by resting."""
COMPONENT = "deploy/components/node-recovery and --node-recovery"


# -- claims


class ClaimSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The one field of a claim's spec that is read."""

    volume_name: str | None = None


class Claim(Projection, frozen=True):
    """A persistent volume claim."""

    spec: ClaimSpec = ClaimSpec()


class AttachmentSource(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """What is attached."""

    persistent_volume_name: str | None = None


class AttachmentSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """What is attached where."""

    node_name: str | None = None
    source: AttachmentSource = AttachmentSource()


class Attachment(Projection, frozen=True):
    """A VolumeAttachment."""

    spec: AttachmentSpec = AttachmentSpec()


def recovery_of(trainer: Trainer) -> StorageRecovery | None:
    """Return what becomes of a claim when its node is lost; None without claims."""
    storage = trainer.spec.topology.storage
    return storage.recovery if storage is not None else None


def claim_of(trainer: Trainer, member: MemberId, attempt: int) -> str | None:
    """Name the claim of an attempt: its own under FreshVolume, otherwise its member's; None without storage."""
    if recovery_of(trainer) is None:
        return None
    return names.claim_name(trainer.metadata.name, member.role, member.index, _number(trainer, attempt))


def _number(trainer: Trainer, attempt: int) -> int:
    """Return which claim of its member an attempt uses."""
    return attempt if recovery_of(trainer) is StorageRecovery.FRESH_VOLUME else 0


def claim_manifest(
    trainer: Trainer, member: MemberId, attempt: int, owner: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Build the claim of an attempt, which is owned by the Trainer and goes with it; None without storage."""
    storage, name = trainer.spec.topology.storage, claim_of(trainer, member, attempt)
    if storage is None or name is None:
        return None
    number = _number(trainer, attempt)
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(storage.size)}},
    }
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": trainer.metadata.namespace,
            "labels": names.pod_labels(trainer.metadata.name, member.role, member.index, number),
            "ownerReferences": [dict(owner)],
        },
        "spec": spec,
    }


def drop_old_claims(draft: Draft) -> None:
    """Delete the claims of attempts that are over and have no pod any more (FreshVolume); the others are kept."""
    trainer = draft.observed.trainer
    if recovery_of(trainer) is not StorageRecovery.FRESH_VOLUME:
        return
    desired = desired_members(trainer)
    for claim in draft.observed.claims:
        if claim.deleting or (
            claim.member in desired and claim.attempt >= draft.records.attempt(claim.member)
        ):
            continue
        if draft.observed.pod(claim.member, claim.attempt) is None:
            draft.actions.append(DeleteClaim(claim.name, claim.uid))


def others_using(
    claim: str, pods: Iterable[Mapping[str, Any]], *, but: frozenset[str] = frozenset()
) -> list[str]:
    """Return the names of pods that use a claim and have started; `but` are uids (ND4: then it is never taken)."""
    return [
        pod["metadata"]["name"] for pod in pods if pod["metadata"]["uid"] not in but and _uses(pod, claim)
    ]


def _uses(pod: Mapping[str, Any], claim: str) -> bool:
    status = pod.get("status") or {}
    if status.get("phase") in {"Succeeded", "Failed"} or not (pod.get("spec") or {}).get("nodeName"):
        return False
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    if not any((volume.get("persistentVolumeClaim") or {}).get("claimName") == claim for volume in volumes):
        return False
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    started = any({"running", "terminated"} & set(each.get("state") or {}) for each in containers)
    return started or status.get("phase") not in {None, "", "Pending"}


# -- pods of lost nodes


@dataclass(frozen=True, slots=True)
class Seen:
    """What one pass sees of an old pod: is it there, is its node down, is the node tainted, what is attached to it."""

    pod: bool
    down: bool
    tainted: bool = False
    attachment: str = ""


@dataclass(frozen=True, slots=True)
class Force:
    """Delete the pod without waiting for its kubelet."""


@dataclass(frozen=True, slots=True)
class Detach:
    """Delete the VolumeAttachment."""

    name: str


@dataclass(frozen=True, slots=True)
class Taint:
    """Declare the node out of service."""


Order = Force | Detach | Taint


def step(policy: StorageRecovery | None, seen: Seen) -> tuple[OldPodPhase | None, Order | None]:
    """Return the phase of an old pod, None when nothing is left to do, and the order that this pass allows.

    Guarantees: no order unless the node is down in this very pass; a volume is detached only once its pod is gone;
    Wait never orders anything.
    """
    if policy is StorageRecovery.WAIT:
        return (OldPodPhase.WAITING, None) if seen.pod else (None, None)
    if seen.pod:
        if not seen.down:
            return OldPodPhase.WAITING, None
        if policy is StorageRecovery.OUT_OF_SERVICE:
            return OldPodPhase.OUT_OF_SERVICE, None if seen.tainted else Taint()
        return OldPodPhase.FORCING, Force()
    if policy is not StorageRecovery.REATTACH or not seen.attachment:
        return None, None
    if not seen.down:
        return OldPodPhase.WAITING, None
    return OldPodPhase.DETACHING, Detach(seen.attachment)


def follow(draft: Draft) -> None:
    """Bring the old pods of lost nodes one step further."""
    drop_old_claims(draft)
    status, observed = draft.status, draft.observed
    if not observed.settings.node_recovery:
        status.old_pods = []
        return
    known = {old.uid: old for old in status.old_pods}
    for member, pod in stuck_pods(draft)[:LIMIT]:
        if pod.uid not in known and len(known) < LIMIT:
            known[pod.uid] = _record(draft, member, pod)
    kept = []
    policy = recovery_of(observed.trainer)
    for old in known.values():
        phase, order = step(policy, _seen(draft, old))
        if phase is None:
            freed = f" and volume {old.volume} is free" if old.volume else ""
            draft.event("OldPodGone", f"pod {old.pod} of lost node {old.node} is gone{freed}")
            continue
        if phase is not old.phase:
            old = old.model_copy(update={"phase": phase, "since": observed.now})
            if order is not None:
                draft.event("NodeDown", f"node {old.node} is down: {_doing(old, order)}", warning=True)
        kept.append(old)
        if order is not None:
            _act(draft, old, order)
        if policy is not StorageRecovery.WAIT:
            draft.look_again(RECHECK)
    status.old_pods = sorted(kept, key=lambda old: old.pod)


def stuck_pods(draft: Draft) -> list[tuple[MemberId, PodView]]:
    """Return the pods that are being deleted on a node that does not answer."""
    return [
        (member, pod)
        for member, pods in sorted(draft.observed.pods.items())
        for pod in pods
        if pod.terminating and _is_lost(draft.observed.nodes.get(pod.node))
    ]


def old_pod_row(draft: Draft) -> tuple[str, bool | None, str, str] | None:
    """Return the condition OldPodStuck; None where there never was such a pod (ND2)."""
    stuck = stuck_pods(draft)
    detaching = [old for old in draft.status.old_pods if old.phase is OldPodPhase.DETACHING]
    if not stuck and not detaching:
        told = condition_of(draft.status.conditions, "OldPodStuck")
        return ("OldPodStuck", False, "None", "") if told is not None else None
    if not stuck:
        old = detaching[0]
        return (
            "OldPodStuck",
            True,
            "Detaching",
            f"pod {old.pod} is gone; volume {old.volume} is being detached from node {old.node}",
        )
    _, pod = stuck[0]
    more = f" (and {len(stuck) - 1} more)" if len(stuck) > 1 else ""
    reason, remedy = _remedy(draft, pod)
    return (
        "OldPodStuck",
        True,
        reason,
        f"pod {pod.name}{more} stays Terminating, because its node {pod.node} does not answer; {remedy}",
    )


def _remedy(draft: Draft, pod: PodView) -> tuple[str, str]:
    policy = recovery_of(draft.observed.trainer)
    if policy is StorageRecovery.WAIT:
        return "WaitsForNode", "its volume is waited for, since storage.recovery is Wait: bring the node back"
    if not draft.observed.settings.node_recovery:
        if policy in {StorageRecovery.REATTACH, StorageRecovery.OUT_OF_SERVICE}:
            return (
                "NodeRecoveryNotEnabled",
                f"storage.recovery is {policy}, which needs {COMPONENT}; or, once the machine is off, delete the Node",
            )
        return (
            "NodeLost",
            f"its successor does not wait for it; once the machine is off, delete the Node, or enable {COMPONENT}",
        )
    node = draft.observed.nodes[pod.node]
    if not node.is_down:
        return "NodeNotConfirmed", f"nothing is forced while the node may run: {', '.join(node.doubts)}"
    return "Forcing", "the node is down, so the pod is being removed"


def _is_lost(node: NodeView | None) -> bool:
    return node is not None and node.is_suspicious


def _record(draft: Draft, member: MemberId, pod: PodView) -> OldPod:
    claim = claim_of(draft.observed.trainer, member, pod.attempt) or ""
    volume = next((each.volume for each in draft.observed.claims if each.name == claim), "")
    return OldPod(
        member=str(member),
        pod=pod.name,
        uid=pod.uid,
        node=pod.node,
        claim=claim,
        volume=volume,
        phase=OldPodPhase.WAITING,
        since=draft.observed.now,
    )


def _seen(draft: Draft, old: OldPod) -> Seen:
    observed = draft.observed
    node = observed.nodes.get(old.node)
    return Seen(
        pod=any(pod.uid == old.uid for pods in observed.pods.values() for pod in pods),
        down=node is not None and node.is_down,
        tainted=node is not None and node.out_of_service,
        attachment=observed.attachments.get((old.volume, old.node), "") if old.volume else "",
    )


def _act(draft: Draft, old: OldPod, order: Order) -> None:
    evidence = NodeEvidence(old.node, draft.observed.nodes[old.node].renewed)
    match order:
        case Force():
            draft.actions.append(ForceDeletePod(old.pod, old.uid, old.claim, evidence))
        case Detach(name):
            draft.actions.append(DeleteAttachment(name, old.claim, evidence))
        case Taint():
            draft.actions.append(TaintNode(evidence))


def _doing(old: OldPod, order: Order) -> str:
    match order:
        case Force():
            return f"pod {old.pod} is deleted without waiting for it"
        case Detach():
            return f"volume {old.volume} is detached from it"
        case Taint():
            return "it is declared out of service"


def claim_view(claim: Claim) -> ClaimView | None:
    """Reduce a claim; None when its labels are not ours."""
    labels = claim.labels
    role, index, attempt = (
        labels.get(label, "") for label in (names.ROLE_LABEL, names.INDEX_LABEL, names.ATTEMPT_LABEL)
    )
    if not role or not index.isdecimal() or not attempt.isdecimal():
        return None
    return ClaimView(
        claim.name,
        claim.uid,
        MemberId(role, int(index)),
        int(attempt),
        claim.spec.volume_name or "",
        claim.is_deleting,
    )
