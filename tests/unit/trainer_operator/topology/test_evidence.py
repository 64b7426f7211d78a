"""What counters say of a member since its last step."""

import pytest

from simulation.views import beat
from trainer_operator.topology.evidence import Evidence, Meter

COUNTERS = {"cpu_ticks": 1000, "rx": 10_000_000, "tx": 10_000_000}


def test_rates_count_from_the_last_step():
    """SL3."""
    meter = Meter(beat(step=7, **COUNTERS), 0.0)
    meter.take(beat(step=8, cpu_ticks=2000, rx=20_000_000, tx=20_000_000), 10.0)
    newest = beat(step=8, cpu_ticks=3000, rx=20_500_000, tx=20_500_000)
    meter.take(newest, 20.0)
    seen = meter.evidence(newest, 20.0)
    assert (seen.cpu, seen.network) == (1.0, 100_000.0)


@pytest.mark.parametrize(
    ("newest", "heard"),
    [
        (beat(step=7, **COUNTERS), 4.9),
        (beat(step=7), 60.0),
        (beat(step=7, run=1, cpu_ticks=5, rx=5, tx=5), 60.0),
    ],
    ids=["too soon", "nothing told", "another process"],
)
def test_what_cannot_be_told_is_no_evidence(newest, heard):
    """SL3: absent is not zero."""
    meter = Meter(beat(step=7, **COUNTERS), 0.0)
    meter.take(newest, heard)
    assert meter.evidence(newest, heard) == Evidence()


@pytest.mark.parametrize(
    ("evidence", "signs", "contrary"),
    [
        (Evidence(), (), ""),
        (Evidence(cpu=0.01), ("it uses no processor time",), ""),
        (Evidence(cpu=0.2, network=1e5), (), ""),
        (Evidence(network=900.0), ("its network is quiet",), ""),
        (Evidence(cpu=0.9), (), "it uses a processor"),
        (Evidence(cpu=0.0, disk_wait=True), ("it uses no processor time",), "it waits for a disk"),
        (Evidence(cpu=1.0, gpu_busy=100, gpu_power=31), ("its GPUs are busy at 31 % of their power",), ""),
        (Evidence(cpu=0.0, gpu_busy=100, gpu_power=90), ("it uses no processor time",), "its GPUs compute"),
        (Evidence(gpu_busy=20, gpu_power=20), (), ""),
    ],
    ids=[
        "nothing",
        "idle",
        "some of both",
        "quiet",
        "busy",
        "disk",
        "spins in a collective",
        "computes on its GPUs",
        "idle GPUs",
    ],
)
def test_signs_and_contrary_evidence(evidence, signs, contrary):
    """SL3: a processor that is busy beside GPUs that spin says nothing."""
    assert (evidence.signs, evidence.contrary) == (signs, contrary)
