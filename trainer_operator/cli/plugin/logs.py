"""`kubectl trainer logs`: what the members write, interleaved, each line with its member's name.

With -f a member's next pod is followed as soon as there is one, a cut connection is taken up where it broke, and all
ends with the Trainer. A pod that is gone or has not started is told on standard error and stops nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from runtime.client.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    NotFound,
    ResponseMalformed,
    Unauthorized,
)
from runtime.clock import SystemClock, format_time
from runtime.errors import RuntimeFault
from runtime.objects import PODS
from runtime.tasks import TaskScope, run_all
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Object, Session, Watched, run, status_of
from trainer_operator.cli.plugin.failure import Complaint, ExitCode, explained
from trainer_operator.cli.plugin.kinds import TRAINERS, trainer_selector
from trainer_operator.cli.plugin.loglines import (
    LogLine,
    Prefix,
    Reading,
    interleave,
    parse,
    parse_all,
    prefixes,
)
from trainer_operator.cli.plugin.page import note
from trainer_operator.cli.plugin.treedata import ROLES, attempt_of, pods_by_member
from trainer_operator.cli.plugin.words import plain, seconds_of

CONTAINER = "trainer"
MAX_FOLLOWED = 64
"""Pods that are followed at once, a connection each."""
LONGEST_WAIT = 10.0
AGAIN = 1.0
"""Seconds between two tries to read a pod that has not started or does not answer."""
FOLLOWED_FOR = 24 * 3600.0
LAST_WORDS = 5.0
"""Seconds that logs may still take once the Trainer is gone."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines of which members."""

    role: str | None
    index: int | None
    tail: int | None
    since: int | None
    timestamps: bool

    def params(self) -> dict[str, str]:
        """Return the query for a pod's log."""
        asked = {"container": CONTAINER, "timestamps": "true"}
        if self.tail is not None:
            asked["tailLines"] = str(self.tail)
        if self.since is not None:
            asked["sinceSeconds"] = str(self.since)
        return asked


@dataclass(frozen=True, slots=True)
class MemberPod:
    """A pod, and whose it is."""

    member: str
    name: str
    uid: str
    attempt: int


def logs(
    name: options.Name,
    role: options.Role = None,
    index: Annotated[
        int | None, typer.Option("--index", min=0, help="Only the member of this index.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as members write.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, help="Last lines of each pod; all when absent.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only lines of this time, such as 5m or 1h.")
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Show when each line was written.")
    ] = False,
    namespace: options.Namespace = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Print what members write, interleaved by time; -f goes on over replaced pods until the Trainer ends."""
    with explained():
        if role is not None and role not in ROLES:
            raise Complaint(f"there is no role {role}: there are {', '.join(ROLES)}", ExitCode.USAGE)
        try:
            seconds = max(1, seconds_of(since)) if since is not None else None
        except ValueError as error:
            raise Complaint(f"--since: {error}", ExitCode.USAGE) from None
        wanted = Wanted(role, index, tail, seconds, timestamps)

        async def work(session: Session) -> None:
            trainer = await session.trainer(name)
            if follow:
                await Follower(session, name, wanted).run(trainer)
            else:
                await _print(session, trainer, wanted)

        run(Access(namespace, context, kubeconfig), work)


def member_pods(pods: Iterable[Mapping[str, Any]], wanted: Wanted) -> list[MemberPod]:
    """Return the pods of the wanted members, each member's earlier attempts first."""
    return [
        MemberPod(f"{role}-{index}", pod["metadata"]["name"], pod["metadata"]["uid"], attempt_of(pod))
        for (role, index), attempts in sorted(
            pods_by_member(pods).items(), key=lambda item: (list(ROLES).index(item[0][0]), item[0][1])
        )
        if wanted.role in (None, role) and wanted.index in (None, index)
        for pod in reversed(attempts)
    ]


class Follower:
    """Follows the logs of all members of one Trainer, pod after pod."""

    def __init__(self, session: Session, name: str, wanted: Wanted) -> None:
        self._session = session
        self._name = name
        self._wanted = wanted
        self._clock = SystemClock()
        self._followed: set[str] = set()
        self._open = 0
        self._prefixes: dict[str, Prefix] = {}

    async def run(self, trainer: Object) -> None:
        """Print until the Trainer has ended and everything was read.

        Raises: Complaint when too many pods would be followed.
        """
        async with TaskScope() as scope:
            first = True
            while True:
                pods = await self._session.pods(self._name)
                self._take_up(scope, member_pods(pods.items, self._wanted), first=first)
                if first and not self._open:
                    note(f"{self._name} has no pods yet" if not _has_ended(trainer) else _nothing(self._name))
                first = False
                if _has_ended(trainer) and not self._open:
                    return
                namespace = self._session.namespace
                version = trainer["metadata"]["resourceVersion"]
                watched = (
                    Watched(PODS, namespace, pods.resource_version, labels=trainer_selector(self._name)),
                    Watched(TRAINERS, namespace, version, fields=f"metadata.name={self._name}"),
                )
                await self._session.changed(watched, within=AGAIN if _has_ended(trainer) else LONGEST_WAIT)
                try:
                    trainer = await self._session.trainer(self._name)
                except Complaint as complaint:
                    if complaint.code is not ExitCode.NOT_FOUND:
                        raise
                    await self._drain()
                    scope.cancel()
                    note(f"{self._name} is gone")
                    return

    async def _drain(self) -> None:
        deadline = self._clock.monotonic() + LAST_WORDS
        while self._open and self._clock.monotonic() < deadline:
            await self._clock.sleep(0.1)

    def _take_up(self, scope: TaskScope, pods: list[MemberPod], *, first: bool) -> None:
        fresh = [pod for pod in pods if pod.uid not in self._followed]
        if self._open + len(fresh) > MAX_FOLLOWED:
            raise Complaint(
                f"{self._name} has {len(fresh)} pods to follow and {MAX_FOLLOWED} are the most: "
                "choose with --role and --index",
                ExitCode.NOT_NOW,
            )
        members = sorted({*self._prefixes, *(pod.member for pod in pods)}, key=_member_order)
        if len(members) != len(self._prefixes):
            self._prefixes = prefixes(members, colours=_colours())
        for pod in fresh:
            if not first and pod.attempt:
                note(f"{pod.member} goes on in pod {pod.name}")
            self._followed.add(pod.uid)
            self._open += 1
            params = (
                self._wanted.params() if first else Wanted(None, None, None, None, timestamps=True).params()
            )
            scope.spawn(self._follow(pod, params), name=pod.name)

    async def _follow(self, pod: MemberPod, params: dict[str, str]) -> None:
        reading, told = Reading(), ""
        path = PODS.path(self._session.namespace, name=pod.name, subresource="log")
        try:
            while True:
                asked = params
                if reading.last is not None:
                    asked = {
                        "container": CONTAINER,
                        "timestamps": "true",
                        "sinceTime": format_time(reading.last),
                    }
                try:
                    await self._read(pod, path, {**asked, "follow": "true"}, reading)
                except NotFound:
                    return
                except (Forbidden, Unauthorized):
                    raise
                except BadRequest:
                    told = self._tell(pod, "has not started yet", told)
                except RuntimeFault as fault:
                    told = self._tell(pod, f"is read again, for {plain(str(fault))}", told)
                if await self._is_over(pod):
                    return
                await self._clock.sleep(AGAIN)
        finally:
            self._open -= 1

    def _tell(self, pod: MemberPod, trouble: str, told: str) -> str:
        """Say why a pod cannot be read, once as long as it stays the same."""
        if trouble != told:
            note(f"{pod.member}: pod {pod.name} {trouble}")
        return trouble

    async def _read(self, pod: MemberPod, path: str, params: Mapping[str, str], reading: Reading) -> None:
        stream = await self._session.client.open_stream(path, params=params, lifetime=FOLLOWED_FOR)
        try:
            async for lines in stream.batches():
                for raw in lines:
                    self._write(pod, parse(raw), reading)
                sys.stdout.flush()
            if stream.remainder:
                self._write(pod, parse(stream.remainder), reading)
                sys.stdout.flush()
        finally:
            stream.close()

    def _write(self, pod: MemberPod, line: LogLine, reading: Reading) -> None:
        if reading.is_new(line):
            sys.stdout.write(self._prefixes[pod.member].write(line, timestamps=self._wanted.timestamps))

    async def _is_over(self, pod: MemberPod) -> bool:
        """Whether nothing more can come of a pod; what can't be told is asked again."""
        try:
            found = await self._session.client.get(PODS, pod.name, self._session.namespace)
        except NotFound:
            return True
        except RuntimeFault:
            return False
        if found["metadata"]["uid"] != pod.uid:
            return True
        return (found.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


async def _print(session: Session, trainer: Object, wanted: Wanted) -> None:
    name = trainer["metadata"]["name"]
    pods = member_pods((await session.pods(name)).items, wanted)
    if not pods:
        note(_nothing(name) if _has_ended(trainer) else f"{name} has no such pods at the moment")
        return
    known = prefixes(list(dict.fromkeys(pod.member for pod in pods)), colours=_colours())
    read = await run_all(*(_whole(session, pod, wanted) for pod in pods))
    for prefix, line in interleave(
        [(known[pod.member], lines) for pod, lines in zip(pods, read, strict=True)]
    ):
        sys.stdout.write(prefix.write(line, timestamps=wanted.timestamps))
    sys.stdout.flush()


async def _whole(session: Session, pod: MemberPod, wanted: Wanted) -> list[LogLine]:
    path = PODS.path(session.namespace, name=pod.name, subresource="log")
    try:
        return parse_all(
            await session.client.request(
                "GET", path, params=wanted.params(), headers={"Accept": "*/*"}, retry=False
            )
        )
    except NotFound:
        note(f"{pod.member}: pod {pod.name} is gone, and its log with it")
    except BadRequest:
        note(f"{pod.member}: pod {pod.name} has not started yet")
    except (ApiError, ResponseMalformed) as error:
        if isinstance(error, ApiError) and error.status in {401, 403}:
            raise
        note(f"{pod.member}: the log of pod {pod.name} cannot be read: {plain(str(error))}")
    return []


def _has_ended(trainer: Object) -> bool:
    return status_of(trainer).get("phase") in {"Succeeded", "Failed"}


def _nothing(name: str) -> str:
    return f"{name} has ended and has no such pods any more: cleanPodPolicy None keeps them"


def _member_order(member: str) -> tuple[int, int]:
    role, _, index = member.rpartition("-")
    return list(ROLES).index(role), int(index)


def _colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
