"""From caches to views: what the API server and the agents said, in the terms of a decision."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from runtime.cache.projection import Condition, ContainerStatus, Pod, Terminated
from runtime.clock import parse_time
from trainer_operator.api import names
from trainer_operator.api.timelines import Path, is_on_path
from trainer_operator.topology.members import JANITOR, MemberId
from trainer_operator.trainer.views import CheckpointView, PodView
from trainer_operator.trainer.weightfiles import FETCH, PIN

DISRUPTION_REASONS = frozenset(
    {"NodeShutdown", "Terminated", "NodeAffinity", "Shutdown", "Evicted", "Preempting"}
)

_PROBLEM = re.compile(r"[A-Z][A-Za-z]{0,62}: ")


def pods_by_member(pods: Iterable[Pod], uid: str) -> dict[MemberId, tuple[PodView, ...]]:
    """Group the pods that a Trainer controls by member; labels alone prove nothing (TN5, TR22)."""
    grouped: dict[MemberId, list[PodView]] = defaultdict(list)
    for pod in pods:
        owners = pod.metadata.owner_references or ()
        if not any(owner.controller and owner.uid == uid for owner in owners):
            continue
        member = member_of(pod)
        if member is not None:
            grouped[member].append(pod_view(pod))
    return {member: tuple(sorted(views, key=lambda view: view.attempt)) for member, views in grouped.items()}


def member_of(pod: Pod) -> MemberId | None:
    """Read role and index from the labels of a pod; None when they are not ours, or those of a janitor."""
    role, index = pod.labels.get(names.ROLE_LABEL, ""), pod.labels.get(names.INDEX_LABEL, "")
    return MemberId(role, int(index)) if role and role != JANITOR.role and index.isdecimal() else None


def pod_view(pod: Pod) -> PodView:
    """Reduce a pod to what decisions need."""
    pin, problem = _weights(pod)
    attempt = pod.labels.get(names.ATTEMPT_LABEL, "0")
    ended = _terminated(pod)
    conditions = pod.status.conditions or ()
    target = disruption(pod)
    unplaced = next((c for c in conditions if c.type == "PodScheduled" and c.status == "False"), None)
    reason = pod.status.reason or ""
    disrupted = target is not None or reason in DISRUPTION_REASONS
    if target is not None:
        reason = target.reason or reason
    return PodView(
        name=pod.name,
        uid=pod.uid,
        attempt=int(attempt) if attempt.isdecimal() else 0,
        phase=pod.phase,
        node=pod.node_name or "",
        has_address=bool(pod.status.pod_ip),
        ready=pod.is_ready,
        terminating=pod.is_deleting,
        disrupted=disrupted,
        reason=reason or (ended.reason or "" if ended is not None else ""),
        exit_code=ended.exit_code if ended is not None else None,
        oom_killed=ended is not None and ended.reason == "OOMKilled",
        message=(pod.status.message or (ended.message if ended is not None else "") or "")[:512],
        grace=pod.metadata.deletion_grace_period_seconds or 0,
        created=pod.metadata.creation_timestamp or "",
        waits_reason=(unplaced.reason or "" if unplaced is not None else "")[:64],
        waits_message=(unplaced.message or "" if unplaced is not None else "")[:512],
        placement=pod.labels.get(names.PLACEMENT_LABEL, ""),
        weights_pin=pin,
        weights_problem=problem,
    )


def disruption(pod: Pod) -> Condition | None:
    """Return the condition that says that Kubernetes ends the pod, if it does."""
    conditions = pod.status.conditions or ()
    return next((c for c in conditions if c.type == "DisruptionTarget" and c.status == "True"), None)


def _weights(pod: Pod) -> tuple[str, str]:
    """Return what the init containers of a pod with weights said: the pin, and what went wrong."""
    pin = problem = ""
    for status in pod.status.init_container_statuses or ():
        if status.name not in {PIN, FETCH} or status.state is None or status.state.terminated is None:
            continue
        words = status.state.terminated.message or ""
        if status.state.terminated.exit_code:
            problem = words[:1024] if _PROBLEM.match(words) else ""
        elif status.name == PIN:
            pin = words[:1024]
    return pin, problem


def _terminated(pod: Pod) -> Terminated | None:
    """Return the first container that ended badly, else the last that ended."""
    statuses: list[ContainerStatus] = [
        *(pod.status.init_container_statuses or ()),
        *(pod.status.container_statuses or ()),
    ]
    ended = [s.state.terminated for s in statuses if s.state is not None and s.state.terminated is not None]
    return next((t for t in ended if t.exit_code), ended[-1] if ended else None)


def checkpoint_view(obj: Mapping[str, Any], path: Path) -> CheckpointView:
    """Reduce a Checkpoint object of a Trainer with this path."""
    status = obj.get("status") or {}
    name: str = obj["metadata"]["name"]
    digits = name.rpartition("-c")[2]
    committed, begun = _time(status.get("committedAt")), _time(status.get("stagingStartedAt"))
    conditions = status.get("conditions") or ()
    abort = next((c for c in conditions if c.get("type") == "Aborted" and c.get("status") == "True"), None)
    timeline, step = status.get("timeline") or 0, status.get("step") or 0
    return CheckpointView(
        name=name,
        id=status.get("id") or "",
        step=step,
        timeline=timeline,
        on_path=is_on_path(path, timeline, step),
        store_id=status.get("storeId") or "",
        state=status.get("state") or "",
        health=status.get("health") or "Unknown",
        reason=(obj.get("spec") or {}).get("reason") or "",
        discard=bool((obj.get("spec") or {}).get("discard")),
        pins=tuple(status.get("pins") or ()),
        marked=bool(status.get("markedAt")),
        abort_reason=str((abort or {}).get("reason") or ""),
        abort_message=str((abort or {}).get("message") or ""),
        sequence=int(digits) if digits.isdecimal() else 0,
        committed_at=committed,
        aborted=abort is not None,
        staging=(committed - begun).total_seconds() if committed is not None and begun is not None else None,
    )


def _time(value: str | None) -> datetime | None:
    return parse_time(value) if value else None
