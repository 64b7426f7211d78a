"""A breadth-first search through every state of a small model.

Breadth first, so that the first trace that breaks something is a shortest one.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

LIMIT = 1_500_000
"""States; a model that has more needs smaller bounds, not more memory."""
State = TypeVar("State", bound=Hashable)


class TooManyStates(Exception):
    """The model has more states than are explored."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a search found."""

    states: int
    broken: str = ""
    """What is wrong in the first bad state; empty when there is none."""
    trace: tuple[str, ...] = ()
    """The steps that lead there, a shortest sequence."""

    @property
    def safe(self) -> bool:
        """Whether every reachable state is good."""
        return not self.broken


def explore(
    initial: State,
    *,
    steps: Callable[[State], Iterable[tuple[str, State]]],
    violation: Callable[[State], str],
    representative: Callable[[State], State] = lambda state: state,
    limit: int = LIMIT,
) -> Verdict:
    """Visit every state that can be reached, or those up to the first bad one.

    `steps` yields what can happen next, each with its name; `violation` says what is wrong with a state, or nothing;
    `representative` maps states that differ in names only to one of them.
    Raises: TooManyStates.
    """
    first = representative(initial)
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        broken = violation(state)
        if broken:
            return Verdict(len(came_from), broken, _trace(came_from, state))
        for name, following in steps(state):
            following = representative(following)
            if following not in came_from:
                came_from[following] = (state, name)
                waiting.append(following)
        if len(came_from) > limit:
            raise TooManyStates(f"more than {limit} states: the bounds of the model are too wide")
    return Verdict(len(came_from))


def _trace(came_from: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names = []
    while (origin := came_from[state]) is not None:
        state, name = origin
        names.append(name)
    return tuple(reversed(names))
