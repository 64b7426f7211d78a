"""What the agent reads of its pod: a process, the network, and GPUs by a double of nvidia-smi."""

import os
import threading

import pytest

from trainer_operator.agent.counters import Counters, Gpus, GpuWatch, Traffic, parse_gpus, process_of, traffic

INTERFACES = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 9999999      10    0    0    0     0          0         0  9999999      10    0    0    0     0       0          0
  eth0:    1000       5    0    0    0     0          0         0      200       3    0    0    0     0       0          0
  ib0:5       5    0    0    0     0          0         0      6       3    0    0    0     0       0          0
"""


@pytest.fixture
def files(tmp_path):
    """A machine's files: interfaces and one InfiniBand port."""
    (tmp_path / "dev").write_text(INTERFACES)
    (tmp_path / "port_rcv_data").write_text("10\n")
    (tmp_path / "port_xmit_data").write_text("20\n")
    return {"interfaces": str(tmp_path / "dev"), "ports": str(tmp_path / "port_%s_data")}


def test_traffic_is_summed_over_interfaces_and_ports_but_not_over_loopback(files):
    """SL3: ports count words of four bytes."""
    assert traffic("10.0.0.3", **files) == Traffic(1005 + 40, 206 + 80)


def test_traffic_of_pods_that_share_the_loopback_interface_cannot_be_told(files):
    """SL3: no evidence rather than a neighbour's."""
    assert traffic("127.0.0.7", **files) is None


@pytest.mark.parametrize(
    "text", ["", "no table\n", "eth0: 1 2\n", "eth0: x 0 0 0 0 0 0 0 1\n", INTERFACES[:300]]
)
def test_a_table_that_cannot_be_read_tells_nothing(files, tmp_path, text):
    (tmp_path / "dev").write_text(text)
    assert traffic("10.0.0.3", **files) is None
    os.unlink(tmp_path / "dev")
    assert traffic("10.0.0.3", **files) is None


@pytest.mark.parametrize(
    ("answer", "gpus"),
    [
        ("100, 120.5, 400.00\n98, 200.00, 400.00\n", Gpus(98, 50)),
        ("0, 60, 300\n", Gpus(0, 20)),
        ("", None),
        ("[N/A], 60, 300\n", None),
        ("100, 120.5, 0\n", None),
        ("Unable to determine the device handle\n", None),
    ],
)
def test_the_idlest_gpu_and_the_hottest_one_are_told(answer, gpus):
    """SL3: only when all of a pod's GPUs are busy, and none of them hard at work, does it look like a collective."""
    assert parse_gpus(answer) == gpus


@pytest.fixture
def smi(tmp_path):
    """A double of nvidia-smi: prints what the file `answer` holds, and notes each call."""

    def make(answer):
        (tmp_path / "answer").write_text(answer)
        program = tmp_path / "nvidia-smi"
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ncat {tmp_path}/answer\n')
        program.chmod(0o755)
        return str(program)

    return make


def settled():
    """Wait until nobody asks for the GPUs any more."""
    for thread in threading.enumerate():
        if thread.name == "gpus":
            thread.join(60)


def test_gpus_are_looked_at_only_while_a_step_is_overdue(smi, tmp_path):
    """SL3: it takes a process, so a healthy training never pays for it."""
    now = [0.0]
    counters = Counters("127.0.0.1", GpuWatch(smi("100, 100, 400\n"), clock=lambda: now[0]))
    assert counters.read(None, overdue=False)["gpuBusy"] is None
    settled()
    assert not (tmp_path / "calls").exists()
    counters.read(None, overdue=True)
    settled()
    seen = counters.read(None, overdue=True)
    assert (seen["gpuBusy"], seen["gpuPower"]) == (100, 25)
    assert (tmp_path / "calls").read_text().count("--query-gpu=utilization.gpu,power.draw,power.limit") == 1
    now[0] = 6.0
    counters.read(None, overdue=True)
    settled()
    assert (tmp_path / "calls").read_text().count("--query-gpu") == 2
    assert counters.read(None, overdue=False)["gpuBusy"] is None, "old news are forgotten"


def test_a_machine_without_nvidia_smi_has_no_gpus(tmp_path):
    watch = GpuWatch(str(tmp_path / "nothing"))
    watch.look(needed=True)
    settled()
    assert watch.look(needed=True) is None


def test_a_process_is_read_and_one_that_is_gone_tells_nothing():
    """SL3."""
    found = process_of(os.getpid())
    assert found is not None
    assert found.ticks >= 0
    assert not found.waits
    assert process_of(None) is None
    assert process_of(2**22 + 1) is None
