"""Operators in processes of their own, and what the API server's audit log says of their writes.

The operator stamps one ConfigMap five times a second. Commands come over its standard input, so that a test can freeze
its event loop, or all of its threads, from inside, or have it stop itself at an exact place of its next write. Single
protections can be taken away, which only shows that a test would notice if they were missing.
"""

import asyncio
import contextlib
import json
import signal
import sys
from dataclasses import dataclass

import pytest

PROGRAM = """
import asyncio, ctypes, dataclasses, os, signal, ssl, sys, threading, time
from runtime.client import ClientConfig
from runtime.controller import Controller, Result
from runtime.fence import Fence
from runtime.leaderelection import LeaderElectionConfig, LeaderElector
from runtime.logs import configure
from runtime.manager import Manager, run_manager
from runtime.objects import CONFIGMAPS

kubeconfig, namespace, identity, lease, deadline, retry, *without = sys.argv[1:]

def say(*words):
    print(*words, flush=True)

stopping_at = None

def stop_at(place):
    # SIGSTOP takes effect before `kill` returns; what follows it is what the process does on waking.
    global stopping_at
    if stopping_at == place and threading.current_thread() is threading.main_thread():
        stopping_at = None
        say("at", place)
        os.kill(os.getpid(), signal.SIGSTOP)

asked, sent = Fence.check, ssl.SSLObject.write

def check(fence):
    stop_at("fence")
    if "fence" not in without:
        asked(fence)

def write(tls, data):
    if b"operator-stamp" in bytes(data):
        stop_at("send")
    return sent(tls, data)

Fence.check, ssl.SSLObject.write = check, write
if "deadline" in without:
    LeaderElector.end_process_with_lease = lambda elector: None
if "cap" in without:
    Fence.time_to_end = lambda fence, now: float("inf")
if "news" in without:
    async def never(elector):
        await asyncio.Event().wait()

    LeaderElector.wait_ended = never

class Stamper:
    def __init__(self, client):
        self.client, self.count = client, 0

    async def reconcile(self, request):
        self.count += 1
        change = {"data": {"by": identity, "count": str(self.count), "what": "operator-stamp"}}
        await self.client.patch(CONFIGMAPS, request.name, change, namespace=request.namespace)
        say("stamped", self.count)
        return Result(requeue_after=0.2)

class Commands:
    async def run(self):
        loop = asyncio.get_running_loop()
        threading.Thread(target=self.listen, args=(loop,), daemon=True).start()
        await asyncio.Event().wait()

    def listen(self, loop):
        global stopping_at
        for line in sys.stdin:
            what, seconds = line.split()
            if what == "stop":
                stopping_at = seconds
                continue
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

    async def says(self, what, *, within=60.0):
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

    async def stops(self, place):
        """Have the next write stop the process at a place, see `command`, and return once it stands still."""
        self.command(f"stop {place}")
        await self.says(f"at {place}", within=60)
        async with asyncio.timeout(60):
            while _state(self.process.pid) != "T":
                await asyncio.sleep(0.01)

    def command(self, line):
        """Give a command: `loop 4` freezes the event loop for 4 s, `all 4` every thread.

        `stop fence` and `stop send` have the next write stop the whole process right before it asks the fence, or
        right before its bytes are encrypted and sent.
        """
        self.process.stdin.write(f"{line}\n".encode())

    def signal(self, number):
        """Send a signal."""
        self.process.send_signal(number)

    async def exits(self, *, within=60.0):
        """Wait for the end and return the exit code."""
        async with asyncio.timeout(within):
            while await self.process.stdout.read(1 << 16):
                pass
            return await self.process.wait()


def _state(pid):
    """Return the state of a process as the kernel abbreviates it."""
    with open(f"/proc/{pid}/stat") as status:
        return status.read().rsplit(")", 1)[1].split()[0]


@contextlib.asynccontextmanager
async def operating(kubeconfig, namespace, identity, terms=Terms(), *, without=()):
    """Run an operator for the block; whatever became of it, it is gone afterwards.

    `without` takes protections away: the `fence`, the `cap` on requests in flight, the process's `deadline`, and the
    `news` of a lost lease, on which the process would end by itself.
    """
    durations = [str(each) for each in (terms.lease, terms.deadline, terms.retry)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", PROGRAM, str(kubeconfig), namespace, identity, *durations, *without),
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
