"""`kubectl trainer events`: what happened to a Trainer, its pods and its Checkpoints, in order.

Events of pods and Checkpoints that are gone count too: their names say whose they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from runtime.client.errors import TransportError
from runtime.clock import SystemClock
from runtime.objects import EVENTS
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Session, Watched, run
from trainer_operator.cli.plugin.failure import Complaint, ExitCode, explained
from trainer_operator.cli.plugin.page import Cell, Output, columns, note, show, show_objects
from trainer_operator.cli.plugin.words import moment, plain, span

HEADER = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE")
LONGEST_WAIT = 30.0
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Happening:
    """Equal Events as one."""

    type: str
    reason: str
    about: str
    message: str
    count: int
    last: datetime


def events(
    name: options.Name,
    namespace: options.Namespace = None,
    watch: options.Watch = False,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Show Events of a Trainer, its pods and its Checkpoints, the newest last."""
    with explained():
        access = Access(namespace, context, kubeconfig)

        async def work(session: Session) -> None:
            trainer = await session.trainer(name)
            listed = await session.events()
            mine = belonging(trainer, await _checkpoint_names(session, name), listed.items)
            if output not in {None, Output.WIDE}:
                show_objects(mine, output)
                return
            now = SystemClock().utcnow()
            found = aggregate(mine)
            if found:
                show(table(found, now))
            elif not watch:
                note(f"There are no Events of {name}; the API server keeps them for an hour.")
            if watch:
                await _follow(session, trainer, mine, listed.resource_version)

        run(access, work)


async def recent(session: Session, trainer: Mapping[str, Any], checkpoints: Iterable[str]) -> list[Happening]:
    """Return what happened to a Trainer, the newest last."""
    return aggregate(belonging(trainer, checkpoints, (await session.events()).items))


def belonging(
    trainer: Mapping[str, Any], checkpoints: Iterable[str], events: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the Events that are about a Trainer, one of its pods or one of its Checkpoints."""
    metadata = trainer["metadata"]
    name = re.escape(metadata["name"])
    pod = re.compile(rf"{name}-(worker|ps|master)-\d+(-a\d+)?")
    checkpoint = re.compile(rf"{name}-\d{{12,}}-e\d+-[0-9a-f]{{4}}")
    named = set(checkpoints)

    def is_mine(event: Mapping[str, Any]) -> bool:
        about = event.get("involvedObject") or {}
        called = about.get("name") or ""
        match about.get("kind"):
            case "Trainer":
                return called == metadata["name"] and about.get("uid") in (None, "", metadata.get("uid"))
            case "Pod":
                return pod.fullmatch(called) is not None
            case "Checkpoint":
                return called in named or checkpoint.fullmatch(called) is not None
            case _:
                return False

    return sorted((event for event in events if is_mine(event)), key=_last)


def aggregate(events: Iterable[Mapping[str, Any]]) -> list[Happening]:
    """Join Events that say the same of the same object, and sort them by time."""
    found: dict[tuple[str, str, str, str], Happening] = {}
    for event in events:
        about = event.get("involvedObject") or {}
        key = (
            str(event.get("type") or ""),
            plain(str(event.get("reason") or "")),
            f"{str(about.get('kind') or '').lower()}/{about.get('name') or ''}",
            plain(str(event.get("message") or "")),
        )
        count = event.get("count") or (event.get("series") or {}).get("count") or 1
        known = found.get(key)
        found[key] = Happening(
            *key,
            count=count + (known.count if known else 0),
            last=max(_last(event), known.last if known else _NEVER),
        )
    return sorted(found.values(), key=lambda each: each.last)


def table(happenings: Iterable[Happening], now: datetime, *, indent: int = 0) -> list[Text]:
    """Return happenings as aligned lines."""
    return columns(HEADER, [_row(each, now) for each in happenings], indent=indent)


def _row(each: Happening, now: datetime) -> list[Cell]:
    style = "yellow" if each.type == "Warning" else ""
    return [
        span((now - each.last).total_seconds()) if each.last != _NEVER else "",
        Text(each.type, style=style),
        Text(each.reason, style=f"bold {style}".strip()),
        each.about,
        f"x{each.count}" if each.count > 1 else "",
        each.message,
    ]


async def _follow(
    session: Session, trainer: Mapping[str, Any], seen: list[dict[str, Any]], version: str
) -> None:
    name, clock = trainer["metadata"]["name"], SystemClock()
    known = {_identity(event) for event in seen}
    while True:
        await session.changed([Watched(EVENTS, session.namespace, version)], within=LONGEST_WAIT)
        try:
            listed = await session.events()
            mine = belonging(trainer, await _checkpoint_names(session, name), listed.items)
            await session.trainer(name)
        except TransportError:
            await clock.sleep(
                1.0
            )  # a server that restarts is no reason to stop; reading anew shows what was missed
            continue
        except Complaint as complaint:
            if complaint.code is ExitCode.NOT_FOUND:
                note(f"{name} is gone")
                return
            raise
        version = listed.resource_version
        fresh = [event for event in mine if _identity(event) not in known]
        known = {_identity(event) for event in mine}
        for each in aggregate(fresh):
            times = f" (x{each.count})" if each.count > 1 else ""
            show(
                [
                    f"{each.last.astimezone():%H:%M:%S} {each.type} {each.reason} {each.about}: {each.message}{times}"
                ]
            )


async def _checkpoint_names(session: Session, name: str) -> list[str]:
    return [each["metadata"]["name"] for each in await session.checkpoints(name)]


def _identity(event: Mapping[str, Any]) -> tuple[str, str]:
    return event["metadata"].get("uid") or "", event["metadata"].get("resourceVersion") or ""


def _last(event: Mapping[str, Any]) -> datetime:
    series = event.get("series") or {}
    times = (
        event.get("lastTimestamp"),
        series.get("lastObservedTime"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    return next((then for then in map(moment, times) if then is not None), _NEVER)
