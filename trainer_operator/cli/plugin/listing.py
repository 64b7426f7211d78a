"""`kubectl trainer list`: one line for each Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.text import Text

from runtime.clock import SystemClock
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Session, run, status_of
from trainer_operator.cli.plugin.failure import explained
from trainer_operator.cli.plugin.page import Cell, Output, columns, note, phase, show, show_objects
from trainer_operator.cli.plugin.words import plain, since

HEADER = (
    "NAMESPACE",
    "NAME",
    "PHASE",
    "STEP",
    "EPOCH",
    "WORKERS",
    "SERVERS",
    "RESTARTS",
    "CHECKPOINT",
    "AGE",
)
WIDE = ("NODES", "FAILURES", "DISRUPTIONS", "IMAGE", "REASON")


def list_trainers(
    namespace: options.Namespace = None,
    everywhere: options.AllNamespaces = False,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """List Trainers: phase, progress, members, restarts."""
    with explained():
        access = Access(namespace, context, kubeconfig)

        async def work(session: Session) -> tuple[list[dict[str, Any]], str]:
            return await session.trainers(everywhere=everywhere), session.namespace

        trainers, where = run(access, work)
        if output not in {None, Output.WIDE}:
            show_objects(trainers, output)
        elif not trainers:
            note("There are no Trainers." if everywhere else f"There are no Trainers in namespace {where}.")
        else:
            now = SystemClock().utcnow()
            show(table(trainers, now, everywhere=everywhere, wide=output is Output.WIDE))


def table(
    trainers: list[dict[str, Any]], now: datetime, *, everywhere: bool = False, wide: bool = False
) -> list[Text]:
    """Return the list as aligned lines."""
    header = (*HEADER, *(WIDE if wide else ()))
    rows = [_row(each, now, everywhere=everywhere, wide=wide) for each in trainers]
    return columns(header, rows, keep=set(header) - {"NAMESPACE", "SERVERS"})


def _row(trainer: Mapping[str, Any], now: datetime, *, everywhere: bool, wide: bool) -> list[Cell]:
    metadata, spec, status = trainer["metadata"], trainer["spec"], status_of(trainer)
    servers = (spec.get("topology") or {}).get("parameterServers", 0)
    restarts = status.get("restarts", 0)
    row: list[Cell] = [
        metadata["namespace"] if everywhere else "",
        Text(metadata["name"], style="bold"),
        phase(status.get("phase") or "Pending"),
        str(status.get("globalStep", 0)),
        f"{status.get('epochsCompleted', 0)}/{spec.get('epochs', '?')}",
        status.get("readyWorkers") or f"0/{(spec.get('topology') or {}).get('workers', 1)}",
        (status.get("readyServers") or f"0/{servers}") if servers else "",
        Text(str(restarts), style="yellow" if restarts else ""),
        str((status.get("lastCheckpoint") or {}).get("step", "-")),
        since(metadata.get("creationTimestamp"), now),
    ]
    if wide:
        row += [
            str(status.get("nodes", "-")),
            str(status.get("failures", 0)),
            str(status.get("disruptions", 0)),
            plain(str(spec.get("image", ""))),
            plain(str(status.get("reason") or "-")),
        ]
    return row
