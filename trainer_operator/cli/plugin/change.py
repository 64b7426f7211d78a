"""`kubectl trainer scale`, `suspend` and `resume`: changes of the wish; the operator carries them out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Object, Session, run, status_of
from trainer_operator.cli.plugin.failure import Complaint, ExitCode, explained
from trainer_operator.cli.plugin.kinds import TRAINERS
from trainer_operator.cli.plugin.page import Output, show, show_objects

Workers = Annotated[int, typer.Option("--workers", min=1, help="Number of workers there shall be.")]


def scale(
    name: options.Name,
    workers: Workers,
    namespace: options.Namespace = None,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Change the number of workers in mid-training; a checkpoint comes first, so no step is lost."""
    with explained():

        async def work(session: Session) -> tuple[Object, str]:
            trainer = _unfinished(await session.trainer(name), "scaled")
            before = trainer["spec"]["topology"]["workers"]
            if before == workers:
                return trainer, f"trainer/{name} has {workers} workers already"
            body = {"spec": {"replicas": workers}}
            await session.client.patch(TRAINERS, name, body, namespace=session.namespace, subresource="scale")
            later = "; it is suspended" if trainer["spec"].get("suspend") else ""
            return await session.trainer(
                name
            ), f"trainer/{name} scaled from {before} to {workers} workers{later}"

        _tell(*run(Access(namespace, context, kubeconfig), work), output)


def suspend(
    name: options.Name,
    namespace: options.Namespace = None,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Save a checkpoint, end the members and release their resources, until resumed."""
    with explained():
        access = Access(namespace, context, kubeconfig)
        _tell(*_suspension(access, name, to=True), output)


def resume(
    name: options.Name,
    namespace: options.Namespace = None,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Go on with a suspended Trainer from its newest checkpoint."""
    with explained():
        access = Access(namespace, context, kubeconfig)
        _tell(*_suspension(access, name, to=False), output)


def _suspension(access: Access, name: str, *, to: bool) -> tuple[Object, str]:
    async def work(session: Session) -> tuple[Object, str]:
        trainer = _unfinished(await session.trainer(name), "suspended" if to else "resumed")
        if bool(trainer["spec"].get("suspend")) is to:
            return trainer, f"trainer/{name} {'was suspended already' if to else 'is not suspended'}"
        body = {"spec": {"suspend": to}}
        changed = await session.client.patch(TRAINERS, name, body, namespace=session.namespace)
        if to:
            return changed, f"trainer/{name} suspended: it ends its members once a checkpoint is saved"
        return changed, f"trainer/{name} resumed"

    return run(access, work)


def _unfinished(trainer: Object, done: str) -> Object:
    phase = status_of(trainer).get("phase")
    if phase in {"Succeeded", "Failed"}:
        raise Complaint(
            f"trainer/{trainer['metadata']['name']} has {phase.lower()}: it can't be {done}", ExitCode.NOT_NOW
        )
    return trainer


def _tell(trainer: dict[str, Any], sentence: str, output: Output | None) -> None:
    if output in {None, Output.WIDE}:
        show([sentence])
    else:
        show_objects([trainer], output, single=True)
