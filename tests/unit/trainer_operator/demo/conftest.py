"""A recorded training, as the observer would have written it down."""

from dataclasses import dataclass, field, replace

import pytest

from trainer_operator.demo.disturbances import Kind
from trainer_operator.demo.measures import Row
from trainer_operator.demo.timeline import (
    LeadersSeen,
    LeaseSeen,
    NodeSeen,
    PodSeen,
    ProcessSeen,
    StatusSeen,
    StepSeen,
    Timeline,
)

STEPS_PER_EPOCH, BATCH, SAMPLES = 4, 10, 35
MEMBERS = ("ps-0", "worker-0", "worker-1")


@dataclass
class Recording:
    """Writes a timeline the way a training would."""

    timeline: Timeline = field(default_factory=Timeline)
    status: StatusSeen = field(default_factory=lambda: StatusSeen(0.0, phase="Running"))
    now: float = 0.0
    step: int = 0
    server_epoch: int = 1
    epoch: int = 1

    def begin(self):
        for number, member in enumerate(MEMBERS):
            self.timeline.add(PodSeen(self.now, f"digits-{member}", member, 0, f"node-{number}", "Running"))
            self.timeline.add(ProcessSeen(self.now, member, (100 + number, 1)))
            self.timeline.add(NodeSeen(self.now, f"node-{number}", True))
        self.timeline.add(LeaseSeen(self.now, "first"))
        self.lead("operator-a")
        self.tell(phase="Running")
        return self

    def wait(self, seconds):
        self.now = round(self.now + seconds, 3)
        return self

    def tell(self, **changes):
        self.status = replace(self.status, at=self.now, **changes)
        self.timeline.add(self.status)
        return self

    def lead(self, *names):
        self.timeline.add(LeadersSeen(self.now, names))
        return self

    def apply(self, count, *, pace=0.1, members=MEMBERS):
        """Let every member log this many further steps."""
        for _ in range(count):
            self.wait(pace)
            self.step += 1
            data_epoch, position = divmod(self.step - 1, STEPS_PER_EPOCH)
            first, end = position * BATCH, min(SAMPLES, (position + 1) * BATCH)
            for member in members:
                self.timeline.add(
                    StepSeen(
                        self.now, member, self.epoch, self.server_epoch, self.step, data_epoch, first, end, 2
                    )
                )
        return self

    def process(self, member, pid):
        self.timeline.add(ProcessSeen(self.now, member, (pid, int(self.now * 100)) if pid else None))
        return self

    def roll_back(self, to):
        """Record a rollback from the present step, and go on from there under a new psEpoch."""
        self.tell(step=to, rollbacks=self.status.rollbacks + 1, rollback=(self.step, to))
        self.step = to
        self.server_epoch += 1
        return self


@pytest.fixture
def recording():
    return Recording().begin()


@pytest.fixture
def row():
    return Row(
        kind=Kind.KILL_WORKER,
        title="kill",
        target="it",
        victims=("worker-1",),
        survived=True,
        detected=0.3,
        next_step=2.0,
        longest_gap=2.0,
        step_before=9,
        step_after=8,
        failures=1,
        disruptions=0,
        restarted=("worker-1",),
    )
