"""The janitor: the agent in a pod of its own, for the store's work while no member runs (ADR 0009).

Retention after the end, and the collection of all checkpoints of a deleted Trainer, need somebody who may reach the
store; the operator may not (ADR 0007). What is wanted of the janitor is declared like any directive, and the pod
exists while something is: `next_move` says whether to make one or to end it. Pure.
"""

from dataclasses import dataclass
from typing import Any, Literal

from trainer_operator.api import names
from trainer_operator.api.bucket import FileBucket, parse_bucket
from trainer_operator.api.trainer import Trainer
from trainer_operator.topology.members import JANITOR
from trainer_operator.trainer.pods import (
    AGENT_FOLDER,
    agent_environment,
    agent_mounts,
    agent_volumes,
    container_security,
    owner_reference,
    pod_security,
)
from trainer_operator.trainer.views import PodView, Settings

LIMIT = 900.0
"""Seconds that a janitor may take; what is left is done by the next one."""
IDLE = 2.0
"""Seconds without work after which it goes: the next order often follows from the last one's result."""
FIRST_PAUSE = 60.0
LONGEST_PAUSE = 3600.0
_GRACE = 5


@dataclass(frozen=True, slots=True)
class Move:
    """What to do now, and when to look again."""

    act: Literal["nothing", "create", "delete"] = "nothing"
    again: float | None = None
    unfinished: bool = False
    """Whether the pod goes although there is work left."""


def next_move(*, wanted: bool, pod: PodView | None, age: float, idle: float, pause: float) -> Move:
    """Decide about the janitor's pod.

    `age` is the pod's, `idle` the time since something was wanted, `pause` what is left of the wait after one that
    did not finish.
    """
    if pod is None:
        if not wanted:
            return Move()
        return Move("nothing", again=pause) if pause > 0 else Move("create", again=LIMIT)
    if pod.terminating:
        return Move()
    if not pod.alive or age >= LIMIT:
        return Move("delete", unfinished=wanted)
    if wanted:
        return Move(again=LIMIT - age)
    return Move("delete") if idle >= IDLE else Move(again=IDLE - idle)


def pause_after(failures: int) -> float:
    """Return the wait before the next janitor, once so many in a row did not finish."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 16)) if failures else 0.0


def janitor_manifest(trainer: Trainer, settings: Settings) -> dict[str, Any]:
    """Build the janitor's pod. Its name is the Trainer's alone, so there are never two.

    It runs the operator's image as the members' user, since the files of a volume are theirs, and on any node.
    """
    template = trainer.spec.topology.pod_spec
    mounts, volumes = agent_mounts(trainer), agent_volumes(trainer)
    if _has_own_folder(trainer):  # a volume that the user mounts at that path
        mounts += [mount.dump() for mount in template.volume_mounts or ()]
        volumes += [volume.dump() for volume in template.volumes or ()]
    snapshot = trainer.status.profile_snapshot
    tolerations = snapshot.spec.tolerations if snapshot is not None else None
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.pod_name(trainer.metadata.name, JANITOR.role, JANITOR.index),
            "namespace": trainer.metadata.namespace,
            "labels": names.pod_labels(trainer.metadata.name, JANITOR.role, JANITOR.index),
            # A deletion in the foreground would take it away before it has deleted the checkpoints.
            "ownerReferences": [{**owner_reference(trainer), "blockOwnerDeletion": False}],
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(LIMIT),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": _GRACE,
            "securityContext": pod_security(trainer, settings),
            "tolerations": [toleration.dump() for toleration in tolerations or ()],
            "imagePullSecrets": [secret.dump() for secret in trainer.spec.image_pull_secrets or ()],
            "containers": [
                {
                    "name": JANITOR.role,
                    "image": settings.operator_image,
                    "command": ["python3", "-I", "-m", "trainer_operator.agent", "janitor"],
                    "env": [
                        *agent_environment(trainer, JANITOR, 0, settings),
                        {"name": "TRAINER_AGENT_FOLDER", "value": AGENT_FOLDER},
                    ],
                    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                    "volumeMounts": mounts,
                    "securityContext": container_security(trainer),
                }
            ],
            "volumes": volumes,
        },
    }


def _has_own_folder(trainer: Trainer) -> bool:
    checkpoint = trainer.spec.checkpoint
    return checkpoint is not None and isinstance(parse_bucket(checkpoint.bucket), FileBucket)
