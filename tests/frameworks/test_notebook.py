"""A real Jupyter Kernel Gateway: as the pod of a Trainer on a process node, and the client against it (JK1, JK2)."""

import base64
import json
import os
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from integration.trainer.conftest import free_port
from trainer_operator.notebook import (
    Gateway,
    GatewayRefused,
    GatewayUnreachable,
    KernelLost,
    OutputKind,
    TooSlow,
)
from trainer_operator.trainer.notebook import HEALTHY, START

TOKEN = "0123456789abcdef" * 2
WAITS = ["python3", "-c", "import time; time.sleep(600)"]


@pytest.fixture(scope="module")
def python(installed):
    found = installed.get("jupyter", {"reason": "nobody asked for it"})
    if "python" not in found:
        pytest.skip(f"cannot be installed here because {found['reason']}")
    return found["python"]


@pytest.fixture
def environment(tmp_path):
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "KG_IP": "127.0.0.1",
        "KG_PORT": str(free_port()),
        "KG_PORT_RETRIES": "0",
        "KG_LIST_KERNELS": "True",
        "KG_DEFAULT_KERNEL_NAME": "python3",
        "KG_AUTH_TOKEN": TOKEN,
    }


@pytest.fixture
def url(python, environment, tmp_path):
    """A gateway, started as the pod's container starts it."""
    idle = ["--MappingKernelManager.cull_idle_timeout=2", "--MappingKernelManager.cull_interval=1"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [python, "-c", START, *idle], env=environment, cwd=tmp_path, stdout=log, stderr=log
        )
        try:
            deadline = time.monotonic() + 60
            while subprocess.run(
                [sys.executable, "-I", "-c", HEALTHY], env=environment, capture_output=True, check=False
            ).returncode:
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.2)
            yield f"http://127.0.0.1:{environment['KG_PORT']}"
        finally:
            process.kill()  # it does not always end when it is asked to; its kernels see that it is gone
            process.wait()


async def outputs(gateway, kernel, code, *, within=60.0):
    async with aclosing(gateway.run(kernel, code, within=within)) as run:
        return [(each.kind, each.text) async for each in run]


@pytest.mark.short
async def test_code_runs_in_kernels_of_a_real_gateway(url):
    """JK1, JK2: REST, the websocket's newer form, and a kernel that does not inherit the token."""
    async with Gateway(url, TOKEN) as gateway:
        assert await gateway.kernel_names() == ["python3"]
        kernel = await gateway.start("python3")
        assert await gateway.kernels() == [kernel]
        code = "import os, sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('KG_AUTH_TOKEN' in os.environ)\n6 * 7"
        found = await outputs(gateway, kernel, code)
        streams = [text for kind, text in found if kind is OutputKind.STDOUT]
        assert "".join(streams) == "a\nFalse\n"
        assert (OutputKind.STDERR, "b\n") in found
        assert found[-1] == (OutputKind.RESULT, "42")
        ((kind, text),) = await outputs(gateway, kernel, "1 / 0")
        assert kind is OutputKind.ERROR
        assert "ZeroDivisionError" in text
        with pytest.raises(TooSlow, match="within 1 s"):
            await outputs(gateway, kernel, "import time; time.sleep(30)", within=1)
        await gateway.end(kernel)
        await gateway.end(kernel)
        assert await gateway.kernels() == []


async def test_a_kernel_that_dies_ends_the_run_with_a_sentence(url):
    async with Gateway(url, TOKEN) as gateway:
        kernel = await gateway.start()
        with pytest.raises(KernelLost):
            await outputs(gateway, kernel, "import os; os._exit(3)")


async def test_a_kernel_without_use_ends(url):
    """spec.notebook.idleTimeoutSeconds."""
    async with Gateway(url, TOKEN) as gateway:
        kernel = await gateway.start()
        await outputs(gateway, kernel, "1")
        deadline = time.monotonic() + 30
        while await gateway.kernels():
            assert time.monotonic() < deadline
            time.sleep(0.5)


async def test_another_token_opens_nothing(url):
    """JK2: neither REST nor the websocket."""
    async with Gateway(url, TOKEN) as gateway:
        kernel = await gateway.start()
    async with Gateway(url, "x" * 32) as stranger:
        for asked in (stranger.kernels, stranger.start):
            with pytest.raises(GatewayRefused, match="the token is not its own"):
                await asked()
        with pytest.raises(GatewayRefused):
            await outputs(stranger, kernel, "1")


@pytest.mark.parametrize("token", ["", "short"])
def test_without_a_token_worth_the_name_nothing_is_served(python, environment, token):
    """JK2: a gateway with an empty token lets anybody in."""
    done = subprocess.run(
        [python, "-c", START],
        env=environment | {"KG_AUTH_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert (
        done.stderr == "the token in the Secret has fewer than 32 characters, so the gateway does not start\n"
    )


async def test_a_gateway_that_is_gone_is_a_fault(environment):
    async with Gateway(f"http://127.0.0.1:{environment['KG_PORT']}", TOKEN) as gateway:
        with pytest.raises(GatewayUnreachable):
            await gateway.kernels()


@pytest.mark.short
def test_the_pod_of_a_trainer_runs_code_for_the_plugin(job, python, until):
    """JK1, JK2: from spec.notebook to an answer, with a token that nobody saw."""
    path = f"{Path(python).parent}:{os.environ['PATH']}"
    trainer = job.make(
        "nb", command=WAITS, topology={"workers": 1}, notebook={}, env=[{"name": "PATH", "value": path}]
    )

    def plugin(*arguments):
        access = [f"--kubeconfig={job.world.cluster.kubeconfig}", f"--namespace={job.namespace}"]
        call = [
            sys.executable,
            "-m",
            "trainer_operator.cli.plugin.main",
            "notebook",
            "nb",
            *arguments,
            *access,
        ]
        return subprocess.run(call, capture_output=True, text=True, check=False, timeout=180)

    shown = plugin("-o", "json")
    assert shown.returncode == 0, (shown.stderr, trainer.status(), trainer.pods())
    pod = json.loads(shown.stdout)
    url = f"--url=http://{pod['status']['podIP']}:8888"
    answer = plugin(url, "--code", "import os; print(os.environ['TRAINER_NAME']); 6 * 7")
    assert (answer.returncode, answer.stdout) == (0, "nb\n42\n"), answer.stderr
    answer = plugin(url, "-o", "json", "--code", "print(1)")
    assert json.loads(answer.stdout) == {"outputs": [{"kind": "stdout", "text": "1\n"}]}
    failed = plugin(url, "--code", "1 / 0")
    assert failed.returncode == 1
    assert "ZeroDivisionError" in failed.stderr
    assert "\x1b" not in failed.stderr
    how = plugin(url)
    assert "jupyter lab --gateway-url=http://" in how.stdout
    data = job.world.get("secret", "nb-notebook", "-n", job.namespace)["data"]["token"]
    token = base64.b64decode(data).decode()
    told = [shown.stdout, answer.stdout, failed.stderr, how.stdout, how.stderr, json.dumps(trainer.object())]
    told += [(job.world.folder / f"{each.name}.log").read_text() for each in job.world.operators]
    assert not [text for text in told if token in text or data in text]

    job.world.kubectl("delete", "pod", pod["metadata"]["name"], "-n", job.namespace)
    until(
        lambda: any(
            each["metadata"]["uid"] != pod["metadata"]["uid"] and "notebook" in name
            for name, each in trainer.pods().items()
        ),
        60,
        "another pod",
    )
    successor = json.loads(plugin("-o", "json").stdout)
    answer = plugin(f"--url=http://{successor['status']['podIP']}:8888", "--code", "2 + 3")
    assert answer.stdout == "5\n", answer.stderr
