"""How the command line ends when something expected goes wrong: one sentence and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from runtime.errors import RuntimeFault
from trainer_operator.devcluster.errors import ClusterFault, KubectlFailed

FAILED = 1
INTERRUPTED = 130


@contextmanager
def reported() -> Iterator[None]:
    """Turn expected failures into a sentence on standard error; anything else is a defect and passes."""
    try:
        yield
    except KubectlFailed as fault:
        typer.secho(str(fault), err=True)
        raise typer.Exit(max(fault.returncode, FAILED)) from None
    except (ClusterFault, RuntimeFault) as fault:
        typer.secho(f"error: {fault}", err=True, fg=typer.colors.RED)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None
