"""`kubectl trainer tree`: the State Tree, once or live (ST4, CR10).

With `--server` the operator is asked, which knows each member's step; else the Trainer's status and its pods tell what
they know, watched through the API server.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

import orjson
import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from runtime.client.config import ClientConfig
from runtime.client.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ResponseMalformed,
    ServiceUnavailable,
    TransportError,
    Unauthorized,
)
from runtime.client.rest import Client
from runtime.clock import SystemClock
from runtime.objects import PODS
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Session, Watched, run
from trainer_operator.cli.plugin.failure import Complaint, ExitCode, complaint_of, explained
from trainer_operator.cli.plugin.kinds import TRAINERS, trainer_selector
from trainer_operator.cli.plugin.page import Output, console, show, show_value
from trainer_operator.cli.plugin.treedata import TreeView, poor_tree, view
from trainer_operator.cli.plugin.treepage import changes, page
from trainer_operator.cli.plugin.words import plain

SERVER_PERIOD = 1.0
"""Seconds between two questions to the operator."""
LONGEST_WAIT = 30.0
"""Seconds after which the API server is asked anew though it reports nothing."""
SHORTEST_WAIT = 0.5
"""Seconds between two readings, however much changes."""
_OPERATOR_SECONDS = 10.0

Server = Annotated[
    str | None,
    typer.Option("--server", help="https address of the operator: adds each member's step and pace."),
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with the token for --server; else the kubeconfig's.")
]
ServerCa = Annotated[Path | None, typer.Option("--server-ca", help="Certificate authority of --server.")]
Full = Annotated[bool, typer.Option("--full", help="Show every member, however many are well.")]


def tree(
    name: options.Name,
    namespace: options.Namespace = None,
    watch: options.Watch = False,
    full: Full = False,
    server: Server = None,
    server_ca: ServerCa = None,
    token_file: TokenFile = None,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Show the State Tree: roles, members, their pods, and what is wrong with whom; -w goes on until it ends."""
    with explained():
        access = Access(namespace, context, kubeconfig)

        async def work(session: Session) -> None:
            source = Source(session, name, _operator(session.client.config, server, server_ca, token_file))
            async with source:
                if output in {Output.JSON, Output.YAML, Output.NAME}:
                    await _as_value(source, output)
                elif watch and console().is_terminal:
                    await _live(source, full=full)
                elif watch:
                    await _as_lines(source, full=full)
                else:
                    now = SystemClock().utcnow()
                    show(page(await source.read(), now, full=full))

        run(access, work)


class Source:
    """Where the tree of one Trainer comes from, again and again."""

    def __init__(self, session: Session, name: str, operator: ClientConfig | None) -> None:
        self._session = session
        self._name = name
        self._operator = Client(operator) if operator is not None else None
        self._watched: tuple[Watched, ...] = ()

    async def __aenter__(self) -> Self:
        if self._operator is not None:
            await self._operator.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._operator is not None:
            await self._operator.close()

    async def raw(self) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
        """Return the tree as JSON, the Trainer and its pods."""
        trainer = await self._session.trainer(self._name)
        pods = await self._session.pods(self._name)
        namespace = self._session.namespace
        self._watched = (
            Watched(
                TRAINERS,
                namespace,
                trainer["metadata"]["resourceVersion"],
                fields=f"metadata.name={self._name}",
            ),
            Watched(PODS, namespace, pods.resource_version, labels=trainer_selector(self._name)),
        )
        told = await self._ask(self._operator) if self._operator is not None else None
        return told if told is not None else poor_tree(trainer, pods.items), trainer, pods.items

    async def read(self) -> TreeView:
        """Return the tree as it is shown."""
        tree, trainer, pods = await self.raw()
        return view(tree, trainer, pods, from_operator=self._operator is not None)

    async def wait(self) -> None:
        """Return when it may be worth reading again."""
        if self._operator is not None:
            await asyncio.sleep(SERVER_PERIOD)
            return
        await self._session.changed(self._watched, within=LONGEST_WAIT)
        await asyncio.sleep(SHORTEST_WAIT)

    async def _ask(self, operator: Client) -> dict[str, Any]:
        address = operator.config.server
        path = f"/v1/trees/{self._session.namespace}/{self._name}"
        try:
            told = orjson.loads(await operator.request("GET", path, total=_OPERATOR_SECONDS))
        except Unauthorized:
            raise Complaint(
                f"the operator at {address} does not accept the token", ExitCode.FORBIDDEN
            ) from None
        except Forbidden:
            raise Complaint(
                f"the operator at {address} says that you may not get Trainers in namespace "
                f"{self._session.namespace}",
                ExitCode.FORBIDDEN,
            ) from None
        except NotFound:
            raise Complaint(
                f"the operator at {address} does not know Trainer {self._name} in namespace "
                f"{self._session.namespace}: is it the operator of this cluster?",
                ExitCode.NOT_FOUND,
            ) from None
        except Conflict as error:
            raise Complaint(f"the operator at {address} says: {plain(_sentence(error.message))}") from None
        except ServiceUnavailable:
            raise Complaint(
                f"the operator at {address} does not lead; give the address of the other replica",
                ExitCode.UNREACHABLE,
            ) from None
        except TransportError as error:
            raise Complaint(
                f"the operator at {address} cannot be reached: {plain(str(error.__cause__ or error))}",
                ExitCode.UNREACHABLE,
            ) from None
        except (orjson.JSONDecodeError, ApiError, ResponseMalformed):
            told = None
        if not isinstance(told, dict) or "trainer" not in told:
            raise Complaint(f"{address} did not answer as a Trainer operator does")
        return told


def _sentence(body: str) -> str:
    """Return the operator's words; of what is not its JSON, all of it."""
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    return str(told.get("error") or body) if isinstance(told, dict) else body


async def _as_value(source: Source, output: Output) -> None:
    tree, trainer, _ = await source.raw()
    if output is Output.NAME:
        metadata = trainer["metadata"]
        names = [member["member"] for role in tree["roles"] for member in role["members"]]
        show([f"{metadata['name']}/{name}" for name in names])
    else:
        show_value(tree, output)


async def _live(source: Source, *, full: bool) -> None:
    clock = SystemClock()
    shown = await source.read()
    trouble = ""

    def picture() -> Group:
        now = clock.utcnow()
        told = "from the operator" if shown.from_operator else "from status and pods; --server adds steps"
        foot = Text(f"{now.astimezone():%H:%M:%S}  {trouble or told}", style="yellow" if trouble else "dim")
        lines = page(shown, now, full=full)
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(*lines, Text(), foot)

    with Live(
        get_renderable=picture, console=console(), refresh_per_second=2, vertical_overflow="ellipsis"
    ) as live:
        while not shown.has_ended:
            await source.wait()
            try:
                shown, trouble = await source.read(), ""
            except (Complaint, TransportError) as error:
                trouble = _passing(error)
        live.refresh()


async def _as_lines(source: Source, *, full: bool) -> None:
    clock = SystemClock()
    seen = await source.read()
    show(page(seen, clock.utcnow(), full=full))
    while not seen.has_ended:
        await source.wait()
        try:
            latest = await source.read()
        except (Complaint, TransportError) as error:
            _passing(error)
            continue
        time = f"{clock.utcnow().astimezone():%H:%M:%S}"
        show([f"{time} {line}" for line in changes(seen, latest)])
        seen = latest


def _passing(error: Complaint | TransportError) -> str:
    """Return what to say of trouble that may pass; any other ends the watch."""
    complaint = complaint_of(error, "its address") if isinstance(error, TransportError) else error
    if complaint.code is not ExitCode.UNREACHABLE:
        raise complaint
    return f"{complaint}, trying again"


def _operator(
    config: ClientConfig, server: str | None, authority: Path | None, token_file: Path | None
) -> ClientConfig | None:
    """Return how to reach the operator; it gets the user's token and nothing else of the kubeconfig."""
    if server is None:
        return None
    if not server.startswith("https://"):
        raise Complaint(f"--server is {server}, must be an https address", ExitCode.USAGE)
    for file in (authority, token_file):
        if file is not None and not file.is_file():
            raise Complaint(f"there is no file {file}", ExitCode.USAGE)
    if token_file is None and not (config.token or config.token_file or config.exec_plugin):
        raise Complaint(
            "--server needs a token and this kubeconfig's user has none: give one with --token-file, "
            "for example of `kubectl create token`",
            ExitCode.USAGE,
        )
    return replace(
        config,
        server=server.rstrip("/"),
        ca_data=None,
        ca_file=str(authority) if authority is not None else None,
        client_certificate_data=None,
        client_certificate_file=None,
        client_key_data=None,
        client_key_file=None,
        token=None if token_file is not None else config.token,
        token_file=str(token_file) if token_file is not None else config.token_file,
        exec_plugin=None if token_file is not None else config.exec_plugin,
        tls_server_name=None,
        insecure=False,
    )
