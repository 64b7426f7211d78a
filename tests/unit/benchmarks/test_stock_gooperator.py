"""A peer beside the cluster gets its certificates as a pod would, and what ends instead of working is told."""

import base64
import http.server
import threading

import pytest

from benchmarks.stock import gooperator, peers
from benchmarks.stock.arm import Broken
from benchmarks.stock.gooperator import GoOperator

SECRET = {name: base64.b64encode(name.encode()).decode() for name in ("ca.crt", "tls.crt", "tls.key")}


class Cluster:
    """As much of a cluster as a start needs."""

    def __init__(self, folder, *, data):
        self.folder = folder
        self.data = data

    def controller_kubeconfig(self, name):
        return self.folder / name

    async def request(self, verb, path, body=None, *, content_type=""):
        assert (verb, path) == ("GET", "api/v1/namespaces/peer/secrets/certificates")
        return {"data": self.data}


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def health_port():
    with http.server.HTTPServer(("127.0.0.1", 0), Healthy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def fixed(tmp_path, monkeypatch):
    folder = tmp_path / "fixed"
    monkeypatch.setattr(gooperator, "_FIXED", folder)
    return folder


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Have a shell script run in place of a peer."""
    monkeypatch.setattr(peers, "folder", lambda: tmp_path / "programs")

    def write(*lines):
        file = tmp_path / "programs" / peers.JOBSET.program
        file.parent.mkdir()
        file.write_text("\n".join(("#!/bin/sh", *lines)))
        file.chmod(0o755)

    return write


def operator(port=1):
    return GoOperator(
        peers.JOBSET, ports=[2, port, 3], namespace="peer", secret="certificates", controller="jobset"
    )


async def test_certificates_are_where_the_program_looks_before_it_is_ready(
    tmp_path, fixed, program, health_port
):
    program('echo "$TMPDIR"', 'echo \'Starting workers {"controller": "jobset"}\'', "exec sleep 600")
    (fixed / "old").mkdir(parents=True)
    peer = operator(health_port)
    try:
        await peer.start(Cluster(tmp_path, data=SECRET), [])
        assert len(peer.pids()) == 1
        mounted = tmp_path / "jobset-tmp" / "k8s-webhook-server" / "serving-certs"
        for folder in (mounted, fixed):
            assert {file.name: file.read_text() for file in folder.iterdir()} == {
                name: name for name in SECRET
            }
        assert str(tmp_path / "jobset-tmp") in (tmp_path / "jobset.log").read_text()
    finally:
        await peer.stop()
    assert peer.pids() == []


async def test_program_that_ends_breaks_the_arm_with_its_last_words(tmp_path, fixed, program):
    program("echo starting", "echo unable to start manager >&2", "exit 1")
    with pytest.raises(Broken, match=r"^jobset ended: unable to start manager$"):
        await operator().start(Cluster(tmp_path, data={}), [])


async def test_controller_that_never_works_breaks_the_arm(tmp_path, fixed, program, health_port, monkeypatch):
    """The webhooks answer, but another controller's start is no start of this one's."""
    monkeypatch.setattr(gooperator, "_READY_TIMEOUT", 0.5)
    program('echo \'Starting workers {"controller": "cert-rotator"}\'', "exec sleep 600")
    peer = operator(health_port)
    try:
        with pytest.raises(Broken, match=r"^jobset is not ready after a minute"):
            await peer.start(Cluster(tmp_path, data=SECRET), [])
    finally:
        peer.kill()
    await peer.stop()


def test_mount_of_somebody_else_breaks_the_arm(tmp_path, monkeypatch):
    folder = tmp_path / "a-file"
    folder.touch()
    monkeypatch.setattr(gooperator, "_FIXED", folder)
    with pytest.raises(Broken, match="belongs to somebody else: Not a directory"):
        gooperator._forget_mount()
