"""`trainer-operator`, the one command of this project.

Commands are registered here and imported only when they are called, so that `--help` and shell completion answer at
once. An expected failure ends with one sentence on standard error and exit code 1, wrong usage with exit code 2,
Ctrl-C with 130; a traceback always means a defect.
"""

from __future__ import annotations

from importlib import import_module, metadata

import typer

from trainer_operator.cli import dev
from trainer_operator.cli.failure import reported

_PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = typer.Typer(
    name="trainer-operator",
    help="Keeps distributed machine learning training alive on Kubernetes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(dev.app, name="dev")


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def operator(context: typer.Context) -> None:
    """Run the operator: reconcile Trainers until told to stop."""
    _delegate("trainer_operator.cli.operator", context)


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def demo(context: typer.Context) -> None:
    """Watch a training survive kills, lost nodes, scaling and a new leader; takes about three minutes."""
    _delegate("trainer_operator.cli.demo", context)


@app.command()
def version() -> None:
    """Print the version."""
    try:
        typer.echo(f"trainer-operator {metadata.version('trainer-operator')}")
    except metadata.PackageNotFoundError:
        typer.echo("trainer-operator (not installed)")


def main() -> None:
    """Run the command line."""
    app()


def _delegate(module: str, context: typer.Context) -> None:
    """Hand the rest of the command line to a module with an `app` of one command."""
    name = f"{context.find_root().info_name} {context.info_name}"
    with reported():
        import_module(module).app(args=list(context.args), prog_name=name)


if __name__ == "__main__":
    main()
