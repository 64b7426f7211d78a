"""At which step to save: soon, but ahead of every holder (CS2). Pure.

A beat is up to a heartbeat old, so the present step is estimated from the last one, its age and the median step
time. A target that some holder had passed is missed; the next one leaves twice the room.
"""

import math
from collections.abc import Sequence

from trainer_operator.topology.members import AgentView

LEAD_SECONDS = 0.5
DEFAULT_STEP_SECONDS = 0.1


def choose_target(agents: Sequence[AgentView], *, tries: int, at_least: int = 0) -> int:
    """Return the step at which all holders shall save."""
    lead = LEAD_SECONDS * 2.0**tries
    return max([at_least, *(_ahead(agent, lead) for agent in agents)])


def _ahead(agent: AgentView, lead: float) -> int:
    return agent.beat.step + math.ceil((agent.age + lead) / median_step(agent)) + 1


def median_step(agent: AgentView) -> float:
    """Return the median duration of the last steps in seconds."""
    durations = sorted(value / 1000 for value in agent.beat.dt_ms if value > 0)
    return max(1e-4, durations[len(durations) // 2]) if durations else DEFAULT_STEP_SECONDS
