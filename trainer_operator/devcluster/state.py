"""What a development cluster is made of and how it is: the contents of `state.json`.

Written by the supervisor only, whole (temporary file and rename); read by the command line. A file that is left over
from a supervisor that was killed says so by its age alone, so readers ask for the cluster's lock first.
"""

from __future__ import annotations

import enum
import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainer_operator.devcluster.errors import ClusterFault

FILE = "state.json"
LOCK = "lock"
_QUANTITY = re.compile(r"0*[1-9][0-9]*(m|k|M|G|T|Ki|Mi|Gi|Ti)?")


class Phase(enum.StrEnum):
    """How far a cluster is. A supervisor that ends leaves STOPPED or FAILED."""

    STARTING = "starting the control plane"
    STARTING_NODES = "starting the nodes"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Settings:
    """What `dev up` was asked for."""

    nodes: int = 4
    """Number of process nodes."""
    gpus: int = 8
    """Pretend GPUs of each node."""
    cpu: str = "32"
    """Processors that each node says it has; more than there are, because training in a demo hardly uses any."""
    memory: str = "64Gi"
    """Memory that each node says it has."""

    def node_names(self) -> tuple[str, ...]:
        """Return the nodes' names."""
        return tuple(f"node-{number}" for number in range(self.nodes))

    def check(self) -> None:
        """Refuse what a node could not report as its capacity.

        Raises: ClusterFault that names the value and what is allowed.
        """
        for what, value, example in (
            ("processors", self.cpu, "32 or 500m"),
            ("memory", self.memory, "64Gi or 500M"),
        ):
            if not _QUANTITY.fullmatch(value):
                raise ClusterFault(
                    f"{what} {value!r} is not a positive Kubernetes quantity such as {example}"
                )


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the cluster."""

    pid: int | None
    """Process ID, or None when it is down."""
    restarts: int = 0
    """How often it was started again after it had ended by itself."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster at one moment."""

    name: str
    phase: Phase
    supervisor: int
    """The supervisor's process ID."""
    settings: Settings
    url: str = ""
    kubeconfig: str = ""
    message: str = ""
    """Why the cluster is FAILED, in a sentence."""
    members: dict[str, Member] = field(default_factory=dict)
    """Control plane components, the volume provisioner and nodes by name."""

    def to_json(self) -> str:
        """Return the JSON that `from_json` reads."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ClusterState:
        """Read a state.

        Raises: ValueError when the text is none.
        """
        try:
            raw = json.loads(text)
            return cls(
                name=raw["name"],
                phase=Phase(raw["phase"]),
                supervisor=int(raw["supervisor"]),
                settings=Settings(**raw["settings"]),
                url=raw["url"],
                kubeconfig=raw["kubeconfig"],
                message=raw["message"],
                members={name: Member(**member) for name, member in raw["members"].items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a cluster state: {error}") from error


def save(folder: Path, state: ClusterState) -> None:
    """Write the state; readers see the old one or the new one."""
    temporary = folder / f".{FILE}"
    temporary.write_text(state.to_json())
    os.replace(temporary, folder / FILE)


def load(folder: Path) -> ClusterState | None:
    """Read the last written state, or None when there is none.

    Raises: ClusterFault when the file is not ours.
    """
    try:
        return ClusterState.from_json((folder / FILE).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise ClusterFault(
            f"{folder / FILE} is not a cluster's state: remove {folder} if it is not needed"
        ) from None
