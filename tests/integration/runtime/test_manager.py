"""The manager against a real API server: order of start and stop, fail-over, and what makes it not live."""

import asyncio
import signal
import sys
import time

import aiohttp
import pytest

from runtime.client import Client, NotFound
from runtime.controller import Controller, Request, Result
from runtime.fence import LeadershipLost
from runtime.leaderelection import LeaderElectionConfig
from runtime.manager import Manager
from runtime.objects import CONFIGMAPS, EVENTS, LEASES, ObjectKey
from runtime.tasks import TaskScope

QUICK = {"lease_duration": 3.0, "renew_deadline": 2.0, "retry_period": 0.4}


class Stamper:
    """Writes into each ConfigMap who reconciled it."""

    def __init__(self, manager, informer, *, seconds=0.0):
        self.manager, self.informer, self.seconds = manager, informer, seconds
        self.started, self.ended = [], []

    async def reconcile(self, request: Request) -> Result | None:
        obj = self.informer.get(request.key)
        if obj is None or "stamp" in (obj.get("data") or {}):
            return None
        self.started.append(request.name)
        await asyncio.sleep(self.seconds)
        await self.manager.client.patch(
            CONFIGMAPS,
            request.name,
            {"data": {"stamp": self.manager.identity}},
            namespace=request.namespace,
        )
        self.manager.events.event(
            obj, type="Normal", reason="Stamped", message="the object was stamped", resource=CONFIGMAPS
        )
        self.ended.append(request.name)
        return None


class Process:
    """A manager as a test sees it: started in a task, stopped by its event."""

    def __init__(self, control_plane, namespace, *, identity="one", election=True, seconds=0.0):
        lease = LeaderElectionConfig(namespace=namespace, name="operator", identity=identity, **QUICK)
        self.manager = Manager(
            control_plane.config,
            leader_election=lease if election else None,
            health_address=("127.0.0.1", 0),
            freeze_memory=False,
        )
        self.namespace = namespace
        self.informer = self.manager.informers.informer(
            CONFIGMAPS, namespaces=[namespace], labels="test=manager"
        )
        self.stamper = Stamper(self.manager, self.informer, seconds=seconds)
        self.controller = Controller(
            "stamper", self.stamper, clock=self.manager.clock, metrics=self.manager.metrics
        )
        self.controller.watch(self.informer)
        self.manager.add_controller(self.controller)
        self.stop = asyncio.Event()

    def start(self, scope):
        return scope.spawn(self.manager.run(self.stop), name="manager")

    async def page(self, path):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.manager.health.port}{path}") as answer,
        ):
            return answer.status, await answer.text()


async def eventually(condition, *, within=15.0):
    async with asyncio.timeout(within):
        while not (await condition() if asyncio.iscoroutinefunction(condition) else condition()):
            await asyncio.sleep(0.02)


async def create(control_plane, namespace, name):
    body = {"metadata": {"name": name, "namespace": namespace, "labels": {"test": "manager"}}}
    async with Client(control_plane.config) as client:
        await client.create(CONFIGMAPS, body)


async def stamp_of(control_plane, namespace, name):
    async with Client(control_plane.config) as client:
        return ((await client.get(CONFIGMAPS, name, namespace)).get("data") or {}).get("stamp")


async def holder(control_plane, namespace):
    async with Client(control_plane.config) as client:
        try:
            return (await client.get(LEASES, "operator", namespace))["spec"].get("holderIdentity")
        except NotFound:
            return None


async def test_it_reconciles_without_an_election_and_stops_with_zero(control_plane, namespace):
    """P2, S9, C8."""
    await create(control_plane, namespace, "before")
    process = Process(control_plane, namespace, election=False)
    async with TaskScope() as scope:
        running = process.start(scope)
        await eventually(lambda: process.stamper.ended == ["before"])
        await create(control_plane, namespace, "after")
        await eventually(lambda: process.stamper.ended == ["before", "after"])
        assert process.manager.is_leader
        assert await process.page("/healthz") == (200, "ok\n")
        assert await process.page("/readyz") == (200, "ok\n")
        _, text = await process.page("/metrics")
        assert 'controller_runtime_reconcile_errors_total{controller="stamper"} 0.0' in text
        assert 'rest_client_requests_total{code="200",host=' in text
        process.stop.set()
    assert running.result() == 0
    assert not process.manager.is_leader
    assert await stamp_of(control_plane, namespace, "after") == process.manager.identity
    async with Client(control_plane.config) as client:
        events = (await client.list(EVENTS, namespace)).items
    assert {event["involvedObject"]["name"] for event in events if event["reason"] == "Stamped"} == {
        "before",
        "after",
    }


async def test_a_standby_is_ready_and_warm_but_cannot_write_until_the_leader_stops(control_plane, namespace):
    """C9, L6, L7, G8."""
    first, second = (Process(control_plane, namespace, identity=identity) for identity in ("first", "second"))
    async with TaskScope() as scope:
        first_running = first.start(scope)
        await first.manager.wait_leading()
        second_running = second.start(scope)
        await eventually(lambda: second.manager.is_ready)
        await create(control_plane, namespace, "a")
        await eventually(lambda: first.stamper.ended == ["a"])
        await eventually(lambda: len(second.controller.queue) == 1)
        assert (await second.page("/readyz"))[0] == 200
        assert not second.manager.is_leader
        with pytest.raises(LeadershipLost):
            await second.manager.client.create(
                CONFIGMAPS, {"metadata": {"name": "x", "namespace": namespace}}
            )
        first.stop.set()
        begin = time.monotonic()
        await second.manager.wait_leading()
        assert time.monotonic() - begin < 3
        assert await first_running == 0
        await create(control_plane, namespace, "b")
        await eventually(lambda: second.stamper.ended == ["b"])
        second.stop.set()
    assert second_running.result() == 0
    assert await stamp_of(control_plane, namespace, "a") == "first"
    assert await stamp_of(control_plane, namespace, "b") == "second"
    assert await holder(control_plane, namespace) is None


async def test_a_reconcile_in_progress_ends_before_the_lease_is_given_back(control_plane, namespace):
    """P2, L7."""
    process = Process(control_plane, namespace, seconds=1.0)
    async with TaskScope() as scope:
        running = process.start(scope)
        await process.manager.wait_leading()
        await create(control_plane, namespace, "a")
        await eventually(lambda: process.stamper.started == ["a"])
        process.stop.set()
        await asyncio.sleep(0.5)
        assert await holder(control_plane, namespace) == "one"
        assert (await process.page("/readyz"))[0] == 503
        assert (await process.page("/healthz"))[0] == 200
    assert running.result() == 0
    assert process.stamper.ended == ["a"]
    assert await stamp_of(control_plane, namespace, "a") == "one"
    assert await holder(control_plane, namespace) is None


async def test_a_lost_lease_cancels_the_workers_and_ends_with_one(control_plane, namespace):
    """L6."""
    process = Process(control_plane, namespace, seconds=30.0)
    async with TaskScope() as scope:
        running = process.start(scope)
        await process.manager.wait_leading()
        await create(control_plane, namespace, "a")
        await eventually(lambda: process.stamper.started == ["a"])
        async with Client(control_plane.config) as client:
            await client.patch(LEASES, "operator", {"spec": {"holderIdentity": "thief"}}, namespace=namespace)
        async with asyncio.timeout(10):
            assert await running == 1
    assert process.stamper.ended == []
    assert await stamp_of(control_plane, namespace, "a") is None
    assert await holder(control_plane, namespace) == "thief"


async def test_hooks_run_before_the_workers_and_runnables_where_they_belong(control_plane, namespace):
    """P2: start and stop order."""
    order = []
    process = Process(control_plane, namespace)

    class Part:
        def __init__(self, name):
            self.name = name

        async def start(self):
            order.append((f"{self.name} starts", process.informer.has_synced))

        async def stop(self):
            order.append((f"{self.name} stops", await holder(control_plane, namespace)))

        async def run(self):
            order.append((f"{self.name} runs", process.manager.is_leader))
            try:
                await asyncio.Event().wait()
            finally:
                order.append((f"{self.name} ends", process.manager.is_leader))

    async def hook():
        order.append(("hook", process.manager.is_leader))
        assert process.stamper.started == []

    process.manager.add_server(Part("webhook"))
    process.manager.add_runnable(Part("everywhere"))
    process.manager.add_runnable(Part("leader only"), leader_only=True)
    process.manager.add_leader_hook(hook)
    await create(control_plane, namespace, "a")
    async with TaskScope() as scope:
        running = process.start(scope)
        await eventually(lambda: process.stamper.ended == ["a"])
        process.stop.set()
    assert running.result() == 0
    assert order == [
        ("webhook starts", False),
        ("everywhere runs", False),
        ("hook", False),
        ("leader only runs", True),
        ("leader only ends", False),
        ("everywhere ends", False),
        ("webhook stops", None),
    ]


async def test_a_part_that_ends_by_itself_makes_the_process_not_live(control_plane, namespace):
    """W16, S9."""
    process = Process(control_plane, namespace, election=False)

    class Short:
        async def run(self):
            await asyncio.sleep(0.1)

    process.manager.add_runnable(Short(), name="short-lived")
    async with TaskScope() as scope:
        running = process.start(scope)

        async def is_dead():
            return process.manager.is_ready and (await process.page("/healthz"))[0] == 503

        await eventually(is_dead)
        assert "short-lived ended unexpectedly" in (await process.page("/healthz"))[1]
        process.stop.set()
    assert running.result() == 0


@pytest.mark.parametrize("leader_only", [False, True])
async def test_a_part_that_fails_ends_the_process_with_one_and_frees_the_lease(
    control_plane, namespace, leader_only
):
    """PY5, L7."""
    process = Process(control_plane, namespace)

    class Failing:
        async def run(self):
            await process.manager.wait_leading()
            raise OSError("disk full")

    process.manager.add_runnable(Failing(), leader_only=leader_only)
    async with asyncio.timeout(15):
        assert await process.manager.run(process.stop) == 1
    assert await holder(control_plane, namespace) is None


async def test_a_failing_hook_ends_the_process_before_any_worker_ran(control_plane, namespace):
    """P2."""
    process = Process(control_plane, namespace)
    await create(control_plane, namespace, "a")

    async def hook():
        raise OSError("cannot recover")

    process.manager.add_leader_hook(hook)
    async with asyncio.timeout(15):
        assert await process.manager.run(process.stop) == 1
    assert process.stamper.started == []
    assert await holder(control_plane, namespace) is None


async def test_a_stop_before_the_start_is_over_is_obeyed(control_plane, namespace):
    """P2."""
    process = Process(control_plane, namespace)
    process.stop.set()
    async with asyncio.timeout(10):
        assert await process.manager.run(process.stop) == 0
    assert await holder(control_plane, namespace) is None


async def test_a_port_in_use_ends_the_start_with_one(control_plane, namespace):
    """P2: bad input gives an exit code, not a hang."""
    first = Process(control_plane, namespace, election=False)
    async with TaskScope() as scope:
        first.start(scope)
        await eventually(lambda: first.manager.is_ready)
        second = Manager(
            control_plane.config, health_address=("127.0.0.1", first.manager.health.port), freeze_memory=False
        )
        async with asyncio.timeout(10):
            assert await second.run() == 1
        first.stop.set()


async def test_the_loop_that_was_blocked_beyond_the_deadline_still_leads(control_plane, namespace):
    """L9, PY2: the elector renews from its own thread."""
    process = Process(control_plane, namespace)
    async with TaskScope() as scope:
        running = process.start(scope)
        await process.manager.wait_leading()
        time.sleep(QUICK["lease_duration"] + 1)
        await create(control_plane, namespace, "a")
        await eventually(lambda: process.stamper.ended == ["a"])
        process.stop.set()
    assert running.result() == 0


PROGRAM = """
import asyncio, sys
from runtime.client import ClientConfig
from runtime.leaderelection import LeaderElectionConfig
from runtime.controller import Controller
from runtime.manager import Manager, run_manager
from runtime.objects import CONFIGMAPS

kubeconfig, namespace, seconds = sys.argv[1:]

class Slow:
    async def reconcile(self, request):
        print("reconciling", flush=True)
        await asyncio.sleep(float(seconds))
        print("reconciled", flush=True)

def build():
    manager = Manager(
        ClientConfig.from_kubeconfig(kubeconfig),
        leader_election=LeaderElectionConfig(namespace=namespace, name="operator"),
        health_address=None,
    )
    controller = Controller("slow", Slow(), clock=manager.clock, metrics=manager.metrics)
    controller.watch(manager.informers.informer(CONFIGMAPS, namespaces=[namespace], labels="test=manager"))
    manager.add_controller(controller)
    return manager

raise SystemExit(run_manager(build))
"""


async def started_program(kubeconfig, namespace, seconds):
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", PROGRAM, str(kubeconfig), namespace, str(seconds)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(20):
        while b"reconciling" not in await program.stdout.readline():
            assert program.returncode is None
    return program


async def test_a_signal_drains_and_ends_with_zero(control_plane, namespace, kubeconfig):
    """P2: in a process of its own, on uvloop."""
    await create(control_plane, namespace, "a")
    program = await started_program(kubeconfig, namespace, 1)
    program.send_signal(signal.SIGTERM)
    async with asyncio.timeout(15):
        rest, _ = await program.communicate()
    assert program.returncode == 0
    assert b"reconciled" in rest
    assert await holder(control_plane, namespace) is None


async def test_a_second_signal_ends_at_once(control_plane, namespace, kubeconfig):
    """P2."""
    await create(control_plane, namespace, "a")
    program = await started_program(kubeconfig, namespace, 60)
    program.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.5)
    assert program.returncode is None
    program.send_signal(signal.SIGINT)
    async with asyncio.timeout(5):
        await program.communicate()
    assert program.returncode == -signal.SIGINT


async def test_triggers_and_requeues_reach_the_reconciler(control_plane, namespace):
    """C1."""
    process = Process(control_plane, namespace, election=False)
    calls = []

    class Counting:
        async def reconcile(self, request):
            calls.append(request.key)
            return Result(requeue_after=0.05) if len(calls) < 3 else None

    controller = Controller(
        "counting", Counting(), clock=process.manager.clock, metrics=process.manager.metrics
    )
    process.manager.add_controller(controller)
    controller.trigger(ObjectKey("", "cluster-wide"), 0.1)
    async with TaskScope() as scope:
        process.start(scope)
        await eventually(lambda: len(calls) == 3)
        process.stop.set()
    assert set(calls) == {ObjectKey("", "cluster-wide")}
