"""The PodGroup of a Trainer, for schedulers that place gangs themselves (TR37 to TR39).

    starts ──one PodGroup, before any pod──▶ kept while pods come, go and are replaced ──at rest──▶ deleted
                    └── Volcano: no pod is made until its queue lets the group in

What the group holds in a queue is given back with it: at the end and on suspend, never for a pod that is replaced.
Pods name their group from the first on, also where the kind is not installed: then they are placed one by one, and
the operator's own gang start holds. Pure.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runtime.objects import Resource
from trainer_operator.api import names
from trainer_operator.api.quantity import parse_quantity
from trainer_operator.api.status import AT_REST
from trainer_operator.api.trainer import Trainer
from trainer_operator.trainer.draft import DeletePodGroup, Draft, WritePodGroup
from trainer_operator.trainer.entrypoint import role_settings
from trainer_operator.trainer.membership import desired_members
from trainer_operator.trainer.views import PodGroupView
from trainer_operator.trainer.weightfiles import awaits_pin

RECHECK = 30.0
"""Seconds after which it is looked again whether the kind can be used, while members have no node."""
UNAVAILABLE = "PodGroupsUnavailable"
WAITS = "PodGroupWaits"


@dataclass(frozen=True, slots=True)
class PodGroupKind:
    """A kind of PodGroup, and how pods say that they belong to one."""

    resource: Resource
    annotation: str = ""
    label: str = ""
    queues: bool = False
    """Whether a group names a queue, and waits until that lets it in before there are pods."""
    sums: bool = False
    """Whether a group says what its pods take together.

    scheduler-plugins turns the pods of a group back, before it looks at any node, while the cluster has not that much left.
    It looks at such pods again when the group changes, or after five minutes, but not when room comes: neither a pod that
    goes nor a node that comes wakes them. Without the sum a pod is turned back for want of a node, and room wakes it.
    """


VOLCANO = PodGroupKind(
    Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"),
    annotation="scheduling.k8s.io/group-name",
    queues=True,
    sums=True,
)
SCHEDULER_PLUGINS = PodGroupKind(
    Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"),
    label="scheduling.x-k8s.io/pod-group",
)
KINDS: Mapping[str, PodGroupKind] = {
    "volcano": VOLCANO,
    "scheduler-plugins": SCHEDULER_PLUGINS,
    "scheduler-plugins-scheduler": SCHEDULER_PLUGINS,
}
"""By the names under which the two schedulers are installed."""


def kind_of(trainer: Trainer) -> PodGroupKind | None:
    """Return the kind of PodGroup that the Trainer's scheduler knows; None where there shall be none."""
    scheduling = trainer.spec.scheduling
    return KINDS.get(scheduling.scheduler_name or "") if scheduling.gang else None


def follow(draft: Draft) -> None:
    """Have the PodGroup be as the Trainer is now, and gone while it rests (TR37)."""
    status, found = draft.status, draft.observed.pod_group
    kind = kind_of(draft.observed.trainer)
    if kind is None or status.phase in AT_REST:
        if found is not None:
            draft.actions.append(DeletePodGroup(found.resource, found.name, found.uid))
        return
    if status.start_time is None or draft.observed.pod_groups_fault:
        return
    trainer = draft.observed.trainer.model_copy(update={"status": status})
    if found is None or not _says(found.spec, group_spec(trainer, kind)):
        draft.actions.append(WritePodGroup(exists=found is not None))


def holds_back(draft: Draft) -> bool:
    """Whether no pod is made yet, since the queue has not let the group in; where one lives, others may follow."""
    return _awaits_queue(draft) and not any(
        pod.alive for pods in draft.observed.pods.values() for pod in pods
    )


def problem(draft: Draft) -> tuple[str, str] | None:
    """Return reason and sentence of what is wrong, or waited for, with the group of a Trainer that has no node yet."""
    trainer, found = draft.observed.trainer, draft.observed.pod_group
    kind = kind_of(trainer)
    if kind is None or draft.status.start_time is None:
        return None
    scheduler, fault = trainer.spec.scheduling.scheduler_name, draft.observed.pod_groups_fault
    if fault:
        draft.look_again(RECHECK)
        return (
            UNAVAILABLE,
            f"scheduler {scheduler} places gangs by {kind.resource}, which {fault}: pods are placed one by one",
        )
    if holds_back(draft):
        queue = f" to queue {trainer.spec.scheduling.queue}" if trainer.spec.scheduling.queue else ""
        why = f": {found.message}" if found is not None and found.message else ""
        return WAITS, f"pods are made once {scheduler} admits PodGroup {trainer.metadata.name}{queue}{why}"
    return None


def pod_marks(trainer: Trainer) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations by which a pod belongs to its group."""
    kind = kind_of(trainer)
    if kind is None:
        return {}, {}
    name = trainer.metadata.name
    return {kind.label: name} if kind.label else {}, {kind.annotation: name} if kind.annotation else {}


def group_manifest(trainer: Trainer, kind: PodGroupKind, owner: dict[str, Any]) -> dict[str, Any]:
    """Build the PodGroup; it has the name of the Trainer, and goes with it."""
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": {
            "name": trainer.metadata.name,
            "namespace": trainer.metadata.namespace,
            "labels": {names.TRAINER_LABEL: trainer.metadata.name},
            "ownerReferences": [owner],
        },
        "spec": group_spec(trainer, kind),
    }


def group_spec(trainer: Trainer, kind: PodGroupKind) -> dict[str, Any]:
    """Return how many pods must be placed together, what they take, and which queue they wait in (GS1)."""
    least = _least_members(trainer)
    spec: dict[str, Any] = {"minMember": 1 if awaits_pin(trainer) else sum(least.values())}
    resources = _requests(trainer, least)
    if kind.sums and resources:
        spec["minResources"] = resources
    if kind.queues:
        spec["queue"] = trainer.spec.scheduling.queue
        spec["priorityClassName"] = trainer.spec.topology.pod_spec.priority_class_name
    return {name: value for name, value in spec.items() if value is not None}


def group_view(resource: Resource, obj: Mapping[str, Any]) -> PodGroupView:
    """Reduce a PodGroup to what decisions need."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    failed = [
        each
        for each in status.get("conditions") or ()
        if each.get("type") == "Unschedulable" and each.get("status") == "True"
    ]
    return PodGroupView(
        resource=resource,
        name=metadata["name"],
        uid=metadata["uid"],
        spec=obj.get("spec") or {},
        phase=str(status.get("phase") or ""),
        message=str(failed[-1].get("message") or "")[:512] if failed else "",
    )


def _awaits_queue(draft: Draft) -> bool:
    kind = kind_of(draft.observed.trainer)
    if kind is None or not kind.queues or draft.observed.pod_groups_fault:
        return False
    found = draft.observed.pod_group
    return found is None or found.phase in {"", "Pending"}


def _says(spec: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a spec has all that is wanted; others may add to it, and defaults do."""
    return all(
        _says(spec.get(name) or {}, value) if isinstance(value, Mapping) else spec.get(name) == value
        for name, value in wanted.items()
    )


def _least_members(trainer: Trainer) -> Counter[str]:
    """Count by role the members that must be placed together: all, but for workers that an elastic Trainer spares."""
    counts = Counter(member.role for member in desired_members(trainer))
    elastic = trainer.spec.elastic
    if elastic is not None:
        counts["worker"] = min(counts["worker"], elastic.min_workers)
    return counts


def _requests(trainer: Trainer, counts: Mapping[str, int]) -> dict[str, str]:
    """Add up what members request; a resource with a limit only is requested in full."""
    sums: dict[str, Decimal] = {}
    for role, count in counts.items():
        resources = role_settings(trainer, role).resources or trainer.spec.resources
        if resources is None:
            continue
        for name, value in {**(resources.limits or {}), **(resources.requests or {})}.items():
            sums[name] = sums.get(name, Decimal(0)) + count * parse_quantity(value)
    return {name: f"{value.normalize():f}" for name, value in sorted(sums.items())}
