"""Electors in their own threads against a real API server."""

import asyncio
import sys
import time
from dataclasses import replace

import msgspec
import orjson
import pytest

from runtime.cache import Pod
from runtime.client import Client
from runtime.client.pager import decode_in_slices, split_page
from runtime.clock import SystemClock, parse_time
from runtime.fence import Fence
from runtime.leaderelection import LeaderElector
from runtime.leaderelection.step import Ended
from runtime.objects import LEASES
from trainer_operator.devcluster.component import APISERVER

QUICK = {"lease_duration": 3.0, "renew_deadline": 2.0, "retry_period": 0.4}
PATIENT = {"lease_duration": 15.0, "renew_deadline": 10.0, "retry_period": 0.4}
"""Our defaults, but renewed more often: other tests may keep the API server busy for longer than QUICK waits."""


class Party:
    """An elector with its fence; abandoned at the end of the test if it still runs."""

    def __init__(self, control_plane, namespace, identity, *, name="operator", **durations):
        self.clock = SystemClock()
        self.fence = Fence(self.clock)
        self.elector = LeaderElector(
            control_plane.config,
            namespace=namespace,
            name=name,
            fence=self.fence,
            identity=identity,
            **(durations or QUICK),
        )

    async def __aenter__(self):
        self.elector.start()
        return self

    async def __aexit__(self, *_):
        self.elector.abandon()
        async with asyncio.timeout(10):
            await self.elector.wait_ended()


async def leads(party, within):
    begin = time.monotonic()
    async with asyncio.timeout(within):
        await party.elector.wait_acquired()
    return time.monotonic() - begin


async def read_lease(control_plane, namespace):
    async with Client(control_plane.config) as client:
        return await client.get(LEASES, "operator", namespace)


async def test_one_of_two_leads_and_a_clean_stop_hands_over_at_once(control_plane, namespace):
    """L3, L4, L7, G8, RT36."""
    async with Party(control_plane, namespace, "first") as first:
        await leads(first, 5)
        async with Party(control_plane, namespace, "second") as second:
            await asyncio.sleep(1)
            assert first.fence.is_open
            assert not second.fence.is_open
            assert await first.elector.release() == Ended("released", lost=False)
            assert not first.fence.is_open
            assert await leads(second, 3) < 3
            spec = (await read_lease(control_plane, namespace))["spec"]
            assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)


async def test_operators_with_leases_of_different_names_do_not_share_one(control_plane, namespace):
    """TR45: two in one namespace, say two versions or two products, lead side by side."""
    async with (
        Party(control_plane, namespace, "first") as first,
        Party(control_plane, namespace, "second", name="other-operator") as second,
    ):
        await leads(first, 30)
        await leads(second, 30)
        assert first.fence.is_open
        assert second.fence.is_open


@pytest.mark.slow
async def test_a_clean_stop_takes_three_seconds_at_most_with_the_default_durations(control_plane, namespace):
    """G8."""
    defaults = {"lease_duration": 15.0, "renew_deadline": 10.0, "retry_period": 2.0}
    async with Party(control_plane, namespace, "first", **defaults) as first:
        await leads(first, 5)
        async with Party(control_plane, namespace, "second", **defaults) as second:
            await asyncio.sleep(2.5)
            await first.elector.release()
            assert await leads(second, 3) <= 3.0


async def test_after_a_crash_the_lease_is_waited_for_and_then_taken(control_plane, namespace):
    """L2, G8 (in proportion: lease 3 s)."""
    async with Party(control_plane, namespace, "first") as first:
        await leads(first, 5)
        async with Party(control_plane, namespace, "second") as second:
            await asyncio.sleep(0.5)
            first.elector.abandon()
            waited = await leads(second, 5)
            assert QUICK["lease_duration"] - 1.0 <= waited <= QUICK["lease_duration"] + 1.0


async def test_large_lists_do_not_keep_the_elector_from_renewing(control_plane, namespace):
    """RT42, L5, PY2: 5,000 Pods as dicts and 10,000 as structs at once, again and again."""
    pod = {
        "metadata": {"name": "p", "namespace": "n", "labels": {f"label-{n}": "value" for n in range(40)}},
        "spec": {
            "containers": [{"name": "c", "env": [{"name": f"E{n}", "value": "x" * 20} for n in range(30)]}]
        },
    }
    body = orjson.dumps({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [pod] * 10_000})
    structs = msgspec.json.Decoder(Pod)
    async with Party(control_plane, namespace, "first", **PATIENT) as first:
        await leads(first, 30)
        lists, before, ends = 0, await renewed(control_plane, namespace), time.monotonic() + 6.0
        while time.monotonic() < ends:
            items = split_page(body).items
            async with asyncio.TaskGroup() as both:
                both.create_task(decode_in_slices(items[:5_000], lambda raw: orjson.loads(memoryview(raw))))
                both.create_task(decode_in_slices(items, structs.decode))
            lists += 1
            assert first.fence.is_open
        assert lists
        assert await renewed(control_plane, namespace) > before
        spec = (await read_lease(control_plane, namespace))["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("first", 0)


async def renewed(control_plane, namespace):
    return parse_time((await read_lease(control_plane, namespace))["spec"]["renewTime"])


async def test_kubectl_reads_what_we_write(control_plane, namespace, kubectl):
    """L4, RT32."""
    async with Party(control_plane, namespace, "first") as first:
        await leads(first, 5)
        assert "first" in await asyncio.to_thread(kubectl, "get", "lease", "operator", "-n", namespace)
        spec = (await read_lease(control_plane, namespace))["spec"]
        assert spec["leaseDurationSeconds"] == 3
        assert spec["renewTime"].endswith("Z")
        await first.elector.release()
        spec = (await read_lease(control_plane, namespace))["spec"]
        assert not spec.get("holderIdentity")
        assert spec["leaseDurationSeconds"] == 1


async def test_a_blocked_main_loop_does_not_lose_the_lease(control_plane, namespace):
    """L9, PY2: renewals come from the elector's own thread."""
    async with Party(control_plane, namespace, "first") as first:
        await leads(first, 5)
        time.sleep(QUICK["lease_duration"] + 1)
        first.fence.check()
        assert first.elector.check() is None


LEADER = """
import asyncio, sys
from runtime.client import Client, ClientConfig
from runtime.clock import SystemClock
from runtime.fence import Fence, LeadershipLost
from runtime.leaderelection import LeaderElector
from runtime.logs import configure
from runtime.objects import CONFIGMAPS

async def main(kubeconfig, namespace):
    config = ClientConfig.from_kubeconfig(kubeconfig)
    fence = Fence(SystemClock())
    elector = LeaderElector(
        config, namespace=namespace, name="operator", fence=fence,
        lease_duration=3.0, renew_deadline=2.0, retry_period=0.4,
    )
    elector.start()
    await elector.wait_acquired()
    print("leading", flush=True)
    outcome = await elector.wait_ended()
    async with Client(config, fence=fence) as client:
        try:
            await client.create(CONFIGMAPS, {"metadata": {"name": "x", "namespace": namespace}})
        except LeadershipLost:
            print("refused", outcome.lost, flush=True)

configure()
asyncio.run(main(*sys.argv[1:]))
"""


async def test_writes_are_refused_before_a_rival_can_lead_when_the_api_server_hangs(
    control_plane, namespace, kubeconfig
):
    """L5, L6, RT33, RT35: the API server is stopped in the middle of everything; the leader is a process."""
    leader = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", LEADER, str(kubeconfig), namespace),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(20):
        assert await leader.stdout.readline() == b"leading\n"
    control_plane.pause_component(APISERVER)
    try:
        paused = time.monotonic()
        async with asyncio.timeout(10):
            told, _ = await leader.communicate()
        assert told == b"refused True\n"
        assert time.monotonic() - paused < 5
    finally:
        control_plane.resume_component(APISERVER)
    async with Party(control_plane, namespace, "second") as second:
        await leads(second, 10)


async def test_a_lease_taken_by_another_ends_the_election(control_plane, namespace):
    """L3, L6."""
    async with Party(control_plane, namespace, "first") as first, Client(control_plane.config) as client:
        await leads(first, 5)
        await client.patch(LEASES, "operator", {"spec": {"holderIdentity": "thief"}}, namespace=namespace)
        async with asyncio.timeout(5):
            outcome = await first.elector.wait_ended()
        assert outcome == Ended("thief holds the lease", lost=True)
        assert not first.elector.is_leader


async def test_a_candidate_that_stops_ends_without_touching_the_lease(control_plane, namespace):
    """L7."""
    async with Party(control_plane, namespace, "first") as first:
        await leads(first, 5)
        async with Party(control_plane, namespace, "second") as second:
            await asyncio.sleep(0.5)
            assert (await second.elector.release()).lost is False
            assert first.fence.is_open


async def test_a_missing_certificate_file_ends_the_election_with_a_reason(control_plane, namespace):
    """Bad input gives one clear sentence, also from the elector's thread."""
    broken = type(
        "Plane", (), {"config": replace(control_plane.config, ca_data=None, ca_file="/nonexistent")}
    )
    async with Party(broken, namespace, "first") as first:
        async with asyncio.timeout(5):
            outcome = await first.elector.wait_ended()
        assert outcome.lost
        assert "the elector could not start: certificates" in outcome.reason
