"""One decision: from what was observed to a new status and the actions it allows. Pure.

The order is that of importance: is it ours, has it ended, shall it rest, did something fail, what does the epoch
need, which pods are missing, what do the numbers say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_operator.api.profile import ProfileSnapshot
from trainer_operator.api.status import TrainerStatus
from trainer_operator.api.trainer import MANAGER, Trainer
from trainer_operator.topology.members import Directive, MemberId
from trainer_operator.topology.state import Input
from trainer_operator.trainer import (
    change,
    checkpoints,
    drain,
    entrypoint,
    exclusion,
    finish,
    gang,
    membership,
    memberstate,
    notebookstate,
    notices,
    podgroup,
    progress,
    proximity,
    recovery,
    service,
    sources,
    startwait,
    volumes,
    weights,
)
from trainer_operator.trainer.budget import pattern_fault
from trainer_operator.trainer.directives import directives_of, go_id
from trainer_operator.trainer.draft import Action, CreatePod, Draft
from trainer_operator.trainer.failures import lost_window
from trainer_operator.trainer.phase import is_terminal, roll_up
from trainer_operator.trainer.views import Observed


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write, then what to do, then what agents are told, and when to look again (seconds)."""

    status: TrainerStatus
    actions: tuple[Action, ...]
    directives: dict[MemberId, tuple[Directive, ...]]
    wake: float | None
    inputs: Mapping[MemberId, tuple[Input, ...]] = field(default_factory=dict)
    """What the State Tree shall hear of each member."""
    causes: Mapping[MemberId, str] = field(default_factory=dict)
    """Why members went down, in one word."""


DAMAGED = "restore: "
"""How an agent begins when it refuses to start from a checkpoint; with other words it says nothing of that."""


def is_ours(trainer: Trainer) -> bool:
    """Whether this operator manages the Trainer; `managedBy` of another leaves it untouched (TR36)."""
    return trainer.spec.managed_by in {None, "", MANAGER}


def decide(observed: Observed) -> Decision:
    """Decide one pass.

    Guarantees: no I/O, no clock, no chance but `observed.chance`; a terminal Trainer keeps its phase; the same
    observation gives the same decision.
    """
    draft = Draft(observed, observed.trainer.status.model_copy(deep=True))
    _decide(draft)
    podgroup.follow(draft)
    progress.follow(draft)
    notebookstate.follow(draft)
    notices.follow(draft)
    told = {} if is_terminal(draft.status) else directives_of(draft)
    told.update({member: (directive,) for member, directive in draft.drains.items()})
    if draft.store_order is not None:
        lead, order = draft.store_order
        told[lead] = (*told.get(lead, ()), order)
    heard = {member: tuple(inputs) for member, inputs in draft.inputs.items()}
    return Decision(draft.status, tuple(draft.actions), told, draft.wake, heard, draft.causes)


def _decide(draft: Draft) -> None:
    status = draft.status
    checkpoints.follow(draft)
    if is_terminal(status):
        finish.clean_up(draft)
        roll_up(draft)
        return
    if finish.must_rest(draft):
        finish.suspend(draft)
        roll_up(draft)
        return
    if not finish.resume(draft):
        return
    if not _begin(draft):
        roll_up(draft)
        return
    if finish.fail_at_deadline(draft):
        roll_up(draft)
        return
    exclusion.refresh(draft)
    weights.follow(draft)
    if gang.is_released(draft):
        roll_up(draft)
        return
    memberstate.observe(draft)
    _restores(draft)
    startwait.follow(draft)
    recovery.recover(draft)
    memberstate.observe_suspicion(draft)
    if not is_terminal(status):
        membership.advance(draft)
        finish.succeed_when_done(draft)  # before changes: those would take back what is done
    if not is_terminal(status):
        change.scale(draft)
        checkpoints.request_when_due(draft)
    if not is_terminal(status):
        sources.follow(draft)
    if not is_terminal(status) and not gang.release(draft):
        _pods(draft)
        volumes.follow(draft)
        service.follow(draft)
        _watch_silence(draft)
    roll_up(draft)


def _begin(draft: Draft) -> bool:
    """Take over the profile and start the clock; false while something that only the user can give is missing."""
    status, trainer = draft.status, draft.observed.trainer
    missing = _missing(draft)
    if missing is not None:
        reason, message = missing
        if status.message != message:
            status.message = message
            if reason != entrypoint.READING:
                draft.event(reason, message, warning=True)
        return False
    if (
        trainer.spec.profile is not None
        and status.profile_snapshot is None
        and draft.observed.profile is not None
    ):
        status.profile_snapshot = ProfileSnapshot(name=trainer.spec.profile, spec=draft.observed.profile)
    if status.start_time is None:
        status.start_time = draft.observed.now
        status.message = ""
    return True


def _missing(draft: Draft) -> tuple[str, str] | None:
    """Say what a Trainer that has not started lacks, as a reason and a sentence."""
    trainer, status = draft.observed.trainer, draft.status
    fault = pattern_fault(trainer.spec.failure_rules or ()) if status.start_time is None else ""
    if fault:
        return "InvalidSpec", f"{fault}; correct it to start"
    name = trainer.spec.profile
    if name is not None and status.profile_snapshot is None and draft.observed.profile is None:
        place = trainer.metadata.namespace
        return "ProfileNotFound", f"TrainingProfile {name} is not in namespace {place}; create it to start"
    return proximity.follow(draft) or entrypoint.follow(draft)


def _restores(draft: Draft) -> None:
    refused: dict[MemberId, str] = {}
    for member in membership.members_of(draft):
        agent = membership.live(draft, member)
        result = agent.results.get(go_id(draft.status, member)) if agent is not None else None
        if result is not None and not result.ok and (result.error or "").startswith(DAMAGED):
            refused[member] = (result.error or "")[len(DAMAGED) : 256]
    if refused:
        membership.restore_failed(draft, refused)


def _pods(draft: Draft) -> None:
    """Create what is missing, delete what is of no use any more; never in an epoch that still trains (ME6)."""
    proximity.renew(draft)
    observed, records = draft.observed, draft.records
    desired = membership.desired_members(observed.trainer)
    in_epoch = membership.members_of(draft)
    for member in sorted(desired):
        attempt = records.attempt(member)
        have = {pod.attempt for pod in observed.pods.get(member, ())}
        if attempt in have or records.is_done(member, draft.status.membership.epoch):
            continue
        held = gang.holds_back(draft, member) or podgroup.holds_back(draft)
        if held or weights.holds_back(draft, member):
            continue
        if not attempt or recovery.delay_is_over(draft, member):
            draft.actions.append(CreatePod(member, attempt))
    for member, pods in observed.pods.items():
        for pod in pods:
            if member in desired and pod.attempt == records.attempt(member):
                continue
            if member in desired or member not in in_epoch:
                drain.release(draft, member, pod, budget=drain.SHORT)


def _watch_silence(draft: Draft) -> None:
    """Silence makes no event, so look again when someone could have become lost (DT3, TX5)."""
    if not draft.observed.agents:
        return
    window = lost_window(draft.observed)
    oldest = max(agent.age for agent in draft.observed.agents.values())
    draft.look_again(max(1.0, window - oldest + 0.1) if oldest < window else 1.0)
