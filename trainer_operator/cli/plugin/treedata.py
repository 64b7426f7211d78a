"""The State Tree as it is shown: Trainer, roles, members, and the pods of their attempts. Pure.

Two sources have one form, the operator's JSON. The operator knows each member's state and step. Where it is not asked,
:func:`poor_tree` tells the same from the Trainer's status and its pods, as far as they know: no steps of single members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainer_operator.cli.plugin.access import status_of
from trainer_operator.cli.plugin.kinds import ATTEMPT_LABEL, INDEX_LABEL, ROLE_LABEL
from trainer_operator.cli.plugin.words import plain
from trainer_operator.topology.state import READY, WORST, State

ROLES = {"master": "masters", "worker": "workers", "ps": "parameterServers"}
"""The roles in the order they are shown, and what the spec calls their number."""
_ENDED = {"Succeeded", "Failed"}
_LOST = {"NodeLost", "NodeShutdown", "Terminated", "Evicted", "DeletionByTaintManager", "Preempted"}


@dataclass(frozen=True, slots=True)
class PodLine:
    """One pod of a member."""

    name: str
    state: str
    cause: str
    node: str
    created: str
    attempt: int


@dataclass(frozen=True, slots=True)
class MemberLine:
    """One member; `pods` are those of earlier attempts that still exist."""

    member: str
    state: str
    cause: str
    step: int | None
    step_age: float | None
    rate: float | None
    restarts: int
    pod: PodLine | None
    pods: tuple[PodLine, ...]

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to say about it."""
        return self.state in {*READY, State.SUCCEEDED} and not self.cause and not self.pods


@dataclass(frozen=True, slots=True)
class RoleLine:
    """One role with its members."""

    role: str
    ready: int
    desired: int
    worst: str
    members: tuple[MemberLine, ...]


@dataclass(frozen=True, slots=True)
class TreeView:
    """A whole Trainer as it is shown."""

    namespace: str
    name: str
    phase: str
    message: str
    membership: str
    step: int
    epochs_completed: int
    epochs: int
    failures: int
    disruptions: int
    roles: tuple[RoleLine, ...]
    from_operator: bool

    @property
    def has_ended(self) -> bool:
        """Whether nothing changes any more."""
        return self.phase in _ENDED


def poor_tree(trainer: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Build the operator's JSON from what the API server knows."""
    metadata, spec, status = trainer["metadata"], trainer["spec"], status_of(trainer)
    membership = status.get("membership") or {}
    by_member = pods_by_member(pods)
    roles = []
    for role, field in ROLES.items():
        topology = spec.get("topology") or {}
        replicas = topology.get("replicationFactor", 1) if role == "ps" else 1
        desired = topology.get(field, 1 if role == "worker" else 0) * replicas
        present = {index for name, index in by_member if name == role}
        released = status.get("phase") in {*_ENDED, "Suspended"}
        indexes = sorted(present if released else {*range(desired), *present})
        members = [_poor_member(status, role, index, by_member.get((role, index), [])) for index in indexes]
        counts = Counter(member["state"] for member in members)
        if not members:
            continue
        roles.append(
            {
                "role": role,
                "desired": desired,
                "ready": sum(counts[state] for state in READY),
                "worst": next((state for state in WORST if counts[state]), None),
                "counts": dict(counts),
                "members": members,
            }
        )
    return {
        "trainer": f"{metadata['namespace']}/{metadata['name']}",
        "uid": metadata.get("uid", ""),
        "phase": status.get("phase") or "Pending",
        "epoch": membership.get("epoch", 0),
        "membershipPhase": membership.get("phase"),
        "psEpoch": membership.get("psEpoch", 0),
        "globalStep": status.get("globalStep", 0),
        "epochsCompleted": status.get("epochsCompleted", 0),
        "epochs": spec.get("epochs", 0),
        "roles": roles,
    }


def view(
    tree: Mapping[str, Any],
    trainer: Mapping[str, Any],
    pods: Iterable[Mapping[str, Any]],
    *,
    from_operator: bool,
) -> TreeView:
    """Join a tree with the Trainer's counters and the nodes, ages and earlier attempts of its pods."""
    namespace, _, name = str(tree.get("trainer", "")).partition("/")
    status = status_of(trainer)
    by_member = pods_by_member(pods)
    phase = str(tree.get("phase") or "Pending")
    return TreeView(
        namespace=namespace,
        name=name,
        phase=phase,
        message="" if phase == "Running" else _message(status),
        membership=_membership(tree),
        step=tree.get("globalStep") or 0,
        epochs_completed=tree.get("epochsCompleted") or 0,
        epochs=tree.get("epochs") or 0,
        failures=status.get("failures", 0),
        disruptions=status.get("disruptions", 0),
        roles=tuple(
            RoleLine(
                role=role["role"],
                ready=role.get("ready", 0),
                desired=role.get("desired", 0),
                worst=str(role.get("worst") or ""),
                members=tuple(_member_line(status, each, by_member) for each in role.get("members") or ()),
            )
            for role in tree.get("roles") or ()
        ),
        from_operator=from_operator,
    )


def pods_by_member(
    pods: Iterable[Mapping[str, Any]],
) -> dict[tuple[str, int], list[Mapping[str, Any]]]:
    """Return the pods of each member, the newest attempt first; pods without our labels are left out."""
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        role, index = labels.get(ROLE_LABEL), labels.get(INDEX_LABEL, "")
        if role in ROLES and index.isdecimal():
            found.setdefault((role, int(index)), []).append(pod)
    for attempts in found.values():
        attempts.sort(key=attempt_of, reverse=True)
    return found


def attempt_of(pod: Mapping[str, Any]) -> int:
    """Return the number of a pod's attempt."""
    text = (pod["metadata"].get("labels") or {}).get(ATTEMPT_LABEL, "")
    return int(text) if text.isdecimal() else 0


def _poor_member(
    status: Mapping[str, Any], role: str, index: int, pods: list[Mapping[str, Any]]
) -> dict[str, Any]:
    record = _record(status, role, index)
    attempt = record.get("attempt", 0)
    pod = pods[0] if pods and attempt_of(pods[0]) >= attempt else None
    state, cause = _poor_state(status, f"{role}-{index}", record, pod)
    body: dict[str, Any] = {
        "member": f"{role}-{index}",
        "state": str(state),
        "live": pod is not None and (pod.get("status") or {}).get("phase") == "Running",
        "ready": state in READY,
        "progressing": state is State.READY,
        "cause": cause,
        "attempt": attempt_of(pod) if pod is not None else attempt,
    }
    if pod is not None:
        body["pod"] = pod["metadata"]["name"]
    return body


def _poor_state(
    status: Mapping[str, Any], member: str, record: Mapping[str, Any], pod: Mapping[str, Any] | None
) -> tuple[State, str]:
    last = plain(str(record.get("lastReason") or ""))
    if pod is None:
        return (State.LOST if record else State.PENDING), last
    state, cause = _pod_state(pod)
    if state is not State.READY:
        return state, cause or (last if state is State.STARTING else "")
    epoch = (status.get("membership") or {}).get("epoch", 0)
    if epoch and record.get("done") == epoch:
        return State.SUCCEEDED, ""
    if (status.get("stall") or {}).get("member") == member:
        return State.STALLED, "Stalled"
    if member in (status.get("suspects") or ()):
        return State.SUSPECT, "Suspect"
    return state, ""


def _pod_state(pod: Mapping[str, Any]) -> tuple[State, str]:
    """Return what a pod alone tells of its member."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return State.DRAINING, ""
    phase = status.get("phase")
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    if phase == "Failed":
        reason = str(status.get("reason") or "")
        for each in containers:
            ended = (each.get("state") or {}).get("terminated") or {}
            if ended.get("exitCode"):
                reason = reason or f"{ended.get('reason') or 'Error'} (exit code {ended['exitCode']})"
        return (State.LOST if reason in _LOST else State.CRASHED), plain(reason)
    if phase == "Succeeded":
        return State.SUCCEEDED, ""
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    waiting = [
        str(((each.get("state") or {}).get("waiting") or {}).get("reason") or "") for each in containers
    ]
    cause = next((each for each in waiting if each not in {"", "ContainerCreating", "PodInitializing"}), "")
    if phase == "Running":
        ready = (conditions.get("Ready") or {}).get("status") == "True"
        return (State.READY if ready else State.STARTING), plain(cause)
    scheduled = conditions.get("PodScheduled") or {}
    if not cause and scheduled.get("status") == "False":
        cause = str(scheduled.get("reason") or "Unschedulable")
    return State.PENDING, plain(cause)


def _member_line(
    status: Mapping[str, Any],
    member: Mapping[str, Any],
    by_member: Mapping[tuple[str, int], list[Mapping[str, Any]]],
) -> MemberLine:
    name = str(member.get("member", ""))
    role, _, index = name.rpartition("-")
    record = _record(status, role, int(index)) if index.isdecimal() else {}
    pods = [_pod_line(pod) for pod in by_member.get((role, int(index)), [])] if index.isdecimal() else []
    current = next((pod for pod in pods if pod.attempt == member.get("attempt")), None)
    return MemberLine(
        member=name,
        state=str(member.get("state") or "Pending"),
        cause=plain(str(member.get("cause") or "")),
        step=member.get("step"),
        step_age=member.get("stepAgeSeconds"),
        rate=member.get("stepsPerSecond"),
        restarts=record.get("failures", 0) + record.get("disruptions", 0),
        pod=current,
        pods=tuple(pod for pod in pods if pod is not current),
    )


def _pod_line(pod: Mapping[str, Any]) -> PodLine:
    state, cause = _pod_state(pod)
    return PodLine(
        name=pod["metadata"]["name"],
        state=str(state),
        cause=cause,
        node=(pod.get("spec") or {}).get("nodeName") or "",
        created=pod["metadata"].get("creationTimestamp") or "",
        attempt=attempt_of(pod),
    )


def _record(status: Mapping[str, Any], role: str, index: int) -> Mapping[str, Any]:
    for each in status.get("members") or ():
        if (each.get("role"), each.get("index")) == (role, index):
            record: Mapping[str, Any] = each
            return record
    return {}


def _membership(tree: Mapping[str, Any]) -> str:
    parts = [f"membership {tree.get('epoch', 0)} {tree.get('membershipPhase') or ''}".strip()]
    if tree.get("psEpoch"):
        parts.append(f"servers {tree['psEpoch']}")
    return " · ".join(parts) if tree.get("epoch") else ""


def _message(status: Mapping[str, Any]) -> str:
    if status.get("message"):
        return plain(str(status["message"]))
    ready: Mapping[str, Any] = next(
        (each for each in status.get("conditions") or () if each.get("type") == "Ready"), {}
    )
    return plain(str(ready.get("message") or ""))
