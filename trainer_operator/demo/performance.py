"""One performance of the demo from the first process to the last check.

    set-up ──▶ training, with one disturbance after the other ──▶ end of training ──▶ expectations

Guarantees: leaving `Performance` ends every process that it started, however it is left; should this process be
killed, the kernel ends them (`devcluster/tether.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from runtime.client.config import ClientConfig
from runtime.client.rest import Client
from runtime.clock import Clock, SystemClock
from runtime.tasks import TaskScope, cancel_and_wait
from trainer_operator.demo import report, setup
from trainer_operator.demo.disturbances import PLAN, Disturbance
from trainer_operator.demo.frame import Frame, compose
from trainer_operator.demo.manifests import load_deployment, load_example
from trainer_operator.demo.measures import Row
from trainer_operator.demo.observer import Observer
from trainer_operator.demo.operators import NAMES, Operators
from trainer_operator.demo.plain import View
from trainer_operator.demo.report import Place
from trainer_operator.demo.scenario import Scenario
from trainer_operator.demo.steady import has_ended
from trainer_operator.demo.steplog import StepLogs
from trainer_operator.demo.timeline import LeadersSeen, Timeline
from trainer_operator.demo.verify import Check, Reference, unbroken, verify
from trainer_operator.devcluster.auditlog import AuditLog
from trainer_operator.devcluster.cluster import Cluster
from trainer_operator.devcluster.errors import ClusterFault
from trainer_operator.devcluster.state import Settings

NAMESPACE = "default"
REPORT = "report.json"
FRAME_INTERVAL = 0.25
PULSE_LENGTH = 200
"""Seconds of training that frames tell the pulse of; a screen shows what it has room for."""
_LAST_LOOK = 1.5
"""Seconds in which the last events and log lines arrive."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    name: str = "demo"
    """Name of the development cluster."""
    nodes: int = 4
    gpus: int = 8
    pace: float = 0.06
    """Least seconds of a training step, so that a person can follow."""
    epochs: int | None = None
    """Passes over the data; as in the example when None."""
    patience: float = 240.0
    """Seconds that training may go on after the last disturbance."""


class Performance:
    """The demo while it runs."""

    def __init__(self, options: Options, *, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._origin = self._clock.monotonic()
        self._timeline = Timeline()
        self._steps = setup.Steps(lambda: self.now)
        self._example = load_example(pace=options.pace, epochs=options.epochs)
        self._deployment = load_deployment()
        self._cluster = Cluster(options.name)
        self._is_cluster_ours = False
        self._operators: Operators | None = None
        self._scenario: Scenario | None = None
        self._plan: Sequence[Disturbance] = PLAN
        self._reference: Reference | None = None
        self._checks: tuple[Check, ...] = ()
        self._step_folder: Path | None = None
        self._activity = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._operators is not None:
            await self._operators.stop()
        if self._is_cluster_ours:
            await asyncio.to_thread(self._cluster.down)

    @property
    def now(self) -> float:
        """Seconds since the demo began."""
        return self._clock.monotonic() - self._origin

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._cluster.kubeconfig

    def frame(self) -> Frame:
        """Return what is to be seen now."""
        leaders = self._timeline.last(LeadersSeen)
        return compose(
            self._timeline,
            now=self.now,
            setup=self._steps.all,
            activity=self._activity,
            trainer=self._example.name,
            epochs=self._example.epochs,
            leader=" and ".join(leaders.leaders) if leaders is not None else "",
            rows=self._scenario.rows if self._scenario is not None else (),
            planned=len(self._plan),
            checks=self._checks,
            reference=self._reference,
            pulse_length=PULSE_LENGTH,
        )

    def places(self) -> tuple[Place, ...]:
        """Return where the traces of the run are."""
        folder = self._cluster.folder
        return (
            Place("report", folder / REPORT),
            Place("kubeconfig", self.kubeconfig),
            Place("logs", folder / "logs"),
            *(() if self._step_folder is None else (Place("step logs", self._step_folder),)),
            Place("manifests", folder / "trainer.yaml"),
        )

    async def run(self, view: View) -> Frame:
        """Perform before a view, check the expectations and write the report; return the last frame.

        Raises: ClusterFault when the demo could not be performed at all.
        """
        try:
            async with TaskScope() as scope:
                scope.spawn(self._show(view), name="view")
                await self._perform(scope)
                scope.cancel()
        except ExceptionGroup as group:
            faults = group.subgroup(ClusterFault)
            if faults is None:
                raise
            raise _first(faults) from None
        events = await asyncio.to_thread(AuditLog(self._cluster.audit_log).since)
        self._checks = (
            *verify(self._timeline, self._rows, self._reference, plan=self._plan),
            unbroken(events, operator=self._deployment.user),
        )
        last = self.frame()
        report.write(self._cluster.folder / REPORT, last, self._timeline, self.places())
        view.show(last)
        return last

    async def _perform(self, scope: TaskScope) -> None:
        cluster, settings = self._cluster, Settings(nodes=self._options.nodes, gpus=self._options.gpus)
        setup.clear(cluster)
        self._is_cluster_ours = True
        async with self._steps.step("Kubernetes on this machine") as detail:
            await setup.start_cluster(cluster, settings, detail)
        scope.spawn(self._train_undisturbed(), name="undisturbed training")
        async with self._steps.step("kubectl apply -k deploy/base"):
            await setup.install_operator(cluster)
        async with self._steps.step("two operators, with the shipped role's rights") as detail:
            self._operators = operators = await setup.prepare_operators(cluster, self._deployment)
            await setup.start_operators(operators, clock=self._clock)
            detail(f"{' '.join(await operators.leaders())} leads")
        async with Client(ClientConfig.from_kubeconfig(cluster.kubeconfig), clock=self._clock) as client:
            await self._observe(scope, client, operators)

    async def _observe(self, scope: TaskScope, client: Client, operators: Operators) -> None:
        observer = Observer(
            self._timeline,
            clock=self._clock,
            origin=self._origin,
            namespace=NAMESPACE,
            trainer=self._example.name,
            operators=operators,
            operator_namespace=self._deployment.namespace,
        )
        watching = scope.spawn(observer.run(client), name="observer")
        async with self._steps.step("kubectl apply -f trainer.yaml"):
            await setup.submit(self._cluster, self._example)
        self._activity = "waiting for the members"
        claim = self._example.claim_name
        folder = await setup.claim_folder(client, NAMESPACE, claim, clock=self._clock)
        self._step_folder = folder / self._example.log_folder
        observer.step_logs = StepLogs(self._step_folder)
        self._scenario = Scenario(
            timeline=self._timeline,
            clock=self._clock,
            origin=self._origin,
            cluster=self._cluster,
            operators=operators,
            trainer=self._example.name,
            announce=self._announce,
            plan=self._plan,
        )
        await self._scenario.run()
        self._activity = "training to the end"
        await self._wait_for_the_end()
        await cancel_and_wait(watching)

    async def _wait_for_the_end(self) -> None:
        deadline = self._clock.monotonic() + self._options.patience
        while not has_ended(self._timeline) and self._clock.monotonic() < deadline:
            await self._clock.sleep(0.1)
        while self._reference is None and self._clock.monotonic() < deadline:
            await self._clock.sleep(0.1)
        await self._clock.sleep(_LAST_LOOK)
        self._activity = ""

    async def _train_undisturbed(self) -> None:
        log = self._cluster.folder / "logs" / "undisturbed-training.log"
        self._reference = await setup.reference(self._example, log, clock=self._clock)

    async def _show(self, view: View) -> None:
        while True:
            view.show(self.frame())
            self._restart_operators()
            await self._clock.sleep(FRAME_INTERVAL)

    def _restart_operators(self) -> None:
        """Do what a Deployment does: start an operator again that ended by itself, as one does that lost its lease."""
        if self._operators is not None and self._scenario is not None:
            for name in NAMES:
                if self._operators.ended_by_itself(name):
                    self._operators.start(name)

    def _announce(self, activity: str) -> None:
        self._activity = activity

    @property
    def _rows(self) -> list[Row]:
        return self._scenario.rows if self._scenario is not None else []


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
