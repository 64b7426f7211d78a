"""The operator's process is killed between a decision and its message, on the real API server."""

import asyncio
import contextlib
import json
import signal
import socket
import sys
from pathlib import Path

import pytest
import yaml

from integration.notify.receivers import HttpReceiver, own_address
from integration.trainer.conftest import certificate_folder
from trainer_operator.demo.manifests import service_account_kubeconfig

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = "trainer-operator"
API = "trainer.operator.kubeflow.org/v1alpha1"
SOON = 60.0


@pytest.fixture
def arguments(control_plane, kubectl, tmp_path):
    """The operator's command under the shipped role, but for the file of notifications."""
    kubectl("apply", "-k", str(ROOT / "deploy" / "base"))
    kubectl.wait_established()
    token = kubectl("create", "token", "trainer-operator", "-n", NAMESPACE, "--duration=1h").strip()
    user = f"system:serviceaccount:{NAMESPACE}:trainer-operator"
    kubeconfig = tmp_path / "operator.kubeconfig"
    kubeconfig.write_text(service_account_kubeconfig(control_plane.kubeconfig.read_text(), token, user=user))
    tls = certificate_folder(tmp_path)
    return [
        *(sys.executable, "-m", "trainer_operator.cli.main", "operator", f"--kubeconfig={kubeconfig}"),
        *(f"--certificate-folder={tls}", f"--agent-bind-address=127.0.0.1:{_free_port()}"),
        f"--health-probe-bind-address=127.0.0.1:{_free_port()}",
    ]


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.asynccontextmanager
async def operating(arguments):
    """Run an operator for the block, and kill it at its end."""
    process = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def until(held):
    async with asyncio.timeout(SOON):
        while not await asyncio.to_thread(held):
            await asyncio.sleep(0.1)


async def test_a_killed_operator_loses_no_message_and_later_ones_do_not_repeat_it(
    control_plane, namespace, arguments, tmp_path
):
    """NT3: killed with the message stored and the request on its way; the next one sends it, the third one nothing."""
    admin, path = control_plane.admin, f"/apis/{API}/namespaces/{namespace}/trainers"

    def make(name):
        spec = {"epochs": 1, "image": "none", "command": ["train"], "profile": "missing"}
        body = {"apiVersion": API, "kind": "Trainer", "metadata": {"name": name}, "spec": spec}
        answer = admin.request("POST", path, body)
        assert answer.status == 201, answer.body

    def outbox(name):
        return (admin.request("GET", f"{path}/{name}").json().get("status") or {}).get("outbox") or []

    async with HttpReceiver().serving() as receiver:
        configuration = {
            "apiVersion": API,
            "kind": "NotificationConfiguration",
            "privateHosts": [own_address()],
            "services": [{"name": "alerts", "alertmanager": {"url": f"http://{receiver.where}"}}],
            "defaultRoutes": [{"service": "alerts"}],
        }
        file = tmp_path / "notifications.yaml"
        file.write_text(yaml.safe_dump(configuration))
        command = [*arguments, f"--notifications={file}"]

        receiver.hangs = True
        await asyncio.to_thread(make, "first")
        async with operating(command):
            await until(lambda: receiver.asked == 1)
        assert (len(outbox("first")), receiver.took) == (1, [])

        receiver.hangs = False
        async with operating(command):
            await until(lambda: receiver.took and not outbox("first"))

        async with operating(command):
            await asyncio.to_thread(make, "second")
            await until(lambda: len(receiver.took) > 1 and not outbox("second"))

    told = [body[0]["labels"] | body[0]["annotations"] for _, body in receiver.took]
    assert [(each["alertname"], each["trainer"]) for each in told] == [
        ("TrainerCannotStart", "first"),
        ("TrainerCannotStart", "second"),
    ], json.dumps(told)
    assert "TrainingProfile missing is not in namespace" in told[0]["description"]
