"""A real API server for the length of a measurement: etcd and kube-apiserver, nobody else who writes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer_operator.devcluster.assets import PROGRAMS
from trainer_operator.devcluster.build import ensure
from trainer_operator.devcluster.controlplane import APISERVER, ETCD, ControlPlane

__all__ = ["api_server", "new_namespace"]


@contextmanager
def api_server() -> Iterator[ControlPlane]:
    """Run one; pods need no service account, because nobody would make it."""
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as folder:
        plane = ControlPlane(
            Path(folder),
            components={ETCD, APISERVER},
            apiserver_args=["--disable-admission-plugins=ServiceAccount"],
            assets=ensure(PROGRAMS),
            grace=0,
        )
        asyncio.run(plane.start())
        try:
            yield plane
        finally:
            asyncio.run(plane.stop())


def new_namespace(plane: ControlPlane, name: str) -> str:
    """Create a namespace and return its name."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    answer = plane.admin.request("POST", "/api/v1/namespaces", body)
    assert answer.status == 201, answer.body
    return name
