"""`kubectl trainer checkpoints`: what is saved, how sound it is, and what a restore would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from runtime.clock import SystemClock
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Object, Session, run, status_of
from trainer_operator.cli.plugin.failure import explained
from trainer_operator.cli.plugin.page import Cell, Output, columns, note, show, show_objects
from trainer_operator.cli.plugin.words import plain, since, size

HEADER = ("NAME", "STATE", "STEP", "EPOCH", "SIZE", "REUSED", "HEALTH", "WHY", "AGE", "RESTORE")
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
            show([*table(found, now, wide=output is Output.WIDE), Text(), restore_line(trainer, found)])


def restorable(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the checkpoint that a restore would try first: the newest committed one that is not damaged (RS1)."""
    good = [
        each
        for each in found
        if status_of(each).get("state") == "Committed"
        and status_of(each).get("health") != "Corrupt"
        and not each["spec"].get("discard")
    ]
    return max(
        good, key=lambda each: (status_of(each).get("step") or 0, each["metadata"]["name"]), default=None
    )


def table(found: Sequence[Mapping[str, Any]], now: datetime, *, wide: bool = False) -> list[Text]:
    """Return the list as aligned lines; columns that nobody fills are left out."""
    chosen = restorable(found)
    rows = [_row(each, now, is_chosen=each is chosen, wide=wide) for each in found]
    header = (*HEADER, *(WIDE if wide else ()))
    return columns(header, rows, keep={"NAME", "STATE", "STEP", "HEALTH", "AGE"})


def restore_line(trainer: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Text:
    """Say what a restore would take now, and how many steps it would repeat."""
    chosen, step = restorable(found), status_of(trainer).get("globalStep") or 0
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


def _row(each: Mapping[str, Any], now: datetime, *, is_chosen: bool, wide: bool) -> list[Cell]:
    status, metadata = status_of(each), each["metadata"]
    health = str(status.get("health") or "Unknown")
    aborted = next((c for c in status.get("conditions") or () if c.get("type") == "Aborted"), None)
    state = str(status.get("state") or "Pending")
    row: list[Cell] = [
        metadata["name"],
        f"Aborted: {plain(str(aborted.get('reason')))}" if aborted is not None else state,
        str(status.get("step", "")),
        str(status.get("epoch", "")),
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
