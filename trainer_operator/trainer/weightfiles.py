"""Weights in a member's pod: init containers that bring them, and the volume that they lie in (HF4, NE5).

    revision known by name only:   [pin] ──commit──▶ [fetch] ──▶ trainer        the first member's pod
    revision pinned to a commit:                     [fetch] ──▶ trainer        all others, and replacements

Both run the operator's image with arguments alone: no environment of the tenant's reaches them (PS4). The token is
mounted into them, never into the training container. The files lie in an emptyDir, or in the volume that the user
mounts at the same path. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from trainer_operator.api.trainer import HuggingFaceWeights, Trainer
from trainer_operator.trainer.views import Settings

PIN, FETCH = "weights-pin", "weights"
"""Names of the init containers."""
PASSING = frozenset({"HubThrottled", "HubUnreachable"})
"""What a container says when the same may go well later."""
VOLUME, TOKEN_VOLUME = "trainer-weights", "trainer-weights-token"
TOKEN_MOUNT = "/trainer/weights-token"  # noqa: S105 - a path, not a secret
RESOURCES: Mapping[str, Any] = {"requests": {"cpu": "100m", "memory": "64Mi"}}


def wanted(trainer: Trainer) -> HuggingFaceWeights | None:
    """Return the weights that a Trainer asks for."""
    return trainer.spec.weights.hugging_face if trainer.spec.weights is not None else None


def awaits_pin(trainer: Trainer) -> bool:
    """Whether the commit of the weights is not known yet, so that the first member's pod is alone."""
    return wanted(trainer) is not None and trainer.status.weights is None


def init_containers(
    trainer: Trainer, settings: Settings, *, agent: Mapping[str, Any], security: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return what runs before the training; nothing without weights. `agent` is the mount of the agent's folder."""
    weights = wanted(trainer)
    if weights is None:
        return []
    pinned = trainer.status.weights
    repo = pinned.repo if pinned is not None else weights.repo
    token = [f"--token={TOKEN_MOUNT}"] if weights.credentials_secret is not None else []
    pin_file = f"--pin-file={agent['mountPath']}/weights-commit"
    files = [f"{file.sha256 or ''}:{file.path}" for file in weights.files or ()]
    hub = [f"--hub={settings.hub}", f"--repo={repo}", *token]
    commit = f"--commit={pinned.commit}" if pinned is not None else pin_file
    fetch = ["fetch", *hub, commit, f"--folder={weights.mount_path}", "--", *files]
    container = {"image": settings.operator_image, "resources": RESOURCES, "securityContext": security}
    secret = [{"name": TOKEN_VOLUME, "mountPath": TOKEN_MOUNT, "readOnly": True}] if token else []
    asks = {
        "name": PIN,
        **container,
        "command": _command(["pin", *hub, f"--revision={weights.revision}", pin_file]),
        "volumeMounts": [agent, *secret],
    }
    brings = {
        "name": FETCH,
        **container,
        "command": _command(fetch),
        "volumeMounts": [agent, _where(trainer, weights), *secret],
    }
    return [brings] if pinned is not None else [asks, brings]


def mounts(trainer: Trainer) -> list[dict[str, Any]]:
    """Return where the training finds the files; a volume of the user's own is mounted as the user says."""
    weights = wanted(trainer)
    if weights is None or _own_mount(trainer, weights) is not None:
        return []
    return [{"name": VOLUME, "mountPath": weights.mount_path, "readOnly": True}]


def volumes(trainer: Trainer) -> list[dict[str, Any]]:
    """Return the volumes of the files and of the token."""
    weights = wanted(trainer)
    if weights is None:
        return []
    found: list[dict[str, Any]] = []
    if _own_mount(trainer, weights) is None:
        found.append({"name": VOLUME, "emptyDir": {}})
    if weights.credentials_secret is not None:
        # Optional, so that a Secret that is missing is told by the container instead of never starting it (TN3).
        found.append(
            {"name": TOKEN_VOLUME, "secret": {"secretName": weights.credentials_secret, "optional": True}}
        )
    return found


def _own_mount(trainer: Trainer, weights: HuggingFaceWeights) -> dict[str, Any] | None:
    mounted = trainer.spec.topology.pod_spec.volume_mounts or ()
    return next((mount.dump() for mount in mounted if mount.mount_path == weights.mount_path), None)


def _where(trainer: Trainer, weights: HuggingFaceWeights) -> dict[str, Any]:
    """Return the mount to write to; the training's own may be read only."""
    mount = _own_mount(trainer, weights) or {"name": VOLUME, "mountPath": weights.mount_path}
    return {name: value for name, value in mount.items() if name != "readOnly"}


def _command(arguments: Iterable[str]) -> list[str]:
    """Return the command; `$` in a path stays one, which Kubernetes would take for a variable."""
    literal = (argument.replace("$", "$$") for argument in arguments)
    return ["python3", "-I", "-m", "trainer_operator.agent", "weights", *literal]
