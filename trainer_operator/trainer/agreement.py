"""The step that parameter servers go on from together, out of what each has in memory (RS3, PSR4, ND5). Pure.

Memory that is newer than the newest committed checkpoint counts only if every shard has that step of the same history.
A server that has not taken the psEpoch that was served last may have steps of a history that was rolled back since: of
those it has, only the ones up to that rollback are everybody's.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offer:
    """What one server has: the steps of its snapshots, and the psEpoch that its process took last."""

    steps: frozenset[int]
    ps_epoch: int


def agreed_step(offers: Iterable[Offer], *, served: int, since: int, committed: int) -> int:
    """Return the newest step that all have, else the committed one, which is never gone behind.

    `served` is the psEpoch that was served last, `since` the step that it began at.
    """
    valid = [{step for step in offer.steps if offer.ps_epoch >= served or step <= since} for offer in offers]
    common = set.intersection(*valid) if valid else set()
    return max({committed, *common})
