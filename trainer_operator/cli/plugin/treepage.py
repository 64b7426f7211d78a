"""The State Tree as lines: guides, a glyph and a colour for each state, columns for what else is known. Pure.

A glyph says the same as the colour, so that nothing is lost without colours. Large roles are folded: members that are
well stand in one line, those that are not are always shown.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from rich.text import Text

from trainer_operator.cli.plugin.page import Cell, bar, columns, phase
from trainer_operator.cli.plugin.treedata import MemberLine, PodLine, RoleLine, TreeView
from trainer_operator.cli.plugin.words import since, span

FOLD_ABOVE = 16
"""Members of a role that are shown one by one."""
LOOKS: dict[str, tuple[str, str]] = {
    "Pending": ("○", "white"),
    "Starting": ("◔", "cyan"),
    "Rendezvous": ("◑", "cyan"),
    "Ready": ("●", "green"),
    "Checkpointing": ("◆", "blue"),
    "WaitingPS": ("◇", "yellow"),
    "Paused": ("‖", "blue"),
    "Draining": ("◌", "magenta"),
    "Suspect": ("▲", "yellow"),
    "Stalled": ("■", "red"),
    "Crashed": ("✖", "red"),
    "Lost": ("✖", "red"),
    "Succeeded": ("✔", "green"),
    "Failed": ("✖", "bold red"),
}
HEADER = ("", "STATE", "CAUSE", "STEP", "LAST STEP", "STEPS/S", "RESTARTS", "AGE", "NODE", "POD")
_GUIDE = "bright_black"


def page(tree: TreeView, now: datetime, *, full: bool = False) -> list[Text]:
    """Return the tree as lines."""
    lines = [*heading(tree), Text()]
    rows: list[list[Cell]] = []
    for number, role in enumerate(tree.roles):
        rows += _role(role, now, is_last=number == len(tree.roles) - 1, full=full)
    if not rows:
        return [*lines[:-1], Text("└─ no members", style="dim")]
    return lines + columns(HEADER, rows, gap=2)


def heading(tree: TreeView) -> list[Text]:
    """Return what is said of the Trainer as a whole."""
    title = Text.assemble((tree.name, "bold"), "  ", phase(tree.phase), "  ", (tree.namespace, "dim"))
    progress = bar(tree.epochs_completed, tree.epochs)
    progress.append(f"  epoch {tree.epochs_completed}/{tree.epochs} · step {tree.step}")
    if tree.membership:
        progress.append(f" · {tree.membership}", style="dim")
    lines = [title, progress]
    counted = [
        f"{number} {word}{'s' if number != 1 else ''}"
        for number, word in ((tree.failures, "failure"), (tree.disruptions, "disruption"))
        if number
    ]
    if counted:
        lines.append(Text(" · ".join(counted), style="yellow"))
    if tree.message:
        lines.append(Text(tree.message, style="italic"))
    return lines


def changes(before: TreeView, after: TreeView) -> list[str]:
    """Say in one line each what is different, for readers without a terminal; steps alone are no difference."""
    lines = []
    if before.phase != after.phase:
        reason = f" ({after.message})" if after.message else ""
        lines.append(f"{after.name} {before.phase} -> {after.phase} at step {after.step}{reason}")
    old = {member.member: member for role in before.roles for member in role.members}
    new = {member.member: member for role in after.roles for member in role.members}
    for name in new | old:
        was, became = old.get(name), new.get(name)
        if was is None and became is not None:
            lines.append(f"{name} appeared, {became.state}")
        elif became is None:
            lines.append(f"{name} is gone")
        elif was is not None and was.state != became.state:
            cause = f" ({became.cause})" if became.cause else ""
            lines.append(f"{name} {was.state} -> {became.state}{cause}")
        elif was is not None and was.pod is not None and became.pod and was.pod.name != became.pod.name:
            lines.append(f"{name} is now pod {became.pod.name}")
    return lines


def _role(role: RoleLine, now: datetime, *, is_last: bool, full: bool) -> list[list[Cell]]:
    worst = role.worst if role.worst not in {"Ready", "Succeeded", ""} else ""
    complete = role.ready == role.desired
    title = Text.assemble(("└─ " if is_last else "├─ ", _GUIDE), (role.role, "bold"))
    count = Text(f"{role.ready}/{role.desired} ready", style="green" if complete else "yellow")
    rows: list[list[Cell]] = [[title, count, *_blank(8)]]
    members, folded = _fold(role.members, full=full)
    guide = "   " if is_last else "│  "
    for number, member in enumerate(members):
        last = number == len(members) - 1 and not folded
        rows += _member(member, now, guide=guide, is_last=last)
    if folded:
        counts = ", ".join(f"{count} {state}" for state, count in Counter(m.state for m in folded).items())
        rows.append([Text(f"{guide}└─ … {len(folded)} more", style=_GUIDE), Text(counts), *_blank(8)])
    if worst and folded:
        rows[0][2] = Text(f"worst: {worst}", style=LOOKS[worst][1] if worst in LOOKS else "")
    return rows


def _fold(members: tuple[MemberLine, ...], *, full: bool) -> tuple[list[MemberLine], list[MemberLine]]:
    if full or len(members) <= FOLD_ABOVE:
        return list(members), []
    ill = [member for member in members if not member.is_well]
    room = max(0, FOLD_ABOVE - len(ill))
    well = [member for member in members if member.is_well]
    shown = {member.member for member in (*ill, *well[:room])}
    return [m for m in members if m.member in shown], [m for m in members if m.member not in shown]


def _member(member: MemberLine, now: datetime, *, guide: str, is_last: bool) -> list[list[Cell]]:
    glyph, style = LOOKS.get(member.state, ("?", ""))
    title = Text.assemble(
        (f"{guide}{'└─' if is_last else '├─'} ", _GUIDE), (glyph, style), f" {member.member}"
    )
    pod = member.pod
    rows: list[list[Cell]] = [
        [
            title,
            Text(member.state, style=style),
            Text(member.cause, style=style),
            "" if member.step is None else str(member.step),
            "" if member.step_age is None or member.state == "Succeeded" else f"{span(member.step_age)} ago",
            "" if not member.rate else f"{member.rate:.1f}",
            Text(str(member.restarts), style="yellow") if member.restarts else "",
            since(pod.created, now) if pod else "",
            pod.node if pod else "",
            Text(pod.name, style="dim") if pod else "",
        ]
    ]
    below = guide + ("   " if is_last else "│  ")
    for number, old in enumerate(member.pods):
        rows.append(_attempt(old, now, guide=f"{below}{'└─' if number == len(member.pods) - 1 else '├─'} "))
    return rows


def _attempt(pod: PodLine, now: datetime, *, guide: str) -> list[Cell]:
    glyph, style = LOOKS.get(pod.state, ("?", ""))
    title = Text.assemble((guide, _GUIDE), (glyph, f"dim {style}"), (f" attempt {pod.attempt}", "dim"))
    cells: list[Cell] = [
        Text(text, style="dim")
        for text in (pod.state, pod.cause, "", "", "", "", since(pod.created, now), pod.node, pod.name)
    ]
    return [title, *cells]


def _blank(count: int) -> list[Cell]:
    return [""] * count
