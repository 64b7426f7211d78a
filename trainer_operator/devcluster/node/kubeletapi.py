"""The part of a kubelet's API that the API server calls for `kubectl logs`.

Only clients whose certificate the cluster's authority signed for the kubelet API or for an administrator get in; the
API server has checked the person behind the request before it comes here.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from runtime.clock import Clock, parse_time
from runtime.objects import JsonObject, ObjectKey, uid_of
from trainer_operator.devcluster.node.containerstate import ContainerRecord, Running, Waiting
from trainer_operator.devcluster.node.folders import PodFolders
from trainer_operator.devcluster.node.logstore import LogQuery, LogTail, read_log

ALLOWED_GROUPS = frozenset({"system:masters", "kubeadm:cluster-admins"})
FOLLOW_INTERVAL = 0.1
"""Seconds between two looks at a log that somebody follows; without a follower nothing is looked at."""


class PodLookup(Protocol):
    """What the node knows of its pods."""

    def pod(self, key: ObjectKey) -> JsonObject | None:
        """Return a pod."""

    def record(self, key: ObjectKey, container: str) -> ContainerRecord | None:
        """Return what is known of a container."""

    def folders(self, uid: str) -> PodFolders:
        """Return a pod's folders."""


@dataclass(frozen=True, slots=True)
class ServingFiles:
    """Certificate and key of the node, and the authority of its clients."""

    certificate: Path
    key: Path
    authority: str
    """PEM text."""


class KubeletServer:
    """Serves logs on the node's address."""

    def __init__(self, pods: PodLookup, *, address: str, files: ServingFiles, clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._files = files
        # Bound at once: the Node object names the port before anybody listens.
        self._socket = socket.create_server((address, 0))
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that the Node object names."""
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        """Answer requests.

        Raises: OSError, ssl.SSLError when the files cannot be used.
        """
        app = web.Application(middlewares=[_only_allowed])
        app.router.add_get("/healthz", _healthy)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        for missing in ("exec", "attach", "portForward", "run"):
            app.router.add_route("*", f"/{missing}/{{rest:.*}}", _not_here)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self._files.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self._files.certificate, self._files.key)
        await web.SockSite(self._runner, self._socket, ssl_context=context).start()

    async def stop(self) -> None:
        """Stop listening; followers are cut off."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        names = request.match_info
        key = ObjectKey(names["namespace"], names["pod"])
        pod = self._pods.pod(key)
        if pod is None:
            return web.Response(status=404, text=f'pod "{key.name}" not found\n')
        container = names["container"]
        record = self._pods.record(key, container)
        if record is None or not record.ever_ran:
            reason = (
                record.state.reason if record and isinstance(record.state, Waiting) else "ContainerCreating"
            )
            return web.Response(
                status=400,
                text=f'container "{container}" in pod "{key.name}" is waiting to start: {reason}\n',
            )
        run = record.restarts
        if request.query.get("previous") == "true" and not isinstance(record.state, Waiting):
            run -= 1
        if run < 0:
            return web.Response(
                status=400,
                text=f'previous terminated container "{container}" in pod "{key.name}" not found\n',
            )
        try:
            query = _query(request.query, now=self._clock.utcnow())
            left = int(request.query.get("limitBytes") or 1 << 62)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        return await self._stream(request, key, container, run=run, query=query, left=left, uid=uid_of(pod))

    async def _stream(
        self,
        request: web.Request,
        key: ObjectKey,
        container: str,
        *,
        run: int,
        query: LogQuery,
        left: int,
        uid: str,
    ) -> web.StreamResponse:
        path = self._pods.folders(uid).log(container, run)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        tail = LogTail(path, query)
        try:
            for text in read_log(path, query):
                await response.write(text[:left])
                left -= len(text[:left])
                if left == 0:
                    break
            while request.query.get("follow") == "true" and left > 0:
                running = self._is_running(key, container, run)
                text = tail.more()[:left]
                if text:
                    await response.write(text)
                    left -= len(text)
                elif not running:
                    break
                else:
                    await asyncio.sleep(FOLLOW_INTERVAL)
        except ConnectionResetError:
            return response  # the reader went away
        finally:
            tail.close()
        await response.write_eof()
        return response

    def _is_running(self, key: ObjectKey, container: str, run: int) -> bool:
        record = self._pods.record(key, container)
        return record is not None and record.restarts == run and isinstance(record.state, Running)


@web.middleware
async def _only_allowed(request: web.Request, handler: Any) -> web.StreamResponse:
    transport = request.transport
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    subject = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    groups = {value for name, value in subject if name == "organizationName"}
    if not groups & ALLOWED_GROUPS:
        return web.Response(status=403, text="only the API server and administrators may call a node\n")
    response: web.StreamResponse = await handler(request)
    return response


async def _healthy(_: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def _not_here(_: web.Request) -> web.StreamResponse:
    text = "process nodes do logs only: enter a pod with nsenter, its processes are this machine's\n"
    return web.Response(status=501, text=text)


def _query(parameters: Any, *, now: datetime) -> LogQuery:
    tail = parameters.get("tailLines")
    since = None
    if parameters.get("sinceSeconds"):
        since = now - timedelta(seconds=int(parameters["sinceSeconds"]))
    elif parameters.get("sinceTime"):
        since = parse_time(parameters["sinceTime"])
    stream = {"Stdout": "stdout", "Stderr": "stderr"}.get(parameters.get("stream") or "All")
    return LogQuery(
        tail=None if tail is None else int(tail),
        since=since,
        timestamps=parameters.get("timestamps") == "true",
        stream=stream,
    )
