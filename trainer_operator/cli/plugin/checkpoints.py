"""`kubectl trainer checkpoints`: what is saved, how sound it is, and what a restore would take.

The API's models are loaded where paths are needed and not before: that takes longer than all else (see `kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from runtime.clock import SystemClock
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Object, Session, run, status_of
from trainer_operator.cli.plugin.failure import explained
from trainer_operator.cli.plugin.page import Cell, Output, columns, note, show, show_objects
from trainer_operator.cli.plugin.words import plain, since, size

if TYPE_CHECKING:
    from trainer_operator.api.timelines import Path

HEADER = ("NAME", "STATE", "STEP", "EPOCH", "TIMELINE", "SIZE", "REUSED", "HEALTH", "WHY", "AGE", "RESTORE")
WIDE = ("COPIES", "SHARDS", "VERIFIED", "STORE")
_HEALTH_STYLES: Mapping[str, str] = {"Corrupt": "red", "Degraded": "yellow"}


def checkpoints(
    name: options.Name,
    namespace: options.Namespace = None,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """List a Trainer's checkpoints: step, size, reuse, health, and what a restore would take."""
    with explained():

        async def work(session: Session) -> tuple[Object, list[Object]]:
            return await session.trainer(name), await session.checkpoints(name)

        trainer, found = run(Access(namespace, context, kubeconfig), work)
        if output not in {None, Output.WIDE}:
            show_objects(found, output)
        elif not found:
            note(f"trainer/{name} has no checkpoints.")
        else:
            now = SystemClock().utcnow()
            lines = table(trainer, found, now, wide=output is Output.WIDE)
            show([*lines, Text(), restore_line(trainer, found)])


def path_of(trainer: Mapping[str, Any]) -> Path:
    """Return what of which timeline counts for the present training (CK6)."""
    from trainer_operator.api.status import Timeline
    from trainer_operator.api.timelines import current_path

    return current_path([Timeline.read(each) for each in status_of(trainer).get("timelines") or ()])


def counts(each: Mapping[str, Any], path: Path) -> bool:
    """Whether the present training came from this checkpoint."""
    from trainer_operator.api.timelines import is_on_path

    return is_on_path(path, status_of(each).get("timeline") or 0, status_of(each).get("step") or 0)


def restorable(trainer: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return what a restart would try first: the newest committed one of the path that is not damaged (RS1, CK6)."""
    path = path_of(trainer)
    good = [
        each
        for each in found
        if status_of(each).get("state") == "Committed"
        and counts(each, path)
        and status_of(each).get("health") != "Corrupt"
        and not each["spec"].get("discard")
    ]
    return max(
        good, key=lambda each: (status_of(each).get("step") or 0, each["metadata"]["name"]), default=None
    )


def table(
    trainer: Mapping[str, Any], found: Sequence[Mapping[str, Any]], now: datetime, *, wide: bool = False
) -> list[Text]:
    """Return the list as aligned lines; columns that nobody fills are left out."""
    chosen, path = restorable(trainer, found), path_of(trainer)
    rows = []
    for each in found:
        course = _course(each, path) if status_of(trainer).get("timelines") else ""
        rows.append(_row(each, now, course=course, is_chosen=each is chosen, wide=wide))
    header = (*HEADER, *(WIDE if wide else ()))
    return columns(header, rows, keep={"NAME", "STATE", "STEP", "HEALTH", "AGE"})


def restore_line(trainer: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Text:
    """Say what a restore would take now, and how many steps it would repeat."""
    chosen, step = restorable(trainer, found), status_of(trainer).get("globalStep") or 0
    if chosen is None:
        return Text(
            f"A restart would begin at step 0: nothing sound is committed; {step} steps would be repeated."
        )
    status = status_of(chosen)
    again = max(0, step - (status.get("step") or 0))
    repeated = f"{again} step{'s' if again != 1 else ''} would be repeated"
    return Text(
        f"A restart would restore step {status.get('step')} from {chosen['metadata']['name']} "
        f"({status.get('size') or 'size not known'}); {repeated}."
    )


def _course(each: Mapping[str, Any], path: Path) -> str:
    """Say to which timeline a checkpoint belongs, and whether it is off the path."""
    if status_of(each).get("state") != "Committed":
        return ""
    return f"{status_of(each).get('timeline') or 0}{'' if counts(each, path) else ' (left)'}"


def _row(each: Mapping[str, Any], now: datetime, *, course: str, is_chosen: bool, wide: bool) -> list[Cell]:
    status, metadata = status_of(each), each["metadata"]
    health = str(status.get("health") or "Unknown")
    aborted = next((c for c in status.get("conditions") or () if c.get("type") == "Aborted"), None)
    state = str(status.get("state") or "Pending")
    row: list[Cell] = [
        metadata["name"],
        f"Aborted: {plain(str(aborted.get('reason')))}" if aborted is not None else state,
        str(status.get("step", "")),
        str(status.get("epoch", "")),
        course,
        str(status.get("size") or ""),
        size(status["reusedBytes"]) if status.get("reusedBytes") else "",
        Text(health if state == "Committed" else "", style=_HEALTH_STYLES.get(health, "")),
        str(each["spec"].get("reason") or "") + _wish(each["spec"]),
        since(status.get("committedAt") or metadata.get("creationTimestamp"), now),
        Text("next" if is_chosen else "", style="green"),
    ]
    if wide:
        verified = (
            f"{status['verified']} {since(status.get('lastVerified'), now)}" if status.get("verified") else ""
        )
        row += [
            str(status.get("copies", "")),
            str(status.get("shards", "")),
            verified.strip(),
            str(status.get("storeId") or "")[:8],
        ]
    return row


def _wish(spec: Mapping[str, Any]) -> str:
    return " (discarded)" if spec.get("discard") else " (held)" if spec.get("hold") else ""
