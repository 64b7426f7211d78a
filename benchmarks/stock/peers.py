"""The programs that are compared with: built from the Go modules pinned under `tools/kwok` and `tools/peers`.

They are built with what builds the control plane, into the same cache, and only for benchmarks: no test needs them.
`python -m benchmarks.stock.peers` does nothing within a moment when all are there. What a peer installs into a cluster
(CRDs, webhooks) is read from its module as published, so nobody's copy of it can be stale or kind to us.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_operator.devcluster.build import Target, ensure_targets, kept_folder
from trainer_operator.devcluster.errors import ClusterFault
from trainer_operator.devcluster.paths import cache_root

__all__ = ["JOBSET", "KWOK", "PEERS", "TRAINER", "TRAINING_OPERATOR", "Peer", "ensure", "files", "folder"]

_TOOLS = Path(__file__).resolve().parents[2] / "tools"


@dataclass(frozen=True, slots=True)
class Peer:
    """A program of others."""

    program: str
    """Its name, also that of the file."""
    module: str
    """The Go module under `tools/` that pins it."""
    source: str
    """The Go module that it is published as."""
    version: str
    """A test compares it with the pinned module."""
    package: str
    """What is built, relative to the published module."""
    folders: tuple[str, ...] = ()
    """What is kept of the published module."""

    def target(self) -> Target:
        """Return how it is built; these programs have no common way to say their version."""
        package = f"{self.source}/{self.package}".rstrip("/")
        return Target(
            self.program,
            self.module,
            package,
            "-s -w",
            ("--help",),
            published=self.source,
            folders=self.folders,
        )


KWOK = Peer("kwok", "kwok", "sigs.k8s.io/kwok", "v0.8.0", "cmd/kwok")
TRAINING_OPERATOR = Peer(
    "training-operator",
    "peers/training-operator",
    "github.com/kubeflow/training-operator",
    "v1.9.4",
    "cmd/training-operator.v1",
    ("manifests",),
)
TRAINER = Peer(
    "trainer",
    "peers/trainer",
    "github.com/kubeflow/trainer/v2",
    "v2.3.0",
    "cmd/trainer-controller-manager",
    ("manifests",),
)
JOBSET = Peer(
    "jobset",
    "peers/jobset",
    "sigs.k8s.io/jobset",
    "v0.12.0",
    "",
    ("config",),
)

PEERS = (KWOK, TRAINING_OPERATOR, TRAINER, JOBSET)
"""All of them, in the order in which they are built."""


def folder(environ: Mapping[str, str] = os.environ, *, tools: Path = _TOOLS) -> Path:
    """Return the folder of the programs, another one for each set of pinned modules."""
    digest = hashlib.sha256()
    for peer in PEERS:
        digest.update((tools / peer.module / "go.sum").read_bytes())
    return cache_root(environ) / "peers" / digest.hexdigest()[:12]


def ensure(peers: Iterable[Peer] = PEERS, *, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that holds these programs, building those that are missing.

    Raises: AssetsMissing, BuildFailed; KeyboardInterrupt passes and the next call goes on.
    """
    where = folder(environ)
    ensure_targets([peer.target() for peer in peers], folder=where, environ=environ)
    return where


def files(peer: Peer, environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the folders are that were kept of this peer's module."""
    return kept_folder(folder(environ), peer.program)


def main() -> int:
    """Make sure that the programs of the benchmarks are there, and say where."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends Go's compilers too, as Ctrl-C does
    try:
        print(ensure())
    except ClusterFault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: run this again, it goes on where it was", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
