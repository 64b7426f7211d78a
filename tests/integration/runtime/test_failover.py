"""Two operators in processes of their own: whatever happens to the leader, there are never two writers.

That is read from the API server's audit log, in which each operator has a User-Agent of its own: had both written in
turns, the log would show more than one change of hands.
"""

import asyncio
import contextlib
import signal
import time

import pytest

from operatorprocess import Terms, operating, writers
from proxied import config_map, until
from runtime.client import Client
from runtime.leaderelection.deadline import EXIT_CODE
from runtime.objects import CONFIGMAPS, LEASES
from runtime.testing.faultproxy import FaultProxy
from runtime.testing.faults import Stall

UPSTREAM_DEFAULTS = Terms(15.0, 10.0, 2.0)
QUICK = Terms()
STEADY = Terms(6.0, 4.0, 0.8)
"""For tests in which nobody may lose the lease because the machine is busy."""


@pytest.fixture
async def client(control_plane):
    async with Client(control_plane.config) as client:
        yield client


@pytest.fixture
async def stamped(client, namespace):
    """The object that the leader stamps."""
    await client.create(CONFIGMAPS, {"metadata": {"name": "stamped", "namespace": namespace}, "data": {}})


async def takes_over(operator, *, within):
    """Wait until an operator writes and return how long that took."""
    began = time.monotonic()
    await operator.says("leading", within=within)
    await operator.says("stamped", within=within)
    return time.monotonic() - began


async def transitions(client, namespace):
    spec = (await client.get(LEASES, "operator", namespace))["spec"]
    return spec.get("holderIdentity"), spec["leaseTransitions"]


async def successions(kubeconfig, namespace, how, *, within):
    """End leaders by a signal, with the default durations, until one is replaced in time; at most three.

    The best counts, since the machine may be busy. Return how long each took, and the names of all operators.
    """
    took: list[float] = []
    names = ["a"]
    async with contextlib.AsyncExitStack() as stack:
        leader = await stack.enter_async_context(operating(kubeconfig, namespace, "a", UPSTREAM_DEFAULTS))
        await leader.says("stamped")
        while len(took) < 3 and not (took and min(took) <= within):
            names.append("abcd"[len(names)])
            rival = await stack.enter_async_context(
                operating(kubeconfig, namespace, names[-1], UPSTREAM_DEFAULTS)
            )
            await asyncio.sleep(3)
            leader.signal(how)
            took.append(await takes_over(rival, within=60))
            assert await leader.exits() == (0 if how == signal.SIGTERM else -how)
            leader = rival
        leader.signal(signal.SIGTERM)
        assert await leader.exits() == 0
    return took, names


@pytest.mark.slow
@pytest.mark.usefixtures("stamped")
async def test_a_killed_leader_is_replaced_within_eighteen_seconds(
    control_plane, client, kubeconfig, namespace
):
    """G8, L2: not before its lease is over."""
    took, names = await successions(kubeconfig, namespace, signal.SIGKILL, within=18.0)
    assert 10.0 <= min(took) <= 18.0
    assert await transitions(client, namespace) == (None, len(names) - 1)
    assert writers(control_plane.audit_log, namespace) == names


@pytest.mark.slow
@pytest.mark.usefixtures("stamped")
async def test_a_stopped_leader_is_replaced_within_three_seconds(
    control_plane, client, kubeconfig, namespace
):
    """G8, L7, RT36: a lease that was not given up would take more than 10 s each time."""
    took, names = await successions(kubeconfig, namespace, signal.SIGTERM, within=3.0)
    assert min(took) <= 3.0
    assert await transitions(client, namespace) == (None, len(names) - 1)
    assert writers(control_plane.audit_log, namespace) == names


@pytest.mark.usefixtures("stamped")
async def test_a_leader_whose_threads_all_stood_still_never_writes_again(
    control_plane, kubeconfig, namespace
):
    """L6, L9: native code that keeps the interpreter's lock stops the elector's thread as well.

    Nobody in the process can end it, so the kernel does.
    """
    async with operating(kubeconfig, namespace, "a") as first:
        await first.says("stamped")
        async with operating(kubeconfig, namespace, "b") as second:
            await asyncio.sleep(2)
            await first.pauses()
            first.command("all 6")
            await first.says("freezing")
            await takes_over(second, within=60)
            assert await first.exits(within=60) == EXIT_CODE
            await second.says("stamped")
    assert writers(control_plane.audit_log, namespace) == ["a", "b"]


@pytest.mark.usefixtures("stamped")
async def test_a_leader_whose_event_loop_stood_still_keeps_the_lease(
    control_plane, client, kubeconfig, namespace
):
    """L9, PY2: the elector's own thread renews, so nobody takes over and the leader goes on."""
    async with operating(kubeconfig, namespace, "a") as first:
        await first.says("stamped")
        async with operating(kubeconfig, namespace, "b"):
            await asyncio.sleep(2)
            first.command("loop 5")
            await first.says("thawed")
            await first.says("stamped")
            assert await transitions(client, namespace) == ("a", 0)
    assert writers(control_plane.audit_log, namespace) == ["a"]


@pytest.mark.parametrize("how", ["refused", "swallowed"])
@pytest.mark.usefixtures("stamped")
async def test_a_leader_cut_off_from_the_api_server_ends_before_its_rival_writes(
    control_plane, kubeconfig, namespace, tmp_path, how
):
    """L5, L6, RT35: its connections are refused, or taken and never answered."""
    async with FaultProxy(control_plane.config) as proxy:
        through = proxy.write_kubeconfig(tmp_path / "through-proxy")
        async with operating(through, namespace, "a") as first:
            await first.says("stamped")
            async with operating(kubeconfig, namespace, "b") as second:
                await asyncio.sleep(2)
                if how == "refused":
                    await proxy.go_away()
                else:
                    proxy.inject(Stall())
                    proxy.silence_watches()
                cut = time.monotonic()
                await takes_over(second, within=60)
                assert QUICK.lease - QUICK.retry * 1.2 - 0.5 <= time.monotonic() - cut
                # It ends by itself, unless it is so slow that the kernel does it.
                assert await first.exits(within=60) in (1, EXIT_CODE)
                await proxy.come_back()
                proxy.heal()
                await second.says("stamped")
    assert writers(control_plane.audit_log, namespace) == ["a", "b"]


async def turns_until_now(control_plane, client, namespace):
    """Return whose turn it was to write, once the audit log tells of everything up to now."""
    await client.create(CONFIGMAPS, config_map(namespace, "marker"))

    def is_marked():
        with open(control_plane.audit_log) as lines:
            return any(namespace in line and '"name":"marker"' in line for line in lines)

    await until(is_marked, within=60)
    return writers(control_plane.audit_log, namespace)


async def writes_again(control_plane, namespace, *, within=60):
    """Wait until the audit log shows that the first leader wrote after its rival did."""
    await until(lambda: writers(control_plane.audit_log, namespace)[:3] == ["a", "b", "a"], within=within)


@pytest.mark.parametrize(
    ("place", "without", "code"),
    [
        pytest.param("fence", ("deadline", "news"), 1, id="the fence alone"),
        pytest.param("send", ("fence", "cap", "news"), EXIT_CODE, id="the deadline alone, past the fence"),
        pytest.param("send", (), EXIT_CODE, id="all protections, past the fence"),
    ],
)
@pytest.mark.usefixtures("stamped")
async def test_a_leader_that_was_stopped_for_longer_than_its_lease_never_writes_again(
    control_plane, client, kubeconfig, namespace, place, without, code
):
    """L6, L9, G8: SIGSTOP in the middle of a write, SIGCONT when the rival has written."""
    async with operating(kubeconfig, namespace, "a", STEADY, without=without) as first:
        await first.says("stamped", within=60)
        async with operating(kubeconfig, namespace, "b", STEADY) as second:
            await first.stops(place)
            await takes_over(second, within=60)
            first.signal(signal.SIGCONT)
            assert await first.exits(within=60) == code
            await second.says("stamped", within=60)
            assert await turns_until_now(control_plane, client, namespace) == ["a", "b"]


@pytest.mark.parametrize(
    ("place", "without"),
    [
        pytest.param("fence", ("deadline", "news", "cap", "fence"), id="no fence"),
        pytest.param("send", ("deadline", "news", "cap"), id="no deadline, past the fence"),
    ],
)
@pytest.mark.usefixtures("stamped")
async def test_the_audit_log_shows_a_second_writer_where_protection_is_missing(
    control_plane, kubeconfig, namespace, place, without
):
    """L6: so the test above would fail if the fence, or the deadline, did nothing."""
    async with operating(kubeconfig, namespace, "a", STEADY, without=without) as first:
        await first.says("stamped", within=60)
        async with operating(kubeconfig, namespace, "b", STEADY) as second:
            await first.stops(place)
            await takes_over(second, within=60)
            first.signal(signal.SIGCONT)
            await writes_again(control_plane, namespace)
