"""The notebook pod: a Jupyter Kernel Gateway beside the training (JK2; ADR 0014).

    spec.notebook, members at work ──▶ one pod ──lost──▶ another, later and later while that goes on
                                         └──suspended, ended, deleted, field removed──▶ none

It is no member: nothing of the training waits for it. The token is in a Secret that users make (`kubectl trainer
notebook`) and kubelet reads; the operator has no right to read or write one (TN3, RB1). Pure.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runtime.cache.projection import ContainerStatus, Pod
from trainer_operator.api import names
from trainer_operator.api.meta import LABEL_PREFIX
from trainer_operator.api.status import AT_REST
from trainer_operator.api.trainer import Notebook, Trainer
from trainer_operator.trainer.membership import ACTIVE
from trainer_operator.trainer.pods import container_security, owner_reference, pod_security
from trainer_operator.trainer.views import NotebookView, Settings

PORT = 8888
TOKEN_KEY = "token"  # noqa: S105 - the key in the Secret, not its value
DIGEST_ANNOTATION = f"{LABEL_PREFIX}notebook"
"""On the pod: what of spec.notebook it was made for."""
FOLDER = "/trainer/notebook"
FIRST_PAUSE = 10.0
LONGEST_PAUSE = 300.0
STEADY = 600.0
"""Seconds of readiness after which earlier losses are forgotten."""
CULL_EVERY = 60
"""Most seconds between two looks of the gateway for kernels that nobody uses."""
RESERVED = ("KG_", "EG_", "KERNEL_", "JUPYTER_")
"""Names that begin so steer the gateway, or who a kernel runs as."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GRACE = 10
START = """\
import os, sys
token = os.environ.pop("KG_AUTH_TOKEN", "")
if len(token) < 32:
    sys.exit("the token in the Secret has fewer than 32 characters, so the gateway does not start")
try:
    from kernel_gateway.gatewayapp import KernelGatewayApp
except ImportError as error:
    sys.exit(f"the image has no jupyter-kernel-gateway ({error}): name one that has in spec.notebook.image")
KernelGatewayApp.launch_instance(sys.argv[1:], auth_token=token)
"""
"""Takes the token out of the environment, which kernels inherit; without a token the gateway would let anybody in."""
HEALTHY = """\
import http.client, os
gateway = http.client.HTTPConnection(os.environ["KG_IP"], int(os.environ["KG_PORT"]), timeout=4)
gateway.request("GET", "/api")
gateway.getresponse()
"""
"""Any answer will do, and without the token it is 401; kubelet's own HTTP probe would take that for a failure."""


@dataclass(frozen=True, slots=True)
class Move:
    """What to do now, and when to look again."""

    act: Literal["nothing", "create", "delete"] = "nothing"
    pods: tuple[Pod, ...] = ()
    """Those that are deleted."""
    again: float | None = None


def env_fault(trainer: Trainer) -> str:
    """Say which variable a gateway cannot have; empty when all are allowed (JK2)."""
    snapshot = trainer.status.profile_snapshot
    profile = f"TrainingProfile {snapshot.name} envVars" if snapshot is not None else ""
    for place, variables in (
        (profile, snapshot.spec.env_vars if snapshot is not None else None),
        ("spec.env", trainer.spec.env),
    ):
        for variable in variables or ():
            if _NAME.fullmatch(variable.name) is None or variable.name.startswith(RESERVED):
                return (
                    f"{place} has {variable.name[:64]!r}, which a notebook cannot have: allowed are names of letters, "
                    f"digits and _ that do not begin with {', '.join(RESERVED)}"
                )
    return ""


def is_wanted(trainer: Trainer) -> bool:
    """Whether there shall be a pod, now or once training runs."""
    return (
        trainer.spec.notebook is not None
        and trainer.spec.is_ours
        and trainer.metadata.deletion_timestamp is None
        and not trainer.spec.suspend
        and trainer.status.phase not in AT_REST
        and not env_fault(trainer)
    )


def has_places(trainer: Trainer) -> bool:
    """Whether all members of the epoch have their pods and started, so that a notebook takes no place of theirs."""
    return trainer.status.membership.phase == ACTIVE


def digest(trainer: Trainer, asked: Notebook) -> str:
    """Return what a pod is made for; another one needs another pod."""
    values = [asked.image or trainer.spec.image, asked.kernel_name, asked.idle_timeout_seconds]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def pods_of(pods: Iterable[Pod], uid: str) -> list[Pod]:
    """Return the notebook pods that a Trainer controls, the oldest first; labels alone prove nothing (TN5)."""
    mine = [
        pod
        for pod in pods
        if pod.labels.get(names.ROLE_LABEL) == names.NOTEBOOK_ROLE
        and any(owner.controller and owner.uid == uid for owner in pod.metadata.owner_references or ())
    ]
    return sorted(mine, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.name))


def next_move(trainer: Trainer, pods: Sequence[Pod], *, pause: float) -> Move:
    """Decide about the pods; `pause` is what is left of the wait after a loss or a refusal.

    Guarantees: at most one that lives, as soon as the cache shows two; none is made but while training runs, so none
    takes the place of a member.
    """
    living = [pod for pod in pods if not pod.is_deleting]
    asked = trainer.spec.notebook
    if asked is None or not is_wanted(trainer):
        return Move("delete", tuple(living)) if living else Move()
    useless = tuple(
        pod
        for number, pod in enumerate(living)
        if number or pod.is_terminal or pod.annotations.get(DIGEST_ANNOTATION) != digest(trainer, asked)
    )
    if useless:
        return Move("delete", useless)
    if living or not has_places(trainer):
        return Move()
    return Move(again=pause) if pause > 0 else Move("create")


def pause_after(count: int) -> float:
    """Return the wait before the next pod, after so many losses or refusals in a row; none after the first loss."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(count - 2, 16)) if count > 1 else 0.0


def free_name(trainer: Trainer, pods: Iterable[Pod]) -> str:
    """Return a name that no pod has: one on a lost node keeps its name for as long as the node is away."""
    taken = {pod.name for pod in pods}
    numbered = (names.notebook_name(trainer.metadata.name, number) for number in range(len(taken) + 1))
    return next(name for name in numbered if name not in taken)


def view(pods: Iterable[Pod], uid: str) -> NotebookView | None:
    """Reduce the pod that lives to what its condition tells."""
    pod = next((pod for pod in pods_of(pods, uid) if not pod.is_deleting), None)
    if pod is None:
        return None
    container = next(iter(pod.status.container_statuses or ()), ContainerStatus())
    state = container.state
    waiting = state.waiting if state is not None else None
    last = container.last_state.terminated if container.last_state is not None else None
    return NotebookView(
        name=pod.name,
        ready=pod.is_ready,
        waits=(waiting.reason or "" if waiting is not None else "")[:64],
        waits_message=(waiting.message or "" if waiting is not None else "")[:256],
        failed=bool(container.restart_count) and not pod.is_ready,
        last_words=_last_line(last.message or "" if last is not None else ""),
    )


def notebook_manifest(trainer: Trainer, asked: Notebook, name: str, settings: Settings) -> dict[str, Any]:
    """Build the pod, as an object and without a template (JK2).

    It has the environment of the training and its image unless another one is named, the Trainer's service account
    without its token, and none of its volumes: one that can be attached to a single node would be taken from a member.
    """
    template, pull = trainer.spec.topology.pod_spec, trainer.spec.image_pull_policy
    healthy = {"exec": {"command": ["python3", "-I", "-c", HEALTHY]}, "timeoutSeconds": 5}
    pod_spec: dict[str, Any] = {
        "restartPolicy": "Always",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE,
        "serviceAccountName": template.service_account_name,
        "securityContext": {**pod_security(trainer, settings), "runAsNonRoot": True},
        "imagePullSecrets": [secret.dump() for secret in trainer.spec.image_pull_secrets or ()],
        "containers": [
            {
                "name": names.NOTEBOOK_ROLE,
                "image": asked.image or trainer.spec.image,
                **({"imagePullPolicy": pull} if pull else {}),
                "command": ["python3", "-c", START],
                "args": [
                    f"--MappingKernelManager.cull_idle_timeout={asked.idle_timeout_seconds}",
                    f"--MappingKernelManager.cull_interval={min(CULL_EVERY, asked.idle_timeout_seconds)}",
                ],
                "env": _environment(trainer, asked),
                "ports": [{"name": "gateway", "containerPort": PORT}],
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
                "volumeMounts": [{"name": "trainer-notebook", "mountPath": FOLDER}],
                "securityContext": container_security(trainer),
                "startupProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1, "failureThreshold": 120},
                "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 5},
                "livenessProbe": {**healthy, "periodSeconds": 30, "failureThreshold": 4},
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }
        ],
        "volumes": [{"name": "trainer-notebook", "emptyDir": {}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": trainer.metadata.namespace,
            "labels": {
                names.TRAINER_LABEL: trainer.metadata.name,
                names.ROLE_LABEL: names.NOTEBOOK_ROLE,
            },
            "annotations": {DIGEST_ANNOTATION: digest(trainer, asked)},
            "ownerReferences": [{**owner_reference(trainer), "blockOwnerDeletion": False}],
        },
        "spec": {key: value for key, value in pod_spec.items() if value not in (None, {}, [])},
    }


def _environment(trainer: Trainer, asked: Notebook) -> list[dict[str, Any]]:
    """Return the variables of the training, and ours last: they win, and no value of theirs can name the token."""
    by_name: dict[str, dict[str, Any]] = {}
    snapshot = trainer.status.profile_snapshot
    for source in (snapshot.spec.env_vars if snapshot is not None else None, trainer.spec.env):
        for variable in source or ():
            by_name[variable.name] = variable.dump()
    secret = {"name": names.notebook_name(trainer.metadata.name), "key": TOKEN_KEY}
    values = {
        "TRAINER_NAME": trainer.metadata.name,
        "TRAINER_NAMESPACE": trainer.metadata.namespace or "",
        "JUPYTER_RUNTIME_DIR": f"{FOLDER}/runtime",
        "IPYTHONDIR": f"{FOLDER}/ipython",
        "KG_PORT": str(PORT),
        "KG_PORT_RETRIES": "0",
        "KG_LIST_KERNELS": "True",
        "KG_DEFAULT_KERNEL_NAME": asked.kernel_name,
    }
    ours: list[dict[str, Any]] = [{"name": each, "value": value} for each, value in values.items()]
    ours += [
        {"name": "KG_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "KG_AUTH_TOKEN", "valueFrom": {"secretKeyRef": secret}},
    ]
    kept = [each for each in by_name.values() if each["name"] not in {own["name"] for own in ours}]
    return kept + ours


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:256] if lines else ""
