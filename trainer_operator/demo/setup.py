"""Brings everything up: the cluster, the operator's manifests and processes, and the training.

All changes go through the real kubectl, as a user would make them. Each step is told to the view with its time.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import yaml

from runtime.client.rest import Client
from runtime.clock import Clock
from runtime.objects import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from trainer_operator.demo.frame import SetupStep
from trainer_operator.demo.manifests import (
    DEPLOYMENT,
    Deployment,
    Example,
    service_account_kubeconfig,
    token_subject,
)
from trainer_operator.demo.operators import NAMES, Operators, OperatorSettings
from trainer_operator.demo.verify import Reference
from trainer_operator.devcluster.certificates import CertificateAuthority
from trainer_operator.devcluster.cluster import Cluster
from trainer_operator.devcluster.errors import ClusterFault
from trainer_operator.devcluster.ports import LOOPBACK, free_ports
from trainer_operator.devcluster.process import Process
from trainer_operator.devcluster.state import ClusterState, Settings

TOKEN_DURATION = "2h"  # noqa: S105 - how long, not which
_OPERATOR_PATIENCE = 30.0
_CLAIM_PATIENCE = 60.0
_REFERENCE_PATIENCE = 120.0
_POLL = 0.1


class Steps:
    """The steps of the set-up as they go on."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._steps: list[SetupStep] = []

    @property
    def all(self) -> tuple[SetupStep, ...]:
        """All steps, finished or not."""
        return tuple(self._steps)

    @asynccontextmanager
    async def step(self, title: str) -> AsyncIterator[Callable[[str], None]]:
        """Show a step from here to the end of the block; what it yields changes the detail."""
        number = len(self._steps)
        self._steps.append(SetupStep(title, self._now()))

        def detail(text: str) -> None:
            self._steps[number] = replace(self._steps[number], detail=text)

        yield detail
        begun = self._steps[number]
        self._steps[number] = replace(begun, seconds=self._now() - begun.began)


def clear(cluster: Cluster) -> None:
    """Remove what an earlier demo left.

    Raises: ClusterFault when a cluster of this name is up; it is another's and is left alone.
    """
    if cluster.is_running():
        raise ClusterFault(
            f"the cluster {cluster.name} is up already: end the other demo, or run "
            f"`trainer-operator dev down --name {cluster.name}`"
        )
    cluster.purge()


async def start_cluster(cluster: Cluster, settings: Settings, detail: Callable[[str], None]) -> ClusterState:
    """Start an empty cluster that ends with this process.

    Raises: ClusterFault when it does not become ready.
    """
    cluster.start(settings, tethered=True)
    state = await asyncio.to_thread(cluster.wait_ready, announce=lambda current: detail(str(current.phase)))
    detail(f"{settings.nodes} nodes, {settings.gpus} pretend GPUs each")
    return state


async def install_operator(cluster: Cluster) -> None:
    """Apply the CRDs and the operator's namespace, account and roles."""
    await asyncio.to_thread(cluster.kubectl, "apply", "-k", str(DEPLOYMENT))
    await asyncio.to_thread(cluster.kubectl.wait_established)


async def prepare_operators(cluster: Cluster, deployment: Deployment) -> Operators:
    """Make certificate and kubeconfig for the operators; nothing is started.

    Guarantees: the kubeconfig speaks for the operator's service account, so the shipped role is all they may (RB5).
    """
    folder = cluster.folder / "operator"
    authority = CertificateAuthority.open(folder)
    authority.issue_server("tls", hosts=[LOOPBACK, "localhost"], folder=folder)
    account, namespace = deployment.service_account, deployment.namespace
    token = await asyncio.to_thread(
        cluster.kubectl,
        "create",
        "token",
        account,
        f"--namespace={namespace}",
        f"--duration={TOKEN_DURATION}",
    )
    user = deployment.user
    if token_subject(token) != user:
        raise ClusterFault(f"the API server gave a token that does not speak for {user}")
    kubeconfig = folder / "kubeconfig"
    write_private(
        kubeconfig, service_account_kubeconfig(cluster.kubeconfig.read_text(), token.strip(), user=user)
    )
    settings = OperatorSettings(kubeconfig, folder, namespace, logs=cluster.folder / "logs")
    return Operators(settings, free_ports(2 * len(NAMES), rng=random.Random()))


async def start_operators(operators: Operators, *, clock: Clock) -> None:
    """Start both operators and wait until one leads and both are ready.

    Raises: ClusterFault with the reason when they do not get so far.
    """
    for name in NAMES:
        operators.start(name)
    deadline = clock.monotonic() + _OPERATOR_PATIENCE
    while not (await operators.leaders() and await _all_ready(operators)):
        if problem := operators.ended():
            raise ClusterFault(problem)
        if clock.monotonic() > deadline:
            logs = ", ".join(str(operators.log(name)) for name in NAMES)
            raise ClusterFault(f"no operator led within {_OPERATOR_PATIENCE:.0f} s: see {logs}")
        await clock.sleep(_POLL)


async def submit(cluster: Cluster, example: Example) -> Path:
    """Apply the claim and the Trainer; return the file that was applied."""
    path = cluster.folder / "trainer.yaml"
    path.write_text(yaml.safe_dump_all([example.claim, example.trainer], sort_keys=False))
    await asyncio.to_thread(cluster.kubectl, "apply", "-f", str(path))
    return path


async def claim_folder(client: Client, namespace: str, claim: str, *, clock: Clock) -> Path:
    """Return the folder on this machine behind a claim, once it is bound.

    Raises: ClusterFault when it is not in time.
    """
    deadline = clock.monotonic() + _CLAIM_PATIENCE
    while True:
        found = await client.get(PERSISTENT_VOLUME_CLAIMS, claim, namespace)
        volume = found["spec"].get("volumeName")
        if volume and (found.get("status") or {}).get("phase") == "Bound":
            break
        if clock.monotonic() > deadline:
            raise ClusterFault(
                f"the claim {claim} was not bound within {_CLAIM_PATIENCE:.0f} s: see the provisioner's log"
            )
        await clock.sleep(_POLL)
    spec = (await client.get(PERSISTENT_VOLUMES, volume))["spec"]
    source = spec.get("hostPath") or spec.get("local")
    if source is None:
        raise ClusterFault(f"the volume {volume} is no folder on this machine")
    return Path(source["path"])


async def reference(example: Example, log: Path, *, clock: Clock) -> Reference:
    """Train undisturbed in one process at low priority, and return what that gives.

    Raises: ClusterFault when it fails.
    """
    command = [
        "nice",
        "-n",
        "15",
        sys.executable,
        str(example.program),
        "--local",
        f"--epochs={example.epochs}",
    ]
    process = Process(
        "the undisturbed training", command, log=log, environ={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:
        deadline = clock.monotonic() + _REFERENCE_PATIENCE
        while process.exit_code() is None and clock.monotonic() < deadline:
            await clock.sleep(_POLL)
    finally:
        process.kill()
    found = parse_result(process.tail(lines=1))
    if found is None:
        raise ClusterFault(f"the undisturbed training gave no result: {process.tail() or 'no output'}")
    return found


def parse_result(line: str) -> Reference | None:
    """Read `accuracy 0.9806 after 1380 steps`; None when the line says something else."""
    words = line.split()
    if len(words) != 5 or (words[0], words[2], words[4]) != ("accuracy", "after", "steps"):
        return None
    try:
        return Reference(accuracy=float(words[1]), steps=int(words[3]))
    except ValueError:
        return None


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)


async def _all_ready(operators: Operators) -> bool:
    return all([await operators.is_ready(name) for name in NAMES])
