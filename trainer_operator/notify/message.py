"""A message as people read it: the administrator's templates, filled with what is known (NT1, UC1). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from string import Template

from runtime.clock import format_time
from trainer_operator.api.trainer import Trainer
from trainer_operator.notify.notice import Notice
from trainer_operator.notify.text import one_line

TITLE = "[$severity] Trainer $namespace/$trainer: $trigger"
BODY = "$text ($time$more)"
VARIABLES = (
    "trainer",
    "namespace",
    "trigger",
    "severity",
    "text",
    "time",
    "more",
    "count",
    "step",
    "phase",
    "key",
)
LONGEST_TITLE = 200
LONGEST_BODY = 2000


@dataclass(frozen=True, slots=True)
class Templates:
    """Title and body of one trigger."""

    title: Template = field(default_factory=lambda: Template(TITLE))
    body: Template = field(default_factory=lambda: Template(BODY))


@dataclass(frozen=True, slots=True)
class Message:
    """One message to one service; texts are on one line each and not yet escaped for a channel."""

    key: str
    uid: str
    trainer: str
    namespace: str
    notice: Notice
    due: datetime
    title: str
    body: str

    @property
    def slot(self) -> tuple[str, str, str]:
        """Return what a queue has at most one of: a newer message takes the place of an older one."""
        return self.uid, self.notice.trigger, self.notice.service


def template_fault(text: str) -> str:
    """Say what is wrong with a template; empty if nothing is."""
    template = Template(text)
    if not template.is_valid():
        return "has a $ that names nothing; write $$ for the sign"
    unknown = sorted(set(template.get_identifiers()) - set(VARIABLES))
    if unknown:
        return f"names ${unknown[0]}; there are {', '.join('$' + name for name in VARIABLES)}"
    return ""


def message(trainer: Trainer, notice: Notice, due: datetime, templates: Mapping[str, Templates]) -> Message:
    """Write a message about a Trainer."""
    chosen = templates.get(notice.trigger) or Templates()
    key = notice.key(trainer.metadata.uid)
    values = {
        "trainer": trainer.metadata.name,
        "namespace": trainer.metadata.namespace or "",
        "trigger": str(notice.trigger),
        "severity": notice.trigger.severity.name,
        "text": notice.text,
        "time": format_time(notice.at),
        "more": f"; {notice.count} times since the last message" if notice.count > 1 else "",
        "count": str(notice.count),
        "step": str(trainer.status.global_step),
        "phase": str(trainer.status.phase or ""),
        "key": key,
    }
    return Message(
        key=key,
        uid=trainer.metadata.uid,
        trainer=trainer.metadata.name,
        namespace=trainer.metadata.namespace or "",
        notice=notice,
        due=due,
        title=one_line(chosen.title.safe_substitute(values), LONGEST_TITLE),
        body=one_line(chosen.body.safe_substitute(values), LONGEST_BODY),
    )
