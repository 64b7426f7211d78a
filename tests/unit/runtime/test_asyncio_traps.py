"""Traps of asyncio that the whole of `runtime` keeps clear of."""

import ast
import asyncio
from pathlib import Path

import pytest
import uvloop

import runtime
from runtime.cache import Informers
from runtime.client import Client
from runtime.objects import CONFIGMAPS
from runtime.tasks import TaskScope
from runtime.testing.fakeapi import FakeApi
from runtime.testing.simloop import simulated

ROOT = Path(runtime.__file__).parent
BANNED = {"wait_for", "create_task", "ensure_future", "gather", "shield"}


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            yield node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id


@pytest.mark.parametrize("module", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_loses_a_cancel_or_a_task_is_used(module):
    """PY3, PY5, P1: asserted here too, for a lint rule can be switched off in a line."""
    allowed = {"create_task"} if module == ROOT / "tasks.py" else set()
    assert BANNED & set(calls(ast.parse(module.read_text()))) <= allowed


@simulated
async def test_a_cancel_in_the_tick_of_the_result_ends_the_wait():
    """PY3, RT39: what our deadlines are made of, on the Python that runs us."""
    ran_on = []

    async def wait(result):
        async with asyncio.timeout(5):
            await result
        ran_on.append(True)
        await asyncio.sleep(1)
        ran_on.append(True)

    async with TaskScope() as scope:
        result = asyncio.get_running_loop().create_future()
        task = scope.spawn(wait(result), name="waits")
        await asyncio.sleep(0)
        result.set_result(None)
        task.cancel()
    assert task.cancelled()
    assert len(ran_on) <= 1


@pytest.mark.parametrize(
    "factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_client_and_cache_work_on_either_loop(factory):
    """PY8."""

    async def scenario():
        async with FakeApi(CONFIGMAPS) as api, Client(api.config()) as client, TaskScope() as scope:
            informers = Informers(client)
            informer = informers.informer(CONFIGMAPS)
            scope.spawn(informers.run(), name="informers")
            await informers.wait_synced(10)
            await client.create(CONFIGMAPS, {"metadata": {"name": "a", "namespace": "ns"}})
            async with asyncio.timeout(10):
                while len(informer) != 1:
                    await asyncio.sleep(0.01)
            scope.cancel()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())
