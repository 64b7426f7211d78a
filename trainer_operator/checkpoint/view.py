"""One checkpoint with all that its next step depends on: the Trainer, its other checkpoints, and what agents say.

It translates both ways: observations into the `Facts` of the state machine, its `Move` into the object's status and
the agents' orders. It does no I/O.
"""

import secrets
from collections.abc import Sequence
from datetime import datetime

from runtime.conditions import set_condition
from trainer_operator.api.checkpoint import Checkpoint, CheckpointState, CheckpointStatus
from trainer_operator.api.meta import Condition, condition_of
from trainer_operator.api.names import restoring_epoch
from trainer_operator.api.status import AT_REST, TERMINAL, MembershipPhase, ServerPhase
from trainer_operator.api.timelines import current_timeline
from trainer_operator.api.trainer import Trainer
from trainer_operator.checkpoint import orders
from trainer_operator.checkpoint.answers import Answers
from trainer_operator.checkpoint.commit import record_commit
from trainer_operator.checkpoint.executor import FRESH, choose_executor
from trainer_operator.checkpoint.pins import choose_base, is_pinned, still_pinned
from trainer_operator.checkpoint.quorum import (
    Holder,
    has_quorum,
    holders_of,
    is_impossible,
    named_problem,
    save_problem,
    shard_count,
)
from trainer_operator.checkpoint.retention import Kept, to_retire
from trainer_operator.checkpoint.state import SWEEP_GRACE, Facts, Move, Order, Outcome
from trainer_operator.checkpoint.target import choose_target
from trainer_operator.topology.beat import Ack, janitor_of
from trainer_operator.topology.members import MemberId, Members

OPEN = frozenset({None, CheckpointState.PENDING, CheckpointState.STAGING})
COMMIT_TRIES = 3
"""Times that an agent may fail to write a commit before the attempt is aborted."""
SWEEP_TRIES = 3
"""Times that an agent may fail to sweep an aborted attempt before that is left to a later collection."""


class View:
    """What is known of one checkpoint in one pass."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        trainer: Trainer,
        *,
        siblings: Sequence[Kept],
        members: Members,
        in_epoch: frozenset[MemberId],
    ) -> None:
        self.checkpoint = checkpoint
        self.trainer = trainer
        self.base: str | None = None
        """Id of the checkpoint that was pinned for this one."""
        self.replication = trainer.spec.topology.replication_factor
        self.holders = holders_of(in_epoch, self.replication) if in_epoch else ()
        self._siblings = siblings
        self._members = members
        self._in_epoch = in_epoch
        self._agents = members.view(trainer.metadata.uid)
        janitor = members.view(janitor_of(trainer.metadata.uid))
        ckpt = checkpoint.status.id or "-"
        self._answers = Answers.of(ckpt, self._agents.values(), janitor.values())

    def facts(self, now: datetime) -> Facts:
        """Return what the state machine wants to know."""
        status, membership = self.checkpoint.status, self.trainer.status.membership
        acks, shards = self._acks(), status.shards or 1
        problem, refused = save_problem(acks), self._commit_problem()
        created, staged = self.checkpoint.metadata.creation_timestamp, status.staging_started_at
        policy = self.trainer.spec.checkpoint
        name, ckpt = self.checkpoint.metadata.name, status.id or "-"
        commit_tries = self._answers.failed_tries(orders.store_id(Outcome.COMMIT, ckpt))
        abort_tries = self._answers.failed_tries(orders.store_id(Outcome.ABORT, ckpt))
        return Facts(
            state=status.state,
            epoch=status.epoch or 0,
            current_epoch=membership.epoch,
            trains=self._trains(),
            ended=self.trainer.status.phase in TERMINAL,
            tries=len(status.missed),
            passed=self._passed(),
            quorum=has_quorum(acks, shards=shards, step=status.step or 0, replication=self.replication),
            impossible=is_impossible(acks, shards=shards, replication=self.replication),
            commit_failed=commit_tries >= COMMIT_TRIES,
            abort_failed=abort_tries >= COMMIT_TRIES,
            commit_failure=refused[0] if refused is not None else "CommitFailed",
            failure=problem[0] if problem is not None else "CopiesFailed",
            age=(now - created).total_seconds() if created is not None else 0.0,
            staged_for=(now - staged).total_seconds() if staged is not None else 0.0,
            staging_timeout=float(policy.staging_timeout_seconds) if policy is not None else 600.0,
            outcome=self._answers.outcome(),
            unpinned=bool(status.base) and not is_pinned(self._siblings, base=status.base or "", holder=name),
            retire=policy is not None
            and not self._pins()
            and name in to_retire(self._siblings, policy.max_retention),
            marked=status.marked_at is not None,
            collected=self._answers.is_collected(),
            aborted_for=self._aborted_for(status, now),
            sweep_failed=self._sweep_failed(),
        )

    def apply(self, status: CheckpointStatus, move: Move, now: datetime) -> None:
        """Change the status as the move says."""
        previous = status.state
        status.state, status.observed_generation = move.state, self.checkpoint.metadata.generation
        status.pins = self._pins()
        if move.order is Order.COLLECT and previous is CheckpointState.COMMITTED and status.marked_at is None:
            status.marked_at = now
        if move.new_target:
            self._aim(status, now)
        if move.state is CheckpointState.COMMITTED and previous is not CheckpointState.COMMITTED:
            record_commit(status, self._answers.decision() or {}, self._acks(), now=now)
        if move.state is CheckpointState.GARBAGE_COLLECTED and previous in OPEN:
            reason = self._answers.reason() or move.reason or "Aborted"
            current, _ = set_condition(
                [condition.dump() for condition in status.conditions],
                type="Aborted",
                status="True",
                reason=reason,
                message=self._why(reason),
                generation=self.checkpoint.metadata.generation,
                now=now,
            )
            status.conditions = tuple(Condition.read(entry) for entry in current)
        elif self._aborted_for(status, now) is not None and self._answers.is_collected():
            status.swept_at = now

    def orders(self, status: CheckpointStatus, move: Move) -> orders.Orders:
        """Return what the agents are told."""
        wanted: orders.Orders = {}
        store = self._store_id()
        if move.order is Order.SAVE:
            wanted = orders.save(
                status,
                self.holders,
                pause=self._pauses(),
                replication=self.replication,
                world=len(self._in_epoch),
                store=store,
            )
        executor = self.executor()
        if executor is None:
            return wanted
        told = []
        if move.order in {Order.COMMIT, Order.ABORT}:
            commit = move.order is Order.COMMIT
            reason = "Quorum" if commit else move.reason
            told.append(
                orders.decide(status, commit=commit, reason=reason, replication=self.replication, store=store)
            )
        elif move.order is Order.COLLECT:
            since = status.marked_at or _aborted_at(status)
            told.append(orders.collect(status.id or "", at=since, store=status.store_id or store))
        if status.state in OPEN:
            told += [orders.abort_missed(missed, status, store=store) for missed in status.missed]
        if told:
            wanted[executor] = (*wanted.get(executor, ()), *map(self._answers.again, told))
        return wanted

    def differing(self) -> tuple[str, ...]:
        """Return the tensors that this checkpoint's audit found changed unnoticed (FZ2)."""
        return self._answers.differing()

    def unknown(self) -> tuple[str, ...]:
        """Return what its collection found in the store that is not ours (GC7)."""
        return self._answers.unknown()

    def choose_base(self) -> Kept | None:
        """Return what this checkpoint may build on."""
        return choose_base(
            self._siblings,
            name=self.checkpoint.metadata.name,
            shards=shard_count(self.holders),
            store_id=self._store_id(),
        )

    @property
    def rests(self) -> bool:
        """Whether no member will come by itself."""
        return self.trainer.status.phase in AT_REST

    def is_starting(self, status: CheckpointStatus) -> bool:
        """Whether it is pinned for a restore that ends without an event; with servers the next epoch is one."""
        pinned = any(restoring_epoch(pin) for pin in status.pins)
        return pinned and not self.rests and not self.trainer.status.membership.ps_epoch

    def sweep_in(self, status: CheckpointStatus, now: datetime) -> float | None:
        """Return the seconds until what it left is swept; None if nothing is, by us."""
        since = self._aborted_for(status, now)
        return None if since is None or self._sweep_failed() else max(0.0, SWEEP_GRACE - since)

    def executor(self) -> MemberId | None:
        """Return whose agent touches the store."""
        return choose_executor(self._agents, rests=self.rests, led_for=self._members.led_for)

    def _why(self, reason: str) -> str:
        """Say for people why it was given up, in the agent's own sentence where it has one."""
        for problem in (save_problem(self._acks()), self._commit_problem()):
            if problem is not None and problem[0] == reason:
                return problem[1]
        return "no member restores from it; the next one is taken in time"

    def _commit_problem(self) -> tuple[str, str] | None:
        """Return why agents could not write the commit, if they say so."""
        return named_problem(self._answers.errors(orders.store_id(Outcome.COMMIT, self._answers.ckpt)))

    def _aborted_for(self, status: CheckpointStatus, now: datetime) -> float | None:
        """Return the seconds since it was given up, if something of it may be in the store."""
        since = _aborted_at(status)
        if since is None or status.id is None or status.swept_at or self.trainer.spec.checkpoint is None:
            return None
        return (now - since).total_seconds()

    def _sweep_failed(self) -> bool:
        return self._answers.failed_tries(orders.store_id("collect", self._answers.ckpt)) >= SWEEP_TRIES

    def _pauses(self) -> bool:
        """Whether members wait at its step: only while the change that asked for it is under way.

        A change that a failure overtook leaves its checkpoint Pending; in the next epoch nobody would let the members
        go on. A Trainer that is older than the checkpoint in the cache does not know of the change yet.
        """
        name, status = self.checkpoint.metadata.name, self.trainer.status
        flight, change = status.checkpoint_in_flight, status.pending_change
        is_known = flight is not None and flight.name == name
        is_wanted = change is not None and change.checkpoint == name
        return self.checkpoint.spec.pause and (is_wanted or not is_known)

    def _trains(self) -> bool:
        membership = self.trainer.status.membership
        if membership.phase is not MembershipPhase.ACTIVE or not self.holders:
            return False
        if membership.ps_phase not in {None, ServerPhase.SERVING}:
            return False
        agents = [self._agents.get(holder.member) for holder in self.holders]
        return all(
            a is not None and a.running and a.beat.epoch == membership.epoch and a.age < FRESH for a in agents
        )

    def _passed(self) -> bool:
        result = orders.save_id(self.checkpoint.status.id or "-")
        found = [self._agents[h.member].results.get(result) for h in self.holders if h.member in self._agents]
        return any(answer is not None and not answer.ok and answer.error == "past" for answer in found)

    def _aim(self, status: CheckpointStatus, now: datetime) -> None:
        if status.id is not None:
            status.missed = [*status.missed, status.id]
        agents = [self._agents[holder.member] for holder in self.holders if holder.member in self._agents]
        everyone = [agent for agent in self._agents.values() if agent.running] or agents
        status.step = choose_target(everyone, tries=len(status.missed), at_least=(self._last_committed() + 1))
        status.epoch = self.trainer.status.membership.epoch
        status.timeline = current_timeline(self.trainer.status.timelines) or None
        status.base = status.base or self.base
        status.id = f"{status.step:012d}-e{status.epoch}-{secrets.token_hex(2)}"
        status.shards = shard_count(self.holders)
        status.holders = tuple(_holder_text(holder) for holder in self.holders)
        if status.staging_started_at is None:
            status.staging_started_at = now

    def _pins(self) -> list[str]:
        return still_pinned(self.checkpoint.status.pins, self._siblings, self.trainer.status)

    def _last_committed(self) -> int:
        counting = [c.step for c in self._siblings if c.state == "Committed" and c.on_path and not c.discard]
        return max(counting, default=0)

    def _store_id(self) -> str:
        """Return the id of the store that the Trainer's newest committed checkpoint lies in (CK7)."""
        committed = [c for c in self._siblings if c.state == "Committed"]
        newest = max(committed, key=lambda c: c.step, default=None)
        return newest.store_id if newest is not None else ""

    def _acks(self) -> list[Ack]:
        """Return what agents say of the copies of this checkpoint."""
        found = self._members.acks(self.trainer.metadata.uid, self.checkpoint.status.id or "-")
        return [ack for _, ack in found]


def _aborted_at(status: CheckpointStatus) -> datetime | None:
    told = condition_of(status.conditions, "Aborted")
    return told.last_transition_time if told is not None else None


def _holder_text(holder: Holder) -> str:
    return f"{holder.member}:{','.join(map(str, holder.copies))}"
