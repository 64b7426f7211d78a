"""The live terminal view: one frame as a screen full of rich. Pure but for `Screen`, which owns the terminal.

Everything is laid out for the size at hand: what is worth most (the training's state, the disturbances) stays on a
small terminal, events get the lines that are left.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainer_operator.demo.frame import CheckpointRow, Frame, MemberRow
from trainer_operator.demo.tables import ACCENT, BAD, GOOD, QUIET, check_table, disturbance_table, seconds

_BARS = " ▁▂▃▄▅▆▇█"
_PHASES = {
    "Running": "green",
    "Succeeded": "bold green",
    "Failed": "bold red",
    "Recovering": "yellow",
    "Scaling": "cyan",
    "Starting": "blue",
    "Pending": "blue",
}
_STATES = {
    "training": "green",
    "done": "green",
    "waiting": "yellow",
    "starting": "blue",
    "ending": "magenta",
    "failed": "bold red",
    "down": "red",
    "node down": "bold red",
}
_CHECKPOINTS = {"Committed": "green", "Staging": "yellow", "Pending": "blue"}
_WIDE = 100
_SIDE = 34
_LEAST_EVENTS = 3
_HEADER, _FRAME = 6, 3
"""Lines of the header, and of a panel around a table with its header."""


def render(frame: Frame, *, width: int, height: int) -> RenderableType:
    """Lay a frame out for a terminal of this size."""
    header = _header(frame, width)
    if frame.status is None:
        return Group(header, _panel("Set-up", _setup(frame)))
    members = _members(frame.members)
    nodes = _nodes(frame)
    left: RenderableType = _panel("Members", members, subtitle=nodes)
    middle_height = max(len(frame.members), 4) + 3
    if width >= _WIDE:
        side = _panel(
            "Checkpoints", _checkpoints(frame.checkpoints[: middle_height - 3]), height=middle_height
        )
        grid = Table.grid(expand=True)
        grid.add_column(ratio=1)
        grid.add_column(width=_SIDE)
        grid.add_row(_panel("Members", members, height=middle_height, subtitle=nodes), side)
        left = grid
    taken = _HEADER + middle_height + _FRAME
    # Disturbances still to come are the first to give way.
    count = max(len(frame.rows), min(frame.planned, height - taken))
    rows = _panel("Disturbances", disturbance_table(frame.rows, planned=count, is_narrow=width < _WIDE))
    parts: list[RenderableType] = [header, left, rows]
    if frame.checks:
        parts.append(_panel("Expectations", check_table(frame.checks), style=_verdict_style(frame)))
        return Group(*parts)
    room = height - taken - count - 2
    if room >= _LEAST_EVENTS:
        parts.append(_panel("Events", _events(frame, room, width), height=room + 2))
    return Group(*parts)


class Screen:
    """Shows frames on the terminal, in place, and leaves the terminal as it was."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, frame: Frame) -> None:
        """Replace what is shown."""
        width, height = self._console.size
        self._live.update(render(frame, width=width, height=height), refresh=True)


def _header(frame: Frame, width: int) -> Panel:
    status = frame.status
    if status is None:
        first = Text("starting a Kubernetes cluster on this machine", style=QUIET)
        return _panel(_title(frame), Group(first, Text(frame.activity)), style=ACCENT)
    style = _PHASES.get(status.phase, "white")
    facts = Text.assemble(
        ("● ", style),
        (f"{status.phase or 'Pending':<10}", style),
        ("  trainer ", QUIET),
        frame.trainer,
        ("   epoch ", QUIET),
        f"{status.data_epochs}/{frame.epochs}",
        ("   accuracy ", QUIET),
        "–" if status.accuracy is None else f"{status.accuracy:.1%}",
        ("   workers ", QUIET),
        status.ready_workers or "–",
        ("   servers ", QUIET),
        status.ready_servers or "–",
        ("   leader ", QUIET),
        (frame.leader, "") if frame.leader else ("none", BAD),
    )
    facts.no_wrap, facts.overflow = True, "ellipsis"
    progress = Table.grid(expand=True, padding=(0, 1))
    progress.add_column(ratio=1)
    progress.add_column(justify="right", no_wrap=True)
    total = frame.total_steps or 0
    done = f"step {frame.step}" + (f" of {total}" if total else "")
    progress.add_row(
        ProgressBar(total=total or 1, completed=min(frame.step, total or 1), complete_style=style), done
    )
    beat = Text.assemble(
        ("steps each second  ", QUIET), _pulse(_since_first(frame.pulse[-max(10, width - 26) :]))
    )
    beat.no_wrap = True
    now = Text.assemble(("now  ", QUIET), (frame.activity, "bold"))
    now.no_wrap, now.overflow = True, "ellipsis"
    lines = (facts, progress, beat, now) if frame.activity else (facts, progress, beat)
    return _panel(_title(frame), Group(*lines), style=style)


def _title(frame: Frame) -> str:
    minutes, rest = divmod(int(frame.elapsed), 60)
    return f"[bold]Trainer Operator[/] demo  {minutes}:{rest:02}"


def _panel(
    title: str,
    content: RenderableType,
    *,
    style: str = QUIET,
    height: int | None = None,
    subtitle: Text | None = None,
) -> Panel:
    return Panel(
        content,
        title=title,
        title_align="left",
        subtitle=subtitle,
        subtitle_align="right",
        border_style=style,
        box=ROUNDED,
        padding=(0, 1),
        height=height,
    )


def _nodes(frame: Frame) -> Text:
    text = Text()
    for name, is_ready in frame.nodes:
        text.append("  " if text else "")
        text.append("● " if is_ready else "✗ ", style=GOOD if is_ready else BAD)
        text.append(name, style=QUIET if is_ready else BAD)
    return text


def _setup(frame: Frame) -> Table:
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(width=1)
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    for step in frame.setup:
        is_done = step.seconds is not None
        text = Text(step.title)
        if step.detail:
            text.append(f"  {step.detail}", style=QUIET)
        spent = step.seconds if step.seconds is not None else frame.elapsed - step.began
        table.add_row(
            Text("✓" if is_done else "…", style=GOOD if is_done else "yellow"),
            text,
            Text(seconds(spent), style=QUIET),
        )
    return table


def _members(rows: tuple[MemberRow, ...]) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style=QUIET, padding=(0, 1))
    table.add_column("Pod", ratio=2, no_wrap=True)
    table.add_column("Node", no_wrap=True)
    table.add_column("State", no_wrap=True, min_width=9)
    table.add_column("Step", justify="right", no_wrap=True)
    table.add_column("Process", justify="right", no_wrap=True)
    table.add_column("Starts", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.pod,
            Text(row.node or "–", style=QUIET),
            Text(row.state, style=_STATES.get(row.state, "")),
            str(row.step) if row.step else "–",
            Text(str(row.pid) if row.pid is not None else "–", style=QUIET),
            Text(str(row.starts), style="yellow" if row.starts > 1 else QUIET),
        )
    return table


def _checkpoints(rows: tuple[CheckpointRow, ...]) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style=QUIET, padding=(0, 1))
    table.add_column("Step", justify="right", no_wrap=True)
    table.add_column("State", no_wrap=True)
    table.add_column("Why", no_wrap=True, ratio=1)
    for row in rows:
        table.add_row(
            str(row.step) if row.step else "–",
            Text(row.state or "Pending", style=_CHECKPOINTS.get(row.state, QUIET)),
            Text(row.reason, style=QUIET),
        )
    return table


def _events(frame: Frame, count: int, width: int) -> Table:
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for event in frame.events[-count:]:
        table.add_row(
            Text(f"{event.at:.0f} s", style=QUIET),
            Text(event.reason, style="yellow" if event.warning else "green"),
            Text(event.message, style="" if width >= _WIDE else QUIET),
        )
    return table


def _since_first(counts: tuple[int, ...]) -> tuple[int, ...]:
    first = next((position for position, count in enumerate(counts) if count), len(counts))
    return counts[first:]


def _pulse(counts: tuple[int, ...]) -> Text:
    most = max(counts, default=0) or 1
    text = Text()
    for count in counts:
        if count == 0:
            text.append("·", style="red")
        else:
            text.append(_BARS[max(1, round(count / most * 8))], style=GOOD)
    return text


def _verdict_style(frame: Frame) -> str:
    return GOOD if all(check.holds for check in frame.checks) else "red"
