"""Operators in processes of their own, and what the API server's audit log says of their writes.

The operator stamps one ConfigMap five times a second. Commands come over its standard input, so that a test can freeze
its event loop, or all of its threads, from inside.
"""

import asyncio
import contextlib
import json
import signal
import sys
from dataclasses import dataclass

import pytest

PROGRAM = """
import asyncio, ctypes, dataclasses, sys, threading, time
from runtime.client import ClientConfig
from runtime.controller import Controller, Result
from runtime.leaderelection import LeaderElectionConfig
from runtime.logs import configure
from runtime.manager import Manager, run_manager
from runtime.objects import CONFIGMAPS

kubeconfig, namespace, identity, lease, deadline, retry = sys.argv[1:]

def say(*words):
    print(*words, flush=True)

class Stamper:
    def __init__(self, client):
        self.client, self.count = client, 0

    async def reconcile(self, request):
        self.count += 1
        change = {"data": {"by": identity, "count": str(self.count)}}
        await self.client.patch(CONFIGMAPS, request.name, change, namespace=request.namespace)
        say("stamped", self.count)
        return Result(requeue_after=0.2)

class Commands:
    async def run(self):
        loop = asyncio.get_running_loop()
        threading.Thread(target=self.listen, args=(loop,), daemon=True).start()
        await asyncio.Event().wait()

    def listen(self, loop):
        for line in sys.stdin:
            what, seconds = line.split()
            # `PyDLL` keeps the interpreter's lock, so every thread stands still, the elector's too.
            freeze = time.sleep if what == "loop" else ctypes.PyDLL(None).sleep
            loop.call_soon_threadsafe(self.freeze, freeze, what, int(seconds))

    def freeze(self, how, what, seconds):
        say("freezing", what)
        how(seconds)
        say("thawed", what)

def build():
    config = dataclasses.replace(ClientConfig.from_kubeconfig(kubeconfig), user_agent=f"operator-{identity}")
    manager = Manager(
        config,
        leader_election=LeaderElectionConfig(
            namespace, "operator", identity,
            lease_duration=float(lease), renew_deadline=float(deadline), retry_period=float(retry),
        ),
        health_address=None,
    )
    controller = Controller("stamper", Stamper(manager.client), clock=manager.clock, metrics=manager.metrics)
    controller.watch(manager.informers.informer(CONFIGMAPS, namespaces=[namespace], fields="metadata.name=stamped"))
    manager.add_controller(controller)
    manager.add_runnable(Commands())

    async def leading():
        say("leading")

    manager.add_leader_hook(leading)
    return manager

configure()
code = run_manager(build)
say("exit", code)
raise SystemExit(code)
"""


@dataclass(frozen=True)
class Terms:
    """Durations of an election in seconds."""

    lease: float = 3.0
    deadline: float = 2.0
    retry: float = 0.4


class OperatorProcess:
    """One operator; a killed one is reaped at the end of its block."""

    def __init__(self, process, identity):
        self.process, self.identity = process, identity

    async def says(self, what, *, within=10.0):
        """Read on until a line begins so, and return the line."""
        async with asyncio.timeout(within):
            while line := await self.process.stdout.readline():
                if line.decode().startswith(what):
                    return line.decode().strip()
        pytest.fail(f"operator {self.identity} ended before it said {what!r}")

    async def pauses(self):
        """Return right after a write has ended, with some 0.2 s to go until the next.

        A process that is stopped between asking the fence and handing its request to the kernel would send it when it
        wakes up: no client can close that gap, which is well below a millisecond, and no test should hit it by chance.
        """
        with contextlib.suppress(TimeoutError):
            for _ in range(200):  # the pause is looked for, not waited for without end
                await self.says("stamped", within=0.05)
        await self.says("stamped")

    def command(self, line):
        """Give a command: `loop 4` freezes the event loop for 4 s, `all 4` every thread."""
        self.process.stdin.write(f"{line}\n".encode())

    def signal(self, number):
        """Send a signal."""
        self.process.send_signal(number)

    async def exits(self, *, within=10.0):
        """Wait for the end and return the exit code."""
        async with asyncio.timeout(within):
            while await self.process.stdout.read(1 << 16):
                pass
            return await self.process.wait()


@contextlib.asynccontextmanager
async def operating(kubeconfig, namespace, identity, terms=Terms()):
    """Run an operator for the block; whatever became of it, it is gone afterwards."""
    durations = [str(each) for each in (terms.lease, terms.deadline, terms.retry)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", PROGRAM, str(kubeconfig), namespace, identity, *durations),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield OperatorProcess(process, identity)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.communicate()


def writers(audit_log, namespace):
    """Return who changed the stamped object, in order, each turn once, as the API server recorded it."""
    changes = []
    with open(audit_log) as lines:
        for line in lines:
            if namespace not in line or '"configmaps"' not in line:
                continue
            entry = json.loads(line)
            about = entry.get("objectRef") or {}
            if (
                entry["stage"] == "ResponseComplete"
                and entry["verb"] in ("create", "update", "patch", "delete")
                and about.get("namespace") == namespace
                and about.get("resource") == "configmaps"
                and entry.get("userAgent", "").startswith("operator-")
                and entry["responseStatus"]["code"] < 300
            ):
                changes.append(
                    (entry["requestReceivedTimestamp"], entry["stageTimestamp"], entry["userAgent"])
                )
    turns = []
    for _, _, agent in sorted(changes):
        identity = agent.removeprefix("operator-")
        if not turns or turns[-1] != identity:
            turns.append(identity)
    return turns
