"""Trainers without a command on a real API server: what they run is read from a registry, which is a double."""

import asyncio
import threading
from contextlib import contextmanager

from aiohttp import web

from integration.images.registrydouble import OCI_INDEX, RegistryDouble
from integration.trainer.conftest import DIGITS


@contextmanager
def served(double, at):
    """Serve a registry beside the test, which blocks."""
    started, over, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def serve():
        async with double.serving(at=at):
            started.set()
            await over.wait()

    def run():
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="registry")
    thread.start()
    try:
        assert started.wait(60)
        yield double
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        assert not thread.is_alive()


async def login(_request):
    return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="team"'})


def test_a_trainer_without_a_command_runs_what_its_image_says_or_says_why_it_cannot(job, until):
    """AG2, IS4: an index of several platforms behind a token is read; behind a login there is one sentence."""
    double = RegistryDouble()
    double.wants_token = True
    double.answers["/v2/team/secret/manifests/1"] = login
    logs = job.folder / "steps"
    logs.mkdir()
    config = {
        "Entrypoint": ["python3", str(DIGITS), "--mode", "allreduce"],
        "Cmd": ["--pace", "0", "--log-dir", str(logs)],
    }
    other = {"Entrypoint": ["false"]}
    digest = double.push(
        "team/train", None, kind=OCI_INDEX, platforms={"linux/arm64": other, "linux/amd64": config}
    )
    with served(double, job.world.registry.dup()):
        topology = {"workers": 1}
        closed = job.make("closed", image=f"{double.host}/team/secret:1", topology=topology)
        digits = job.make("digits", image=f"{double.host}/team/train:1", topology=topology, epochs=3)
        status = digits.wait_phase("Succeeded", 120)
        assert [(each["role"], each["digest"]) for each in status["images"]] == [("worker", digest)]
        (pod,) = digits.pods().values()
        assert pod["spec"]["containers"][0]["image"] == f"{double.host}/team/train@{digest}"

        until(lambda: "CommandNotKnown" in closed.events(), 60, "an Event", tell=closed.status)
        (ready,) = (each for each in closed.status()["conditions"] if each["type"] == "Ready")
        assert ready["message"] == (
            f"role worker has no command, and the entry point of image {double.host}/team/secret:1 cannot be read: "
            f"registry {double.host} wants a login, and the operator reads no pull secrets; set spec.command"
        )
        assert closed.pods() == {}
    closed.patch({"command": ["true"]})
    closed.wait_phase("Succeeded", 60)
