"""`kubectl trainer` beside a real training: logs over replaced pods, the operator's tree, restart."""

import json
import subprocess
import sys
import threading

import pytest

from trainer_operator.cli.plugin.failure import ExitCode

LONG = 2000
"""Epochs of a training that is not meant to end within its test."""


@pytest.fixture
def plugin(job):
    """Start the plugin as a process; what it writes is in `lines`, as it comes."""
    started = []

    def start(command, *arguments):
        access = [f"--kubeconfig={job.world.cluster.kubeconfig}", f"--namespace={job.namespace}"]
        process = Plugin(
            [sys.executable, "-m", "trainer_operator.cli.plugin.main", command, *access, *arguments]
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.end()


class Plugin:
    """A process of the plugin, read by a thread so that its pipe never fills."""

    def __init__(self, command):
        self.lines = []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self.lines.append(line)

    def has(self, *parts):
        return any(all(part in line for part in parts) for line in list(self.lines))

    def wait(self, seconds=60):
        code = self._process.wait(seconds)
        self._reader.join(seconds)
        return code, "".join(self.lines)

    def end(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()


def test_logs_go_on_in_the_pod_that_restart_brings_and_end_with_the_trainer(job, plugin, until):
    """CL2, TR10: members are interleaved; the deletion is a disruption, not a failure."""
    talk = 'n=0; while :; do n=$((n+1)); echo "attempt $TRAINER_ATTEMPT says $n"; sleep 0.2; done'
    made = job.make("talk", command=["sh", "-c", talk], topology={"workers": 2})
    following = plugin("logs", "talk", "--follow")
    for member in ("worker-0 | ", "worker-1 | "):
        until(lambda member=member: following.has(member, "attempt 0 says "), 60, member, tell=made.status)
    code, told = plugin("restart", "talk", "--member", "worker-1", "--yes").wait()
    assert (code, told) == (0, "pod/talk-worker-1 deleted\n")
    until(
        lambda: following.has("worker-1 | ", "attempt 1 says "), 90, "the next pod's lines", tell=made.status
    )
    assert (made.status()["failures"], made.status()["disruptions"]) == (0, 1)
    code, printed = plugin("logs", "talk", "--role=worker", "--index=0", "--tail=2").wait()
    assert code == 0
    assert [line[:11] for line in printed.splitlines()] == ["worker-0 | "] * 2
    job.world.kubectl("delete", "trainer", "talk", "-n", job.namespace, "--wait=false")
    code, everything = following.wait(90)
    assert code == 0
    first = [line for line in everything.splitlines() if line.startswith("worker-1 | attempt 0 says ")]
    assert [int(line.rpartition(" ")[2]) for line in first] == list(range(1, len(first) + 1))


def test_the_operators_tree_is_shown_to_who_may_get_the_trainer(job, plugin, until, tmp_path):
    """ST4, CR10: each member's step comes from the operator, over TLS and with a user's token."""
    digits = job.digits(epochs=LONG)
    digits.wait_step(10)
    kubectl, space = job.world.kubectl, f"--namespace={job.namespace}"
    kubectl("create", "serviceaccount", "reader", space)
    token = tmp_path / "token"
    token.write_text(kubectl("create", "token", "reader", space).strip())
    leader = until(job.world.leader, 60, "a leader")
    address = next(part for part in leader.command if part.startswith("--agent-bind-address=")).partition(
        "="
    )[2]
    asked = [
        "--output=json",
        f"--server=https://{address}",
        f"--server-ca={job.world.folder / 'tls' / 'ca.crt'}",
        f"--token-file={token}",
    ]
    assert plugin("tree", "digits", *asked).wait()[0] == ExitCode.FORBIDDEN
    kubectl(
        "create", "role", "reader", "--verb=get", "--resource=trainers.trainer.operator.kubeflow.org", space
    )
    kubectl(
        "create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={job.namespace}:reader", space
    )

    def told():
        code, text = plugin("tree", "digits", *asked).wait()
        return json.loads(text) if code == 0 else None

    tree = until(told, 60, "the operator's tree")
    (workers,) = tree["roles"]
    assert [member["member"] for member in workers["members"]] == ["worker-0", "worker-1"]
    assert all(member["step"] >= 1 for member in workers["members"])
