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


MODULES = pytest.mark.parametrize(
    "module", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)


@MODULES
def test_nothing_that_loses_a_cancel_or_a_task_is_used(module):
    """PY3, PY5, P1: asserted here too, for a lint rule can be switched off in a line."""
    allowed = {"create_task"} if module == ROOT / "tasks.py" else set()
    assert BANNED & set(calls(ast.parse(module.read_text()))) <= allowed


def swallowed(tree):
    """Yield the lines at which a cancel would not be passed on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = "BaseException" if node.type is None else ast.unparse(node.type)
            raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            is_kept = node.name is not None and any(
                isinstance(inner, ast.Assign) and ast.unparse(inner.value) == node.name
                for inner in ast.walk(node)
            )
            if ("BaseException" in caught or "CancelledError" in caught) and not (raises or is_kept):
                yield node.lineno, caught
        elif isinstance(node, ast.Try | ast.TryStar):
            for left in (inner for each in node.finalbody for inner in ast.walk(each)):
                if isinstance(left, ast.Return | ast.Break | ast.Continue):
                    yield left.lineno, "finally"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            suppressed = " ".join(map(ast.unparse, node.args))
            if "Cancelled" in suppressed or "BaseException" in suppressed:
                yield node.lineno, "suppress"


@pytest.mark.parametrize(
    "code",
    [
        "try: f()\nexcept: pass",
        "try: f()\nexcept BaseException: log()",
        "try: f()\nexcept (OSError, asyncio.CancelledError): pass",
        "def g():\n  try: f()\n  finally: return 1",
        "with contextlib.suppress(asyncio.CancelledError): f()",
    ],
)
def test_what_would_swallow_a_cancel_is_found(code):
    """PY4."""
    assert list(swallowed(ast.parse(code)))


@MODULES
def test_nothing_swallows_a_cancel(module):
    """PY4: nor leaves a `finally` early. Where asyncio.run ends for good, there is nobody left to pass it on to."""
    found = [caught for _, caught in swallowed(ast.parse(module.read_text()))]
    is_end_of_a_thread = module == ROOT / "leaderelection" / "elector.py"
    assert found == (["asyncio.CancelledError"] if is_end_of_a_thread else [])


TAKEN = {("time", "*"), ("random", "*"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today")}


@MODULES
def test_time_and_chance_are_asked_of_what_was_handed_in(module):
    """P3, PY10: a module that takes them itself cannot be simulated."""
    if module == ROOT / "clock.py":
        return
    calls_made = {
        (node.func.value.id, node.func.attr)
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
    }
    sources = {("random", "Random"), ("random", "SystemRandom")}  # what is handed in, where nothing else was
    taken = {call for call in calls_made if call in TAKEN or (call[0], "*") in TAKEN}
    assert taken <= sources


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
