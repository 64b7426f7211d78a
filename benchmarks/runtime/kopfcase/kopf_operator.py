"""The operator on kopf, in kopf's idioms: a handler for a change, children adopted, the answer stored in the status.

Children are created at once through kubernetes-asyncio, the quickest client that kopf's users use.
"""

# mypy: disable-error-code="untyped-decorator"

import asyncio
import os
from typing import Any

import kopf  # type: ignore[import-not-found]  # installed only by the benchmark
from kubernetes_asyncio import client, config

from benchmarks.runtime.kopfcase.bundle import CHILDREN, GROUP, PLURAL, VERSION, child


@kopf.on.login()
def login(**given: Any) -> Any:
    """Read the kubeconfig."""
    return kopf.login_with_kubeconfig(**given)


@kopf.on.startup()
async def configure(memo: Any, **_: Any) -> None:
    """Open one client for all handlers."""
    await config.load_kube_config(os.environ["KUBECONFIG"])
    memo.api = client.CoreV1Api(client.ApiClient())


@kopf.on.cleanup()
async def close(memo: Any, **_: Any) -> None:
    """Close the client."""
    await memo.api.api_client.close()


@kopf.on.create(GROUP, VERSION, PLURAL)
@kopf.on.update(GROUP, VERSION, PLURAL, field="spec")
async def make_children(name: str, namespace: str, body: Any, memo: Any, **_: Any) -> dict[str, int]:
    """Create what is missing."""
    owner = kopf.build_owner_reference(body)

    async def create(number: int) -> None:
        try:
            await memo.api.create_namespaced_config_map(
                namespace, child(name, namespace, number, owner=dict(owner))
            )
        except client.ApiException as error:
            if error.status != 409:
                raise

    async with asyncio.TaskGroup() as group:
        for number in range(CHILDREN):
            group.create_task(create(number))
    return {"children": CHILDREN}
