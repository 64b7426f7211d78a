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
    came_from: dict[State, State | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        broken = violation(state)
        if broken:
            path = _path(came_from, state)
            trace, state = _walk(initial, path, steps, representative)
            return Verdict(len(came_from), violation(state), trace)
        for _, following in steps(state):
            following = representative(following)
            if following not in came_from:
                came_from[following] = state
                waiting.append(following)
        if len(came_from) > limit:
            raise TooManyStates(f"more than {limit} states: the bounds of the model are too wide")
    return Verdict(len(came_from))


def _path(came_from: dict[State, State | None], state: State) -> list[State]:
    """Return the states that lead there, without the first one."""
    path = []
    while (origin := came_from[state]) is not None:
        path.append(state)
        state = origin
    return path[::-1]


def _walk(
    state: State,
    path: Iterable[State],
    steps: Callable[[State], Iterable[tuple[str, State]]],
    representative: Callable[[State], State],
) -> tuple[tuple[str, ...], State]:
    """Walk a path once more with states as they are, so that names mean the same thing from end to end."""
    names = []
    for wanted in path:
        name, state = next((name, after) for name, after in steps(state) if representative(after) == wanted)
        names.append(name)
    return tuple(names), state
