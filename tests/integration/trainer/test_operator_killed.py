"""The operator dies at its writes, all through the life of a Trainer, on the real API server."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from integration.trainer.simulatedmembers import SimulatedMembers
from runtime.client import ClientConfig
from runtime.tasks import TaskScope, cancel_and_wait
from runtime.testing.faultproxy import FaultProxy
from runtime.testing.faults import Cut
from trainer_operator.demo.manifests import service_account_kubeconfig
from trainer_operator.devcluster.certificates import CertificateAuthority
from trainer_operator.operator import OperatorConfig, build
from trainer_operator.trainer.views import Settings

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = "trainer-operator"
WRITES = ("POST", "PUT", "PATCH", "DELETE")
CONVERGED = 30.0
"""Seconds within which the last operator of a sequence brings it to its end: LT8. On a busy machine it took up to six."""
DEATHS = ((1, False), (1, True), (2, True), (3, False), (2, False))
"""For the operators of each sequence, one after the other: the write at which it dies, and whether that takes effect."""


@pytest.fixture
def operator_access(control_plane, kubectl, tmp_path):
    """The API server as the shipped role sees it."""
    kubectl("apply", "-k", str(ROOT / "deploy" / "base"))
    kubectl.wait_established()
    token = kubectl("create", "token", "trainer-operator", "-n", NAMESPACE, "--duration=1h").strip()
    path = tmp_path / "operator.kubeconfig"
    user = f"system:serviceaccount:{NAMESPACE}:trainer-operator"
    path.write_text(service_account_kubeconfig(control_plane.kubeconfig.read_text(), token, user=user))
    return ClientConfig.from_kubeconfig(path)


@pytest.fixture
def certificates(tmp_path):
    authority = CertificateAuthority.open(tmp_path / "authority")
    authority.issue_server("tls", hosts=["127.0.0.1"], folder=tmp_path)
    return tmp_path, authority.certificate_file


class Operators:
    """One operator after the other, each behind the proxy; what a dead one still wants to say reaches nobody."""

    def __init__(self, proxy, scope, folder, port, namespace, token):
        self.proxy, self.scope, self.token, self.path = proxy, scope, token, f"/namespaces/{namespace}/"
        self.options = OperatorConfig(
            certificates=folder,
            agent_host="127.0.0.1",
            agent_port=port,
            health_address=None,
            settings=Settings(
                agent_urls=(f"https://127.0.0.1:{port}",), voluntary_interval=0.0, status_interval=1.0
            ),
        )
        self.deaths = 0
        self.task = None

    def start(self):
        self.task = self.scope.spawn(
            build(self.proxy.config(token=self.token), self.options).run(), name="operator"
        )

    async def die(self):
        await cancel_and_wait(self.task)
        self.proxy.heal()

    async def until(self, held, deaths):
        """Run operators until the condition holds; each dies at its write, and the last one lives."""
        for number, takes_effect in deaths:
            last = self.proxy.inject(
                Cut(reaches_server=takes_effect), *WRITES, path=self.path, times=1, spare=number - 1
            )
            self.proxy.inject(Cut(), *WRITES, path=self.path)  # dead operators write nothing
            async with asyncio.timeout(CONVERGED):
                while not last.hits:
                    if await held():
                        self.proxy.heal()
                        return
                    await asyncio.sleep(0.05)
            await self.die()
            self.deaths += 1
            self.start()
        async with asyncio.timeout(CONVERGED):
            while not await held():
                await asyncio.sleep(0.05)


class Life:
    """One Trainer and what a user does to it."""

    def __init__(self, control_plane, namespace, members):
        self.admin, self.members = control_plane.admin, members
        self.path = f"/apis/trainer.operator.kubeflow.org/v1alpha1/namespaces/{namespace}/trainers"
        self.namespace = namespace

    async def ask(self, method, path, body=None, content_type="application/merge-patch+json"):
        answer = await asyncio.to_thread(self.admin.request, method, path, body, content_type=content_type)
        assert answer.status < 300, answer.body
        return answer.json()

    async def create(self, store):
        spec = {
            "epochs": 1,
            "image": "none",
            "command": ["train"],
            "topology": {"workers": 2},
            "checkpoint": {"bucket": f"file://{store}", "intervalMinutes": 0.05, "maxRetention": 2},
            "cleanPodPolicy": "None",
        }
        kind = {"apiVersion": "trainer.operator.kubeflow.org/v1alpha1", "kind": "Trainer"}
        await self.ask(
            "POST", self.path, {**kind, "metadata": {"name": "t"}, "spec": spec}, "application/json"
        )

    async def edit(self, **spec):
        await self.ask("PATCH", f"{self.path}/t", {"spec": spec})

    async def delete_pod(self, name):
        await self.ask("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    async def status(self):
        return (await self.ask("GET", f"{self.path}/t")).get("status") or {}

    async def runs(self, workers=2, epoch=1, **wanted):
        status = await self.status()
        return (
            status.get("phase") == "Running"
            and status["readyWorkers"] == f"{workers}/{workers}"
            and status["membership"]["epoch"] >= epoch
            and wanted.items() <= status.items()
        )

    async def has_checkpoint(self):
        status = await self.status()
        return bool(status.get("lastCheckpoint")) and not status.get("checkpointInFlight")

    async def rests(self):
        return (await self.status()).get("phase") == "Suspended" and not await self.members.pods()

    async def is_over(self):
        return (await self.status()).get("phase") == "Succeeded" and not self.members.agents


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_an_operator_that_dies_at_its_writes_is_followed_by_one_that_goes_on(
    control_plane, operator_access, certificates, namespace, tmp_path
):
    """RC8, RC4, LT8, KT5, TR01, TR13, ME7: start, checkpoint, deleted pod, scale, suspend, resume, finish.

    In each of these, five operators die one after the other: at their first, second or third write since the one
    before, events included, before or after it took effect. So each sequence is cut between its calls several times
    over, not once in each run.
    """
    folder, authority = certificates
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"https://127.0.0.1:{port}"
    members = SimulatedMembers(
        control_plane.admin, namespace, "t", url=url, authority=authority, node=f"node-of-{namespace}"
    )
    life = Life(control_plane, namespace, members)
    try:
        async with FaultProxy(operator_access) as proxy, TaskScope() as scope:
            operators = Operators(proxy, scope, folder, port, namespace, operator_access.token)
            scope.spawn(members.run(scope), name="members")
            await life.create(tmp_path / "store")
            operators.start()
            await operators.until(life.runs, DEATHS)
            await operators.until(life.has_checkpoint, DEATHS)
            await life.delete_pod("t-worker-1")
            await operators.until(lambda: life.runs(epoch=2, disruptions=1), DEATHS)
            rollbacks = (await life.status()).get("rollbacks", 0)
            await life.edit(topology={"workers": 3})
            await operators.until(lambda: life.runs(3, epoch=3), DEATHS)
            await life.edit(suspend=True)
            await operators.until(life.rests, DEATHS)
            await life.edit(suspend=False)
            await operators.until(lambda: life.runs(3, epoch=4), DEATHS)
            members.total = members.step + 8
            await operators.until(life.is_over, DEATHS)
            status = await life.status()
            await operators.die()
            scope.cancel()
    finally:
        await members.end()
    assert operators.deaths >= 3 * len(DEATHS), "most sequences have as many writes"
    assert (status["failures"], status["disruptions"], status["restarts"]) == (0, 1, 1), json.dumps(status)
    assert status["rollbacks"] == rollbacks, "a voluntary change lost steps"
    assert {step for _, step in members.trained} == set(range(1, members.total + 1))
    assert all(len(outcomes) == 1 for outcomes in members.told.values()), "somebody was told both"
