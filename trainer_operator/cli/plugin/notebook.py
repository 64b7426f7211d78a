"""`kubectl trainer notebook`: the way to the Jupyter Kernel Gateway of a Trainer, and code that runs there (JK1).

The token is made here, with the user's own rights, in a Secret that the Trainer owns: the operator may not touch
Secrets (RB1). It is never printed, and never among the arguments of a process.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from runtime.client.errors import AlreadyExists, Conflict, NotFound
from runtime.clock import SystemClock
from runtime.objects import PODS, SECRETS
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Object, Session, Watched, run, status_of
from trainer_operator.cli.plugin.asking import LONGEST_LOOK, Timeout, seconds_given
from trainer_operator.cli.plugin.failure import Complaint, ExitCode, explained
from trainer_operator.cli.plugin.forward import port_forward
from trainer_operator.cli.plugin.kinds import GROUP, NOTEBOOK_ROLE, ROLE_LABEL, TRAINER_LABEL, TRAINERS
from trainer_operator.cli.plugin.page import Output, note, show, show_objects, show_value
from trainer_operator.cli.plugin.words import plain

PORT = 8888
CONDITION = "NotebookReady"
HOPELESS = frozenset({"VariableRefused", "Refused", "ImageUnavailable", "Suspended", "Succeeded", "Failed"})
"""Reasons of the condition that waiting does not change."""
TEMPLATE = "{{.data.token | base64decode}}"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
Code = Annotated[str | None, typer.Option("--code", help="Run this code in a kernel of its own, and end.")]
File = Annotated[
    str | None, typer.Option("--file", "-f", help="Run the code of this file, - for standard input, and end.")
]
LocalPort = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="Port on this machine; any free one when absent.")
]
Url = Annotated[
    str | None, typer.Option("--url", help="Where the gateway can be reached without port-forward.")
]


def notebook(
    name: options.Name,
    code: Code = None,
    file: File = None,
    port: LocalPort = 0,
    url: Url = None,
    timeout: Timeout = "10m",
    namespace: options.Namespace = None,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Open the way to the Jupyter Kernel Gateway beside a training, or run code there.

    Makes the Secret with the gateway's token if it is not there. With --output and no code, prints the pod and ends.
    """
    with explained():
        seconds, source = seconds_given(timeout), _source(code, file)
        access = Access(namespace, context, kubeconfig)

        async def work(session: Session) -> None:
            trainer = await session.trainer(name)
            has_notebook(trainer)
            token = await ensure_token(session, trainer)
            pod = await _serving(session, name, seconds)
            if source is None and output not in {None, Output.WIDE}:
                show_objects([pod], output, single=True)
                return
            its_name = pod["metadata"]["name"]
            kernel = trainer["spec"]["notebook"].get("kernelName") or "python3"
            if url is not None:
                if source is None:
                    show(_how(name, session.namespace, its_name, url))
                else:
                    await _execute(url, token, kernel, source, seconds, output)
                return
            async with port_forward(access, session.namespace, its_name, port, PORT) as forward:
                if source is not None:
                    await _execute(forward.address, token, kernel, source, seconds, output)
                    return
                show(_how(name, session.namespace, its_name, forward.address, " until Ctrl-C"))
                raise await forward.closed()

        run(access, work)


def has_notebook(trainer: Object) -> None:
    """Check that the Trainer asks for one.

    Raises: Complaint.
    """
    if trainer["spec"].get("notebook") is None:
        name = trainer["metadata"]["name"]
        raise Complaint(
            f"trainer/{name} has no spec.notebook: `kubectl patch trainer {name} --type=merge "
            """-p '{"spec":{"notebook":{}}}'` asks for one""",
            ExitCode.NOT_NOW,
        )


async def ensure_token(session: Session, trainer: Object) -> str:
    """Return the token of the gateway, from its Secret, which is made when it is not there.

    Raises: Complaint when the Secret has none that a gateway would take.
    """
    name = secret_name(trainer)
    for _ in range(3):
        try:
            found = await session.client.get(SECRETS, name, session.namespace)
        except NotFound:
            try:
                await session.client.create(SECRETS, secret(trainer), namespace=session.namespace)
            except AlreadyExists:
                pass  # somebody else was quicker
            continue
        if not is_of_another(found, trainer):
            return token_of(found)
        try:  # of a Trainer of the same name that is gone; the garbage collector is about to take it, too
            await session.client.delete(SECRETS, name, session.namespace, uid=found["metadata"]["uid"])
        except (NotFound, Conflict):
            pass
    raise Complaint(f"Secret {name} comes and goes: try again", ExitCode.NOT_NOW)


def secret_name(trainer: Object) -> str:
    """Return the name of the Secret that the pod's token is in."""
    return f"{trainer['metadata']['name']}-{NOTEBOOK_ROLE}"


def secret(trainer: Object) -> dict[str, Any]:
    """Return a Secret with a new token; it goes with the Trainer."""
    metadata = trainer["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(trainer),
            "labels": {TRAINER_LABEL: metadata["name"], ROLE_LABEL: NOTEBOOK_ROLE},
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/{TRAINERS.version}",
                    "kind": TRAINERS.kind,
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "stringData": {"token": secrets.token_hex(32)},
    }


def is_of_another(found: Object, trainer: Object) -> bool:
    """Whether a Secret belongs to an earlier Trainer; one that users made belongs to nobody."""
    owners = [
        each for each in found["metadata"].get("ownerReferences") or () if each["kind"] == TRAINERS.kind
    ]
    return bool(owners) and all(each["uid"] != trainer["metadata"]["uid"] for each in owners)


def token_of(found: Object) -> str:
    """Return the token in a Secret.

    Raises: Complaint when a gateway would not take it; it is not repeated.
    """
    name = found["metadata"]["name"]
    try:
        token = base64.b64decode((found.get("data") or {}).get("token", ""), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        token = ""
    if len(token) < 32 or not token.isprintable() or " " in token:
        raise Complaint(
            f"Secret {name} has no token of at least 32 printable characters under its key token: delete it, and "
            "this command makes a good one",
            ExitCode.NOT_NOW,
        )
    return token


def outlook(trainer: Object) -> str | None:
    """Say what is still waited for; None once the gateway serves.

    Raises: Complaint when waiting is of no use.
    """
    name, conditions = trainer["metadata"]["name"], status_of(trainer).get("conditions") or ()
    found = next((each for each in conditions if each.get("type") == CONDITION), None)
    if found is None:
        return "the operator has not looked at its notebook yet"
    if found.get("status") == "True":
        return None
    reason, message = str(found.get("reason")), plain(str(found.get("message") or ""))
    told = f"{reason}{f': {message}' if message else ''}"
    if reason in HOPELESS:
        raise Complaint(f"trainer/{name} has no notebook now: {told}", ExitCode.NOT_NOW)
    return told


async def _serving(session: Session, name: str, seconds: int) -> Object:
    """Wait for the gateway, and return its pod."""
    clock = SystemClock()
    end, said = clock.monotonic() + seconds, ""
    while True:
        trainer = await session.trainer(name)
        has_notebook(trainer)
        told = outlook(trainer)
        if told is None and (pod := await _ready_pod(session, name)) is not None:
            return pod
        told = told or "its pod is being replaced"
        if told != said:
            note(f"trainer/{name}: {told}")
            said = told
        left = end - clock.monotonic()
        if left <= 0:
            raise Complaint(f"trainer/{name} has no notebook after {seconds} s: {told}", ExitCode.NOT_NOW)
        version = trainer["metadata"]["resourceVersion"]
        watched = Watched(TRAINERS, session.namespace, version, fields=f"metadata.name={name}")
        await session.changed([watched], within=min(left, LONGEST_LOOK))


async def _ready_pod(session: Session, name: str) -> Object | None:
    labels = f"{TRAINER_LABEL}={name},{ROLE_LABEL}={NOTEBOOK_ROLE}"
    found = (await session.client.list(PODS, session.namespace, labels=labels)).items
    return next((pod for pod in found if _is_ready(pod)), None)


def _is_ready(pod: Object) -> bool:
    conditions = status_of(pod).get("conditions") or ()
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def _source(code: str | None, file: str | None) -> str | None:
    if code is not None and file is not None:
        raise Complaint("give --code or --file, not both", ExitCode.USAGE)
    if file is None:
        return code
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Complaint(f"--file: {file} cannot be read: {error}", ExitCode.USAGE) from None


def _how(name: str, namespace: str, pod: str, address: str, until: str = "") -> list[str]:
    read = f"kubectl get secret {name}-{NOTEBOOK_ROLE} -n {namespace} -o go-template='{TEMPLATE}'"
    return [
        f"the kernel gateway of trainer/{name} (pod {pod}) is at {address}{until}; elsewhere:",
        f"  export JUPYTER_GATEWAY_AUTH_TOKEN=$({read})",
        f"  jupyter lab --gateway-url={address}",
    ]


async def _execute(
    address: str, token: str, kernel: str, source: str, seconds: int, output: Output | None
) -> None:
    """Run the code in a kernel of its own, and write what it puts out, as it comes or as one JSON value.

    Raises: Complaint when it failed.
    """
    from trainer_operator.notebook import Gateway, GatewayFault, OutputKind

    as_value, outputs = output not in {None, Output.WIDE}, []
    failed = False
    try:
        async with Gateway(address, token) as gateway:
            known = await gateway.kernel_names()
            if kernel not in known:
                there = ", ".join(map(plain, known[:10])) or "none"
                raise Complaint(
                    f"the gateway has no kernel {kernel}, as spec.notebook.kernelName asks: {there}"
                )
            started = await gateway.start(kernel)
            try:
                async for each in gateway.run(started, source, within=seconds):
                    failed = failed or each.kind is OutputKind.ERROR
                    if as_value:
                        outputs.append({"kind": str(each.kind), "text": each.text})
                    else:
                        _write(
                            each.text,
                            to_error=each.kind in {OutputKind.STDERR, OutputKind.ERROR},
                            whole=each.kind in {OutputKind.RESULT, OutputKind.ERROR},
                        )
            finally:
                await gateway.end(started)
    except GatewayFault as fault:
        raise Complaint(plain(str(fault))) from None
    if as_value:
        show_value({"outputs": outputs}, output or Output.JSON)
    if failed:
        raise Complaint("the code failed")


def _write(text: str, *, to_error: bool, whole: bool) -> None:
    """Write what the code put out, with a line end where it is a whole value, and with its colours on a terminal only."""
    stream = sys.stderr if to_error else sys.stdout
    stream.write(text if stream.isatty() else _COLOUR.sub("", text))
    if whole and not text.endswith("\n"):
        stream.write("\n")
    stream.flush()
