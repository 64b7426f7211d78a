"""How a course of training begins beside the one that it leaves: its timeline is in the store first (CK6). Pure.

    Preparing ──what is restored leaves something newer behind──▶ an agent records timeline n+1 ──▶ Active

The number is the store's: one that is taken was meant for a start that never came, and the next one is used.
"""

from collections.abc import Iterable

from trainer_operator.api.checkpoint import STORE_PROBLEMS
from trainer_operator.api.meta import condition_of
from trainer_operator.api.status import Timeline
from trainer_operator.api.timelines import current_timeline, opened
from trainer_operator.topology.beat import DirectiveResult
from trainer_operator.topology.members import Directive, MemberId
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.restore import Start

RECHECK = 1.0
RETRY = 5.0
"""Seconds of the epoch's preparation for each try at a store that refuses."""
WAITING = "the start waits until the store records its timeline: "
_RANKS = {"master": 0, "worker": 1}


def is_recorded(draft: Draft, start: Start, *, members: Iterable[MemberId]) -> bool:
    """Whether the epoch may start; the status has the timeline then, and until then an agent is told to record it.

    Assumptions: all else that the epoch waits for is there, so this is the last question.
    """
    if start.request:
        draft.status.restore_request = start.request
    if not start.branches:
        return True
    order = _order(draft, start)
    answers = _answers(draft, order.id)
    done = next((answer for answer in answers if answer.ok and _number(answer)), None)
    if done is not None:
        _open(draft, start, _number(done))
        return True
    if start.request:
        draft.status.restore_request = draft.observed.trainer.status.restore_request  # not honoured yet
    lead = min(members, key=lambda member: (_RANKS.get(member.role, 2), member.index))
    tries = len(answers)
    if tries and not draft.passed(draft.status.membership.since, RETRY * tries):
        tries -= 1  # which is answered already
    again = f"{order.id}#{tries}" if tries else order.id
    draft.store_order = lead, Directive(again, order.kind, order.args)
    draft.look_again(RECHECK)
    if answers:
        _complain(draft, answers[-1].error or "it did not say why")
    return False


def _order(draft: Draft, start: Start) -> Directive:
    membership, after = draft.status.membership, current_timeline(draft.status.timelines)
    parent = start.source.timeline if start.source is not None else after
    name = f"{membership.epoch}:{after}:{start.source.id if start.source is not None else '-'}"
    args = {
        "op": "timeline",
        "after": after,
        "parent": parent,
        "step": start.step,
        "reason": membership.reason,
        "nonce": f"{draft.observed.trainer.metadata.uid}:{name}",
        "storeId": start.source.store_id if start.source is not None else "",
    }
    return Directive(f"store:timeline:{name}", "Store", args)


def _answers(draft: Draft, directive: str) -> list[DirectiveResult]:
    """Return what agents answered to all tries of an order, whoever was told, in their order."""
    found = {
        name: answer
        for agent in draft.observed.agents.values()
        for name, answer in agent.results.items()
        if name.partition("#")[0] == directive
    }
    return [found[name] for name in sorted(found, key=lambda name: (len(name), name))]


def _number(answer: DirectiveResult) -> int:
    value = answer.value.get("number") if isinstance(answer.value, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else 0


def _open(draft: Draft, start: Start, number: int) -> None:
    status, source = draft.status, start.source
    parent = source.timeline if source is not None else current_timeline(status.timelines)
    used = {c.timeline for c in draft.observed.checkpoints if c.state == "Committed"}
    new = Timeline(number=number, parent=parent, step=start.step)
    status.timelines = opened(status.timelines, new, used=used)
    origin = f"checkpoint {source.name}" if source is not None else "the beginning"
    left = ", ".join(c.name for c in start.left[:5]) + (" …" if len(start.left) > 5 else "")
    beside = f"; {left} stay{'s' if len(start.left) == 1 else ''} beside it" if left else ""
    draft.event("TimelineOpened", f"timeline {number} begins at step {start.step}, with {origin}{beside}")


def problem(draft: Draft) -> tuple[str, str] | None:
    """Return why the timeline cannot be recorded, as a reason and a sentence, while a start waits for that."""
    if draft.store_order is None:
        return None
    answers = _answers(draft, draft.store_order[1].id.partition("#")[0])
    return _named(answers[-1].error or "") if answers else None


def _complain(draft: Draft, error: str) -> None:
    """Say so once; how it goes on, the condition CheckpointHealthy says."""
    told = condition_of(draft.status.conditions, "CheckpointHealthy")
    if told is None or not told.message.startswith(WAITING):
        reason, sentence = _named(error)
        draft.event("TimelineNotRecorded", f"{reason}: {sentence}; it is tried again", warning=True)


def _named(error: str) -> tuple[str, str]:
    word, _, sentence = error.partition(": ")
    return (
        (word, f"{WAITING}{sentence}"[:512])
        if word in STORE_PROBLEMS
        else ("StoreFails", f"{WAITING}{error}"[:512])
    )
