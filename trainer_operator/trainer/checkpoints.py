"""When a checkpoint is due, and which one is in flight (CS1, CS10).

At most one attempt is in flight per Trainer: its name is in `status.checkpointInFlight` before the object exists, so
a leader that died in between is followed by one that creates the same object.
"""

from collections.abc import Iterable

from trainer_operator.api.bucket import S3Bucket, parse_bucket
from trainer_operator.api.checkpoint import SAVE_PROBLEMS, CheckpointReason
from trainer_operator.api.status import AT_REST, CheckpointInFlight, LastCheckpoint
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer import branching
from trainer_operator.trainer.draft import CreateCheckpoint, Draft
from trainer_operator.trainer.membership import (
    ACTIVE,
    SERVING,
    has_servers,
    live,
    members_of,
    standbys,
)
from trainer_operator.trainer.restore import newest_committed

FAILED_ATTEMPT_DELAY = 30.0


def follow(draft: Draft) -> None:
    """Keep `checkpointInFlight` and `lastCheckpoint` in step with the Checkpoint objects."""
    status = draft.status
    newest = newest_committed(draft.observed.checkpoints)
    if newest is not None and (status.last_checkpoint is None or status.last_checkpoint.name != newest.name):
        status.last_checkpoint = LastCheckpoint(
            name=newest.name, step=newest.step, committed_at=newest.committed_at
        )
    flight = status.checkpoint_in_flight
    if flight is None:
        return
    mine = next((c for c in draft.observed.checkpoints if c.name == flight.name), None)
    if mine is None and status.phase in AT_REST:
        status.checkpoint_in_flight = None  # nobody is left to take it (TR05)
    elif mine is None:
        draft.actions.append(CreateCheckpoint(flight.name, flight.reason, flight.pause))
    elif not mine.open:
        status.checkpoint_failures = status.checkpoint_failures + 1 if mine.aborted else 0
        status.checkpoint_in_flight = None


def can_store(draft: Draft) -> bool:
    """Whether members can write to the Trainer's bucket, as far as the spec tells: s3:// needs a Secret with keys."""
    policy = draft.observed.trainer.spec.checkpoint
    if policy is None:
        return False
    return policy.credentials_secret is not None or not isinstance(parse_bucket(policy.bucket), S3Bucket)


def plain_member(draft: Draft) -> MemberId | None:
    """Return a member that trains without the SDK, so that its state can't be asked for (AG5)."""
    agents = {member: live(draft, member) for member in members_of(draft)}
    return min(
        (member for member, agent in agents.items() if agent is not None and agent.plain), default=None
    )


def can_save(draft: Draft) -> bool:
    """Whether members could save their state now: they can write to the bucket, and can be asked."""
    return can_store(draft) and plain_member(draft) is None


def save_problem(draft: Draft) -> tuple[str, str] | None:
    """Return what keeps checkpoints from being saved, as a reason and a sentence, if a start or the last attempt failed for it (PB4)."""
    waiting = branching.problem(draft)
    if waiting is not None:
        return waiting
    ended = [c for c in draft.observed.checkpoints if not c.open]
    last = max(ended, key=lambda c: c.sequence, default=None)
    if last is None or last.abort_reason not in SAVE_PROBLEMS:
        return None
    return last.abort_reason, last.abort_message


def request_when_due(draft: Draft) -> None:
    """Start an interval checkpoint when its time has come and there is a new step."""
    spec, status = draft.observed.trainer.spec.checkpoint, draft.status
    membership = status.membership
    if (
        spec is None
        or not can_save(draft)
        or status.checkpoint_in_flight is not None
        or membership.phase != ACTIVE
    ):
        return
    if has_servers(draft.observed.trainer) and membership.ps_phase != SERVING:
        return
    change = status.pending_change
    if change is not None and not (change.soft and change.step is None):
        return  # while new members of a soft epoch start, training goes on, and so do its checkpoints
    if any(c.open for c in draft.observed.checkpoints):
        return
    interval = spec.interval_minutes * 60
    if status.checkpoint_failures:
        interval = min(interval, FAILED_ATTEMPT_DELAY * 2.0 ** min(status.checkpoint_failures - 1, 16))
    if not draft.passed(status.last_checkpoint_attempt or membership.since, interval):
        return
    last = status.last_checkpoint.step if status.last_checkpoint is not None else 0
    if (status.global_step or 0) <= last or not all_train(draft, members_of(draft) - standbys(draft)):
        draft.look_again(max(1.0, min(interval, 5.0)))
        return
    request_checkpoint(draft, CheckpointReason.INTERVAL, pause=False)


def request_checkpoint(draft: Draft, reason: CheckpointReason, *, pause: bool) -> str:
    """Put a checkpoint in flight and return its name."""
    status = draft.status
    status.checkpoint_sequence += 1
    name = f"{draft.observed.trainer.metadata.name}-c{status.checkpoint_sequence:05d}"
    status.checkpoint_in_flight = CheckpointInFlight(
        name=name, reason=reason, pause=pause, since=draft.observed.now
    )
    status.last_checkpoint_attempt = draft.observed.now
    draft.actions.append(CreateCheckpoint(name, reason, pause))
    return name


def all_train(draft: Draft, members: Iterable[MemberId]) -> bool:
    """Whether the processes of all these members train: a checkpoint asked of a starting member only times out."""
    agents = [live(draft, member) for member in members]
    return all(agent is not None and agent.trains for agent in agents)
