"""A beat: what an agent says of its member, and how it is decoded.

Shapes and limits are those of design/lifecycle.md section 2. Everything here is untrusted: the decoder refuses
wrong types, and `problem` names the first value that is out of bounds (AA7).
"""

import math
from typing import Any

import msgspec

from trainer_operator.api.names import JANITOR_ROLE

MAX_BEAT_BYTES = 64 * 1024
_MAX_STEP = 2**53
_MAX_COUNTER = 2**63


class Exit(msgspec.Struct, frozen=True, gc=False):
    """How the training process ended."""

    code: int = 0
    sig: int = 0
    step: int = 0
    fingerprint: str | None = None
    tail: str = ""


class Ack(msgspec.Struct, frozen=True, gc=False):
    """One durable copy of one shard of one checkpoint, or why it could not be made (QR3)."""

    ckpt: str
    shard: int
    copy: int
    bytes: int = 0
    step: int = 0
    ok: bool = True
    error: str | None = None


class DirectiveResult(msgspec.Struct, frozen=True):
    """What became of a directive; repeated until the directive leaves the reply."""

    id: str
    ok: bool = True
    value: Any = None  # JSON edge: its shape depends on the directive
    error: str | None = None


class Restored(msgspec.Struct, frozen=True):
    """Where the bytes of a process's state came from: its own pod, other members, the store (RS2)."""

    ckpt: str
    own: int = 0
    peer: int = 0
    store: int = 0
    liars: list[str] = []
    """Who sent chunks that don't match their hashes."""


class Beat(msgspec.Struct, frozen=True, rename="camel"):
    """One report of one agent. Ages are milliseconds at the time of sending; clocks never travel (TX7)."""

    v: int
    trainer: str
    tuid: str
    pod: str
    role: str
    idx: int
    attempt: int
    boot: str
    seq: int
    pod_name: str = ""
    epoch: int = 0
    ps_epoch: int = 0
    run: int = 0
    address: str = ""
    port: int = 0
    listening: bool | None = None
    proc: str = "none"
    pid: int | None = None
    cpu_ticks: int | None = None
    disk_wait: bool = False
    rx: int | None = None
    tx: int | None = None
    gpu_busy: float | None = None
    gpu_power: float | None = None
    """Percent: the idlest GPU, and the hottest one's share of its limit; sent while a step is overdue."""
    exit: Exit | None = None
    prepared: int = 0
    step: int = 0
    steps: str = "sdk"
    """Who tells of steps: the sdk, the program's output, or none; agents of before this field had the SDK's only."""
    step_age_ms: float = 0
    phase: str = "init"
    phase_age_ms: float = 0
    phase_budget: float | None = None
    """Seconds that the training code said this phase may take."""
    dt_ms: list[float] = []
    samples: int = 0
    data_epoch: int = 0
    metrics: dict[str, float] = {}
    have: list[int] = []
    acks: list[Ack] = []
    results: list[DirectiveResult] = []
    hold: float = 0.0
    soft_epochs: bool = False
    """Whether the program takes another rank and world without a restart (ME5)."""

    chunk_port: int = 0
    """Where it serves chunks of checkpoints to other members; 0 where it doesn't."""
    holds: list[str] = []
    """Of which checkpoints and shards it has chunks, as `<id>/<shard>`."""
    restored: Restored | None = None
    """Of the present process, once it has restored from the store."""
    waits: str = ""
    """Why a start waits for the store, if one does."""

    @property
    def order(self) -> tuple[int, int, int]:
        """Attempt, run and sequence: a lower one is older (TX7). Only comparable within one boot."""
        return (self.attempt, self.run, self.seq)

    @property
    def training(self) -> str:
        """Where it is booked: under the Trainer's uid, but a janitor's apart from the members'."""
        return janitor_of(self.tuid) if self.role == JANITOR_ROLE else self.tuid

    @property
    def process(self) -> str:
        """Name the process that this beat speaks of; its failure is kept in status under this key (RC4)."""
        return f"{self.attempt}/{self.boot}/{self.run}"


def janitor_of(uid: str) -> str:
    """Return the key that a Trainer's janitor is booked under: closing the members doesn't close it."""
    return f"{uid}/{JANITOR_ROLE}"


_DECODER = msgspec.json.Decoder(Beat)


class MalformedBeat(ValueError):
    """The body is not a beat; the message names the field."""


def decode(body: bytes) -> Beat:
    """Decode and check one beat.

    Raises: MalformedBeat with the field and what is allowed.
    """
    if len(body) > MAX_BEAT_BYTES:
        raise MalformedBeat(f"body of {len(body)} bytes; at most {MAX_BEAT_BYTES} are allowed")
    try:
        beat = _DECODER.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise MalformedBeat(str(error)) from error
    found = problem(beat)
    if found is not None:
        raise MalformedBeat(found)
    return beat


def problem(beat: Beat) -> str | None:
    """Name the first value out of bounds, or None."""
    if beat.v != 1:
        return f"v is {beat.v}; this operator speaks 1"
    if beat.role not in {"worker", "ps", "master", JANITOR_ROLE}:
        return f"role is {beat.role[:32]!r}; allowed are worker, ps, master, {JANITOR_ROLE}"
    if beat.proc not in {"none", "starting", "running", "exited"}:
        return f"proc is {beat.proc[:32]!r}; allowed are none, starting, running, exited"
    if beat.steps not in {"sdk", "output", "none"}:
        return f"steps is {beat.steps[:32]!r}; allowed are sdk, output, none"
    whole = {
        "idx": beat.idx,
        "attempt": beat.attempt,
        "epoch": beat.epoch,
        "psEpoch": beat.ps_epoch,
        "run": beat.run,
        "seq": beat.seq,
        "prepared": beat.prepared,
        "step": beat.step,
        "samples": beat.samples,
        "dataEpoch": beat.data_epoch,
    }
    for name, value in whole.items():
        if not 0 <= value <= _MAX_STEP:
            return f"{name} is {value}; allowed are 0 to 2^53"
    for name, counter in (("cpuTicks", beat.cpu_ticks), ("rx", beat.rx), ("tx", beat.tx)):
        if counter is not None and not 0 <= counter <= _MAX_COUNTER:
            return f"{name} is {counter}; allowed are 0 to 2^63"
    for name, port in (("port", beat.port), ("chunkPort", beat.chunk_port)):
        if not 0 <= port <= 65535:
            return f"{name} is {port}; allowed are 0 to 65535"
    for name, number in (
        ("stepAgeMs", beat.step_age_ms),
        ("phaseAgeMs", beat.phase_age_ms),
        ("hold", beat.hold),
        ("phaseBudget", beat.phase_budget or 0.0),
        ("gpuBusy", beat.gpu_busy or 0.0),
        ("gpuPower", beat.gpu_power or 0.0),
    ):
        if not math.isfinite(number) or number < 0:
            return f"{name} is {number}; it must be a finite number, 0 or more"
    if len(beat.dt_ms) > 16 or len(beat.metrics) > 8 or len(beat.have) > 64:
        return "dtMs, metrics or have is too long; at most 16, 8 and 64 entries"
    if len(beat.holds) > 4 or any(len(held) > 80 for held in beat.holds) or len(beat.waits) > 1024:
        return "holds or waits is too long; at most 4 entries of 80 characters, and 1024 characters"
    if beat.restored is not None and (found := _problem_of(beat.restored)) is not None:
        return found
    if not all(math.isfinite(value) for value in (*beat.dt_ms, *beat.metrics.values())):
        return "dtMs or metrics has a number that is not finite"
    return None


def _problem_of(restored: Restored) -> str | None:
    if not all(0 <= count <= _MAX_STEP for count in (restored.own, restored.peer, restored.store)):
        return "restored has a count out of bounds; allowed are 0 to 2^53"
    if len(restored.ckpt) > 64 or len(restored.liars) > 4 or any(len(liar) > 80 for liar in restored.liars):
        return "restored is too long; at most 64 characters of ckpt, and 4 liars of 80 characters"
    return None
