"""`trainer-operator demo`: watch a real training survive what happens to it."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainer_operator.cli.failure import FAILED, reported
from trainer_operator.demo import report
from trainer_operator.demo.performance import Options, Performance
from trainer_operator.demo.plain import Plain
from trainer_operator.demo.screen import Screen
from trainer_operator.devcluster.build import ensure

_DEFAULTS = Options()

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Afterwards, keep everything running until Ctrl-C.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print lines instead of the live screen, as without a terminal.")
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option(help="Also write the final screen as a picture to this file.", dir_okay=False),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Passes over the training data; too few end before the last disturbance."),
    ] = None,
    pace: Annotated[
        float, typer.Option(min=0, help="Least seconds of a training step, so that one can follow.")
    ] = _DEFAULTS.pace,
    name: Annotated[
        str, typer.Option(help="Name of the development cluster; what it had is removed.")
    ] = _DEFAULTS.name,
) -> None:
    """Watch a training survive kills, lost nodes, scaling and a new leader; takes about three minutes.

    A Kubernetes cluster starts on this machine, with nodes that run pods as processes, and two operators. A small
    network learns handwritten digits on three workers and a parameter server, and is disturbed in seven ways
    meanwhile. A table of what each disturbance cost comes at the end; the exit code is 0 only when every expectation
    held. The first time on a machine the control plane's programs are built, which takes about 8 minutes.
    """
    with reported():
        ensure()
        options = Options(name=name, pace=pace, epochs=epochs)
        try:
            code = asyncio.run(_main(options, Console(), plain=plain, keep=keep, svg=svg))
        except asyncio.CancelledError:  # SIGTERM; everything has ended in order
            raise KeyboardInterrupt from None
    raise typer.Exit(code)


async def _main(options: Options, console: Console, *, plain: bool, keep: bool, svg: Path | None) -> int:
    _end_on_termination()
    async with Performance(options) as performance:
        if console.is_terminal and not plain:
            with Screen(console) as screen:
                last = await performance.run(screen)
        else:
            last = await performance.run(Plain(sys.stdout))
        console.print(report.summary(last, performance.places(), width=console.width))
        if svg is not None:
            report.write_svg(svg, last)
            console.print(f"the picture is {svg}")
        if keep:
            console.print(
                f"Everything keeps running until Ctrl-C: export KUBECONFIG={performance.kubeconfig}"
            )
            await _interrupted()
        console.print("taking everything down")
    return 0 if report.succeeded(last) else FAILED


async def _interrupted() -> None:
    """Wait for Ctrl-C or SIGTERM, which is the end that was asked for and no failure."""
    task = asyncio.current_task()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if task is not None:
            task.uncancel()


def _end_on_termination() -> None:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does, in order; a repetition does not disturb that."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGHUP)

    def end() -> None:
        for number in numbers:
            loop.add_signal_handler(number, lambda: None)
        if task is not None:
            task.cancel()

    for number in numbers:
        loop.add_signal_handler(number, end)


if __name__ == "__main__":
    app()
