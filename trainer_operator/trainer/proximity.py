"""How near to each other the members run: `scheduling.topologyPolicy`, by kube-scheduler's affinity between pods.

    starts ──each level is a node label──▶ status.allocation ──▶ affinity of every pod to pods of the same placement
       └── one is not: the Trainer waits, and condition Scheduled says what could be meant (TP5, SC11)

The labels are kept until the Trainer is suspended, so a replacement goes where its gang is, whatever nodes and
configuration say by then (GP6). The scheduler places the first pod of a placement anywhere, and the others beside it.
It does not look first whether all have room there; so a gang that gives its nodes back tries another domain next.

A pod that is stuck on a lost node counts for the scheduler as well. So when none that has a node is left alive, a new
placement begins: else the loss of a whole rack would bind its successors to the rack that is lost. Pure.
"""

from collections.abc import Iterable

from trainer_operator.api import names
from trainer_operator.api.status import AllocationStatus
from trainer_operator.api.trainer import TopologyPolicy, Trainer
from trainer_operator.trainer import membership
from trainer_operator.trainer.affinity import Affinity, preferring_pods, requiring_nodes, requiring_pods
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.entrypoint import role_settings
from trainer_operator.trainer.levels import Unresolved, resolve
from trainer_operator.trainer.views import PodView

UNKNOWN = "TopologyLevelUnknown"
CONFLICT = "TopologyConflict"
RETRY = 5.0
"""Seconds after which nodes and configuration are looked at again: neither wakes a Trainer that has no pods."""
MOST_TRIED = 64


def policy_of(trainer: Trainer) -> TopologyPolicy | None:
    """Return the policy if it asks for anything."""
    policy = trainer.spec.scheduling.topology_policy
    return policy if policy is not None and (policy.required or policy.preferred) else None


def must_resolve(trainer: Trainer) -> bool:
    """Whether it starts, so that the levels of its policy are looked up."""
    starts = trainer.status.start_time is None and not trainer.spec.suspend
    return starts and policy_of(trainer) is not None


def awaited_label(trainer: Trainer) -> str:
    """Return the label whose value members must share that still wait for each other; empty where nobody does."""
    allocation, waits = trainer.status.allocation, trainer.status.membership.phase == membership.PREPARING
    return (allocation.required_label or "") if allocation is not None and waits else ""


def problem(draft: Draft) -> tuple[str, str] | None:
    """Return reason and sentence if the Trainer can't start as near to each other as it asks."""
    found = _resolved(draft)
    return found if isinstance(found, tuple) else None


def follow(draft: Draft) -> tuple[str, str] | None:
    """Keep what the levels mean for this start; return reason and sentence if they mean nothing."""
    found = _resolved(draft)
    if isinstance(found, tuple):
        draft.look_again(RETRY)
        return found
    if found is not None:
        draft.status.allocation = found
    return None


def renew(draft: Draft) -> None:
    """Begin a new placement when only pods that are on their way out, or lost, bind new pods to where they are."""
    allocation, trainer = draft.status.allocation, draft.observed.trainer
    present = placement_label(trainer, allocation)
    if allocation is None or not present:
        return
    desired = membership.desired_members(trainer)
    current = {member: draft.observed.pod(member, draft.records.attempt(member)) for member in desired}
    if any(pod is not None and pod.alive and pod.node for pod in current.values()):
        return
    placed = (pod for pods in draft.observed.pods.values() for pod in pods if _binds(pod, present))
    if not any(True for _ in placed):
        return
    draft.status.allocation = allocation.model_copy(update={"placement": (allocation.placement or 0) + 1})
    for member, pod in current.items():
        if pod is not None and pod.alive:
            draft.records.move_on(member)  # it waits for room beside them


def turn_elsewhere(draft: Draft, holders: Iterable[PodView]) -> None:
    """Keep the next try away from the domain in which some found a node and others did not.

    Once nothing is left to try, every domain is open again.
    """
    allocation = draft.status.allocation
    if allocation is None or not allocation.required_label:
        return
    domains = draft.observed.domains
    here = {domains[pod.node] for pod in holders if pod.node in domains}
    tried = (*allocation.tried, *sorted(here - set(allocation.tried)))[-MOST_TRIED:]
    is_left = bool(here) and not set(domains.values()) <= set(tried)
    _try_but(draft, allocation, tried if is_left else ())


def has_tried(draft: Draft) -> bool:
    """Whether new pods keep away from domains that had no room."""
    return draft.status.allocation is not None and bool(draft.status.allocation.tried)


def settle(draft: Draft) -> None:
    """Open every domain again: all members have found one."""
    if draft.status.allocation is not None:
        _try_but(draft, draft.status.allocation, ())


def placement_label(trainer: Trainer, allocation: AllocationStatus | None) -> str:
    """Return the value of the label that pods of one placement share; empty without a policy.

    The uid keeps a namesake's pods apart that are still on their way out (TR22).
    """
    if allocation is None or not (allocation.required_label or allocation.preferred_label):
        return ""
    return f"{trainer.metadata.uid[:8]}-{allocation.placement or 0}"


def near_members(trainer: Trainer, affinity: Affinity | None) -> Affinity | None:
    """Add to an affinity that a pod runs in the domain of the other members; what the user asked for is kept."""
    allocation = trainer.status.allocation
    label = placement_label(trainer, allocation)
    if allocation is None or not label:
        return affinity
    selector = {
        "matchLabels": {names.TRAINER_LABEL: trainer.metadata.name, names.PLACEMENT_LABEL: label},
    }
    if allocation.required_label:
        affinity = _elsewhere(affinity, allocation.required_label, allocation.tried)
        term = {"topologyKey": allocation.required_label, "labelSelector": selector}
        affinity = requiring_pods(affinity, "podAffinity", term)
    if allocation.preferred_label:
        term = {"topologyKey": allocation.preferred_label, "labelSelector": selector}
        affinity = preferring_pods(affinity, "podAffinity", term)
    return affinity


def _elsewhere(affinity: Affinity | None, label: str, tried: tuple[str, ...]) -> Affinity | None:
    """Add to an affinity that no domain is used that was tried."""
    conditions = [{"key": label, "operator": "NotIn", "values": list(tried)}] if tried else []
    return requiring_nodes(affinity, "matchExpressions", conditions)


def _try_but(draft: Draft, allocation: AllocationStatus, tried: tuple[str, ...]) -> None:
    if allocation.tried != tried:
        draft.status.allocation = allocation.model_copy(update={"tried": tried})


def _binds(pod: PodView, placement: str) -> bool:
    """Whether the scheduler counts the pod as one of this placement that has a place."""
    return pod.placement == placement and bool(pod.node) and pod.phase not in {"Succeeded", "Failed"}


def _resolved(draft: Draft) -> AllocationStatus | tuple[str, str] | None:
    """Return what the policy of a Trainer that starts means, or why it means nothing; None where there is none."""
    observed = draft.observed
    policy = policy_of(observed.trainer)
    if policy is None or draft.status.start_time is not None:
        return None
    conflict = _conflict(observed.trainer, policy)
    if conflict:
        return CONFLICT, conflict
    if isinstance(observed.levels, str):
        return UNKNOWN, observed.levels
    labels: dict[str, str] = {}  # by field of the policy
    for field, name in (("required", policy.required), ("preferred", policy.preferred)):
        if name is None:
            continue
        label = resolve(name, observed.levels, observed.node_labels, optional=field == "preferred")
        if isinstance(label, Unresolved):
            return UNKNOWN, f"scheduling.topologyPolicy.{field}: {label.message}"
        labels[field] = label
    return AllocationStatus(
        required_label=labels.get("required"), preferred_label=labels.get("preferred"), placement=0
    )


def _conflict(trainer: Trainer, policy: TopologyPolicy) -> str:
    """Say which role asks for other pods beside it, too: the scheduler wants one pod that meets all such terms."""
    for role in ("master", "ps", "worker"):
        affinity = role_settings(trainer, role).affinity
        pods = affinity.pod_affinity if affinity is not None else None
        if policy.required and pods is not None and pods.required_during_scheduling_ignored_during_execution:
            return (
                f"topology.roles.{role}.affinity requires pods nearby, and the scheduler finds no node for a pod that "
                "requires its own Trainer's as well: prefer one of the two"
            )
    return ""
