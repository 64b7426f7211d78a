"""Arguments and flags that commands share; they have kubectl's names (CL1)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from trainer_operator.cli.plugin.page import Output

COMPLETION_SECONDS = 2.0


def complete_trainer(incomplete: str) -> list[str]:
    """Return names of Trainers in the current namespace that begin so; none if the API server can't be asked."""
    from trainer_operator.cli.plugin.access import Access, session
    from trainer_operator.cli.plugin.failure import Complaint

    async def names() -> list[str]:
        async with asyncio.timeout(COMPLETION_SECONDS), session(Access()) as opened:
            return [each["metadata"]["name"] for each in await opened.trainers()]

    try:
        return [name for name in asyncio.run(names()) if name.startswith(incomplete)]
    except (Complaint, TimeoutError):
        return []


def complete_checkpoint(incomplete: str) -> list[str]:
    """Return names of committed Checkpoints in the current namespace that begin so; none without an answer."""
    from trainer_operator.cli.plugin.access import Access, session
    from trainer_operator.cli.plugin.failure import Complaint

    async def names() -> list[str]:
        async with asyncio.timeout(COMPLETION_SECONDS), session(Access()) as opened:
            return await opened.committed()

    try:
        return [name for name in asyncio.run(names()) if name.startswith(incomplete)]
    except (Complaint, TimeoutError):
        return []


def complete_context(incomplete: str) -> list[str]:
    """Return contexts of the kubeconfig that begin so."""
    import yaml

    path = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or str(Path.home() / ".kube" / "config")
    try:
        document = yaml.safe_load(Path(path).read_text())
        names = [str(context["name"]) for context in document["contexts"]]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return []
    return [name for name in names if name.startswith(incomplete)]


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the Trainer.", autocompletion=complete_trainer)
]
CheckpointName = Annotated[
    str,
    typer.Argument(metavar="CHECKPOINT", help="Name of the Checkpoint.", autocompletion=complete_checkpoint),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace; the kubeconfig's own when absent.")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces.")]
Context = Annotated[
    str | None,
    typer.Option("--context", help="Context of the kubeconfig.", autocompletion=complete_context),
]
Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", help="Path of the kubeconfig.")]
OutputOption = Annotated[Output | None, typer.Option("--output", "-o", help="Form of the output.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on as things change.")]
Role = Annotated[str | None, typer.Option("--role", help="Only members of this role: worker, ps or master.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
