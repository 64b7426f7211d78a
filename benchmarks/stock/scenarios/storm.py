"""Many jobs at once: how fast do they get their pods, and what does that cost?"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.result import Column
from benchmarks.stock import audit
from benchmarks.stock.audit import READS
from benchmarks.stock.cluster import control_plane_pids
from benchmarks.stock.scenario import Outcome, Room
from benchmarks.stock.spread import percentile
from benchmarks.stock.story import Story, submit
from benchmarks.stock.usage import usage

__all__ = ["Storm"]

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Storm:
    """So many jobs of so many pods, submitted as fast as the API server takes them."""

    jobs: int
    pods: int = 4
    runs: bool = True
    """Whether pods are waited for until they run, which needs nodes."""
    patience: float = 60.0
    """Seconds without any pod after which the arm is broken."""

    @property
    def name(self) -> str:
        """`storm-300`, or `storm-1x1000` where jobs do not have 4 pods."""
        return f"storm-{self.jobs}" if self.pods == 4 else f"storm-{self.jobs}x{self.pods}"

    @property
    def title(self) -> str:
        """Say how many."""
        return f"Storm: {self.jobs:,} {'job' if self.jobs == 1 else 'jobs'} of {self.pods:,} pods"

    @property
    def conditions(self) -> str:
        """Say what is timed."""
        return (
            "Jobs are POSTed 64 at a time. Pods per second count from the first job received to the last pod created; "
            "seconds per job from that job received to its last pod created, given a node, or running. Requests are the arm's, "
            "until it has written nothing for 3 s. Processor seconds of the control plane are those of etcd, "
            "kube-apiserver, kube-scheduler and kube-controller-manager."
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Rates, times, costs."""
        return (
            Column("pods_per_second", "Pods/s", 0),
            Column("created_p50", "created p50 s", 2),
            Column("created_p99", "p99 s", 2),
            Column("placed_p99", "on a node p99 s", 2),
            Column("running_p50", "running p50 s", 2),
            Column("running_p99", "p99 s", 2),
            Column("requests_per_job", "requests/job", 1),
            Column("cpu", "CPU s", 1),
            Column("peak_memory", "peak MiB", 0),
            Column("control_plane_cpu", "control plane CPU s", 1),
            Column("etcd_written", "etcd MiB", 1),
        )

    async def run(self, room: Room) -> Outcome:
        """Submit, wait, and read off."""
        arm, cluster = room.arm, room.cluster
        jobs = [arm.job(f"{self.name}-{number}", pods=self.pods) for number in range(self.jobs)]
        story = Story(room)
        before, plane_before = usage(arm.pids()), usage(control_plane_pids(cluster))
        written = await cluster.etcd_written()
        await submit(room, jobs, say=room.say)
        pods = self.jobs * self.pods
        await story.follow(pods=pods, runs=self.runs, patience=self.patience, told=self.name)
        after, plane_after = usage(arm.pids()), usage(control_plane_pids(cluster))
        written = await cluster.etcd_written() - written
        is_calm = await story.calm()
        times = list((await story.times(runs=self.runs)).values())
        asked = story.asked
        first, last = min(each.submitted for each in times), max(each.created for each in times)
        created = [each.created - each.submitted for each in times]
        figures: dict[str, float | None] = {
            "pods_per_second": pods / (last - first),
            "created_p50": percentile(created, 0.5),
            "created_p99": percentile(created, 0.99),
            "requests_per_job": sum(each.verb != "watch" for each in asked) / self.jobs,
            "writes_per_job": sum(each.verb not in READS for each in asked) / self.jobs,
            "cpu": after.cpu - before.cpu,
            "peak_memory": after.peak_memory / _MIB,
            "control_plane_cpu": plane_after.cpu - plane_before.cpu,
            "etcd_written": written / _MIB,
        }
        if self.runs:
            placed = [each.placed - each.submitted for each in times]
            running = [each.running - each.submitted for each in times]
            figures |= {
                "placed_p99": percentile(placed, 0.99),
                "running_p50": percentile(running, 0.5),
                "running_p99": percentile(running, 0.99),
            }
        by_kind = ", ".join(
            f"{count / self.jobs:.2f} {kind}" for kind, count in audit.requests(asked).most_common(12)
        )
        notes = {"requests_per_job": by_kind} if by_kind else {}
        if not is_calm:
            notes["calm"] = (
                "it was still writing 30 s after the last pod ran; requests are counted until then"
            )
        return Outcome(figures, notes)
