"""Stalls: a process that lives but makes no step (SL1 to SL5, AG5).

    step age ──soft──▶ Suspect: warn, look for evidence ──hard──▶ stacks of all members ──5 s──▶ a failure as any other

The age comes from the training loop itself; a thread that beats proves nothing (SL5). The clock runs only while all
members of an Active epoch are there and train; every other phase has a budget. With two signs (topology/evidence.py's,
one stack in two looks, fewest steps done, everybody waiting) the hard threshold decides, without them twice as much (SL3).
"""

from dataclasses import dataclass, replace

import msgspec

from trainer_operator.api.status import StallStatus
from trainer_operator.topology.evidence import QUIET
from trainer_operator.topology.members import AgentView, Directive, MemberId
from trainer_operator.topology.stacks import Look, outsider, parse, read_look
from trainer_operator.topology.stepclock import SOFT_FLOOR
from trainer_operator.trainer.draft import Draft, RecordStacks
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
"""Seconds without a step when too few steps are known to judge by, or the code only prints them (AG5)."""
DUMP_WAIT = 5.0
"""Seconds that stacks may take to arrive."""
LOOKS_APART = 10.0
"""Seconds between the first look at where a process stands and the second, which is as long before the hard threshold."""
STEADY = 5.0
"""Seconds for which a stack has to be the same to be a sign: both looks may have been carried out late."""
SHOWN = 900
"""Characters of a stack in an Event."""


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
    looks: tuple[Look, ...] = ()
    """Where it stood since its last step."""

    @property
    def trains(self) -> bool:
        """Whether it is a step that takes too long, and no other phase."""
        return self.agent.beat.phase == "train"

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
    worst = _culprit(draft, late)
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
    for member, text in sorted(stacks.items(), key=lambda each: (each[0] != worst.member, each[0])):
        if text:
            draft.event("StackDump", f"{member} stands at:\n{_top(text)}")
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


def record(draft: Draft, suspect: MemberId, *, number: int) -> RecordStacks:
    """Return the order to keep the stacks in the audit trail; `number` is that of the restart (SL4)."""
    return RecordStacks(number, suspect, dict.fromkeys(members_of(draft), "") | _stacks(draft))


def dump_id(draft: Draft, agent: AgentView) -> str:
    """Return the id of the order to dump stacks: once per stall and run."""
    stall = draft.status.stall
    return (
        f"dump:{draft.status.membership.epoch}:{agent.beat.run}:{stall.member if stall is not None else ''}"
    )


def looks(draft: Draft, member: MemberId, agent: AgentView) -> tuple[Directive, ...]:
    """Return the orders to say where a process stands: none, or one or two while its step is overdue (SL2)."""
    if agent.beat.phase != "train" or agent.plain or not _is_judged(draft, member, agent):
        return ()
    age = _step_age(draft, agent)
    if age < SOFT_FLOOR:
        return ()  # without its thresholds, which take a while to compute
    due = sum(age >= limit for limit in _looks_at(*_limits(agent)))
    return tuple(Directive(_look_id(draft, agent, number), "DumpStacks", {}) for number in range(due))


def _look_id(draft: Draft, agent: AgentView, number: int) -> str:
    return f"look:{draft.status.membership.epoch}:{agent.beat.run}:{agent.beat.step}:{number}"


def _looks_at(soft: float, hard: float) -> tuple[float, float]:
    """Return the ages of a step at which it is looked where a process stands."""
    return soft, max(soft, hard - 2 * LOOKS_APART) + LOOKS_APART


def _late_members(draft: Draft) -> list[Late]:
    membership = draft.status.membership
    if membership.phase != ACTIVE or (has_servers(draft.observed.trainer) and membership.ps_phase != SERVING):
        return []
    found = []
    for member in sorted(members_of(draft)):
        agent = live(draft, member)
        if agent is None or not _is_judged(draft, member, agent):
            continue
        if agent.plain and agent.beat.steps == "none":
            late = _without_word(draft, member, agent)
        elif agent.beat.phase == "train":
            late = _in_train(draft, member, agent)
        else:
            late = _in_phase(draft, member, agent)
        if late is not None:
            found.append(late)
    return found


def _is_judged(draft: Draft, member: MemberId, agent: AgentView) -> bool:
    return agent.running and member.role != "ps" and is_of_epoch(draft.status.membership, agent)


def _step_age(draft: Draft, agent: AgentView) -> float:
    return min(agent.step_age, draft.observed.calm_for)


def _limits(agent: AgentView) -> tuple[float, float]:
    """Return the soft and the hard threshold of its steps."""
    thresholds = agent.clock.thresholds if agent.clock is not None and not agent.plain else None
    return (thresholds.soft, thresholds.hard) if thresholds is not None else (COARSE / 2, COARSE)


def _in_train(draft: Draft, member: MemberId, agent: AgentView) -> Late | None:
    age = _step_age(draft, agent)
    if age < SOFT_FLOOR:
        draft.look_again(SOFT_FLOOR - age + 0.1)
        return None
    usual = agent.clock.median if agent.clock is not None else None
    soft, hard = _limits(agent)
    for limit in sorted((*_looks_at(soft, hard), hard, 2 * hard)):
        if age < limit:
            draft.look_again(limit - age + 0.1)
            break
    if age < soft:
        return None
    return Late(member, agent, age, hard, usual, hard=age >= hard, looks=_taken(draft, agent))


def _taken(draft: Draft, agent: AgentView) -> tuple[Look, ...]:
    """Return where its process stood, of the looks that were taken since its last step."""
    results = [agent.results.get(_look_id(draft, agent, number)) for number in (0, 1)]
    found = [read_look(result.value) for result in results if result is not None and result.ok]
    return tuple(look for look in found if look is not None and look.step == agent.beat.step)


def _without_word(draft: Draft, member: MemberId, agent: AgentView) -> Late | None:
    """Judge a process that never told of a step: it is late to start if its program is known to use the SDK.

    Others of its role that speak show it, and so does a checkpoint; else nothing is known, and nothing is judged.
    """
    others = (live(draft, other) for other in members_of(draft) if other.role == member.role)
    speaks = any(other is not None and other.trains and other.beat.steps == "sdk" for other in others)
    if not speaks and draft.status.last_checkpoint is None:
        return None
    starting = replace(agent, beat=msgspec.structs.replace(agent.beat, phase="init"))
    return _in_phase(draft, member, starting)


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


def _culprit(draft: Draft, late: list[Late]) -> Late | None:
    """Choose who is to blame, if there is enough evidence (SL3, SL4)."""
    hard = [each for each in late if each.hard]
    if not hard:
        return None
    trainers = [member for member in members_of(draft) if member.role != "ps"]
    all_wait = len(late) == len(trainers) > 1
    alone = outsider({each.member: each.looks[-1].trace for each in late if each.looks}) if all_wait else None
    if any(each.trains and not each.looks for each in late):
        alone = None  # whose stack isn't known may be the one
    first = _first(draft, late, hard, alone)
    if not first.trains:
        return first
    seen = first.agent.evidence
    signs = list(seen.signs)
    if _most_steps(draft, trainers) > first.agent.beat.step:
        signs.append("others have finished more steps")
    if len(hard) == len(trainers) > 1:
        signs.append("all members wait")
    place = _place(first, alone=first.member == alone)
    is_sign = _steady(first) > 0 and seen.cpu is not None and (seen.network is None or seen.network < QUIET)
    more = [place] if place else []
    if is_sign:
        signs, more = [*signs, place], []
    if len(signs) >= 2 and not seen.contrary:
        return replace(first, signs=(*signs, *more))
    if first.age < 2 * first.limit:
        return None
    return replace(first, signs=(*signs, *more, *([seen.contrary] if seen.contrary else [])))


def _first(draft: Draft, late: list[Late], hard: list[Late], alone: MemberId | None) -> Late:
    """Return who was blamed before, else who the others wait for by their stacks, else who has fewest steps (SL4).

    Of those with as many steps it is the one that used least processor time.
    """
    known = draft.status.stall.member if draft.status.stall is not None else ""
    for each in late:
        if str(each.member) == known:
            return each
    for each in late:
        if each.member == alone:
            return each
    return min(hard, key=lambda each: (each.agent.beat.step, each.agent.evidence.cpu or 0.0, each.member))


def _most_steps(draft: Draft, trainers: list[MemberId]) -> int:
    agents = (live(draft, member) for member in trainers)
    return max(
        (
            agent.beat.step
            for agent in agents
            if agent is not None and is_of_epoch(draft.status.membership, agent)
        ),
        default=0,
    )


def _steady(late: Late) -> float:
    """Return for how many seconds its stack was the same, 0 if it was not, or is not known."""
    if len(late.looks) < 2 or not late.looks[0].trace or late.looks[0].trace != late.looks[-1].trace:
        return 0.0
    seconds = late.looks[-1].age - late.looks[0].age
    return seconds if seconds >= STEADY else 0.0


def _place(late: Late, *, alone: bool) -> str:
    """Say where it stands; empty if that is not known."""
    if not late.looks:
        return ""
    trace = late.looks[-1].trace
    if not trace:
        return "it alone prints no stack" if alone else ""
    seconds = _steady(late)
    stands = f"it stands in {trace[0]} for {seconds:.0f} s" if seconds else f"it was last seen in {trace[0]}"
    return stands + (", and no other member does" if alone else "")


def _top(text: str) -> str:
    """Return the part of a dump that says most: the training thread's last calls."""
    calls = "\n".join(
        f'  File "{frame.file}", line {frame.line} in {frame.function}' for frame in parse(text)
    )
    return calls[:SHOWN] or text[-SHOWN:]


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
