"""What comes of jobs, followed in the audit log: how many pods were created and run, and who asked for what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.stock import audit
from benchmarks.stock.arm import NAMESPACE, Broken, Json
from benchmarks.stock.audit import Entry, Tail
from benchmarks.stock.cluster import CONTROLLERS, IN_FLIGHT, KWOK_USER
from benchmarks.stock.scenario import Room
from runtime.clock import SystemClock
from runtime.tasks import TaskScope

__all__ = ["Story", "Times", "submit"]

_LOOK = 0.25
_QUIET = 3.0
_QUIET_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Times:
    """Of one job, in seconds since the epoch."""

    submitted: float
    created: float
    """When its last pod was."""
    placed: float
    """When its last pod was given a node; 0 where nothing runs."""
    running: float
    """When its last pod was; 0 where nothing runs."""


class Story:
    """Everything that the API server was asked for since this was made."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._clock = SystemClock()
        self._tail = Tail(room.cluster.audit_log)
        self.entries: list[Entry] = []

    def look(self) -> list[Entry]:
        """Read on and return what is new."""
        new = self._tail.read()
        self.entries += new
        return new

    @property
    def asked(self) -> list[Entry]:
        """What the arm's controllers asked for."""
        return audit.by_controllers(self.entries, prefix=CONTROLLERS)

    def created(self) -> dict[str, list[float]]:
        """Return, by job, when its pods were created."""
        return audit.creations(self.entries, label=self._room.arm.pod_label)

    async def follow(self, *, pods: int, runs: bool, patience: float, told: str) -> None:
        """Return when so many pods were created, and run.

        Raises: Broken when nothing happens any more for `patience` seconds.
        """
        seen, moved_at = (-1, -1), 0.0
        names: set[str] = set()
        created = 0
        while True:
            new = self.look()
            created += sum(map(len, audit.creations(new, label=self._room.arm.pod_label).values()))
            names |= audit.runs(new, node=KWOK_USER).keys()
            done = (created, len(names))
            now = self._clock.monotonic()
            if done != seen:
                seen, moved_at = done, now
                self._room.say(f"{told}: {created} of {pods} pods created, {len(names)} run")
            if created >= pods and (len(names) >= pods or not runs):
                return
            if now - moved_at > patience:
                raise Broken(
                    f"{told}: {created} of {pods} pods were created and {len(names)} ran, then nothing happened for "
                    f"{patience:.0f} s"
                )
            await asyncio.sleep(_LOOK)

    async def calm(self) -> bool:
        """Return when the arm has written nothing but its lease for 3 s; False when it still does after 30 s."""
        began = wrote_at = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            if audit.writes(audit.by_controllers(self.look(), prefix=CONTROLLERS)):
                wrote_at = now
            if now - wrote_at > _QUIET:
                return True
            if now - began > _QUIET_PATIENCE:
                return False
            await asyncio.sleep(_LOOK)

    async def times(self, *, runs: bool) -> dict[str, Times]:
        """Return the times of each job of which everything is there.

        Names of pods are the server's choice in some arms, so the pods are asked whose they are.
        """
        arm = self._room.arm
        submitted = audit.submissions(
            self.entries, resource=arm.job_resource.rpartition("/")[2], label=arm.pod_label
        )
        placed: dict[str, float] = {}
        running: dict[str, float] = {}
        if runs:
            bound, ran = audit.placements(self.entries), audit.runs(self.entries, node=KWOK_USER)
            found = await self._room.cluster.request("GET", f"api/v1/namespaces/{NAMESPACE}/pods")
            for pod in found["items"]:
                job = (pod["metadata"].get("labels") or {}).get(arm.pod_label, "")
                name = pod["metadata"]["name"]
                placed[job] = max(placed.get(job, 0.0), bound.get(name, 0.0))
                running[job] = max(running.get(job, 0.0), ran.get(name, 0.0))
        return {
            job: Times(submitted[job], max(times), placed.get(job, 0.0), running.get(job, 0.0))
            for job, times in self.created().items()
            if job in submitted
        }


async def submit(room: Room, jobs: Iterable[Json], *, say: Callable[[str], None] = lambda _: None) -> int:
    """POST jobs, 64 at a time and as fast as the API server takes them; return how many objects that were.

    Raises: Broken when the API server refuses one.
    """
    objects = [each for job in jobs for each in _objects(job)]
    rest = iter(objects)

    async def post() -> None:
        for each in rest:
            await room.cluster.request("POST", _path(room, each), each)

    try:
        async with TaskScope() as scope:
            for number in range(IN_FLIGHT):
                scope.spawn(post(), name=f"submit {number}")
    except* Broken as group:
        raise _first(group.exceptions) from None
    say(f"{len(objects)} objects submitted")
    return len(objects)


def _objects(job: Json) -> Sequence[Json]:
    items: Sequence[Json] = job["items"] if job["kind"] == "List" else [job]
    return items


def _path(room: Room, body: Json) -> str:
    """Return where an object is POSTed: a Service that comes with bare pods belongs beside them."""
    return f"api/v1/namespaces/{NAMESPACE}/services" if body["kind"] == "Service" else room.arm.job_resource


def _first(errors: Sequence[BaseException]) -> BaseException:
    error = errors[0]
    return _first(error.exceptions) if isinstance(error, BaseExceptionGroup) else error
