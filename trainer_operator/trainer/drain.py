"""How pods end that are of no use any more: their agents end the processes first (ND6).

    process runs ──Drain──▶ draining ──exit──▶ DELETE with a short grace
         └── agent unknown or silent, or no end within the budget: DELETE all the same

The process has its whole budget to save what it wants, the pod then goes in a second, and the agent tells the exit as
one that was asked for. A pod that somebody else deleted is told as well: its agent waits for what we want (CS10).
"""

from trainer_operator.topology.members import AgentView, Directive, MemberId
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.failures import lost_window
from trainer_operator.trainer.views import PodView

SHORT = 5
"""Seconds of grace for a pod whose process has ended, and the budget of a process that nobody needs any more."""
PATIENCE = 5.0
"""Seconds beyond its budget after which an agent that does not do as it was told is not waited for."""


def release(draft: Draft, member: MemberId, pod: PodView, *, budget: int) -> None:
    """Have the pod's process end within `budget` seconds, then delete the pod."""
    agent = _agent_of(draft, member, pod)
    if agent is None:
        draft.delete(pod, grace=budget)
        return
    if pod.terminating:
        budget = grace_of(draft)  # the clock of its deletion runs already
    args = {"pod": pod.uid, "budget": budget}
    directive = Directive(f"drain:{agent.beat.process}", "Drain", args)
    runs = agent.running and pod.phase not in {"Succeeded", "Failed"}
    if runs and _is_waited_for(agent, directive, budget=budget):
        draft.drains[member] = directive
        draft.look_again(1.0)
        return
    draft.delete(pod, grace=SHORT)


def grace_of(draft: Draft) -> int:
    """Return the grace that users gave the pods of a Trainer."""
    return draft.observed.trainer.spec.topology.pod_spec.termination_grace_period_seconds


def _agent_of(draft: Draft, member: MemberId, pod: PodView) -> AgentView | None:
    """Return the agent of this very pod, while it is heard."""
    agent = draft.observed.agents.get(member)
    if agent is None or agent.beat.pod != pod.uid or agent.age > lost_window(draft.observed):
        return None
    return agent


def _is_waited_for(agent: AgentView, directive: Directive, *, budget: int) -> bool:
    result = agent.results.get(directive.id)
    if result is not None and not result.ok:
        return False  # an agent that cannot
    return agent.asked.get(directive.id, 0.0) <= budget + PATIENCE
