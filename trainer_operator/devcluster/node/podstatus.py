"""A pod's status, computed from what is known of its containers; pure.

Phases, conditions, their order and their reasons are the kubelet's, so that a controller that was written for real
nodes sees the same story here. Conditions that others own (`PodScheduled`, `DisruptionTarget`, readiness gates) are
not part of the result: the node patches its own and leaves the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runtime.clock import format_time
from runtime.objects import JsonObject
from trainer_operator.devcluster.node.containerstate import (
    KILLED_EXIT_CODE,
    UNKNOWN,
    UNKNOWN_MESSAGE,
    ContainerRecord,
    Running,
    Terminated,
    Waiting,
    state_json,
)

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
IMAGE_ID = "process://host"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the node decided about a pod as a whole."""

    host_ip: str
    pod_ip: str = ""
    """Empty until the pod's address and folders are there."""
    started_at: datetime | None = None
    stopping: bool = False
    """Being deleted, or stopped by the node."""
    ended: bool = False
    """Nothing runs and nothing will be started."""
    reason: str = ""
    """Why the node ended the pod, such as DeadlineExceeded."""
    message: str = ""


def is_terminal(status: JsonObject) -> bool:
    """Tell whether a pod's status says that it has ended for good."""
    return status.get("phase") in (SUCCEEDED, FAILED)


def pod_status(
    pod: JsonObject, records: Mapping[str, ContainerRecord], facts: PodFacts, *, now: datetime
) -> dict[str, Any]:
    """Return the part of a pod's status that the node owns."""
    spec: Mapping[str, Any] = pod.get("spec") or {}
    before: Mapping[str, Any] = pod.get("status") or {}
    inits = [_known(container["name"], records) for container in spec.get("initContainers") or ()]
    mains = [
        _known(container["name"], records, "PodInitializing" if inits else "ContainerCreating")
        for container in spec.get("containers") or ()
    ]
    if facts.ended and facts.stopping:
        inits, mains = _closed(inits), _closed(mains)
    phase = _phase(spec.get("restartPolicy") or "Always", inits, mains, facts)
    if is_terminal(before):
        phase = before["phase"]  # an end is final, whatever is found out later
    generation = (pod.get("metadata") or {}).get("generation")
    status: dict[str, Any] = {
        "phase": phase,
        "hostIP": facts.host_ip,
        "hostIPs": [{"ip": facts.host_ip}],
        "conditions": _conditions(pod, phase, inits, mains, facts=facts, now=now),
        "containerStatuses": _statuses(spec.get("containers") or (), mains),
    }
    if generation is not None:
        status["observedGeneration"] = generation
    if facts.started_at is not None:
        status["startTime"] = before.get("startTime") or format_time(facts.started_at)
    if inits:
        status["initContainerStatuses"] = _statuses(spec.get("initContainers") or (), inits, init=True)
    if facts.pod_ip:
        status |= {"podIP": facts.pod_ip, "podIPs": [{"ip": facts.pod_ip}]}
    if facts.reason:
        status |= {"reason": facts.reason, "message": facts.message}
    return status


def differs(status: JsonObject, observed: JsonObject) -> bool:
    """Tell whether a computed status says anything that the observed one does not."""
    for field, value in status.items():
        if field == "conditions":
            seen = {condition.get("type"): condition for condition in observed.get("conditions") or ()}
            if any(_says_more(condition, seen.get(condition["type"])) for condition in value):
                return True
        elif _says_more(value, observed.get(field)):
            return True
    return False


def _says_more(value: Any, seen: Any) -> bool:
    """Compare ignoring what the server adds; absent, null and empty are the same."""
    if isinstance(value, Mapping):
        if not isinstance(seen, Mapping):
            return bool(value)
        alternatives = {"waiting", "running", "terminated"}
        return any(_says_more(value[key], seen.get(key)) for key in value) or any(
            key in alternatives and key not in value for key in seen
        )
    if isinstance(value, list):
        if not isinstance(seen, list | tuple) or len(seen) != len(value):
            return bool(value) or bool(seen)
        return any(_says_more(one, other) for one, other in zip(value, seen, strict=True))
    return bool((value or None) != (seen or None))


def _known(
    name: str, records: Mapping[str, ContainerRecord], reason: str = "PodInitializing"
) -> ContainerRecord:
    return records.get(name) or ContainerRecord(name, Waiting(reason))


def _closed(records: Iterable[ContainerRecord]) -> list[ContainerRecord]:
    """Give containers of an ended pod an end, also those that never ran or were waiting for a restart."""
    closed = []
    for record in records:
        if isinstance(record.state, Waiting):
            end = record.last or Terminated(KILLED_EXIT_CODE, UNKNOWN, UNKNOWN_MESSAGE)
            record = ContainerRecord(record.name, end, None, record.restarts)
        closed.append(record)
    return closed


def _phase(policy: str, inits: list[ContainerRecord], mains: list[ContainerRecord], facts: PodFacts) -> str:
    if facts.reason and facts.ended:
        return FAILED
    init_failed = any(isinstance(r.state, Terminated) and r.state.exit_code != 0 for r in inits)
    initialized = all(isinstance(r.state, Terminated) and r.state.exit_code == 0 for r in inits)
    ran = any(record.ever_ran for record in mains)
    ends = [end for record in mains if (end := _end_of(record)) is not None]
    running = any(isinstance(record.state, Running) for record in mains)
    if facts.ended:
        all_good = len(ends) == len(mains) and all(end.exit_code == 0 for end in ends)
        return SUCCEEDED if all_good and (initialized or ran) else FAILED
    if init_failed and policy == "Never" and not ran:
        return FAILED
    if not (initialized or ran) or any(not record.ever_ran for record in mains):
        return PENDING
    if running or policy == "Always":
        return RUNNING
    if all(end.exit_code == 0 for end in ends):
        return SUCCEEDED
    return RUNNING if policy == "OnFailure" or len(ends) < len(mains) else FAILED


def _end_of(record: ContainerRecord) -> Terminated | None:
    if isinstance(record.state, Terminated):
        return record.state
    return record.last if isinstance(record.state, Waiting) else None


def _conditions(
    pod: JsonObject,
    phase: str,
    inits: list[ContainerRecord],
    mains: list[ContainerRecord],
    *,
    facts: PodFacts,
    now: datetime,
) -> list[dict[str, Any]]:
    """Return the node's four conditions in the kubelet's order."""
    ran = any(record.ever_ran for record in mains)
    uninitialized = [
        record.name
        for record in inits
        if not ran and not (isinstance(record.state, Terminated) and record.state.exit_code == 0)
    ]
    unready = [record.name for record in mains if not record.ready]
    before = {c.get("type"): c for c in (pod.get("status") or {}).get("conditions") or ()}
    gate = next(
        (
            entry["conditionType"]
            for entry in (pod.get("spec") or {}).get("readinessGates") or ()
            if (before.get(entry["conditionType"]) or {}).get("status") != "True"
        ),
        None,
    )
    sandbox = bool(facts.pod_ip) and not facts.ended
    if phase == SUCCEEDED:
        initialized, containers = ("True", "PodCompleted", ""), ("False", "PodCompleted", "")
    else:
        initialized = (
            (
                "False",
                "ContainersNotInitialized",
                f"containers with incomplete status: {_names(uninitialized)}",
            )
            if uninitialized
            else ("True", "", "")
        )
        containers = (
            ("False", "ContainersNotReady", f"containers with unready status: {_names(unready)}")
            if unready
            else ("True", "", "")
        )
        if phase == FAILED:
            containers = ("False", "PodFailed", "")
    ready = containers
    if containers[0] == "True" and gate is not None:
        ready = ("False", "ReadinessGatesNotReady", _gate_message(gate, before.get(gate)))
    generation = (pod.get("metadata") or {}).get("generation")
    return [
        _condition(kind, verdict, before.get(kind), generation=generation, now=now)
        for kind, verdict in (
            ("PodReadyToStartContainers", ("True" if sandbox else "False", "", "")),
            ("Initialized", initialized),
            ("Ready", ready),
            ("ContainersReady", containers),
        )
    ]


def _gate_message(gate: str, condition: JsonObject | None) -> str:
    if condition is None:
        return f'corresponding condition of pod readiness gate "{gate}" does not exist.'
    return f'the status of pod readiness gate "{gate}" is not "True", but {condition.get("status")}'


def _names(names: list[str]) -> str:
    return f"[{' '.join(names)}]"


def _condition(
    kind: str,
    verdict: tuple[str, str, str],
    before: JsonObject | None,
    *,
    generation: int | None,
    now: datetime,
) -> dict[str, Any]:
    status, reason, message = verdict
    same = before is not None and before.get("status") == status
    condition: dict[str, Any] = {
        "type": kind,
        "status": status,
        # Null removes what an earlier patch left behind.
        "reason": reason or None,
        "message": message or None,
        "lastTransitionTime": before["lastTransitionTime"]
        if same and before is not None and before.get("lastTransitionTime")
        else format_time(now),
    }
    if generation is not None:
        condition["observedGeneration"] = generation
    return condition


def _statuses(
    containers: Iterable[JsonObject], records: list[ContainerRecord], *, init: bool = False
) -> list[dict[str, Any]]:
    result = []
    for container, record in zip(containers, records, strict=True):
        succeeded = isinstance(record.state, Terminated) and record.state.exit_code == 0
        status: dict[str, Any] = {
            "name": record.name,
            "image": container.get("image") or "",
            "imageID": IMAGE_ID if record.ever_ran else "",
            "restartCount": record.restarts,
            "ready": succeeded if init else record.ready,
            "started": record.started,
            "state": state_json(record.state),
            "lastState": state_json(record.last),
        }
        if container_id := _container_id(record):
            status["containerID"] = container_id
        result.append(status)
    return result


def _container_id(record: ContainerRecord) -> str:
    match record.state:
        case Running(container_id=container_id) | Terminated(container_id=container_id):
            return container_id
        case _:
            return record.last.container_id if record.last else ""
