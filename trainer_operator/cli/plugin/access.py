"""What the plugin asks of the API server: Trainers, and the pods, Checkpoints and Events that belong to them.

A :class:`Session` is one command's connection. Errors become complaints here, where the server's address, the
namespace and what exists instead are known. Objects are JSON: a plugin may be older than the CRD it meets.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import orjson

from runtime.client.config import ClientConfig, Timeouts
from runtime.client.errors import ApiError, NotFound, ResponseMalformed, TransportError
from runtime.client.rest import Client, ListResult, selection_params
from runtime.errors import ConfigurationInvalid, RuntimeFault
from runtime.objects import EVENTS, PODS, Resource
from runtime.tasks import TaskScope
from trainer_operator.cli.plugin.failure import Complaint, ExitCode, complaint_of
from trainer_operator.cli.plugin.kinds import CHECKPOINTS, TRAINERS, trainer_selector

T = TypeVar("T")
Object = dict[str, Any]  # JSON of the API
SHOWN_NAMES = 10
_TIMEOUTS = Timeouts(connect=5.0)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Access:
    """Which cluster, as whom, and where; None is the kubeconfig's choice."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None

    def config(self) -> ClientConfig:
        """Read the kubeconfig, or the pod's service account where there is none to read.

        Raises: ConfigurationInvalid.
        """
        if self.kubeconfig is not None or self.context is not None:
            config = ClientConfig.from_kubeconfig(self.kubeconfig, context=self.context)
        else:
            config = ClientConfig.auto()
        return replace(config, timeouts=_TIMEOUTS, user_agent="kubectl-trainer")


@dataclass(frozen=True, slots=True)
class Watched:
    """A collection, the version it was read at, and what of it matters."""

    resource: Resource
    namespace: str
    version: str
    labels: str | None = None
    fields: str | None = None


@asynccontextmanager
async def session(access: Access) -> AsyncIterator[Session]:
    """Connect for one command.

    Raises: Complaint for whatever the API server or the way to it refuses.
    """
    try:
        config = access.config()
    except ConfigurationInvalid as error:
        raise complaint_of(error, "") from None
    try:
        async with Client(config) as client:
            yield Session(client, access.namespace or config.namespace)
    except RuntimeFault as error:
        raise complaint_of(error, config.server) from None


def run(access: Access, work: Callable[[Session], Awaitable[T]]) -> T:
    """Connect, work, and return what came of it; for commands."""

    async def connected() -> T:
        async with session(access) as opened:
            return await work(opened)

    return asyncio.run(connected())


class Session:
    """One command's connection to one cluster and namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def trainers(self, *, everywhere: bool = False) -> list[Object]:
        """Return all Trainers of the namespace or the cluster, by namespace and name.

        Raises: Complaint when the cluster knows no Trainers.
        """
        try:
            found = await self.client.list(TRAINERS, None if everywhere else self.namespace)
        except NotFound:
            raise _not_installed(self.client.config.server) from None
        return sorted(found.items, key=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]))

    async def trainer(self, name: str) -> Object:
        """Return one Trainer.

        Raises: Complaint that says what there is instead.
        """
        if not _NAME.fullmatch(name):
            raise Complaint(f"{name!r} can't be the name of a Trainer", ExitCode.NOT_FOUND)
        try:
            return await self.client.get(TRAINERS, name, self.namespace)
        except NotFound:
            raise await self._unknown(name) from None

    async def pods(self, name: str) -> ListResult:
        """Return all pods of a Trainer, past attempts too."""
        return await self.client.list(PODS, self.namespace, labels=trainer_selector(name))

    async def checkpoints(self, name: str) -> list[Object]:
        """Return a Trainer's Checkpoints, the newest step first."""
        found = await self.client.list(CHECKPOINTS, self.namespace)
        mine = [each for each in found.items if each["spec"]["trainerRef"]["name"] == name]
        return sorted(mine, key=lambda each: -((each.get("status") or {}).get("step") or 0))

    async def committed(self, name: str | None = None) -> list[str]:
        """Return the names of all committed Checkpoints of a Trainer, or of the namespace."""
        found = (await self.client.list(CHECKPOINTS, self.namespace)).items
        return [
            each["metadata"]["name"]
            for each in found
            if status_of(each).get("state") == "Committed"
            and name in (None, each["spec"]["trainerRef"]["name"])
        ]

    async def events(self) -> ListResult:
        """Return all Events of the namespace."""
        return await self.client.list(EVENTS, self.namespace)

    async def changed(self, watched: Sequence[Watched], *, within: float) -> None:
        """Return when something of what is watched has changed, at the latest after `within` seconds.

        A watch that ends or fails counts as a change too: whoever reads next sees the truth.
        """
        woken = asyncio.Event()
        async with TaskScope() as scope:
            for each in watched:
                scope.spawn(self._listen(each, woken, within), name=f"watch {each.resource}")
            try:
                async with asyncio.timeout(within):
                    await woken.wait()
            except TimeoutError:
                pass
            scope.cancel()

    async def _listen(self, watched: Watched, woken: asyncio.Event, within: float) -> None:
        params = {
            "resourceVersion": watched.version,
            **selection_params(labels=watched.labels, fields=watched.fields),
        }
        try:
            stream = await self.client.open_watch(
                watched.resource, watched.namespace, params=params, timeout_seconds=int(within) + 5
            )
            try:
                async for lines in stream.batches():
                    if any(orjson.loads(line).get("type") != "BOOKMARK" for line in lines):
                        break
            finally:
                stream.close()
        except (RuntimeFault, orjson.JSONDecodeError):
            pass  # reading anew tells what is wrong
        woken.set()

    async def _unknown(self, name: str) -> Complaint:
        names = [each["metadata"]["name"] for each in await self.trainers()]
        elsewhere: list[str] = []
        try:
            elsewhere = [
                each["metadata"]["namespace"]
                for each in await self.trainers(everywhere=True)
                if each["metadata"]["name"] == name
            ]
        except (ApiError, TransportError, ResponseMalformed):
            pass  # who may not look elsewhere is told of this namespace only
        return Complaint(unknown_trainer(name, self.namespace, names, elsewhere), ExitCode.NOT_FOUND)


def unknown_trainer(name: str, namespace: str, names: Sequence[str], elsewhere: Sequence[str]) -> str:
    """Say that there is no such Trainer, and what there is."""
    if elsewhere:
        return f"no Trainer {name} in namespace {namespace}, but in {', '.join(elsewhere)}: use -n"
    if not names:
        return f"no Trainer {name} in namespace {namespace}, which has none: use -n for another one"
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"no Trainer {name} in namespace {namespace}: there are {', '.join(names[:SHOWN_NAMES])}{more}"


def status_of(trainer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a Trainer's status; empty before the operator has seen it."""
    status: Mapping[str, Any] = trainer.get("status") or {}
    return status


def _not_installed(server: str) -> Complaint:
    return Complaint(
        f"the cluster at {server} has no Trainers: install the operator with `kubectl apply -k deploy/base`",
        ExitCode.NOT_INSTALLED,
    )
