"""Our elector and client-go's, that of a real kube-controller-manager, on one Lease."""

import asyncio
import random
from contextlib import asynccontextmanager

from integration.runtime.test_leader_election import QUICK, Party, leads, read_lease
from runtime.clock import parse_time
from trainer_operator.devcluster import ports
from trainer_operator.devcluster.process import Process


@asynccontextmanager
async def go_elector(control_plane, namespace, folder):
    """A kube-controller-manager that contends for the Lease `operator`, and whose one controller has nothing to do."""
    process = Process(
        "go-elector",
        [
            str(control_plane.assets.path("kube-controller-manager")),
            f"--kubeconfig={control_plane.kubeconfig}",
            "--controllers=bootstrap-signer-controller",
            f"--secure-port={ports.free_ports(1, rng=random.Random())[0]}",
            f"--cert-dir={folder}",
            "--leader-elect",
            "--leader-elect-resource-name=operator",
            f"--leader-elect-resource-namespace={namespace}",
            f"--leader-elect-lease-duration={QUICK['lease_duration']}s",
            f"--leader-elect-renew-deadline={QUICK['renew_deadline']}s",
            f"--leader-elect-retry-period={QUICK['retry_period']}s",
        ],
        log=folder / "go-elector.log",
        directory=folder,
    )
    try:
        yield process
    finally:
        await process.stop(grace=0)


async def holder(control_plane, namespace):
    return (await read_lease(control_plane, namespace))["spec"].get("holderIdentity", "")


async def test_the_lease_goes_to_a_go_elector_and_back_and_never_has_two_holders(
    control_plane, namespace, tmp_path
):
    """L2, L4, L7, RT32: it waits while we lead, takes what we give back, and is waited for when it dies."""
    async with Party(control_plane, namespace, "first") as first:
        await leads(first, 30)
        async with go_elector(control_plane, namespace, tmp_path) as other:
            log = tmp_path / "go-elector.log"
            async with asyncio.timeout(60):  # it has tried at least once
                while "attempting to acquire leader lease" not in log.read_text().lower():
                    await asyncio.sleep(0.1)
            before = (await read_lease(control_plane, namespace))["spec"]["renewTime"]
            await asyncio.sleep(2 * QUICK["lease_duration"])
            assert first.fence.is_open
            spec = (await read_lease(control_plane, namespace))["spec"]
            assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("first", 0)
            assert spec["renewTime"] > before

            await first.elector.release()
            async with asyncio.timeout(30):
                while not await holder(control_plane, namespace):
                    await asyncio.sleep(0.1)
            theirs = await holder(control_plane, namespace)
            assert theirs != "first"
            async with Party(control_plane, namespace, "second") as second:
                await asyncio.sleep(2 * QUICK["lease_duration"])
                assert not second.fence.is_open
                assert await holder(control_plane, namespace) == theirs

                await other.stop(grace=0)  # SIGKILL: nothing is given back
                last = parse_time((await read_lease(control_plane, namespace))["spec"]["renewTime"])
                await leads(second, 30)
                spec = (await read_lease(control_plane, namespace))["spec"]
                assert (parse_time(spec["acquireTime"]) - last).total_seconds() >= QUICK["lease_duration"]
                assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 2)
