"""The environment of the training process in one epoch: the pod's, then the operator's, then the agent's (PS4)."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping

from trainer_operator.agent.settings import Settings

_KEPT_FROM_CHILD = ("TRAINER_TOKEN_FILE", "TRAINER_OPERATOR_URLS", "TRAINER_OPERATOR_CA")


def progress_file(socket_path: str) -> str:
    """Return where code without the SDK may write its last step: beside the socket, where it may write (AG5)."""
    return os.path.join(os.path.dirname(socket_path), "progress")


def child_environment(
    inherited: Mapping[str, str], go: Mapping[str, Any], *, settings: Settings, socket_path: str, port: int
) -> Dict[str, str]:
    """Build the environment; what the agent sets wins, and the way to the operator is not handed on."""
    environment = {name: value for name, value in inherited.items() if name not in _KEPT_FROM_CHILD}
    given = go.get("env")
    if isinstance(given, Mapping):
        environment.update({str(name): str(value) for name, value in given.items()})
    restore = go.get("restore")
    ours = {
        "TRAINER_EPOCH": go.get("epoch", 0),
        "TRAINER_PS_EPOCH": go.get("psEpoch", 0),
        "TRAINER_RANK": go.get("rank", 0),
        "TRAINER_WORLD_SIZE": go.get("world", 1),
        "TRAINER_RESTORE_STEP": go.get("restoreStep", 0),
        "TRAINER_RESTORE_CKPT": restore.get("ckpt", "") if isinstance(restore, Mapping) else "",
        "TRAINER_RESTORE_RING": "1" if go.get("ring") else "",
        "TRAINER_JOIN": "1" if go.get("join") else "",
        "TRAINER_MEMBERS": json.dumps(go.get("members", []), separators=(",", ":")),
        "TRAINER_ADDRESS": settings.pod_ip,
        "TRAINER_PORT": port,
        "TRAINER_AGENT_SOCK": socket_path,
        "TRAINER_PROGRESS_FILE": progress_file(socket_path),
        "TRAINER_RING_DIR": settings.ring_folder,
        "TRAINER_SPOOL_DIR": settings.spool_folder,
        "TRAINER_CACHE_DIR": settings.cache_folder,
        "TRAINER_PEERS_FILE": settings.roster_file,
        "TRAINER_STORE": settings.store,
        "TRAINER_STORE_CREDENTIALS": settings.store_credentials,
    }
    environment.update({name: str(value) for name, value in ours.items()})
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = settings.folder + (os.pathsep + path if path else "")
    return environment
