"""`kubectl trainer checkpoint`, `verify` and `import`: ask the operator for work in the store, and wait for what comes of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from runtime.client.errors import NotFound
from runtime.clock import SystemClock, format_time
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Object, Session, Watched, run, status_of
from trainer_operator.cli.plugin.failure import Complaint, ExitCode, explained
from trainer_operator.cli.plugin.kinds import (
    CHECKPOINTS,
    GROUP,
    IMPORT_ANNOTATION,
    IMPORT_FAILED,
    TRAINERS,
    VERIFY_ANNOTATION,
)
from trainer_operator.cli.plugin.page import Output, note, show, show_objects
from trainer_operator.cli.plugin.words import moment, plain, seconds_of

LONGEST_LOOK = 30.0
Timeout = Annotated[str, typer.Option("--timeout", help="How long to wait, such as 90s, 10m or 1h.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for what comes of it.")]
Outcome = Callable[[Object], "str | None"]
"""Says what came of it once there is something to say.

Raises: Complaint when it went wrong.
"""


def checkpoint(
    name: options.Name,
    wait: Wait = True,
    timeout: Timeout = "10m",
    namespace: options.Namespace = None,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Have a checkpoint taken now, and wait until it is committed; training goes on meanwhile."""
    with explained():
        seconds = seconds_given(timeout)

        async def work(session: Session) -> tuple[Object, str]:
            trainer = can_save(await session.trainer(name))
            made = await session.client.create(
                CHECKPOINTS, manifest(trainer, SystemClock().utcnow()), namespace=session.namespace
            )
            its_name = made["metadata"]["name"]
            if not wait:
                return made, f"checkpoint/{its_name} asked for"
            return await _follow(session, its_name, saved, seconds)

        _tell(*run(Access(namespace, context, kubeconfig), work), output)


def verify(
    name: options.CheckpointName,
    wait: Wait = True,
    timeout: Timeout = "30m",
    namespace: options.Namespace = None,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Have every byte of a checkpoint read and compared with its hash, ahead of its turn."""
    with explained():
        seconds = seconds_given(timeout)

        async def work(session: Session) -> tuple[Object, str]:
            found = await _checkpoint(session, name)
            if status_of(found).get("state") != "Committed":
                state = status_of(found).get("state") or "Pending"
                raise Complaint(
                    f"checkpoint/{name} is {state}: only committed ones are verified", ExitCode.NOT_NOW
                )
            now = SystemClock().utcnow().replace(microsecond=0)
            body = {"metadata": {"annotations": {VERIFY_ANNOTATION: format_time(now)}}}
            asked = await session.client.patch(CHECKPOINTS, name, body, namespace=session.namespace)
            if not wait:
                return asked, f"checkpoint/{name} will be verified"
            return await _follow(session, name, lambda obj: verified(obj, now), seconds)

        _tell(*run(Access(namespace, context, kubeconfig), work), output)


def import_checkpoints(
    name: options.Name,
    timeout: Timeout = "10m",
    namespace: options.Namespace = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Rebuild the Checkpoint objects of a Trainer at rest from what its store holds."""
    with explained():
        seconds = seconds_given(timeout)

        async def work(session: Session) -> str:
            can_import(await session.trainer(name))
            before = len(await session.committed(name))
            body = {"metadata": {"annotations": {IMPORT_ANNOTATION: format_time(SystemClock().utcnow())}}}
            trainer = await session.client.patch(TRAINERS, name, body, namespace=session.namespace)
            clock = SystemClock()
            end = clock.monotonic() + seconds
            while is_importing(trainer):
                left = end - clock.monotonic()
                if left <= 0:
                    raise Complaint(f"after {seconds} s the store is not read yet; it goes on")
                version = trainer["metadata"]["resourceVersion"]
                watched = Watched(TRAINERS, session.namespace, version, fields=f"metadata.name={name}")
                await session.changed([watched], within=min(left, LONGEST_LOOK))
                trainer = await session.trainer(name)
            there = len(await session.committed(name))
            return f"trainer/{name} has {there} committed checkpoints, {there - before} of them rebuilt"

        show([run(Access(namespace, context, kubeconfig), work)])


def can_import(trainer: Object) -> None:
    """Check that a janitor may read its store now.

    Raises: Complaint.
    """
    name, phase = trainer["metadata"]["name"], status_of(trainer).get("phase")
    if not trainer["spec"].get("checkpoint"):
        raise Complaint(
            f"trainer/{name} has no spec.checkpoint, so there is no store to read", ExitCode.NOT_NOW
        )
    if phase not in {"Succeeded", "Failed", "Suspended"}:
        raise Complaint(
            f"trainer/{name} is {phase or 'Pending'}: `kubectl trainer suspend {name}` first",
            ExitCode.NOT_NOW,
        )


def is_importing(trainer: Object) -> bool:
    """Whether an import is under way.

    Raises: Complaint when it failed.
    """
    asked = (trainer["metadata"].get("annotations") or {}).get(IMPORT_ANNOTATION, "")
    if asked.startswith(IMPORT_FAILED):
        raise Complaint(plain(asked.removeprefix(IMPORT_FAILED)))
    return bool(asked)


def can_save(trainer: Object) -> Object:
    """Return the Trainer.

    Raises: Complaint when no checkpoint of it can be taken now.
    """
    name, phase = trainer["metadata"]["name"], status_of(trainer).get("phase")
    if not trainer["spec"].get("checkpoint"):
        raise Complaint(
            f"trainer/{name} has no spec.checkpoint, so there is no store to save in", ExitCode.NOT_NOW
        )
    if phase in {"Succeeded", "Failed", "Suspended"}:
        raise Complaint(
            f"trainer/{name} is {phase}: nothing runs whose state could be saved", ExitCode.NOT_NOW
        )
    return trainer


def manifest(trainer: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return a Checkpoint of the Trainer; its name is never used twice."""
    metadata = trainer["metadata"]
    return {
        "apiVersion": f"{GROUP}/{CHECKPOINTS.version}",
        "kind": "Checkpoint",
        "metadata": {
            "name": f"{metadata['name']}-asked-{now:%Y%m%d%H%M%S}-{secrets.token_hex(2)}",
            "labels": {"trainer-name": metadata["name"]},
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/{TRAINERS.version}",
                    "kind": "Trainer",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {"trainerRef": {"name": metadata["name"], "uid": metadata["uid"]}, "reason": "OnDemand"},
    }


def saved(obj: Object) -> str | None:
    """Say that it is committed; None while it is on its way."""
    name, status = obj["metadata"]["name"], status_of(obj)
    if status.get("state") == "Committed":
        return (
            f"checkpoint/{name} of step {status.get('step')} is committed: {status.get('size') or 'no data'}"
        )
    aborted = next((each for each in status.get("conditions") or () if each.get("type") == "Aborted"), None)
    if aborted is not None:
        why = f"{aborted.get('reason')}: {aborted.get('message')}"
        raise Complaint(f"checkpoint/{name} was given up: {plain(why)}")
    if status.get("state") == "GarbageCollected":
        raise Complaint(f"checkpoint/{name} was deleted meanwhile")
    return None


def verified(obj: Object, asked: datetime) -> str | None:
    """Say what a full read that was made since found; None while there was none."""
    name, status = obj["metadata"]["name"], status_of(obj)
    if status.get("state") != "Committed":
        raise Complaint(f"checkpoint/{name} was deleted meanwhile")
    read = moment(status.get("lastVerified"))
    if status.get("verified") != "Full" or read is None or read < asked:
        return None
    found: Mapping[str, Any] = next(
        (each for each in status.get("conditions") or () if each.get("type") == "Verified"), {}
    )
    sentence = (
        f"checkpoint/{name} is {status.get('health')}: {plain(str(found.get('message') or 'all was read'))}"
    )
    if status.get("health") == "Corrupt":
        raise Complaint(sentence)
    return sentence


async def _follow(session: Session, name: str, outcome: Outcome, seconds: int) -> tuple[Object, str]:
    """Wait for the outcome, and tell each state on the way beside the output."""
    clock = SystemClock()
    end, told = clock.monotonic() + seconds, ""
    while True:
        found = await _checkpoint(session, name)
        sentence = outcome(found)
        if sentence is not None:
            return found, sentence
        status = status_of(found)
        step = f" at step {status['step']}" if status.get("step") else ""
        now = f"checkpoint/{name}: {status.get('state') or 'Pending'}{step}"
        if now != told:
            note(now)
            told = now
        left = end - clock.monotonic()
        if left <= 0:
            raise Complaint(
                f"{now} after {seconds} s; it goes on, `kubectl trainer checkpoints` shows how far"
            )
        version = found["metadata"]["resourceVersion"]
        watched = Watched(CHECKPOINTS, session.namespace, version, fields=f"metadata.name={name}")
        await session.changed([watched], within=min(left, LONGEST_LOOK))


async def _checkpoint(session: Session, name: str) -> Object:
    try:
        return await session.client.get(CHECKPOINTS, name, session.namespace)
    except NotFound:
        raise Complaint(
            f"no Checkpoint {name} in namespace {session.namespace}: `kubectl trainer checkpoints NAME` lists those "
            "of a Trainer",
            ExitCode.NOT_FOUND,
        ) from None


def seconds_given(timeout: str) -> int:
    """Return the seconds of --timeout.

    Raises: Complaint when it is no duration.
    """
    try:
        return seconds_of(timeout)
    except ValueError as error:
        raise Complaint(f"--timeout: {error}", ExitCode.USAGE) from None


def _tell(obj: Object, sentence: str, output: Output | None) -> None:
    if output in {None, Output.WIDE}:
        show([sentence])
    else:
        show_objects([obj], output, single=True)
