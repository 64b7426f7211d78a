"""The clock of all measurements: the API server's audit log, read while it grows.

A job is submitted when the server received it, a pod is created when the server had answered its creation, and it
runs when the server had answered the first status that the node wrote. Operators' own logs are never asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer_operator.devcluster.auditlog import AuditEvent, parse

__all__ = [
    "JOB_CONTROLLER",
    "READS",
    "Entry",
    "Tail",
    "by_controllers",
    "creations",
    "entry",
    "placements",
    "requests",
    "runs",
    "submissions",
    "writes",
]

JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
"""kube-controller-manager's part that runs the Jobs of Trainer v2; no other arm has Jobs."""
READS = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One answered request. Times are seconds since the epoch, by the server's clock."""

    verb: str
    what: str
    """Resource, with its subresource if there is one: `pods/status`."""
    namespace: str
    name: str
    """Empty where the server chose it."""
    user: str
    ok: bool
    received: float
    answered: float
    labels: tuple[tuple[str, str], ...] = ()
    """Of a pod that was created."""

    def label(self, name: str) -> str:
        """Return a label of the created pod, empty without it."""
        return dict(self.labels).get(name, "")


class Tail:
    """Reads what has been written since the last look.

    Guarantees: a line that is half written is read when it is whole; nothing is read twice.
    """

    def __init__(self, file: Path) -> None:
        """Begin at the present end of the log."""
        self._file = file
        self._offset = file.stat().st_size if file.exists() else 0

    def read(self) -> list[Entry]:
        """Return the new entries."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        events = (parse(line) for line in data[:whole].splitlines() if line)
        return [entry(event) for event in events if event is not None]


def entry(event: AuditEvent) -> Entry:
    """Keep of an event what measurements need."""
    target = event.object_ref
    labels: dict[str, str] = {}
    sent = event.request_object
    if event.verb == "create" and target.resource == "pods" and isinstance(sent, dict):
        labels = (sent.get("metadata") or {}).get("labels") or {}
    received, answered = event.request_received_timestamp, event.stage_timestamp
    return Entry(
        verb=event.verb,
        what="/".join(part for part in (target.resource, target.subresource) if part),
        namespace=target.namespace,
        name=target.name,
        user=event.user.username,
        ok=event.ok,
        received=received.timestamp() if received is not None else 0.0,
        answered=answered.timestamp() if answered is not None else 0.0,
        labels=tuple(labels.items()),
    )


def submissions(entries: Iterable[Entry], *, resource: str, label: str) -> dict[str, float]:
    """Return when each job was submitted: its own creation, or its first pod's where pods are all there is."""
    found: dict[str, float] = {}
    for each in entries:
        if each.verb == "create" and each.what == resource and each.ok:
            found.setdefault(each.label(label) if resource == "pods" else each.name, each.received)
    return found


def creations(entries: Iterable[Entry], *, label: str) -> dict[str, list[float]]:
    """Return, by job, when its pods were created."""
    found: dict[str, list[float]] = {}
    for each in entries:
        if each.verb == "create" and each.what == "pods" and each.ok and (job := each.label(label)):
            found.setdefault(job, []).append(each.answered)
    return found


def runs(entries: Iterable[Entry], *, node: str) -> dict[str, float]:
    """Return, by pod, when its node (the user) first wrote its status: on these nodes that it runs."""
    found: dict[str, float] = {}
    for each in entries:
        if each.verb in {"patch", "update"} and each.what == "pods/status" and each.ok and each.user == node:
            found.setdefault(each.name, each.answered)
    return found


def placements(entries: Iterable[Entry]) -> dict[str, float]:
    """Return, by pod, when the scheduler had placed it on a node."""
    found: dict[str, float] = {}
    for each in entries:
        if each.verb == "create" and each.what == "pods/binding" and each.ok:
            found.setdefault(each.name, each.answered)
    return found


def by_controllers(entries: Iterable[Entry], *, prefix: str) -> list[Entry]:
    """Return what the arm's controllers asked for, Kubernetes' own that work for it included."""
    return [each for each in entries if each.user.startswith(prefix) or each.user == JOB_CONTROLLER]


def writes(entries: Iterable[Entry]) -> list[Entry]:
    """Return what changes something; a leader that renews its lease has nothing to do, so that is left out."""
    return [each for each in entries if each.verb not in READS and each.what != "leases"]


def requests(entries: Sequence[Entry]) -> Counter[str]:
    """Count requests by verb and resource, such as `create pods`; watches are left out, which last for minutes."""
    return Counter(f"{each.verb} {each.what}" for each in entries if each.verb != "watch")
