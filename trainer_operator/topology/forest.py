"""The State Trees of all Trainers, and since when each of them is calm (ST, DT6).

Soft state of the leader: a new one starts with empty trees, and the next beats and pods fill them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runtime.clock import Clock
from trainer_operator.topology.members import MemberId
from trainer_operator.topology.state import Input, State
from trainer_operator.topology.tree import Tree


@dataclass(slots=True)
class _Grown:
    tree: Tree = field(default_factory=Tree)
    calm_since: float = 0.0
    disturbed: bool = True


class Forest:
    """One tree for each Trainer, by uid."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._trees: dict[str, _Grown] = {}

    def tree(self, uid: str) -> Tree | None:
        """Return the tree of a Trainer; None before its first pass."""
        grown = self._trees.get(uid)
        return grown.tree if grown is not None else None

    def calm_for(self, uid: str) -> float:
        """Return for how many seconds no member of the epoch was away and the epoch was Active (DT6)."""
        grown = self._trees.get(uid)
        return 0.0 if grown is None or grown.disturbed else self._clock.monotonic() - grown.calm_since

    def feed(
        self,
        uid: str,
        inputs: Mapping[MemberId, Iterable[Input]],
        *,
        causes: Mapping[MemberId, str],
        members: Iterable[MemberId],
        active: bool,
    ) -> None:
        """Tell a tree what one pass found out; members that aren't named are forgotten."""
        grown = self._trees.setdefault(uid, _Grown())
        tree = grown.tree
        members = set(members)
        tree.keep(members)
        for member in members:
            tree.feed(member, inputs.get(member, ()), cause=causes.get(member, ""))
        # Stalled ones are still there: were they to stop the clocks, no stall would ever be acted on.
        away = any(
            role.counts[state] for role in tree.roles.values() for state in (State.CRASHED, State.LOST)
        )
        disturbed = away or not active
        if grown.disturbed and not disturbed:
            grown.calm_since = self._clock.monotonic()
        grown.disturbed = disturbed

    def drop(self, uid: str) -> None:
        """Forget a Trainer that no longer exists."""
        self._trees.pop(uid, None)
