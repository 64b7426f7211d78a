"""What a member was seen to do since its last step: the evidence for and against a stall (SL3).

Beats carry counters; a meter keeps the beat that followed the last step, and evidence is the difference to the newest.
A stuck collective shows in three ways: the process uses no processor time or spins, the network is quiet, and the
GPUs say that they are busy while they draw little power.
"""

from dataclasses import dataclass

from trainer_operator.topology.beat import Beat

TICKS_PER_SECOND = 100
"""What agents count processor time in, as Linux reports it to programs."""
MEASURABLE = 5.0
"""Seconds over which a rate can be told."""
FLAT, BUSY = 0.05, 0.5
"""Share of a core: below, a process does nothing; above, it may be computing or compiling."""
QUIET = 16 * 1024
"""Bytes per second: below, there is nothing but the agent's own beats."""
GPU_BUSY, GPU_LOW_POWER = 90.0, 50.0
"""Percent: a kernel that waits for another rank fills the first and needs far less than the second."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a member since its last step; None where it cannot be told."""

    cpu: float | None = None
    """Cores used."""
    network: float | None = None
    """Bytes per second, both ways."""
    gpu_busy: float | None = None
    """Percent, the idlest of its GPUs."""
    gpu_power: float | None = None
    """Percent of its limit, the hottest of its GPUs."""
    disk_wait: bool = False
    """Whether its process waited for a disk when it last spoke."""

    @property
    def signs(self) -> tuple[str, ...]:
        """Say what speaks for a stall."""
        found = []
        if self.cpu is not None and self.cpu < FLAT:
            found.append("it uses no processor time")
        if self.network is not None and self.network < QUIET:
            found.append("its network is quiet")
        if self._spins:
            found.append(f"its GPUs are busy at {self.gpu_power:.0f} % of their power")
        return tuple(found)

    @property
    def contrary(self) -> str:
        """Say what speaks against a stall; empty when nothing does."""
        if self.disk_wait:
            return "it waits for a disk"
        if self.gpu_busy is not None and self.gpu_busy >= GPU_BUSY and not self._spins:
            return "its GPUs compute"
        if self.cpu is not None and self.cpu > BUSY and not self._spins:
            return "it uses a processor"
        return ""

    @property
    def _spins(self) -> bool:
        """A busy processor says nothing then: whoever waits for a GPU may well spin."""
        if self.gpu_busy is None or self.gpu_power is None:
            return False
        return self.gpu_busy >= GPU_BUSY and self.gpu_power < GPU_LOW_POWER


UNKNOWN = Evidence()


class Meter:
    """The counters of one member since its last step."""

    __slots__ = ("_at", "_since")

    def __init__(self, beat: Beat, now: float) -> None:
        """Begin with this beat."""
        self._since, self._at = beat, now

    def take(self, beat: Beat, now: float) -> None:
        """Begin anew when this beat tells of a step, or of another process."""
        if beat.step != self._since.step or beat.run != self._since.run:
            self._since, self._at = beat, now

    def evidence(self, beat: Beat, heard: float) -> Evidence:
        """Compare with the newest beat, which came at `heard`."""
        seconds = heard - self._at
        ticks = _rate(self._since.cpu_ticks, beat.cpu_ticks, seconds)
        rx, tx = _rate(self._since.rx, beat.rx, seconds), _rate(self._since.tx, beat.tx, seconds)
        return Evidence(
            cpu=None if ticks is None else ticks / TICKS_PER_SECOND,
            network=None if rx is None or tx is None else rx + tx,
            gpu_busy=beat.gpu_busy,
            gpu_power=beat.gpu_power,
            disk_wait=beat.disk_wait,
        )


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    if before is None or after is None or seconds < MEASURABLE:
        return None
    return max(0.0, (after - before) / seconds)
