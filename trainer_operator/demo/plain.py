"""The view without a terminal: one line for each thing that happened. `lines` is pure."""

from __future__ import annotations

from typing import Protocol, TextIO

from trainer_operator.demo.frame import Frame
from trainer_operator.demo.measures import Row
from trainer_operator.demo.tables import seconds

PROGRESS_INTERVAL = 10.0
"""Seconds between two lines of mere progress."""


class View(Protocol):
    """Whoever shows frames."""

    def show(self, frame: Frame) -> None:
        """Show the newest frame; called several times a second."""


class Plain:
    """Prints what is new in each frame."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = Frame()
        self._progress_at = 0.0

    def show(self, frame: Frame) -> None:
        """Print what is new since the last frame."""
        found = lines(self._last, frame)
        if not found and frame.status is not None and frame.elapsed - self._progress_at >= PROGRESS_INTERVAL:
            found = [progress(frame)]
        if found:
            self._progress_at = frame.elapsed
        for line in found:
            print(f"{frame.elapsed:6.1f} s  {line}", file=self._stream, flush=True)
        self._last = frame


def lines(old: Frame, new: Frame) -> list[str]:
    """Return a line for everything in the new frame that the old one lacks."""
    found: list[str] = []
    finished = {step.title for step in old.setup if step.seconds is not None}
    for step in new.setup:
        if step.seconds is not None and step.title not in finished:
            detail = f"  ({step.detail})" if step.detail else ""
            found += [f"{step.title}: {seconds(step.seconds)}{detail}"]
    if new.status is not None and (old.status is None or old.status.phase != new.status.phase):
        found.append(f"trainer {new.trainer} is {new.status.phase or 'new'} at step {new.step}")
    seen = set(old.events)
    found += [f"event {event.reason}: {event.message}" for event in new.events if event not in seen]
    if new.leader and new.leader != old.leader:
        found.append(f"{new.leader} leads")
    ready = dict(old.nodes)
    for name, is_ready in new.nodes:
        if name in ready and ready[name] != is_ready:
            found.append(f"{name} is {'ready' if is_ready else 'not ready'}")
    found += [outcome(row) for row in new.rows[len(old.rows) :]]
    if new.activity and new.activity != old.activity:
        found.append(f"--- {new.activity}")
    return found


def outcome(row: Row) -> str:
    """Say in a line what a disturbance did."""
    if not row.survived:
        return f"NOT SURVIVED: {row.title} ({row.target})"
    paused = (
        "training did not pause"
        if row.next_step is None
        else f"next training step after {seconds(row.next_step)}, from step {row.step_before} to {row.step_after}"
    )
    noticed = f"noticed after {seconds(row.detected)}, " if row.detected is not None else ""
    return f"survived: {row.title} ({row.target}): {noticed}{paused}"


def progress(frame: Frame) -> str:
    """Say in a line how far training is."""
    status = frame.status
    of = f" of {frame.total_steps}" if frame.total_steps else ""
    if status is None:
        return f"step {frame.step}{of}"
    accuracy = f", accuracy {status.accuracy:.1%}" if status.accuracy is not None else ""
    return f"step {frame.step}{of}, epoch {status.data_epochs} of {frame.epochs}{accuracy}, {status.phase}"
