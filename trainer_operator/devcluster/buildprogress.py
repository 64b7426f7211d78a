"""Show how far a long build is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_INTERVAL = 15.0  # seconds between two plain lines


class Progress(ABC):
    """What a build reports to."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Show a sentence."""

    @abstractmethod
    def begin(self, program: str, *, expected: int) -> None:
        """Begin a program of this many packages; most of the last ones may be built already."""

    @abstractmethod
    def line(self, line: str) -> None:
        """Take a line of `go build -v`: a package's name once it is being compiled."""

    @abstractmethod
    def end(self) -> None:
        """End the program, built or not."""


class PlainProgress(Progress):
    """Lines for logs and pipes."""

    def __init__(self, stream: TextIO, *, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._program = ""
        self._expected = 0
        self._seen = 0
        self._began = self._told = 0.0

    def say(self, text: str) -> None:
        """Print the sentence."""
        print(text, file=self._stream, flush=True)

    def begin(self, program: str, *, expected: int) -> None:
        """Print what is begun."""
        self._program, self._expected, self._seen = program, expected, 0
        self._began = self._told = self._now()
        self.say(f"building {program} ({expected} packages)")

    def line(self, line: str) -> None:
        """Count the package and print the count when the last line is some time ago."""
        self._seen += not line.startswith("go: ")
        now = self._now()
        if now - self._told >= _INTERVAL:
            self._told = now
            self.say(
                f"  {self._program}: {self._seen} of {self._expected} packages, {now - self._began:.0f} s"
            )

    def end(self) -> None:
        """Print how long it took."""
        self.say(f"  {self._program}: {self._now() - self._began:.0f} s")


class BarProgress(Progress):
    """A bar for terminals."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream)
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._program = ""

    def say(self, text: str) -> None:
        """Print the sentence."""
        self._console.print(text, highlight=False, markup=False)

    def begin(self, program: str, *, expected: int) -> None:
        """Show a bar for the program."""
        from rich import progress

        self._program = program
        self._bar = progress.Progress(
            progress.TextColumn("{task.description:<24}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task(program, total=max(expected, 1))
        self._bar.start()

    def line(self, line: str) -> None:
        """Move the bar by one package."""
        if self._bar is not None and self._task is not None and not line.startswith("go: "):
            self._bar.advance(self._task)

    def end(self) -> None:
        """Take the bar down; packages that needed no compilation fill it up."""
        if self._bar is not None and self._task is not None:
            task = self._bar.tasks[0]
            self._bar.update(self._task, completed=task.total)
            self._bar.stop()
        self._bar = None


def progress_on(stream: TextIO) -> Progress:
    """Return a bar when the stream is a terminal, else plain lines."""
    return BarProgress(stream) if stream.isatty() else PlainProgress(stream)
