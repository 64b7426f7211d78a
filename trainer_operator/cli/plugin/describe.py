"""`kubectl trainer describe`: everything about one Trainer on one page, with what to do about what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from runtime.clock import SystemClock
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Session, run, status_of
from trainer_operator.cli.plugin.advice import advice
from trainer_operator.cli.plugin.events import Happening, recent
from trainer_operator.cli.plugin.events import table as events_table
from trainer_operator.cli.plugin.failure import explained
from trainer_operator.cli.plugin.page import Cell, Output, bar, columns, phase, show, show_objects
from trainer_operator.cli.plugin.treedata import TreeView, poor_tree, view
from trainer_operator.cli.plugin.treepage import page as tree_page
from trainer_operator.cli.plugin.words import moment, plain, since, span

LABEL_WIDTH = 14
RECENT_EVENTS = 10
RECENT_CHECKPOINTS = 5


def describe(
    name: options.Name,
    namespace: options.Namespace = None,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Describe a Trainer: spec, progress, conditions and what to do, checkpoints, members, recent Events."""
    with explained():

        async def work(session: Session) -> None:
            trainer = await session.trainer(name)
            if output not in {None, Output.WIDE}:
                show_objects([trainer], output, single=True)
                return
            pods = (await session.pods(name)).items
            checkpoints = await session.checkpoints(name)
            happened = await recent(session, trainer, [each["metadata"]["name"] for each in checkpoints])
            tree = view(poor_tree(trainer, pods), trainer, pods, from_operator=False)
            show(page(trainer, tree, checkpoints, happened, SystemClock().utcnow()))

        run(Access(namespace, context, kubeconfig), work)


def page(
    trainer: Mapping[str, Any],
    tree: TreeView,
    checkpoints: Sequence[Mapping[str, Any]],
    happened: Sequence[Happening],
    now: datetime,
) -> list[Text]:
    """Return the whole page as lines."""
    lines = _identity(trainer, now)
    lines += [Text(), _title("Progress"), *_progress(trainer, now)]
    lines += [Text(), _title("Spec"), *_spec(trainer["spec"])]
    lines += [Text(), _title("Conditions"), *_conditions(trainer, now)]
    lines += [Text(), _title("Checkpoints"), *_checkpoints(checkpoints, now)]
    lines += [
        Text(),
        _title("Members"),
        *[_indented(line) for line in tree_page(tree, now)[_heading_length(tree) :]],
    ]
    lines += [Text(), _title("Events")]
    lines += (
        events_table(happened[-RECENT_EVENTS:], now, indent=2) if happened else [Text("  none", style="dim")]
    )
    return lines


def _identity(trainer: Mapping[str, Any], now: datetime) -> list[Text]:
    metadata, status = trainer["metadata"], status_of(trainer)
    lines = [
        _field("Name", Text(metadata["name"], style="bold"), indent=0),
        _field("Namespace", metadata["namespace"], indent=0),
        _field("Age", since(metadata.get("creationTimestamp"), now), indent=0),
        _field("Phase", phase(status.get("phase") or "Pending"), indent=0),
    ]
    if status.get("reason"):
        lines.append(_field("Reason", plain(str(status["reason"])), indent=0))
    if status.get("message"):
        lines.append(_field("Message", plain(str(status["message"])), indent=0))
    return lines


def _progress(trainer: Mapping[str, Any], now: datetime) -> list[Text]:
    spec, status = trainer["spec"], status_of(trainer)
    done, total = status.get("epochsCompleted", 0), spec.get("epochs", 0)
    percent = f" {100 * done // total}%" if total else ""
    lines = [
        Text("  ").append_text(bar(done, total)).append(percent, style="bold"),
        _field("Epoch", f"{done}/{total}"),
        _field("Step", str(status.get("globalStep", 0))),
    ]
    lines += _forecast(status.get("progress") or {}, now)
    counted = ", ".join(f"{word} {status.get(word, 0)}" for word in ("failures", "disruptions"))
    restarts = status.get("restarts", 0)
    lines.append(_field("Restarts", f"{restarts} (counted: {counted})" if restarts else "0"))
    if rollback := status.get("lastRollback"):
        repeated = (
            f"step {rollback.get('from')} -> {rollback.get('to')}, {plain(str(rollback.get('reason') or ''))}"
        )
        lines.append(_field("Last rollback", f"{repeated}, {since(rollback.get('at'), now)} ago"))
    if metrics := status.get("metrics"):
        lines.append(
            _field("Metrics", ", ".join(f"{plain(key)} {value:g}" for key, value in metrics.items()))
        )
    if started := since(status.get("startTime"), now):
        ended = since(status.get("completionTime"), now)
        lines.append(_field("Started", f"{started} ago" + (f", ended {ended} ago" if ended else "")))
    return lines


def _forecast(progress: Mapping[str, Any], now: datetime) -> list[Text]:
    """Return how fast it goes and when it will be done, as far as that is known."""
    lines = []
    if speed := progress.get("stepsPerSecond"):
        lines.append(_field("Speed", f"{speed:g} steps/s"))
    if (end := moment(progress.get("estimatedCompletionTime"))) is not None:
        left = (end - now).total_seconds()
        percent = f", {progress['percent']:g}% of all steps are done" if progress.get("percent") else ""
        lines.append(_field("Estimated end", f"in {span(left)}, at {end:%Y-%m-%d %H:%M} UTC{percent}"))
    return lines


def _spec(spec: Mapping[str, Any]) -> list[Text]:
    """Return what was asked for; of variables the names only, for values may be secrets (RD2)."""
    topology = spec.get("topology") or {}
    members = [
        f"{count} {word}{'s' if count != 1 else ''}"
        for count, word in (
            (topology.get("masters", 0), "master"),
            (topology.get("workers", 1), "worker"),
            (topology.get("parameterServers", 0), "parameter server"),
        )
        if count
    ]
    lines = [
        _field("Image", plain(str(spec.get("image", "")))),
        _field("Members", ", ".join(members)),
    ]
    if elastic := spec.get("elastic"):
        most = elastic.get("maxWorkers", topology.get("workers", 1))
        lines.append(_field("Elastic", f"{elastic.get('minWorkers', 1)} to {most} workers"))
    if command := [*(spec.get("command") or ()), *(spec.get("args") or ())]:
        lines.append(_field("Command", _shortened(plain(" ".join(command)))))
    if variables := spec.get("env"):
        lines.append(_field("Environment", ", ".join(plain(str(each.get("name"))) for each in variables)))
    if checkpoint := spec.get("checkpoint"):
        every = checkpoint.get("intervalMinutes", 15)
        kept = checkpoint.get("maxRetention", 3)
        bucket = plain(str(checkpoint.get("bucket")))
        lines.append(_field("Checkpoints", f"{bucket}, every {every:g} min, {kept} kept"))
    for label, key in (
        ("Profile", "profile"),
        ("Managed by", "managedBy"),
        ("Deadline", "activeDeadlineSeconds"),
    ):
        if spec.get(key) is not None:
            lines.append(_field(label, f"{spec[key]}{' s' if key.endswith('Seconds') else ''}"))
    if spec.get("suspend"):
        lines.append(_field("Suspend", "true"))
    return lines


def _conditions(trainer: Mapping[str, Any], now: datetime) -> list[Text]:
    status = status_of(trainer)
    conditions = status.get("conditions") or ()
    if not conditions:
        return [Text("  none: the operator has not seen this Trainer yet", style="dim")]
    rows: list[list[Cell]] = []
    for each in conditions:
        what = advice(each, trainer["metadata"]["name"], reason=str(status.get("reason") or ""))
        message = Text(plain(str(each.get("message") or "")))
        if what:
            message.append(f"{' ' if message else ''}→ {what}", style="cyan")
        rows.append(
            [
                each["type"],
                Text(each["status"], style="" if each["status"] == "True" else "dim"),
                each["reason"],
                since(each.get("lastTransitionTime"), now),
                message,
            ]
        )
    return columns(("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"), rows, indent=2)


def _checkpoints(checkpoints: Sequence[Mapping[str, Any]], now: datetime) -> list[Text]:
    kept = [each for each in checkpoints if status_of(each).get("state") != "GarbageCollected"]
    if not kept:
        return [Text("  none", style="dim")]
    rows: list[list[Cell]] = []
    for each in kept[:RECENT_CHECKPOINTS]:
        status = status_of(each)
        health = str(status.get("health") or "")
        rows.append(
            [
                each["metadata"]["name"],
                str(status.get("state") or "Pending"),
                str(status.get("step", "")),
                str(status.get("size") or ""),
                Text("" if health == "Unknown" else health, style="red" if health == "Corrupt" else ""),
                str(each["spec"].get("reason") or ""),
                since(each["metadata"].get("creationTimestamp"), now),
            ]
        )
    lines = columns(("NAME", "STATE", "STEP", "SIZE", "HEALTH", "WHY", "AGE"), rows, indent=2)
    if len(kept) > RECENT_CHECKPOINTS:
        lines.append(Text(f"  … {len(kept) - RECENT_CHECKPOINTS} older", style="dim"))
    return lines


def _heading_length(tree: TreeView) -> int:
    from trainer_operator.cli.plugin.treepage import heading

    lines = len(heading(tree))
    return lines + 1 if tree.roles else lines


def _title(text: str) -> Text:
    return Text(f"{text}:", style="bold")


def _field(label: str, value: Cell, *, indent: int = 2) -> Text:
    return Text.assemble(" " * indent, (f"{label}:".ljust(LABEL_WIDTH + 2), "dim"), value)


def _indented(line: Text) -> Text:
    return Text("  ").append_text(line)


def _shortened(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
