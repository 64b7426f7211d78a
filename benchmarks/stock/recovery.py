"""When a job is whole again after a failure: read off the list of its pods, timed by the audit log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.stock.arm import Broken, Json
from benchmarks.stock.audit import Entry, runs

__all__ = ["Mark", "Pod", "created_after", "pods_of", "ran_after", "replacements", "seconds", "victims"]


@dataclass(frozen=True, slots=True)
class Pod:
    """What the scenarios of failures look at."""

    name: str
    uid: str
    job: str
    node: str
    is_running: bool
    """Its node says that it runs, and nobody has asked to delete it."""
    containers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """The request that was the failure; the clock begins when the API server received it."""

    verb: str
    what: str
    name: str


def pods_of(found: Json, *, label: str) -> list[Pod]:
    """Read a list of pods, those without a job left out, by name."""
    pods = []
    for item in found["items"]:
        metadata, status = item["metadata"], item.get("status") or {}
        if job := (metadata.get("labels") or {}).get(label):
            pods.append(
                Pod(
                    metadata["name"],
                    metadata["uid"],
                    job,
                    item["spec"].get("nodeName") or "",
                    status.get("phase") == "Running" and "deletionTimestamp" not in metadata,
                    tuple(container["name"] for container in item["spec"]["containers"]),
                )
            )
    return sorted(pods, key=lambda pod: pod.name)


def victims(pods: Sequence[Pod], *, share: float) -> list[Pod]:
    """Choose this share of the pods, at least one, spread evenly over them and the last of each stretch."""
    count = max(1, round(len(pods) * share))
    return [pods[(number + 1) * len(pods) // count - 1] for number in range(count)]


def replacements(
    pods: Iterable[Pod], *, size: int, lost: Collection[str], before: Collection[str]
) -> list[Pod] | None:
    """Return the pods of one job that are new since `before`, once it is whole again without those that are lost.

    Both collections hold UIDs.
    """
    running = [pod for pod in pods if pod.is_running and pod.uid not in lost]
    return [pod for pod in running if pod.uid not in before] if len(running) >= size else None


def seconds(entries: Sequence[Entry], mark: Mark, fresh: Iterable[Pod], *, node: str) -> float:
    """Return how long it took from the failure until the last of the fresh pods ran.

    Raises: Broken when the audit log does not hold what was seen.
    """
    moment = next(
        (
            index
            for index, each in enumerate(entries)
            if (each.verb, each.what, each.name) == (mark.verb, mark.what, mark.name) and each.ok
        ),
        None,
    )
    if moment is None:
        raise Broken(f"the audit log holds no {mark.verb} of {mark.what} {mark.name}")
    running = runs(entries[moment + 1 :], node=node)
    names = [pod.name for pod in fresh]
    missing = [name for name in names if name not in running]
    if missing or not names:
        raise Broken(f"the audit log does not say when {', '.join(missing) or 'a replacement'} ran")
    return max(running[name] for name in names) - entries[moment].received


def created_after(
    entries: Sequence[Entry], marks: Mapping[str, Mark], *, label: str, node: str
) -> dict[str, float]:
    """Return, by job, the seconds from its failure to the first pod that was created for it afterwards."""
    failed = _failed(entries, marks, node=node)
    found: dict[str, float] = {}
    for each in entries:
        if each.verb == "create" and each.what == "pods" and each.ok:
            job = each.label(label)
            if job in failed and each.received >= failed[job]:
                found.setdefault(job, each.answered - failed[job])
    return found


def ran_after(
    entries: Sequence[Entry], marks: Mapping[str, Mark], fresh: Mapping[str, Collection[Pod]], *, node: str
) -> dict[str, float]:
    """Return, by job, the seconds from its failure until the last of its new pods ran.

    A new pod may have the name of the failed one.

    Raises: Broken when the audit log does not hold what was seen.
    """
    failed = _failed(entries, marks, node=node)
    jobs = {pod.name: job for job, pods in fresh.items() for pod in pods}
    ran: dict[str, float] = {}
    for each in entries:
        since = failed.get(jobs.get(each.name, ""), float("inf"))
        if each.what == "pods/status" and each.user == node and each.ok and each.received >= since:
            ran.setdefault(each.name, each.answered)
    if missing := sorted(jobs.keys() - ran.keys()):
        raise Broken(f"the audit log does not say when {', '.join(missing)} ran")
    return {job: max(ran[pod.name] for pod in pods) - failed[job] for job, pods in fresh.items()}


def _failed(entries: Sequence[Entry], marks: Mapping[str, Mark], *, node: str) -> dict[str, float]:
    """Return when the API server received each failure: what the node itself says is none."""
    jobs = {(mark.verb, mark.what, mark.name): job for job, mark in marks.items()}
    found: dict[str, float] = {}
    for each in entries:
        job = jobs.get((each.verb, each.what, each.name), "")
        if job and each.ok and each.user != node:
            found.setdefault(job, each.received)
    return found
