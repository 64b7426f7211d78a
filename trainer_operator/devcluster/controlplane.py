"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

No root and no containers: child processes with certificates and ports of their own. It serves the development
cluster and the integration tests. Its state folder::

    kubeconfig                       administrator's access
    audit.log                        every request that the API server answered
    certificates/ etcd/ logs/        what the names say
    users/<user>.kubeconfig          further identities

A folder can be started again: objects, authority, tokens and ports are kept; ports only where they are still free.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from trainer_operator.devcluster import certificates, component, kubeconfig, ports
from trainer_operator.devcluster.adminapi import AdminAPI
from trainer_operator.devcluster.assets import Assets, require
from trainer_operator.devcluster.certificates import CertificateAuthority, KeyPair
from trainer_operator.devcluster.component import (
    APISERVER,
    AUDIT_POLICY,
    CONTROLLER_MANAGER,
    ETCD,
    SCHEDULER,
    START_ORDER,
    Files,
    Ports,
)
from trainer_operator.devcluster.errors import ClusterFault, ComponentFailed
from trainer_operator.devcluster.process import Process

if TYPE_CHECKING:
    from runtime.client.config import ClientConfig

_T = TypeVar("_T")

ALL_COMPONENTS = frozenset(START_ORDER)
_START_ATTEMPTS = 3  # lost races for a port
_READY_POLL = 0.05
_SERVER_HOSTS = (
    ports.LOOPBACK,
    "localhost",
    component.SERVICE_ADDRESS,
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


class ControlPlane:
    """Programs of one control plane; an async context manager that starts and stops them.

    Guarantees: no program outlives this process or the context, whatever ends it.
    Assumptions: started from the main thread; one ControlPlane per state folder at a time.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        components: Collection[str] = ALL_COMPONENTS,
        arguments: Mapping[str, Sequence[str]] | None = None,
        apiserver_args: Sequence[str] = (),
        assets: Assets | None = None,
        ready_timeout: float = 60.0,
        grace: float = 5.0,
        rng: random.Random | None = None,
    ) -> None:
        """Prepare a control plane in this folder; nothing is started or written yet.

        `arguments` adds arguments per component, `apiserver_args` to the API server; later ones win. `grace` is how
        many seconds a program gets to end by itself.
        """
        unknown = set(components) - ALL_COMPONENTS
        if unknown:
            raise ClusterFault(
                f"no component {', '.join(sorted(unknown))}: there are {', '.join(START_ORDER)}"
            )
        self.state_dir = state_dir.absolute()
        self.components = tuple(name for name in START_ORDER if name in components)
        self._extra = {name: tuple(values) for name, values in (arguments or {}).items()}
        self._extra[APISERVER] = (*self._extra.get(APISERVER, ()), *apiserver_args)
        self._assets = assets
        self._ready_timeout = ready_timeout
        self._grace = grace
        self._rng = rng or random.Random()
        self._processes: dict[str, Process] = {}
        self._ports: Ports | None = None
        self._authority: CertificateAuthority | None = None
        self._files: Files | None = None
        self._admin: AdminAPI | None = None
        self._admin_pair: KeyPair | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- access ------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Address of the API server."""
        return f"https://{ports.LOOPBACK}:{self.ports.apiserver}"

    @property
    def ports(self) -> Ports:
        """Ports in use."""
        return _started(self._ports)

    @property
    def audit_log(self) -> Path:
        """File of JSON lines, one for each answered request."""
        return self.state_dir / "audit.log"

    @property
    def authority_file(self) -> Path:
        """Certificate that signs the API server's."""
        return _started(self._authority).certificate_file

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.state_dir / "kubeconfig"

    @property
    def config(self) -> ClientConfig:
        """The administrator's access, for `runtime.client.Client`."""
        from runtime.client.config import ClientConfig

        pair = _started(self._admin_pair)
        return ClientConfig(
            server=self.url,
            ca_file=str(self.authority_file),
            client_certificate_file=str(pair.certificate),
            client_key_file=str(pair.key),
        )

    @property
    def admin(self) -> AdminAPI:
        """The administrator's blocking client for set-up and checks."""
        return _started(self._admin)

    @property
    def assets(self) -> Assets:
        """Where the programs are."""
        if self._assets is None:
            self._assets = require()
        return self._assets

    def user_kubeconfig(self, user: str, groups: Iterable[str] = ()) -> Path:
        """Write and return a kubeconfig of this user, with a client certificate of these groups."""
        folder = self.state_dir / "users"
        pair = _started(self._authority).issue_client(user, groups=groups, folder=folder)
        return self._write_kubeconfig(
            folder / f"{certificates.file_stem(user)}.kubeconfig", user=user, pair=pair
        )

    def node_kubeconfig(self, node: str) -> Path:
        """Write and return the kubeconfig of a node's kubelet (Node authorizer, NodeRestriction)."""
        return self.user_kubeconfig(f"system:node:{node}", certificates.NODE_GROUPS)

    def server_certificate(self, name: str, *, hosts: Iterable[str], folder: Path) -> KeyPair:
        """Issue a serving certificate that the API server trusts, such as a kubelet's or a webhook's."""
        return _started(self._authority).issue_server(name, hosts=hosts, folder=folder)

    # -- start and stop ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all components and wait until the API server answers and the default namespace can run pods.

        Cancellation: what was started is ended.
        Raises: AssetsMissing, ComponentFailed.
        """
        _ = self.assets
        for attempt in range(1, _START_ATTEMPTS + 1):
            self._prepare(fresh_ports=attempt > 1)
            try:
                async with asyncio.timeout(self._ready_timeout):
                    for name in self.components:
                        await self.start_component(name)
                    await self._cluster_ready()
            except _PortTaken as conflict:
                await self.stop()
                if attempt == _START_ATTEMPTS:
                    raise ComponentFailed(
                        f"{conflict.component} lost its port {attempt} times: try again"
                    ) from None
            except TimeoutError:
                waiting = self._unready()
                await self.stop()
                raise ComponentFailed(
                    f"{waiting} was not ready after {self._ready_timeout:.0f} s: see {self.log_path(waiting)}"
                ) from None
            except BaseException:
                await self.stop()
                raise
            else:
                return

    async def stop(self) -> None:
        """End all components in reverse order; does nothing when none runs.

        Cancellation: those that remain are killed.
        """
        try:
            for name in reversed(self.components):
                process = self._processes.get(name)
                if process is not None:
                    await process.stop(grace=self._grace)
        finally:
            for process in self._processes.values():
                process.kill()
            self._processes.clear()

    async def start_component(self, name: str) -> None:
        """Start one component on the port it had and wait until it is ready.

        Raises: ComponentFailed when it ends instead.
        """
        running = self._processes.get(name)
        if running is not None and running.exit_code() is None:
            return
        files = _started(self._files)
        program = self.assets.path(component.PROGRAM_OF[name])
        self._processes[name] = process = Process(
            name,
            [str(program), *component.arguments(name, ports=self.ports, files=files)],
            log=self.log_path(name),
            directory=self.state_dir,
        )
        while not await self._is_ready(name):
            self._check_running(process)
            await asyncio.sleep(_READY_POLL)

    async def stop_component(self, name: str, *, grace: float | None = None) -> None:
        """End one component and leave the others: an outage for tests. Grace 0 is SIGKILL."""
        process = self._processes.get(name)
        if process is not None:
            await process.stop(grace=self._grace if grace is None else grace)

    def pause_component(self, name: str) -> None:
        """Freeze one component: connections stay open and nothing is answered."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume_component(self, name: str) -> None:
        """Let a frozen component go on."""
        self._processes[name].send_signal(signal.SIGCONT)

    def ended(self) -> list[str]:
        """Return the components that were started and do not run any more."""
        return [name for name, process in self._processes.items() if process.exit_code() is not None]

    def pids(self) -> dict[str, int]:
        """Return the process ID of each running component."""
        return {name: process.pid for name, process in self._processes.items() if process.exit_code() is None}

    def log_path(self, name: str) -> Path:
        """Return the log file of a component."""
        return self.state_dir / "logs" / f"{name}.log"

    # -- set-up ------------------------------------------------------------------------------------------------

    def _prepare(self, *, fresh_ports: bool) -> None:
        folder = self.state_dir / "certificates"
        folder.mkdir(parents=True, exist_ok=True)
        self.state_dir.chmod(0o700)
        self._authority = authority = CertificateAuthority.open(folder)
        self._ports = self._choose_ports(fresh=fresh_ports)
        self._admin_pair = pair = authority.issue_client(certificates.ADMIN, groups=certificates.ADMIN_GROUPS)
        self._admin = AdminAPI(self._ports.apiserver, authority=authority.certificate_file, client=pair)
        self._write_kubeconfig(self.kubeconfig, user=certificates.ADMIN, pair=pair)
        policy = self.state_dir / "audit-policy.yaml"
        policy.write_text(AUDIT_POLICY)
        self._files = Files(
            state=self.state_dir,
            authority=KeyPair(authority.certificate_file, authority.key_file),
            service_account_key=certificates.ensure_signing_key(folder / "service-account.key"),
            apiserver=authority.issue_server("kube-apiserver", hosts=_SERVER_HOSTS),
            kubelet_client=authority.issue_client(
                "kube-apiserver-kubelet-client", groups=certificates.ADMIN_GROUPS
            ),
            audit_log=self.audit_log,
            audit_policy=policy,
            controller_manager_kubeconfig=self.user_kubeconfig("system:kube-controller-manager"),
            scheduler_kubeconfig=self.user_kubeconfig("system:kube-scheduler"),
            extra=dict(self._extra),
        )

    def _choose_ports(self, *, fresh: bool) -> Ports:
        file = self.state_dir / "ports.json"
        known = None if fresh else _read_ports(file)
        if known is not None and all(ports.is_free(port) for port in asdict(known).values()):
            return known
        chosen = Ports(*ports.free_ports(5, rng=self._rng))
        file.write_text(json.dumps(asdict(chosen)))
        return chosen

    def _write_kubeconfig(self, path: Path, *, user: str, pair: KeyPair) -> Path:
        return kubeconfig.write(
            path,
            url=self.url,
            user=user,
            authority=self.authority_file,
            pair=pair,
            cluster="trainer-operator-dev",
        )

    # -- readiness ---------------------------------------------------------------------------------------------

    async def _is_ready(self, name: str) -> bool:
        if name == ETCD:  # its readiness shows in the API server's, which also retries
            return True
        if name == APISERVER:
            return await asyncio.to_thread(self.admin.is_ok, "/readyz")
        path = component.health_path(name) or "/"
        return await asyncio.to_thread(
            AdminAPI(component.port_of(name, self.ports), authority=None).is_ok, path
        )

    async def _cluster_ready(self) -> None:
        """Wait for what clients take for granted: pods are refused until their namespace has its service account."""
        if CONTROLLER_MANAGER not in self.components:
            return
        while not await asyncio.to_thread(
            self.admin.is_ok, "/api/v1/namespaces/default/serviceaccounts/default"
        ):
            for process in self._processes.values():
                self._check_running(process)
            await asyncio.sleep(_READY_POLL)

    def _unready(self) -> str:
        for name in self.components:
            if name not in self._processes:
                return self.components[max(0, self.components.index(name) - 1)]
        return self.components[-1]

    def _check_running(self, process: Process) -> None:
        code = process.exit_code()
        if code is None:
            return
        output = process.tail(lines=20)
        if ports.is_port_conflict(output):
            raise _PortTaken(process.name)
        last = process.tail(lines=1)
        raise ComponentFailed(
            f"{process.name} ended with code {code}: {last or 'no output'} (log: {process.log})"
        )


class _PortTaken(ClusterFault):
    """Another program took the port between our look and the component's bind."""

    def __init__(self, component_name: str) -> None:
        super().__init__(f"{component_name}'s port is in use")
        self.component = component_name


def _started(value: _T | None) -> _T:
    if value is None:
        raise ClusterFault("the control plane has not been started")
    return value


def _read_ports(file: Path) -> Ports | None:
    try:
        return Ports(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


__all__ = ["ALL_COMPONENTS", "APISERVER", "CONTROLLER_MANAGER", "ETCD", "SCHEDULER", "ControlPlane"]
