"""Per-member counters kept in status: attempt, failures, and which failure was handled last (RC4).

Only members that differ from zero have an entry, so that an undisturbed Trainer of 10,000 members has none.
"""

from dataclasses import dataclass

from trainer_operator.api.meta import Role
from trainer_operator.api.status import MemberStatus, TrainerStatus
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.failures import Failure, FailureClass


@dataclass(slots=True)
class Records:
    """A view on `status.members` that adds entries when they are needed."""

    status: TrainerStatus

    def get(self, member: MemberId) -> MemberStatus:
        """Return the member's entry, or zeros that belong to no entry."""
        return self._find(member) or MemberStatus(role=Role(member.role), index=member.index)

    def attempt(self, member: MemberId) -> int:
        """Return the number of the member's current attempt."""
        entry = self._find(member)  # asked for each member many times in a pass: no zeros are made for it
        return entry.attempt if entry is not None else 0

    def handled(self, failure: Failure) -> bool:
        """Whether this very failure was counted before."""
        return self.get(failure.member).handled == failure.key

    def handle(self, failure: Failure) -> None:
        """Count a failure and, when its pod is gone, move to the next attempt."""
        entry = self.entry(failure.member)
        entry.handled = failure.key
        entry.last_reason = failure.reason
        if failure.kind is FailureClass.DISRUPTION:
            entry.disruptions += 1
        else:
            entry.failures += 1
        if failure.pod_gone:
            entry.handled = f"{entry.attempt}/pod"  # a process failure may have been met with a new pod (RC6)
            entry.attempt += 1

    def move_on(self, member: MemberId) -> None:
        """Use the next attempt without counting anything: the present name is taken by a pod on its way out."""
        entry = self.entry(member)
        entry.handled = f"{entry.attempt}/pod"
        entry.attempt += 1

    def settle(self) -> None:
        """An epoch became active, so every current attempt has a pod: a missing one is news from here on."""
        for entry in self.status.members:
            if entry.handled == f"{entry.attempt - 1}/pod":
                entry.handled = ""

    def set_done(self, member: MemberId, epoch: int) -> None:
        """Remember that the member finished in this epoch (ST2)."""
        if self.get(member).done != epoch:
            self.entry(member).done = epoch

    def is_done(self, member: MemberId, epoch: int) -> bool:
        """Whether the member finished in this epoch."""
        return epoch > 0 and self.get(member).done == epoch

    def entry(self, member: MemberId) -> MemberStatus:
        """Return the member's entry, which is added when there was none."""
        found = self.get(member)
        if not any(entry is found for entry in self.status.members):
            self.status.members.append(found)
            self.status.members.sort(key=lambda entry: (entry.role, entry.index))
        return found

    def _find(self, member: MemberId) -> MemberStatus | None:
        for entry in self.status.members:
            if entry.role == member.role and entry.index == member.index:
                return entry
        return None
