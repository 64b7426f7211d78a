"""`kubectl-trainer`, which kubectl runs as `kubectl trainer` (CL1)."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]  # public, not declared so

from trainer_operator.cli.plugin.asking import checkpoint, import_checkpoints, verify
from trainer_operator.cli.plugin.audit import audit
from trainer_operator.cli.plugin.change import resume, scale, suspend
from trainer_operator.cli.plugin.checkpoints import checkpoints
from trainer_operator.cli.plugin.completion import PROGRAM, completion
from trainer_operator.cli.plugin.describe import describe
from trainer_operator.cli.plugin.events import events
from trainer_operator.cli.plugin.failure import EXIT_CODES
from trainer_operator.cli.plugin.listing import list_trainers
from trainer_operator.cli.plugin.logs import logs
from trainer_operator.cli.plugin.notebook import notebook
from trainer_operator.cli.plugin.restart import restart
from trainer_operator.cli.plugin.restore import restore
from trainer_operator.cli.plugin.tree import tree

_SUMMARY = "See and steer Trainers: distributed trainings that the Trainer Operator keeps alive."

app = typer.Typer(
    name=PROGRAM,
    help=_SUMMARY,
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("list")(list_trainers)
app.command()(describe)
app.command()(tree)
app.command()(logs)
app.command()(events)
app.command()(scale)
app.command()(suspend)
app.command()(resume)
app.command()(restart)
app.command()(checkpoints)
app.command()(checkpoint)
app.command()(verify)
app.command()(restore)
app.command("import")(import_checkpoints)
app.command()(notebook)
app.add_typer(audit, name="audit")
app.command()(completion)


def _print_version(asked: bool) -> None:
    if asked:
        try:
            version = metadata.version("trainer-operator")
        except metadata.PackageNotFoundError:
            version = "(not installed)"
        sys.stdout.write(f"{PROGRAM} {version}\n")
        raise typer.Exit


@app.callback(help=_SUMMARY)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the flags that come before a command."""


def main() -> None:
    """Run the command line."""
    completion_init()
    app(prog_name=PROGRAM)


if __name__ == "__main__":
    main()
