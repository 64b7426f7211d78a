"""`kubectl trainer restore`: go back to an older checkpoint, for good.

Newer checkpoints are discarded, or the next restart would take the newest again (CK6). The order matters: members stop
first, with a checkpoint of their own, and only then it is said what counts no more. A command that was cut off is
repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from runtime.clock import SystemClock
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Object, Session, Watched, run, status_of
from trainer_operator.cli.plugin.failure import Complaint, ExitCode, explained
from trainer_operator.cli.plugin.kinds import CHECKPOINTS, TRAINERS
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
    """Go back to an older checkpoint and train on from there; newer ones are deleted."""
    with explained():

        async def work(session: Session) -> str:
            trainer = await session.trainer(name)
            found = await session.checkpoints(name)
            chosen = choose(trainer, found, source)
            _confirm(name, chosen, newer(found, chosen), yes=yes)
            was_suspended = bool(trainer["spec"].get("suspend"))
            await _suspend(session, name)
            await _discard(session, newer(await session.checkpoints(name), chosen))
            step = status_of(chosen)["step"]
            if was_suspended:
                return f"trainer/{name} stays suspended; `kubectl trainer resume {name}` goes on from step {step}"
            await session.client.patch(
                TRAINERS, name, {"spec": {"suspend": False}}, namespace=session.namespace
            )
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
    held = [each["metadata"]["name"] for each in newer(found, chosen) if each["spec"].get("hold")]
    if held:
        raise Complaint(
            f"newer ones are held: {', '.join(held)}; set their spec.hold to false first", ExitCode.NOT_NOW
        )
    return chosen


def newer(found: Sequence[Object], chosen: Object) -> list[Object]:
    """Return the committed checkpoints that would be restored before the chosen one."""
    step = status_of(chosen).get("step") or 0
    return [
        each
        for each in found
        if status_of(each).get("state") == "Committed"
        and each["metadata"]["name"] != chosen["metadata"]["name"]
        and (status_of(each).get("step") or 0) >= step
        and not each["spec"].get("discard")
    ]


def _confirm(name: str, chosen: Object, gone: Sequence[Object], *, yes: bool) -> None:
    if yes:
        return
    names = ", ".join(each["metadata"]["name"] for each in gone[:10]) + (" …" if len(gone) > 10 else "")
    cost = f"delete {names or 'what is newer'}, and repeat all steps after {status_of(chosen)['step']}"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Complaint(f"without a terminal to ask, restore needs --yes: it would {cost}", ExitCode.NOT_NOW)
    if not typer.confirm(f"This will stop trainer/{name}, {cost}. Go on?"):
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


async def _discard(session: Session, gone: Sequence[Object]) -> None:
    for each in gone:
        body = {"spec": {"discard": True}}
        await session.client.patch(CHECKPOINTS, each["metadata"]["name"], body, namespace=session.namespace)
