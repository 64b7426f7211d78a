"""A message on its way, as one line of `status.outbox`. Pure.

One line and not an object, since the CRD is near the size at which `kubectl apply` refuses it (CR2).
"""

from dataclasses import dataclass
from datetime import datetime

from runtime.clock import format_microtime, parse_time
from trainer_operator.notify.text import one_line
from trainer_operator.notify.triggers import Trigger

LONGEST_TEXT = 600
FIELDS = 6


@dataclass(frozen=True, slots=True)
class Notice:
    """One message to one service."""

    trigger: Trigger
    service: str
    at: datetime
    """When it happened; of several, the latest."""
    count: int
    """How many transitions it stands for: those that came within the least time between two messages."""
    transition: str
    text: str

    @property
    def slot(self) -> tuple[Trigger, str]:
        """Return what a Trainer has at most one of in its outbox."""
        return self.trigger, self.service

    def key(self, uid: str) -> str:
        """Return the stable key: trigger, transition with its generation, uid, and the service (NT3)."""
        return f"{self.trigger}/{self.transition}/{uid}/{self.service}"

    def line(self) -> str:
        """Write it for the status."""
        head = f"{self.trigger} {self.service} {format_microtime(self.at)} {self.count} {self.transition} "
        return head + one_line(self.text, LONGEST_TEXT)


def try_read(line: str) -> Notice | None:
    """Read a line of the status; None for one that we did not write."""
    parts = line.split(" ", FIELDS - 1)
    if len(parts) != FIELDS:
        return None
    trigger, service, at, count, transition, text = parts
    try:
        return Notice(Trigger(trigger), service, parse_time(at), int(count), transition, text)
    except ValueError:
        return None
