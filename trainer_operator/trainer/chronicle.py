"""What of a Trainer's decisions goes into the audit trail: restarts, failures for good, and the stacks of a stall (AU2, SL4).

Entries are made of the stored status, which the next leader finds as well: what one did not come to record before it died is
told by the next one, under the same id. Only stacks are in nobody's status; that they are missing is recorded then. Pure, but
for what was told last.
"""

from collections.abc import Iterable, Mapping

from trainer_operator.api.meta import API_VERSION
from trainer_operator.api.status import Phase
from trainer_operator.api.trainer import Trainer
from trainer_operator.audit.chain import LONGEST_DETAIL, Entry
from trainer_operator.audit.writer import Records
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.draft import Action, RecordStacks

ACTOR = "trainer-operator"
STALLS = frozenset({"Stalled", "StartupTimeout"})
"""Reasons of a restart before which stacks were collected."""
LONGEST_STACK = 3000
"""Characters of one stack: the training thread is the last one in it, so the end is kept."""
NAMED = 8
"""Members that are named where one stack is that of many."""


class Chronicle:
    """Tells the audit trail of each Trainer what is new.

    Guarantees: a Trainer that was never restarted and has not failed costs no entry and no request.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._told: dict[str, tuple[int, bool]] = {}

    def follow(self, trainer: Trainer, actions: Iterable[Action] = ()) -> None:
        """Record what the stored status tells and was not told yet, and the stacks among the actions."""
        status, uid = trainer.status, trainer.metadata.uid
        now = (status.restarts, status.phase is Phase.FAILED)
        before = self._told.get(uid)
        for action in actions:
            if isinstance(action, RecordStacks):
                self._records.record(stacks_entry(trainer, action))
        if now == before:
            return
        self._told[uid] = now
        is_owed = before is None
        if status.restarts and (before is None or before[0] != status.restarts):
            self._records.record(restart_entry(trainer), owed=is_owed)
        if now[1] and not (before is not None and before[1]):
            self._records.record(failure_entry(trainer), owed=is_owed)

    def forget(self, uid: str) -> None:
        """Forget a Trainer that no longer exists."""
        self._told.pop(uid, None)


def restart_entry(trainer: Trainer) -> Entry:
    """Tell of the newest restart."""
    status, uid = trainer.status, trainer.metadata.uid
    recovery = status.recovery
    details = {
        "restart": str(status.restarts),
        "failures": str(status.failures),
        "disruptions": str(status.disruptions),
        "epoch": str(status.membership.epoch),
    }
    if recovery is not None:
        details |= {
            "reason": recovery.reason,
            "message": recovery.message,
            "members": ",".join(recovery.members),
            "step": str(recovery.step),
        }
    return Entry(
        id=f"{uid}/restart/{status.restarts}",
        time=_time(trainer, recovery.dump().get("detectedAt") if recovery is not None else None),
        actor=ACTOR,
        action="Restart",
        object=_reference(trainer),
        details=details,
        needs=_stacks_id(uid, status.restarts) if recovery is not None and recovery.reason in STALLS else "",
    )


def failure_entry(trainer: Trainer) -> Entry:
    """Tell that it failed for good."""
    status = trainer.status
    return Entry(
        id=f"{trainer.metadata.uid}/fail",
        time=_time(trainer, status.dump().get("completionTime")),
        actor=ACTOR,
        action="Fail",
        object=_reference(trainer),
        details={
            "reason": status.reason,
            "message": status.message,
            "restarts": str(status.restarts),
            "failures": str(status.failures),
            "step": str(status.global_step or 0),
        },
    )


def stacks_entry(trainer: Trainer, action: RecordStacks) -> Entry:
    """Tell where the members stood."""
    status = trainer.status
    written, failed = status.dump(), status.phase is Phase.FAILED
    found = written.get("completionTime") if failed else (written.get("recovery") or {}).get("detectedAt")
    text = stacks_text(action.suspect, action.stacks)
    return Entry(
        id=_stacks_id(trainer.metadata.uid, action.number),
        time=_time(trainer, found),
        actor=ACTOR,
        action="StackDump",
        object=_reference(trainer),
        details={"restart": str(action.number), "suspect": str(action.suspect), "stacks": text},
    )


def stacks_text(suspect: MemberId, stacks: Mapping[MemberId, str]) -> str:
    """Write all stacks as one text, the suspect's first, the same ones once, and say what is left out."""
    alike: dict[str, list[MemberId]] = {}
    for member in sorted(stacks, key=lambda each: (each != suspect, each)):
        alike.setdefault(stacks[member].strip(), []).append(member)
    parts: list[str] = []
    room = LONGEST_DETAIL - 100  # for the last line
    left = 0
    for stack, members in alike.items():
        more = f" and {len(members) - NAMED} more" if len(members) > NAMED else ""
        verb = "stands" if len(members) == 1 else "stand"
        named = f"{', '.join(map(str, members[:NAMED]))}{more}"
        part = f"{named} {verb} at:\n{_shortened(stack)}\n" if stack else f"no stack of {named}\n"
        if len(part) > room:
            left += len(members)
            continue
        parts.append(part)
        room -= len(part)
    if left:
        parts.append(f"stacks of {left} more members are left out\n")
    return "".join(parts) or "no member gave a stack\n"


def _shortened(stack: str) -> str:
    if len(stack) <= LONGEST_STACK:
        return stack
    return f"({len(stack) - LONGEST_STACK} characters are left out)\n{stack[-LONGEST_STACK:]}"


def _stacks_id(uid: str, number: int) -> str:
    return f"{uid}/stacks/{number}"


def _reference(trainer: Trainer) -> dict[str, str]:
    metadata = trainer.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": "Trainer",
        "namespace": metadata.namespace or "",
        "name": metadata.name,
        "uid": metadata.uid,
    }


def _time(trainer: Trainer, found: str | None) -> str:
    """Return when it was decided; of a status that an older operator wrote, when the Trainer was made."""
    return found or str(trainer.metadata.dump()["creationTimestamp"])
