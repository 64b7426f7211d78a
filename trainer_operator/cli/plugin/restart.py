"""`kubectl trainer restart`: delete the pods of members; the operator replaces them.

A deleted pod counts as a disruption against maxDisruptions, never as a failure of the training (RC3).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from runtime.client.errors import Conflict, NotFound
from runtime.objects import PODS
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Session, run, status_of
from trainer_operator.cli.plugin.failure import Complaint, ExitCode, explained
from trainer_operator.cli.plugin.page import Output, show, show_objects
from trainer_operator.cli.plugin.treedata import pods_by_member

Members = Annotated[
    list[str] | None, typer.Option("--member", help="Only this member, such as worker-1; may be repeated.")
]


def restart(
    name: options.Name,
    member: Members = None,
    yes: options.Yes = False,
    namespace: options.Namespace = None,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Replace the pods of all members, or of some; steps since the newest checkpoint may be repeated."""
    with explained():

        async def work(session: Session) -> list[Mapping[str, Any]]:
            trainer = await session.trainer(name)
            pods = (await session.pods(name)).items
            chosen = choose(trainer, pods, member or [])
            _confirm(name, chosen, yes=yes)
            gone = [await _delete(session, pod) for pod in chosen]
            return [pod for pod, deleted in zip(chosen, gone, strict=True) if deleted]

        deleted = run(Access(namespace, context, kubeconfig), work)
        if output not in {None, Output.WIDE}:
            show_objects(deleted, output)
        else:
            show(
                [f"pod/{pod['metadata']['name']} deleted" for pod in deleted]
                or ["the pods were gone already"]
            )


def choose(
    trainer: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], members: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Return the living pods of the members.

    Raises: Complaint when the Trainer has no pods that would be replaced, or a member does not exist.
    """
    name, phase = trainer["metadata"]["name"], status_of(trainer).get("phase")
    if phase in {"Succeeded", "Failed"}:
        raise Complaint(
            f"trainer/{name} has {phase.lower()}: its members are not started again", ExitCode.NOT_NOW
        )
    if phase == "Suspended" or trainer["spec"].get("suspend"):
        raise Complaint(
            f"trainer/{name} is suspended: `kubectl trainer resume {name}` starts its members",
            ExitCode.NOT_NOW,
        )
    living = {
        f"{role}-{index}": attempts[0]
        for (role, index), attempts in sorted(pods_by_member(pods).items())
        if (attempts[0].get("status") or {}).get("phase") not in {"Succeeded", "Failed"}
        and not attempts[0]["metadata"].get("deletionTimestamp")
    }
    unknown = [each for each in members if each not in living]
    if unknown:
        there = ", ".join(list(living)[:10]) or "none"
        raise Complaint(
            f"trainer/{name} has no member {', '.join(unknown)} with a pod to delete: there are {there}",
            ExitCode.NOT_FOUND,
        )
    if not living:
        raise Complaint(f"trainer/{name} has no pods at the moment", ExitCode.NOT_NOW)
    return [pod for each, pod in living.items() if not members or each in members]


def _confirm(name: str, pods: Sequence[Mapping[str, Any]], *, yes: bool) -> None:
    if yes:
        return
    names = ", ".join(pod["metadata"]["name"] for pod in pods[:10]) + (" …" if len(pods) > 10 else "")
    question = f"Delete {len(pods)} pod{'s' if len(pods) != 1 else ''} of trainer/{name} ({names})?"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Complaint(
            f"without a terminal to ask, restart needs --yes: it would delete {names}", ExitCode.NOT_NOW
        )
    if not typer.confirm(question):
        raise Complaint("nothing was deleted", ExitCode.NOT_NOW)


async def _delete(session: Session, pod: Mapping[str, Any]) -> bool:
    """Delete exactly this pod; false when it is gone, or another bears its name."""
    metadata = pod["metadata"]
    try:
        await session.client.delete(PODS, metadata["name"], session.namespace, uid=metadata["uid"])
    except (NotFound, Conflict):
        return False
    return True
