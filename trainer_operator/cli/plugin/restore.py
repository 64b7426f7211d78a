"""`kubectl trainer restore`: go back to another checkpoint.

Training goes on beside what it leaves: newer checkpoints stay, on a timeline that no restart takes by itself (CK6).
Members stop first, with a checkpoint of their own; what to start from and the start itself are one write. A command
that was cut off is repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from runtime.clock import SystemClock, format_time
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Object, Session, Watched, run, status_of
from trainer_operator.cli.plugin.failure import Complaint, ExitCode, explained
from trainer_operator.cli.plugin.kinds import RESTORE_ANNOTATION, TRAINERS
from trainer_operator.cli.plugin.page import note, show

LONGEST_LOOK = 30.0
STOPS_WITHIN = 600.0
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="CHECKPOINT",
        help="Go back to this one.",
        autocompletion=options.complete_checkpoint,
    ),
]


def restore(
    name: options.Name,
    source: From,
    yes: options.Yes = False,
    namespace: options.Namespace = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Go back to another checkpoint and train on from there; what is newer stays beside the new course."""
    with explained():

        async def work(session: Session) -> str:
            trainer = await session.trainer(name)
            found = await session.checkpoints(name)
            chosen = choose(trainer, found, source)
            _confirm(name, chosen, yes=yes)
            was_suspended = bool(trainer["spec"].get("suspend"))
            await _suspend(session, name)
            step = status_of(chosen)["step"]
            request = f"{source}@{format_time(SystemClock().utcnow())}"
            body: Object = {"metadata": {"annotations": {RESTORE_ANNOTATION: request}}}
            if not was_suspended:
                body["spec"] = {"suspend": False}
            await session.client.patch(TRAINERS, name, body, namespace=session.namespace)
            if was_suspended:
                return f"trainer/{name} stays suspended; `kubectl trainer resume {name}` goes on from step {step}"
            return f"trainer/{name} goes on from step {step}"

        show([run(Access(namespace, context, kubeconfig), work)])


def choose(trainer: Mapping[str, Any], found: Sequence[Object], source: str) -> Object:
    """Return the checkpoint to go back to.

    Raises: Complaint when it isn't there, or nothing can be restored from it, or the Trainer has ended.
    """
    name, phase = trainer["metadata"]["name"], status_of(trainer).get("phase")
    if phase in {"Succeeded", "Failed"}:
        raise Complaint(f"trainer/{name} has {phase.lower()}: it is not started again", ExitCode.NOT_NOW)
    chosen = next((each for each in found if each["metadata"]["name"] == source), None)
    if chosen is None:
        committed = [
            each["metadata"]["name"] for each in found if status_of(each).get("state") == "Committed"
        ]
        there = ", ".join(committed[:10]) or "none"
        raise Complaint(
            f"trainer/{name} has no Checkpoint {source}: committed are {there}", ExitCode.NOT_FOUND
        )
    status = status_of(chosen)
    if status.get("state") != "Committed" or chosen["spec"].get("discard"):
        state = "discarded" if chosen["spec"].get("discard") else status.get("state") or "Pending"
        raise Complaint(f"checkpoint/{source} is {state}: only committed ones are restored", ExitCode.NOT_NOW)
    if status.get("health") == "Corrupt":
        raise Complaint(f"checkpoint/{source} is Corrupt: choose another one", ExitCode.NOT_NOW)
    return chosen


def _confirm(name: str, chosen: Object, *, yes: bool) -> None:
    if yes:
        return
    cost = f"repeat all steps after {status_of(chosen)['step']}; newer checkpoints stay, but no restart takes them"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Complaint(f"without a terminal to ask, restore needs --yes: it would {cost}", ExitCode.NOT_NOW)
    if not typer.confirm(f"This will stop trainer/{name}, and {cost}. Go on?"):
        raise Complaint("nothing was changed", ExitCode.NOT_NOW)


async def _suspend(session: Session, name: str) -> None:
    clock = SystemClock()
    end = clock.monotonic() + STOPS_WITHIN
    trainer = await session.client.patch(
        TRAINERS, name, {"spec": {"suspend": True}}, namespace=session.namespace
    )
    if status_of(trainer).get("phase") != "Suspended":
        note(f"trainer/{name} stops first")
    while status_of(trainer).get("phase") != "Suspended":
        left = end - clock.monotonic()
        if left <= 0:
            raise Complaint(
                f"trainer/{name} is not at rest after {STOPS_WITHIN:.0f} s; repeat the command later"
            )
        version = trainer["metadata"]["resourceVersion"]
        watched = Watched(TRAINERS, session.namespace, version, fields=f"metadata.name={name}")
        await session.changed([watched], within=min(left, LONGEST_LOOK))
        trainer = await session.trainer(name)
