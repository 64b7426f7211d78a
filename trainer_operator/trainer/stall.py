"""Stalls: a process that lives but makes no step (SL1 to SL5, AG5).

    step age ──soft──▶ Suspect: warn, look for evidence ──hard──▶ stacks of all members ──5 s──▶ a failure as any other

The age comes from the training loop itself; a thread that beats proves nothing (SL5). The clock runs only while all
members of an Active epoch are there and train; every other phase has a budget. With two signs (topology/evidence.py's,
fewest steps done, everybody waiting) the hard threshold decides, without them twice as much (SL3).
"""

from dataclasses import dataclass, replace

from trainer_operator.api.status import StallStatus
from trainer_operator.topology.members import AgentView, MemberId
from trainer_operator.topology.stepclock import SOFT_FLOOR
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.failures import Failure, FailureClass
from trainer_operator.trainer.membership import (
    ACTIVE,
    SERVING,
    has_servers,
    is_of_epoch,
    live,
    members_of,
)

BUDGETS = {"init": 1800.0, "rendezvous": 600.0, "checkpoint": 900.0, "eval": 3600.0, "waiting_ps": 600.0}
"""Seconds that a phase may last; `train` has the step clock, `paused` and `draining` are ended by us."""
DECLARABLE = {"eval", "checkpoint", "init", "rendezvous"}
"""Phases whose budget the training code may declare instead."""
LEAST_START = 300.0
"""Seconds that every start may last, however short the last one of the same agent was."""
COARSE = 1800.0
"""Seconds without a step when too few steps are known to judge by (AG5)."""
DUMP_WAIT = 5.0
"""Seconds that stacks may take to arrive."""


@dataclass(frozen=True, slots=True)
class Late:
    """A member whose step or phase takes too long; `limit` is what it may take. Durations are seconds."""

    member: MemberId
    agent: AgentView
    age: float
    limit: float
    usual: float | None
    hard: bool
    startup: bool = False
    signs: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """Say what was seen."""
        beat = self.agent.beat
        if beat.phase != "train":
            return f"{self.member} is in phase {beat.phase} for {self.age:.0f} s, at most {self.limit:.0f} s are allowed"
        usual = f", a usual step takes {self.usual:.2g} s" if self.usual is not None else ""
        said = "".join(f"; {sign}" for sign in self.signs)
        return f"{self.member} finished no step for {self.age:.0f} s after step {beat.step}{usual}{said}"


def judge(draft: Draft) -> Failure | None:
    """Follow suspicion up to a failure: warn, collect stacks, then hand the stall to recovery."""
    late = _late_members(draft)
    _warn(draft, late)
    worst = _culprit(draft, [each for each in late if each.hard])
    if worst is None:
        draft.status.stall = None
        return None
    known = draft.status.stall
    if known is None or known.member != str(worst.member):
        draft.status.stall = StallStatus(
            member=str(worst.member), message=worst.message, since=draft.observed.now
        )
        draft.event("StallDetected", f"{worst.message}; stacks of all members are collected", warning=True)
        draft.look_again(DUMP_WAIT)
        return None
    stacks = _stacks(draft)
    if len(stacks) < len(members_of(draft)) and not draft.passed(known.since, DUMP_WAIT):
        return None
    for member, text in sorted(stacks.items()):
        if text:
            draft.event("StackDump", f"{member} stands at:\n{text[-900:]}")
    beat = worst.agent.beat
    return Failure(
        worst.member,
        beat.process,
        FailureClass.STARTUP if worst.startup else FailureClass.STALL,
        "StartupTimeout" if worst.startup else "Stalled",
        worst.message,
        pod_gone=False,
        step=beat.step,
    )


def dump_id(draft: Draft, agent: AgentView) -> str:
    """Return the id of the order to dump stacks: once per stall and run."""
    stall = draft.status.stall
    return (
        f"dump:{draft.status.membership.epoch}:{agent.beat.run}:{stall.member if stall is not None else ''}"
    )


def _late_members(draft: Draft) -> list[Late]:
    membership = draft.status.membership
    if membership.phase != ACTIVE or (has_servers(draft.observed.trainer) and membership.ps_phase != SERVING):
        return []
    found = []
    for member in sorted(members_of(draft)):
        agent = live(draft, member)
        if agent is None or not agent.running or not is_of_epoch(membership, agent) or member.role == "ps":
            continue
        late = (
            _in_train(draft, member, agent)
            if agent.beat.phase == "train"
            else _in_phase(draft, member, agent)
        )
        if late is not None:
            found.append(late)
    return found


def _in_train(draft: Draft, member: MemberId, agent: AgentView) -> Late | None:
    age = min(agent.step_age, draft.observed.calm_for)
    if age < SOFT_FLOOR:
        draft.look_again(SOFT_FLOOR - age + 0.1)
        return None
    thresholds = agent.clock.thresholds if agent.clock is not None else None
    usual = agent.clock.median if agent.clock is not None else None
    soft, hard = (thresholds.soft, thresholds.hard) if thresholds is not None else (COARSE / 2, COARSE)
    for limit in (soft, hard, 2 * hard):
        if age < limit:
            draft.look_again(limit - age + 0.1)
            break
    if age < soft:
        return None
    return Late(member, agent, age, hard, usual, hard=age >= hard)


def _in_phase(draft: Draft, member: MemberId, agent: AgentView) -> Late | None:
    budget = _budget(agent)
    if budget is None:
        return None
    age = min(agent.age + agent.beat.phase_age_ms / 1000, draft.observed.calm_for)
    if age < budget:
        draft.look_again(budget - age + 0.1)
        return None
    return Late(
        member, agent, age, budget, None, hard=True, startup=agent.beat.phase in {"init", "rendezvous"}
    )


def _budget(agent: AgentView) -> float | None:
    """Return the seconds that its phase may last: as declared, else as the last start of the same agent teaches (SL1).

    Only starts from a checkpoint teach, and only such a start is judged by them: another pod has another cache.
    """
    beat = agent.beat
    if beat.phase_budget and beat.phase in DECLARABLE:
        return beat.phase_budget
    if beat.phase == "init" and beat.step > 0 and agent.start is not None:
        return max(LEAST_START, 3 * agent.start)
    return BUDGETS.get(beat.phase)


def _warn(draft: Draft, late: list[Late]) -> None:
    names = [str(each.member) for each in late][:16]
    if names and not draft.status.suspects:
        more = f" (and {len(late) - 1} more)" if len(late) > 1 else ""
        draft.event("Suspect", f"{late[0].message}{more}; nothing is done yet", warning=True)
    draft.status.suspects = names


def _culprit(draft: Draft, hard: list[Late]) -> Late | None:
    """Choose who is to blame, if there is enough evidence: fewest steps, then least processor time (SL3, SL4)."""
    if not hard:
        return None
    first = min(hard, key=lambda each: (each.agent.beat.step, each.agent.evidence.cpu or 0.0, each.member))
    if first.agent.beat.phase != "train":
        return first
    trainers = [member for member in members_of(draft) if member.role != "ps"]
    seen = first.agent.evidence
    signs = list(seen.signs)
    if any(each.agent.beat.step > first.agent.beat.step for each in hard):
        signs.append("others have finished more steps")
    if len(hard) == len(trainers) > 1:
        signs.append("all members wait")
    if len(signs) >= 2 and not seen.contrary:
        return replace(first, signs=tuple(signs))
    if first.age < 2 * first.limit:
        return None
    return replace(first, signs=(*signs, *([seen.contrary] if seen.contrary else [])))


def _stacks(draft: Draft) -> dict[MemberId, str]:
    """Return the stacks that have come, by member; empty where a member could not give any."""
    found = {}
    for member in members_of(draft):
        agent = live(draft, member)
        result = agent.results.get(dump_id(draft, agent)) if agent is not None else None
        if result is not None:
            value = result.value if isinstance(result.value, dict) else {}
            found[member] = str(value.get("stacks", ""))
    return found
