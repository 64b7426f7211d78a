"""Members as text: `worker:0-99,101;ps:0-3`. Less than 1 kB for 10,000 members (ME1)."""

from collections.abc import Iterable
from functools import lru_cache

from trainer_operator.topology.members import MemberId

ROLES = ("master", "worker", "ps")


def format_members(members: Iterable[MemberId]) -> str:
    """Write members as ranges per role."""
    parts = []
    known = set(members)
    for role in ROLES:
        indexes = sorted(member.index for member in known if member.role == role)
        if indexes:
            parts.append(f"{role}:{','.join(_runs(indexes))}")
    return ";".join(parts)


@lru_cache(maxsize=32)  # each pass reads the same text many times
def parse_members(text: str) -> frozenset[MemberId]:
    """Read what `format_members` wrote; an unreadable part is an error.

    Raises: ValueError naming the part.
    """
    members: set[MemberId] = set()
    for part in filter(None, text.split(";")):
        role, _, ranges = part.partition(":")
        if role not in ROLES or not ranges:
            raise ValueError(f"members part {part!r} is not <role>:<ranges>")
        for run in ranges.split(","):
            first, _, last = run.partition("-")
            members.update(MemberId(role, index) for index in range(int(first), int(last or first) + 1))
    return frozenset(members)


def _runs(indexes: list[int]) -> list[str]:
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]


def in_rank_order(members: Iterable[MemberId]) -> list[MemberId]:
    """Sort members by role and index; masters first, so that rank 0 is stable (ME2)."""
    return sorted(members, key=lambda member: (ROLES.index(member.role), member.index))
