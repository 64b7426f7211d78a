"""The State Tree: the whole training as one graph of Trainer, roles and members (ST).

Soft state. It is fed with what beats, pods and our own decisions say of each member, and rolls up incrementally: a
change costs the same in a Trainer of ten thousand members as in one of two.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainer_operator.topology.members import MemberId
from trainer_operator.topology.state import READY, WORST, Input, State, step


@dataclass(slots=True)
class Role:
    """The members of one role, counted by state."""

    counts: Counter[State] = field(default_factory=Counter)

    @property
    def ready(self) -> int:
        """Members that train or could."""
        return sum(self.counts[state] for state in READY)

    @property
    def worst(self) -> State | None:
        """The worst state that any member is in (ST5); None without members."""
        return next((state for state in WORST if self.counts[state]), None)


class Tree:
    """States of all members of one Trainer.

    Guarantees: only `step` moves a member; counts of a role always equal a fresh count of its members.
    """

    __slots__ = ("_causes", "_roles", "_states")

    def __init__(self) -> None:
        self._states: dict[MemberId, State] = {}
        self._causes: dict[MemberId, str] = {}
        self._roles: dict[str, Role] = {}

    def feed(self, member: MemberId, inputs: Iterable[Input], *, cause: str = "") -> State:
        """Move a member, which is Pending when it is new; `cause` says why it is down and goes when it is not."""
        old = self._states.get(member)
        new = State.PENDING if old is None else old
        for happened in inputs:
            new = step(new, happened)
        if cause:
            self._causes[member] = cause
        elif new in READY:
            self._causes.pop(member, None)
        if new is not old:
            self._states[member] = new
            counts = self._roles.setdefault(member.role, Role()).counts
            counts[new] += 1
            if old is not None:
                counts[old] -= 1
        return new

    def keep(self, members: Iterable[MemberId]) -> None:
        """Forget every other member."""
        for gone in self._states.keys() - set(members):
            self._roles[gone.role].counts[self._states.pop(gone)] -= 1
            self._causes.pop(gone, None)

    def state(self, member: MemberId) -> State | None:
        """Return a member's state; None when it is not known."""
        return self._states.get(member)

    def cause(self, member: MemberId) -> str:
        """Return why a member is down or suspect, in one word; empty when it is not."""
        return self._causes.get(member, "")

    @property
    def roles(self) -> Mapping[str, Role]:
        """Counts by role."""
        return self._roles

    def __iter__(self) -> Iterator[MemberId]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)
