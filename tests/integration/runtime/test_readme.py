"""The controller in runtime/README.md, exactly as it stands there, against the real API server."""

import ast
import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.client import Client, NotFound
from runtime.objects import CONFIGMAPS, SERVICES

README = Path(__file__).parents[3] / "runtime" / "README.md"


def program():
    (text,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    return text


@pytest.fixture
def operators(kubeconfig, tmp_path):
    """Starts processes of the program, and ends them."""
    file = tmp_path / "pages.py"
    file.write_text(program())
    started = []

    def start():
        with (tmp_path / f"log-{len(started)}").open("wb") as log:
            environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
            process = subprocess.Popen([sys.executable, str(file)], env=environment, stdout=log, stderr=log)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    try:
        codes = [process.wait(timeout=15) for process in started]
        logs = "\n".join(log.read_text() for log in tmp_path.glob("log-*"))
        assert set(codes) <= {0}, logs
        assert '"level":"error"' not in logs.replace(" ", ""), logs
    finally:
        for process in started:
            process.kill()


async def page(client, namespace, name):
    try:
        return (await client.get(CONFIGMAPS, name, namespace)).get("data")
    except NotFound:
        return None


async def becomes(client, namespace, name, data):
    async with asyncio.timeout(30):
        while await page(client, namespace, name) != data:
            await asyncio.sleep(0.05)


def test_it_is_about_forty_statements_long():
    """The README promises a short one; what it does is tested below."""
    tree = ast.parse(program())
    statements = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert 20 < len(statements) <= 45


async def test_it_makes_and_repairs_pages_and_hands_over(operators, control_plane, namespace):
    """C6, R2, R5, L7."""
    first = operators()
    service = {
        "metadata": {"name": "shop", "namespace": namespace, "labels": {"page": "yes"}},
        "spec": {"ports": [{"port": 80}]},
    }
    wanted = {"address": f"shop.{namespace}.svc"}
    async with Client(control_plane.config) as client:
        await client.create(SERVICES, service)
        await becomes(client, namespace, "shop", wanted)
        await client.delete(CONFIGMAPS, "shop", namespace)
        await becomes(client, namespace, "shop", wanted)
        operators()
        first.send_signal(signal.SIGTERM)
        assert (
            await asyncio.to_thread(first.wait, 15) == 0
        )  # the fixture's signal would be a second one: out at once
        await client.patch(CONFIGMAPS, "shop", {"data": {"address": "elsewhere"}}, namespace=namespace)
        await becomes(client, namespace, "shop", wanted)
