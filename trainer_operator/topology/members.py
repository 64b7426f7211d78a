"""The members of every training as their agents describe them: soft state, rebuilt from beats (TX3).

A member is (Trainer uid, role, index). Its record holds the newest beat of the newest incarnation; beats of an
older attempt, boot or run change nothing (TX7). Directives flow the other way: reconcilers declare, per source,
what a member shall do; the agent API hands it out with the next reply, at once when the list changed.

Everything runs on one event loop; there are no locks.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.clock import Clock
from trainer_operator.api.names import JANITOR_ROLE
from trainer_operator.topology.beat import Ack, Beat, DirectiveResult
from trainer_operator.topology.evidence import UNKNOWN, Evidence, Meter
from trainer_operator.topology.stepclock import HARD_FLOOR, StepClock

ENDED = 4096
"""So many Trainers that no longer exist are remembered, for the agents that outlive them by their grace."""


@dataclass(frozen=True, slots=True, order=True)
class MemberId:
    """Role and index within one Trainer."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"


JANITOR = MemberId(JANITOR_ROLE, 0)
"""The only one of its training, which `janitor_of` names."""


@dataclass(frozen=True, slots=True)
class Directive:
    """One instruction to an agent; idempotent by id (MG1)."""

    id: str
    kind: str
    args: Mapping[str, Any]


def by_shard(members: Iterable[MemberId]) -> list[MemberId]:
    """Return the parameter servers among members in the order of their shards.

    Assumptions: one server for each shard, whichever of the shard's replicas it is (PSR1).
    """
    servers = [member for member in members if member.role == "ps"]
    return sorted(servers, key=lambda server: (server.index % len(servers), server.index))


@dataclass(frozen=True, slots=True)
class AgentView:
    """What a reconciler may know of a member's agent. `age` is seconds since the last beat."""

    beat: Beat
    age: float
    step_age: float
    results: Mapping[str, DirectiveResult]
    clock: StepClock | None = None
    """Durations of its steps; read only."""
    evidence: Evidence = UNKNOWN
    """What it was seen to do since its last step."""
    start: float | None = None
    """Seconds that its last start from a checkpoint took; None before the first."""
    asked: Mapping[str, float] = field(default_factory=dict)
    """By id, for how many seconds a directive has been declared."""

    @property
    def running(self) -> bool:
        """Whether the training process exists."""
        return self.beat.proc in {"starting", "running"}

    @property
    def trains(self) -> bool:
        """Whether the process runs and has come as far as its steps; saving and evaluating are part of training."""
        return self.running and self.beat.phase in {"train", "checkpoint", "eval"}

    @property
    def plain(self) -> bool:
        """Whether it trains without the SDK: it can't be asked to save or to wait (AG5)."""
        return self.trains and self.beat.steps != "sdk"

    @property
    def done(self) -> bool:
        """Whether the process ended by itself with success."""
        return (
            self.beat.proc == "exited"
            and not self.drained
            and self.beat.exit is not None
            and not (self.beat.exit.code or self.beat.exit.sig)
        )

    @property
    def drained(self) -> bool:
        """Whether its process ended, or ends, because it was told to, whatever its exit code (ST3)."""
        return self.beat.phase == "draining"

    @property
    def crashed(self) -> bool:
        """Whether the process ended in any other way."""
        return self.beat.proc == "exited" and not self.done


@dataclass(slots=True)
class _Record:
    beat: Beat
    heard: float
    meter: Meter
    boots: tuple[str, ...] = ()
    told: tuple[Any, ...] = ()
    results: dict[str, DirectiveResult] = field(default_factory=dict)
    clock: StepClock = field(default_factory=StepClock)
    start: float | None = None

    def progress(self, beat: Beat, now: float) -> None:
        """Take what this beat tells of steps, and of how long the process took to come to them."""
        before = self.beat
        steps = beat.step - before.step if beat.run == before.run else 0
        if steps > 0 and before.phase == beat.phase == "train":
            durations = (
                [each / 1000 for each in beat.dt_ms[-min(steps, len(beat.dt_ms)) :]] if beat.dt_ms else []
            )
            longest = max(durations, default=0.0)
            if (
                longest >= HARD_FLOOR
                and (known := self.clock.thresholds) is not None
                and longest > known.hard
            ):
                self.clock.false_alarm()
            self.clock.add(durations)
        is_start = before.phase == "init" and beat.phase in {"rendezvous", "train"} and beat.run == before.run
        if is_start and beat.steps == "sdk" and before.step > 0:
            entered = self.heard - before.phase_age_ms / 1000
            self.start = max(0.0, now - beat.phase_age_ms / 1000 - entered)
        self.meter.take(beat, now)


@dataclass(slots=True)
class _Training:
    members: dict[MemberId, _Record] = field(default_factory=dict)
    directives: dict[MemberId, dict[str, tuple[Directive, ...]]] = field(default_factory=dict)
    asked: dict[MemberId, dict[str, float]] = field(default_factory=dict)
    """When each directive was declared."""
    decided: dict[str, str] = field(default_factory=dict)
    news: dict[MemberId, asyncio.Event] = field(default_factory=dict)
    pods: dict[str, float] = field(default_factory=dict)
    """By pod uid, when its agent was last heard, however old its attempt is."""
    epoch: int = 0
    key: str = ""
    """What members of this epoch sign with when they ask each other for chunks; made anew for each epoch."""
    closed: bool = False


class Members:
    """The records of all members of all Trainers.

    Guarantees: an accepted beat is newer than all before it of the same member; `on_news` hears of a Trainer only
    when something changed that a decision may depend on, never for mere progress.
    """

    def __init__(self, clock: Clock, *, agents_per_second: int = 1500) -> None:
        self._clock = clock
        self._agents_per_second = agents_per_second
        self._trainings: dict[str, _Training] = {}
        self._ended: dict[str, None] = {}
        self._agents = 0
        """Members of all Trainers: counted as they come and go, since every pass and every reply asks."""
        self._listeners: list[Callable[[str, str], None]] = []
        self.dropped = 0
        self.since = clock.monotonic()
        self._surveyed = -1e9
        self._mass_silence = False

    def on_news(self, listener: Callable[[str, str], None]) -> None:
        """Call `listener(trainer uid, "ns/name")` when a member changed in a way that may need a decision."""
        self._listeners.append(listener)

    def restart_grace(self) -> None:
        """Start the time in which nobody can become Lost, on taking leadership (TX4)."""
        self.since = self._clock.monotonic()

    @property
    def led_for(self) -> float:
        """Seconds since we took leadership: who was not heard in a shorter time may still be there (TX4)."""
        return self._clock.monotonic() - self.since

    @property
    def heartbeat(self) -> float:
        """Seconds between beats, growing with the number of agents (TX1)."""
        return min(15.0, max(2.0, self._agents / self._agents_per_second))

    def forgive(self, seconds: float) -> None:
        """Count no silence for a time in which we could not listen ourselves (TX5)."""
        now = self._clock.monotonic()
        for training in self._trainings.values():
            for record in training.members.values():
                record.heard = min(now, record.heard + seconds)

    def mass_silence(self, window: float) -> bool:
        """Whether so many agents are silent that the fault is probably ours (DT4); of all Trainers, at most 1 s old."""
        now = self._clock.monotonic()
        if now - self._surveyed >= 1.0:
            ages = [
                now - record.heard
                for training in self._trainings.values()
                if not training.closed
                for record in training.members.values()
            ]
            silent = sum(age > window for age in ages)
            self._mass_silence = silent > max(3, 0.3 * len(ages)) or silent == len(ages) >= 2
            self._surveyed = now
        return self._mass_silence

    # -- agents' side

    def accept(self, beat: Beat) -> bool:
        """Take a beat that passed authentication; false when it is older than what is known."""
        now = self._clock.monotonic()
        if beat.training in self._ended:
            return False
        training = self._trainings.setdefault(beat.training, _Training())
        training.pods[beat.pod] = now  # also of a pod that was replaced: its node lives (ND4)
        member = MemberId(beat.role, beat.idx)
        record = training.members.get(member)
        if record is not None and not _is_newer(record, beat):
            self.dropped += 1
            return False
        before = record.beat if record is not None else None
        self._agents += record is None
        if record is None or record.beat.boot != beat.boot:
            boots = () if record is None else (*record.boots, record.beat.boot)[-8:]
            record = training.members[member] = _Record(beat, now, Meter(beat, now), boots)
        record.progress(beat, now)
        record.beat, record.heard = beat, now
        fresh = False
        listed = {
            directive.id for source in training.directives.get(member, {}).values() for directive in source
        }
        for result in beat.results:
            if record.results.get(result.id) != result:
                record.results[result.id] = result
                fresh = True
        for gone in [
            key for key in record.results if key not in listed and key not in {r.id for r in beat.results}
        ]:
            if len(record.results) > 64 or _is_bulky(record.results[gone]):
                del record.results[gone]
        if fresh or before is None or _needs_decision(before, beat):
            for listener in self._listeners:
                listener(beat.tuid, beat.trainer)
        return True

    def is_current(self, beat: Beat) -> bool:
        """Whether a beat is of the incarnation that counts at the moment."""
        training = self._trainings.get(beat.training)
        record = training.members.get(MemberId(beat.role, beat.idx)) if training is not None else None
        return record is not None and (record.beat.attempt, record.beat.boot) == (beat.attempt, beat.boot)

    def reply(self, uid: str, member: MemberId, *, term: int) -> dict[str, Any]:
        """Build the reply for one member from what the reconcilers declared."""
        training = self._trainings.get(uid)
        body: dict[str, Any] = {
            "epoch": 0,
            "hb": self.heartbeat,
            "term": term,
            "directives": [],
            "decided": {},
            "close": False,
        }
        if training is None:
            body["close"] = uid in self._ended
            return body
        record = training.members.get(member)
        done = record.results if record is not None else {}
        body["epoch"], body["key"] = training.epoch, training.key
        body["directives"] = [
            {"id": directive.id, "kind": directive.kind, "args": directive.args}
            for source in training.directives.get(member, {}).values()
            for directive in source
            if directive.id not in done
        ]
        if record is not None:
            mentioned = {ack.ckpt for ack in record.beat.acks}
            body["decided"] = {
                name: outcome for name, outcome in training.decided.items() if name in mentioned
            }
        body["close"] = training.closed
        return body

    def mark_told(self, uid: str, member: MemberId, reply: Mapping[str, Any]) -> bool:
        """Remember what a reply says; true when the member had not been told all of it before."""
        record = self._trainings[uid].members[member]
        told = (
            reply["epoch"],
            tuple(directive["id"] for directive in reply["directives"]),
            tuple(reply["decided"].items()),
            reply["close"],
        )
        is_news = told != record.told
        record.told = told
        return is_news

    async def wait_news(self, uid: str, member: MemberId, *, hold: float) -> None:
        """Return when the member's directives change, at the latest after `hold` seconds."""
        training = self._trainings.setdefault(uid, _Training())
        event = training.news.setdefault(member, asyncio.Event())
        try:
            async with asyncio.timeout(hold):
                await event.wait()
        except TimeoutError:
            pass

    # -- reconcilers' side

    def view(self, uid: str) -> dict[MemberId, AgentView]:
        """Return what is known of each member of a Trainer."""
        training = self._trainings.get(uid)
        if training is None:
            return {}
        now = self._clock.monotonic()
        return {
            member: AgentView(
                record.beat,
                now - record.heard,
                now - record.heard + record.beat.step_age_ms / 1000,
                dict(record.results),
                record.clock,
                record.meter.evidence(record.beat, record.heard),
                record.start,
                {key: now - at for key, at in training.asked.get(member, {}).items()},
            )
            for member, record in training.members.items()
        }

    def acks(self, uid: str, ckpt: str) -> list[tuple[MemberId, Ack]]:
        """Return the acks that members report for one checkpoint."""
        training = self._trainings.get(uid)
        if training is None:
            return []
        return [
            (m, ack) for m, record in training.members.items() for ack in record.beat.acks if ack.ckpt == ckpt
        ]

    def declare(
        self,
        uid: str,
        source: str,
        directives: Mapping[MemberId, Iterable[Directive]],
        *,
        epoch: int | None = None,
    ) -> None:
        """Replace what `source` wants of the members of a Trainer; wakes the replies that this changes.

        Assumptions: the status write that allows these directives has succeeded (MG2).
        """
        training = self._trainings.setdefault(uid, _Training())
        now = self._clock.monotonic()
        if epoch is not None and (epoch != training.epoch or not training.key):
            training.epoch, training.key = epoch, secrets.token_hex(32) if epoch else ""
        for member in {*training.directives, *directives}:
            wanted = tuple(directives.get(member, ()))
            sources = training.directives.setdefault(member, {})
            if sources.get(source, ()) != wanted:
                sources[source] = wanted
                since = training.asked.get(member, {})
                training.asked[member] = {
                    each.id: since.get(each.id, now) for listed in sources.values() for each in listed
                }
                self._wake(training, member)

    def declared(self, uid: str, member: MemberId) -> list[Directive]:
        """Return what is wanted of one member, done or not."""
        training = self._trainings.get(uid)
        sources = training.directives.get(member, {}) if training is not None else {}
        return [directive for listed in sources.values() for directive in listed]

    def decide(self, uid: str, ckpt: str, outcome: str) -> None:
        """Tell every agent that still reports this checkpoint what became of it."""
        training = self._trainings.setdefault(uid, _Training())
        if training.decided.get(ckpt) != outcome:
            training.decided[ckpt] = outcome
            for old in list(training.decided)[:-32]:
                del training.decided[old]
            self._wake_all(training)

    def close(self, uid: str) -> None:
        """Tell every agent of a Trainer to end (AG7)."""
        training = self._trainings.get(uid)
        if training is not None and not training.closed:
            training.closed = True
            self._wake_all(training)

    def end(self, uid: str) -> None:
        """Forget a Trainer that no longer exists; whoever still speaks for it is told to end (AG7)."""
        self.drop(uid)
        self._ended[uid] = None
        while len(self._ended) > ENDED:
            del self._ended[next(iter(self._ended))]

    def drop(self, uid: str) -> None:
        """Forget a Trainer until one of its members speaks again."""
        training = self._trainings.pop(uid, None)
        if training is not None:
            self._agents -= len(training.members)
            self._wake_all(training)

    def forget_member(self, uid: str, member: MemberId) -> None:
        """Forget one member, after its role shrank below its index."""
        training = self._trainings.get(uid)
        if training is not None:
            self._agents -= training.members.pop(member, None) is not None
            training.directives.pop(member, None)
            training.asked.pop(member, None)

    def silence(self, pods: Iterable[str]) -> float:
        """Return the seconds since any agent of these pods was heard; what came before our lead is not known."""
        newest = self.since
        for pod in pods:
            for training in self._trainings.values():
                newest = max(newest, training.pods.get(pod, newest))
        return self._clock.monotonic() - newest

    def uids(self) -> list[str]:
        """Return the uids of all Trainers that are known."""
        return list(self._trainings)

    def _wake(self, training: _Training, member: MemberId) -> None:
        event = training.news.pop(member, None)
        if event is not None:
            event.set()

    def _wake_all(self, training: _Training) -> None:
        for member in list(training.news):
            self._wake(training, member)


def _is_newer(record: _Record, beat: Beat) -> bool:
    known = record.beat
    if beat.attempt != known.attempt:
        return beat.attempt > known.attempt
    if beat.boot != known.boot:
        return beat.boot not in record.boots  # a boot that was replaced never comes back
    return (beat.run, beat.seq) > (known.run, known.seq) and beat.run >= known.run


def _is_bulky(result: DirectiveResult) -> bool:
    """Whether it holds stacks, which nobody reads any more once they are not asked for."""
    return isinstance(result.value, dict) and "stacks" in result.value


def _needs_decision(before: Beat, beat: Beat) -> bool:
    return (
        before.boot != beat.boot
        or before.run != beat.run
        or before.proc != beat.proc
        or before.listening != beat.listening
        or before.phase != beat.phase
        or before.steps != beat.steps
        or before.prepared != beat.prepared
        or before.epoch != beat.epoch
        or before.ps_epoch != beat.ps_epoch
        or before.data_epoch != beat.data_epoch
        or len(before.acks) != len(beat.acks)
        or before.acks != beat.acks
        or before.have != beat.have
        or before.restored != beat.restored
        or before.waits != beat.waits
    )
