"""What each control plane program is started with. Pure: files and ports in, argument lists out.

The flags that are not obvious:

- etcd `--unsafe-no-fsync`: a development cluster may lose its last second in a power cut, and is much faster for it.
- `--endpoint-reconciler-type=none`: the API server would otherwise publish its loopback address as endpoints of the
  service `kubernetes`, which its own validation refuses.
- `Node` authorizer and `NodeRestriction`: process nodes get no more rights than kubelets have.
- `OwnerReferencesPermissionEnforcement`: some distributions turn it on; an operator that lacks the `finalizers`
  permission has to fail here and not there.
- `--kubelet-…`: lets `kubectl logs` reach a node under its loopback address.
- kube-controller-manager's node timings: a lost node is noticed within 20 s and not 50 s.
- Audit policy: bodies of writes are kept, so that a test can say from the log alone what happened to an object; not
  those of secrets and tokens, which are nobody's business, nor of what is written all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainer_operator.devcluster.certificates import KeyPair
from trainer_operator.devcluster.ports import LOOPBACK

ETCD = "etcd"
APISERVER = "apiserver"
CONTROLLER_MANAGER = "controller-manager"
SCHEDULER = "scheduler"

START_ORDER = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER)
PROGRAM_OF = {
    ETCD: "etcd",
    APISERVER: "kube-apiserver",
    CONTROLLER_MANAGER: "kube-controller-manager",
    SCHEDULER: "kube-scheduler",
}

SERVICE_RANGE = "10.0.0.0/24"
SERVICE_ADDRESS = "10.0.0.1"
ISSUER = "https://kubernetes.default.svc.cluster.local"

AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: Metadata
  resources:
  - {group: "", resources: [secrets, configmaps, serviceaccounts/token, events, nodes, nodes/status, pods/status]}
  - {group: authentication.k8s.io}
  - {group: events.k8s.io}
- level: RequestResponse
  verbs: [create, update, patch, delete]
- level: Metadata
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """Loopback ports of one control plane."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int


@dataclass(frozen=True, slots=True)
class Files:
    """Files that the programs are pointed to."""

    state: Path
    authority: KeyPair
    service_account_key: Path
    apiserver: KeyPair
    kubelet_client: KeyPair
    audit_log: Path
    audit_policy: Path
    controller_manager_kubeconfig: Path
    scheduler_kubeconfig: Path
    extra: dict[str, Sequence[str]] = field(default_factory=dict)


def arguments(component: str, *, ports: Ports, files: Files) -> list[str]:
    """Return the arguments of one component, without the program itself."""
    build = {
        ETCD: _etcd,
        APISERVER: _apiserver,
        CONTROLLER_MANAGER: _controller_manager,
        SCHEDULER: _scheduler,
    }[component]
    return [*build(ports, files), *files.extra.get(component, ())]


def health_path(component: str) -> str | None:
    """Return the path that answers 200 when the component is ready, or None where there is none to ask."""
    return {APISERVER: "/readyz", CONTROLLER_MANAGER: "/healthz", SCHEDULER: "/healthz"}.get(component)


def port_of(component: str, ports: Ports) -> int:
    """Return the port on which the component serves."""
    return {
        ETCD: ports.etcd,
        APISERVER: ports.apiserver,
        CONTROLLER_MANAGER: ports.controller_manager,
        SCHEDULER: ports.scheduler,
    }[component]


def _etcd(ports: Ports, files: Files) -> list[str]:
    client, peer = f"http://{LOOPBACK}:{ports.etcd}", f"http://{LOOPBACK}:{ports.etcd_peer}"
    return [
        "--name=default",
        f"--data-dir={files.state / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=1h",
        "--quota-backend-bytes=4294967296",
    ]


def _apiserver(ports: Ports, files: Files) -> list[str]:
    return [
        f"--etcd-servers=http://{LOOPBACK}:{ports.etcd}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={ports.apiserver}",
        f"--cert-dir={files.state / 'certificates'}",
        f"--tls-cert-file={files.apiserver.certificate}",
        f"--tls-private-key-file={files.apiserver.key}",
        f"--client-ca-file={files.authority.certificate}",
        f"--service-account-key-file={files.service_account_key}",
        f"--service-account-signing-key-file={files.service_account_key}",
        f"--service-account-issuer={ISSUER}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
        "--allow-privileged=true",
        "--endpoint-reconciler-type=none",
        f"--kubelet-client-certificate={files.kubelet_client.certificate}",
        f"--kubelet-client-key={files.kubelet_client.key}",
        f"--kubelet-certificate-authority={files.authority.certificate}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--audit-log-path={files.audit_log}",
        f"--audit-policy-file={files.audit_policy}",
        "--audit-log-maxsize=200",
        "--audit-log-maxbackup=1",
        "--profiling=false",
    ]


def _controller_manager(ports: Ports, files: Files) -> list[str]:
    kubeconfig = files.controller_manager_kubeconfig
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.controller_manager}",
        f"--cert-dir={files.state / 'certificates' / CONTROLLER_MANAGER}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={files.service_account_key}",
        f"--root-ca-file={files.authority.certificate}",
        f"--cluster-signing-cert-file={files.authority.certificate}",
        f"--cluster-signing-key-file={files.authority.key}",
        "--node-monitor-period=2s",
        "--node-monitor-grace-period=20s",
        "--node-startup-grace-period=20s",
        "--horizontal-pod-autoscaler-sync-period=3s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    ]


def _scheduler(ports: Ports, files: Files) -> list[str]:
    kubeconfig = files.scheduler_kubeconfig
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.scheduler}",
        f"--cert-dir={files.state / 'certificates' / SCHEDULER}",
        "--leader-elect=false",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    ]
