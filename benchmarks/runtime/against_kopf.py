"""The same little operator on kopf and on this runtime, with a backlog of objects waiting when it starts."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.child import Failed, python
from benchmarks.result import Column, Ratio, Result, Row, Scale
from benchmarks.runtime.apiserver import api_server, new_namespace
from benchmarks.runtime.kopfcase.audit import Asked, AuditTrail
from benchmarks.runtime.kopfcase.bundle import CHILDREN, GROUP, PLURAL, VERSION, bundle, definition
from runtime.client import Client, ClientConfig
from runtime.objects import CUSTOM_RESOURCE_DEFINITIONS, Resource
from runtime.tasks import TaskScope
from trainer_operator.devcluster.controlplane import ControlPlane
from trainer_operator.devcluster.gotoolchain import installers
from trainer_operator.devcluster.paths import cache_root

__all__ = ["measure"]

_KOPF = "1.45.0"
_RAW = "bound: aiohttp sends the same requests, nothing else"
_OURS = "ours"
_THEIRS = f"kopf {_KOPF}"
_SIZES = {Scale.QUICK: 300, Scale.FULL: 1_000}
_PATIENCE = 240.0  # seconds that an operator has
_QUIET = 3.0  # seconds after the last child in which an operator may still write statuses


def measure(scale: Scale) -> Result:
    """Let each operator work off the same backlog at the same API server, one after the other."""
    count = _SIZES[scale]
    rows = []
    with api_server() as plane:
        uvloop.run(_install(plane.config))
        for subject, short in ((_RAW, "raw"), (_OURS, "ours"), (_THEIRS, "kopf")):
            empty, namespace = new_namespace(plane, f"{short}-empty"), new_namespace(plane, short)
            uvloop.run(_fill(plane.config, namespace, count))
            try:
                start_up = _watch_it_work(plane, f"bench-{short}-empty", *_operator(subject, empty), count=0)
                values = _watch_it_work(plane, f"bench-{short}", *_operator(subject, namespace), count=count)
                values["own"] = 1000 * (values["cpu"] - start_up["cpu"]) / count
                rows.append(Row(subject, values))
            except Failed as failure:
                rows.append(Row(subject, note=str(failure)))
    return Result(
        "kopf",
        f"The same little operator on kopf {_KOPF}",
        f"{count:,} custom objects exist when the operator starts; it gives each {CHILDREN} ConfigMaps and notes it in "
        "the status. Time from the operator's first request to the answer to its last create, both from the API "
        "server's audit log; processor time and memory of the whole process, start-up included. kopf runs with "
        "`--quiet`, so that it spends nothing on logs and events of each handler. The bound is a program that only sends "
        "each object's creates and its status, 64 at once: no operator can be quicker at this API server. The last column "
        "is the processor time beyond that of a run in an empty namespace: what is the operator's own, which the API "
        "server does not limit.",
        (
            Column("seconds", "seconds to all children", 2),
            Column("rate", "children per second", 0),
            Column("cpu", "processor seconds", 2),
            Column("rss", "peak memory, MiB", 0),
            Column("requests", "API requests per object", 2),
            Column("own", "processor ms per object, start-up apart", 2),
        ),
        tuple(rows),
        _ratios(rows),
    )


def _ratios(rows: Sequence[Row]) -> tuple[Ratio, ...]:
    raw, ours, theirs = (row.values for row in rows)
    ratios = []
    if ours and theirs:
        ratios += [
            Ratio(
                f"children per second, ours against {_THEIRS}", ours["rate"] / theirs["rate"], at_least=5.0
            ),
            Ratio(f"processor time, {_THEIRS} against ours", theirs["cpu"] / ours["cpu"]),
            Ratio(
                f"objects per second of the operator's own processor time, ours against {_THEIRS}",
                theirs["own"] / ours["own"],
                at_least=5.0,
            ),
            Ratio(f"API requests, {_THEIRS} against ours", theirs["requests"] / ours["requests"]),
        ]
    if raw and theirs:
        ratios.append(
            Ratio(
                f"the bound against {_THEIRS}: the most that any operator could reach here",
                raw["rate"] / theirs["rate"],
            )
        )
    if raw and ours:
        ratios.append(Ratio("ours against the bound", ours["rate"] / raw["rate"]))
    return tuple(ratios)


def _operator(subject: str, namespace: str) -> tuple[list[str], dict[str, str]]:
    if subject != _THEIRS:
        module = "our_operator" if subject == _OURS else "raw_client"
        return python(f"benchmarks.runtime.kopfcase.{module}", namespace), {}
    project = Path(__file__).parents[2]
    environment = {"PYTHONPATH": f"{project}{os.pathsep}{_installed_kopf()}"}
    module = "benchmarks.runtime.kopfcase.kopf_operator"
    return python(
        "kopf", "run", "--standalone", f"--namespace={namespace}", "--quiet", "-m", module
    ), environment


def _installed_kopf() -> Path:
    """Return the folder that holds kopf, installing it where nothing else sees it.

    Raises: Failed when it cannot be installed.
    """
    folder = cache_root() / "benchmarks" / f"kopf-{_KOPF}-{sys.version_info.major}.{sys.version_info.minor}"
    if folder.is_dir():
        return folder
    incoming = folder.with_name(f"{folder.name}.incoming")
    said = "no package installer was found"
    for command in installers(cache_root() / "tools"):
        shutil.rmtree(incoming, ignore_errors=True)
        arguments = ["--target", str(incoming), f"kopf=={_KOPF}"]
        if Path(command[0]).name.startswith("uv"):
            arguments += ["--python", sys.executable]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            incoming.rename(folder)
            return folder
        said = (done.stderr.strip().splitlines() or [said])[-1]
    raise Failed(f"kopf {_KOPF} could not be installed: {said[:150]}")


async def _install(config: ClientConfig) -> None:
    async with Client(config) as client:
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
        name = f"{PLURAL}.{GROUP}"
        while not _is_established(await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)):  # noqa: ASYNC110  # polls a server
            await asyncio.sleep(0.05)


def _is_established(made: Mapping[str, Any]) -> bool:
    conditions = (made.get("status") or {}).get("conditions") or ()  # null at first
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


async def _fill(config: ClientConfig, namespace: str, count: int) -> None:
    resource_ = Resource(GROUP, VERSION, PLURAL, "Bundle")
    async with Client(config) as client, TaskScope() as scope:
        for number in range(count):
            scope.spawn(client.create(resource_, bundle(number), namespace=namespace), name="fill")


def _watch_it_work(
    plane: ControlPlane,
    user: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    count: int,
) -> dict[str, float]:
    """Run an operator until all is done, which with no objects is its first request, and return its figures.

    Raises: Failed when it ends early or is too slow.
    """
    kubeconfig = plane.user_kubeconfig(user, groups=["system:masters"])
    trail = AuditTrail(plane.audit_log, user=user)
    log = plane.state_dir / f"{user}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment, "KUBECONFIG": str(kubeconfig)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_done(process, trail, log, count=count)
        time.sleep(_QUIET)
        asked = trail.read()
        used = _end(process)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()
    return _figures(asked, used, count=count)


def _wait_until_done(process: subprocess.Popen[bytes], trail: AuditTrail, log: Path, *, count: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while (
        trail.read().first is None
        or trail.asked.children < count * CHILDREN
        or len(trail.asked.parents_written) < count
    ):
        if process.poll() is not None:
            said = (log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]
            raise Failed(f"the operator ended with code {process.returncode} and said {said[:150]}")
        if time.monotonic() > deadline:
            raise Failed(f"{trail.asked.children:,} of {count * CHILDREN:,} children after {_PATIENCE:g} s")
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> resource.struct_rusage:
    process.send_signal(signal.SIGTERM)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used


def _figures(asked: Asked, used: resource.struct_rusage, *, count: int) -> dict[str, float]:
    figures = {"cpu": used.ru_utime + used.ru_stime, "rss": used.ru_maxrss / 1024}
    if count:
        figures["seconds"] = asked.seconds
        figures["rate"] = count * CHILDREN / asked.seconds
        figures["requests"] = sum(asked.requests.values()) / count
    return figures
