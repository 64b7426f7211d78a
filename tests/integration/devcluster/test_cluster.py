"""A whole development cluster: brought up, disturbed, killed, taken down. Nodes are stand-ins here."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer_operator.devcluster.cluster import Cluster
from trainer_operator.devcluster.errors import ClusterFault, ClusterNotRunning
from trainer_operator.devcluster.state import Phase, Settings

SUPERVISOR = Path(__file__).with_name("standin_supervisor.py")
COMPONENTS = ("etcd", "apiserver", "controller-manager", "scheduler", "provisioner")


def wait_until(condition, what, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def left_running(folder):
    """Command lines of processes that belong to the cluster in this folder."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(folder) in line:
                    found.append(line)
    return found


@pytest.fixture
def started(tmp_path):
    """A cluster of two stand-in nodes and the process of its supervisor."""
    folder = tmp_path / "c"
    with subprocess.Popen([sys.executable, str(SUPERVISOR), str(folder), "2"]) as supervisor:
        cluster = Cluster("c", folder=folder)
        try:
            wait_until(lambda: is_ready(cluster) or supervisor.poll() is not None, "the cluster is not ready")
            assert supervisor.poll() is None, cluster.last_state()
            yield cluster, supervisor
        finally:
            supervisor.kill()
    wait_until(lambda: not left_running(folder), f"left running: {left_running(folder)}", seconds=10)


def is_ready(cluster):
    with contextlib.suppress(ClusterNotRunning):
        return cluster.state().phase is Phase.READY
    return False


def test_nodes_are_killed_and_brought_back_by_one_call_each(started):
    cluster, _ = started
    cluster.kill_node("node-1")
    assert cluster.state().members["node-1"].pid is None
    with pytest.raises(ClusterFault, match="node-1 is down already"):
        cluster.kill_node("node-1")
    time.sleep(1.0)  # several rounds of the supervisor: a node stays down until it is started
    assert cluster.state().members["node-1"].pid is None
    cluster.start_node("node-1")
    assert cluster.state().members["node-1"].pid is not None
    with pytest.raises(ClusterFault, match="node-1 is running already"):
        cluster.start_node("node-1")
    with pytest.raises(ClusterFault, match="there is no node node-9: there are node-0, node-1"):
        cluster.kill_node("node-9")


def test_killed_component_is_started_again_and_counted(started):
    cluster, _ = started
    before = cluster.state().members
    for name in ("apiserver", "etcd", "provisioner"):
        os.kill(before[name].pid, signal.SIGKILL)

    def all_back():
        now = cluster.state().members
        return all(
            now[name].pid not in {None, before[name].pid} for name in ("apiserver", "etcd", "provisioner")
        )

    wait_until(all_back, "not all are back")
    wait_until(lambda: cluster.kubectl.run("get", "nodes").returncode == 0, "the API server does not answer")
    assert cluster.state().members["apiserver"].restarts >= 1
    assert cluster.state().members["scheduler"].restarts == 0


def test_second_supervisor_is_refused_in_a_sentence(started):
    cluster, _ = started
    second = subprocess.run(
        [sys.executable, "-m", "trainer_operator.devcluster.supervisor", f"--folder={cluster.folder}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert second.stderr == "error: the cluster c is up already\n"
    assert is_ready(cluster)
    with pytest.raises(ClusterFault, match="is up already"):
        cluster.start(Settings())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_takes_everything_down_in_order(started, number):
    cluster, supervisor = started
    supervisor.send_signal(number)
    assert supervisor.wait(timeout=30) == 0
    assert left_running(cluster.folder) == []
    assert cluster.last_state().phase is Phase.STOPPED
    assert not cluster.is_running()


def test_nothing_outlives_a_killed_supervisor_and_its_state_says_so(started):
    cluster, supervisor = started
    pids = [cluster.state().members[name].pid for name in (*COMPONENTS, "node-0", "node-1")]
    assert all(pids)
    supervisor.kill()
    supervisor.wait()
    wait_until(lambda: not left_running(cluster.folder), "something outlived it", seconds=5)
    last = cluster.last_state()
    assert (last.phase, last.message) == (Phase.FAILED, "its supervisor was killed")
    assert all(member.pid is None for member in last.members.values())
    with pytest.raises(ClusterNotRunning):
        cluster.kill_node("node-0")


def test_down_kills_a_supervisor_that_hangs(started):
    cluster, supervisor = started
    supervisor.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    assert cluster.down()
    assert time.monotonic() - began < 15
    assert not cluster.is_running()


def test_cluster_in_the_background_is_up_until_it_is_taken_down_and_keeps_its_objects(tmp_path):
    cluster = Cluster("c", folder=tmp_path / "c")
    phases = []
    try:
        cluster.up(Settings(nodes=0), announce=lambda state: phases.append(state.phase))
        cluster.kubectl("create", "namespace", "kept")
        assert cluster.down()
        assert not cluster.down(), "there is nothing left to do"
        assert left_running(cluster.folder) == []
        cluster.up(Settings(nodes=0))
        assert cluster.kubectl("get", "namespace", "kept", "-o", "name").strip() == "namespace/kept"
        with pytest.raises(ClusterFault, match="take it down before"):
            cluster.purge()
    finally:
        cluster.down()
    cluster.purge()
    assert not cluster.folder.exists()
    assert phases[0] is Phase.STARTING
    assert phases[-1] is Phase.READY


def test_tethered_cluster_ends_with_the_process_that_started_it(tmp_path):
    code = (
        "import sys, pathlib\n"
        "from trainer_operator.devcluster.cluster import Cluster\n"
        "from trainer_operator.devcluster.state import Settings\n"
        "Cluster('c', folder=pathlib.Path(sys.argv[1])).up(Settings(nodes=0), tethered=True)\n"
        "print('up', flush=True)\n"
        "sys.stdin.read()\n"
    )
    folder = tmp_path / "c"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout.readline() == "up\n"
        owner.kill()
    wait_until(lambda: not left_running(folder), "something outlived it", seconds=5)


def test_interrupted_up_leaves_nothing_running(tmp_path):
    cluster = Cluster("c", folder=tmp_path / "c")

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster.up(Settings(nodes=0), announce=interrupt)
    assert not cluster.is_running()
    assert left_running(cluster.folder) == []


def test_cluster_that_cannot_start_says_why(tmp_path, monkeypatch):
    broken = tmp_path / "bin"
    broken.mkdir()
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"):
        (broken / name).write_text(
            "#!/bin/sh\n[ $1 = --version ] && echo Kubernetes v1.36.3 || { echo boom; exit 9; }\n"
        )
        (broken / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(broken))
    cluster = Cluster("c", folder=tmp_path / "c")
    with pytest.raises(ClusterFault, match="apiserver ended with code 9: boom"):
        cluster.up(Settings(nodes=0))
    assert cluster.last_state().phase is Phase.FAILED
    assert not cluster.is_running()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_cluster_in_the_foreground_ends_with_its_terminal(tmp_path, number):
    command = [sys.executable, "-m", "trainer_operator.cli.main", "dev", "up", "--foreground", "--nodes", "0"]
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True, cwd="/") as terminal:
        lines = iter(terminal.stdout.readline, "Ctrl-C takes it down.\n")
        assert "starting the control plane ...\n" in list(lines)
        terminal.send_signal(number)
        assert terminal.wait(timeout=30) == (0 if number is signal.SIGINT else -signal.SIGKILL)
    wait_until(lambda: not left_running(tmp_path), f"left running: {left_running(tmp_path)}", seconds=5)
