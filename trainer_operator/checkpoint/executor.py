"""Whose agent does the store's work for the operator, which has no access of its own (ADR 0004, 0007, 0008). Pure."""

from collections.abc import Mapping

from trainer_operator.topology.members import JANITOR, AgentView, MemberId

FRESH = 15.0
"""Seconds within which an agent must have been heard to be given store work."""


def live_executor(agents: Mapping[MemberId, AgentView]) -> MemberId | None:
    """Return the first live member in rank order, the chief's agent as a rule."""
    alive = [member for member, agent in agents.items() if agent.age < FRESH]
    return min(alive, key=lambda m: ({"master": 0, "worker": 1}.get(m.role, 2), m.index), default=None)


def choose_executor(agents: Mapping[MemberId, AgentView], *, rests: bool, led_for: float) -> MemberId | None:
    """Return the first live member in rank order; at rest a janitor, once members would have been heard by us."""
    found = live_executor(agents)
    return JANITOR if found is None and rests and led_for >= FRESH else found
