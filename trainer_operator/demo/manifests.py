"""The manifests of the demo: the ones a reader finds in the repository, made to run on process nodes. Pure but for reading.

A process node runs a pod's command on this machine's file system, so only the path of the program differs from a
cluster with images; what else the demo asks for is appended to the arguments.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainer_operator.devcluster.errors import ClusterFault

ROOT = Path(__file__).resolve().parents[2]
DEPLOYMENT = ROOT / "deploy" / "base"
EXAMPLE = ROOT / "examples" / "digits"


@dataclass(frozen=True, slots=True)
class Example:
    """The training of the demo."""

    trainer: dict[str, Any]
    claim: dict[str, Any]
    program: Path

    @property
    def name(self) -> str:
        """Name of the Trainer."""
        return str(self.trainer["metadata"]["name"])

    @property
    def epochs(self) -> int:
        """Passes over the training data."""
        return int(self.trainer["spec"]["epochs"])

    @property
    def claim_name(self) -> str:
        """Name of the claim that holds checkpoints and step logs."""
        return str(self.claim["metadata"]["name"])

    @property
    def log_folder(self) -> str:
        """Folder of the step logs inside the claim."""
        arguments = [str(argument) for argument in self.trainer["spec"]["args"]]
        return Path(arguments[arguments.index("--log-dir") + 1]).name


@dataclass(frozen=True, slots=True)
class Deployment:
    """Names that the operator's manifests give."""

    namespace: str
    service_account: str

    @property
    def user(self) -> str:
        """The user name by which the API server knows the operator."""
        return f"system:serviceaccount:{self.namespace}:{self.service_account}"


def load_example(folder: Path = EXAMPLE, *, pace: float, epochs: int | None = None) -> Example:
    """Read the example and make it run on process nodes.

    Raises: ClusterFault when the demo does not run from a checkout of the repository.
    """
    trainer, claim = _read(folder / "trainer.yaml"), _read(folder / "claim.yaml")
    program = folder / "train.py"
    return Example(prepared(trainer, program=program, pace=pace, epochs=epochs), claim, program)


def prepared(
    trainer: Mapping[str, Any], *, program: Path, pace: float, epochs: int | None = None
) -> dict[str, Any]:
    """Return the Trainer with the program's path on this machine and a pace that a person can watch."""
    changed: dict[str, Any] = copy.deepcopy(dict(trainer))
    spec = changed["spec"]
    spec["command"] = [*spec["command"][:-1], str(program)]
    spec["args"] = [*spec["args"], "--pace", f"{pace:g}"]
    if epochs is not None:
        spec["epochs"] = epochs
    return changed


def load_deployment(folder: Path = DEPLOYMENT) -> Deployment:
    """Read where the operator's manifests put it.

    Raises: ClusterFault when the demo does not run from a checkout of the repository.
    """
    account = _read(folder / "service-account.yaml")["metadata"]
    return Deployment(namespace=str(account["namespace"]), service_account=str(account["name"]))


def service_account_kubeconfig(admin: str, token: str, *, user: str) -> str:
    """Return the administrator's kubeconfig with the token of a service account in place of the administrator."""
    document: dict[str, Any] = yaml.safe_load(admin)
    document["users"] = [{"name": user, "user": {"token": token}}]
    for context in document["contexts"]:
        context["context"]["user"] = user
    return json.dumps(document, indent=2) + "\n"


def token_subject(token: str) -> str:
    """Return whom a service account token speaks for, without checking it; empty when it is none."""
    try:
        payload = token.split(".")[1]
        subject = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["sub"]
    except (IndexError, ValueError, KeyError, TypeError):
        return ""
    return str(subject)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except OSError:
        raise ClusterFault(
            f"{path} is not there: the demo runs from a checkout of the repository, with `make demo`"
        ) from None
    if not isinstance(document, dict):
        raise ClusterFault(f"{path} holds no object")
    return document
