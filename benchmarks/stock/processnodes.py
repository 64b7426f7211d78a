"""Process nodes for a cluster of the comparison: pods on them are processes of this machine.

There is no name server among them, so names resolve by decree: training-operator's workers wait for one in an init
container, which asks `nslookup`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.stock.arm import BenchCluster, Broken
from benchmarks.stock.waiting import until
from trainer_operator.devcluster.node.addresses import NODE_ADDRESSES
from trainer_operator.devcluster.nodeobjects import ready_names
from trainer_operator.devcluster.process import Process

__all__ = ["process_nodes"]

_READY_PATIENCE = 60.0
_GRACE = 5.0


@asynccontextmanager
async def process_nodes(cluster: BenchCluster, count: int = 2) -> AsyncIterator[None]:
    """Run so many nodes for the block.

    Raises: Broken when one does not become ready.
    """
    environ = {**os.environ, "PATH": f"{_stand_ins(cluster.folder / 'bin')}{os.pathsep}{os.environ['PATH']}"}
    names = [f"node-{number}" for number in range(count)]
    nodes = [_start(cluster, name, environ) for name in names]

    async def ready() -> bool:
        for node in nodes:
            if node.exit_code() is not None:
                raise Broken(f"{node.name} ended: {node.tail(lines=1) or 'it said nothing'}")
        found = ready_names((await cluster.request("GET", "api/v1/nodes"))["items"])
        return found >= set(names)

    try:
        await until(ready, within=_READY_PATIENCE, failing=f"the {count} process nodes were not ready")
        yield
    finally:
        for node in nodes:
            await node.stop(grace=_GRACE)


def _start(cluster: BenchCluster, name: str, environ: dict[str, str]) -> Process:
    folder = cluster.folder / "nodes" / name
    folder.mkdir(parents=True)
    pair = cluster.plane.server_certificate("kubelet", hosts=(name, *NODE_ADDRESSES), folder=folder)
    argv = [
        sys.executable,
        "-m",
        "trainer_operator.devcluster.node",
        f"--name={name}",
        "--cpu=64",
        "--memory=64Gi",
    ]
    argv += [f"--kubeconfig={cluster.plane.node_kubeconfig(name)}", f"--state-dir={folder}"]
    argv += [f"--serving-certificate={pair.certificate}", f"--serving-key={pair.key}"]
    return Process(name, argv, log=cluster.folder / "logs" / f"{name}.log", environ=environ, directory=folder)


def _stand_ins(folder: Path) -> Path:
    folder.mkdir()
    program = folder / "nslookup"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    return folder
