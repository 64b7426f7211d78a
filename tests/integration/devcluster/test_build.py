"""The builder with a stand-in for Go: what is in the cache, whatever happens in between."""

import dataclasses
import io
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from trainer_operator.devcluster import build
from trainer_operator.devcluster.assets import PROGRAMS, cache_folder
from trainer_operator.devcluster.buildprogress import PlainProgress
from trainer_operator.devcluster.errors import AssetsMissing, BuildFailed

GO = """#!/bin/bash
# A stand-in for Go: `build` writes a program that says its version. Files in $CONTROL tell it to misbehave.
echo "$@" >> "$CONTROL/calls"
case $1 in
  version) echo "go version go${GO_VERSION:-1.26.8} linux/amd64" ;;
  list) if [ "$2" = -m ]; then echo "$CONTROL/module"; else echo one; echo two; fi ;;
  build)
    while [ "$1" != -o ]; do shift; done
    program=$(basename "$3")
    mkdir -p "$GOCACHE"; echo cached > "$GOCACHE/$program"
    if [ -e "$CONTROL/offline" ]; then echo "go: example.com/m@v1: Get https://p: dial tcp: lookup p: no such host"; exit 1; fi
    if [ -e "$CONTROL/fail-$program" ]; then printf half > "$2"; echo "$program.go:1:1: broken"; exit 1; fi
    if [ -e "$CONTROL/hang-$program" ]; then printf half > "$2"; touch "$CONTROL/hanging"; exec sleep 600; fi
    says=${SAYS:-v1.36.3}
    printf '#!/bin/sh\\necho Kubernetes %s\\n' "$says" > "$2"; chmod +x "$2" ;;
esac
"""


class Machine:
    """A cache folder and a PATH with the stand-in."""

    def __init__(self, root):
        self.control = root / "control"
        self.control.mkdir()
        bin_folder = root / "bin"
        bin_folder.mkdir()
        (bin_folder / "go").write_text(GO)
        (bin_folder / "go").chmod(0o755)
        self.environ = {
            **os.environ,
            "PATH": f"{bin_folder}:/usr/bin:/bin",
            "XDG_CACHE_HOME": str(root / "cache"),
            "CONTROL": str(self.control),
        }
        self.environ.pop("KUBEBUILDER_ASSETS", None)
        self.folder = cache_folder(self.environ)
        self.work = self.folder.with_name(f"{self.folder.name}.build")
        self.said = io.StringIO()

    def build(self, programs=PROGRAMS):
        return build.ensure(programs, environ=self.environ, progress=PlainProgress(self.said))

    def build_targets(self, *targets):
        build.ensure_targets(
            targets, folder=self.folder, environ=self.environ, progress=PlainProgress(self.said)
        )

    def misbehave(self, how):
        (self.control / how).touch()

    def behave(self):
        for file in self.control.iterdir():
            file.unlink()

    def calls(self, word):
        return [line for line in (self.control / "calls").read_text().splitlines() if line.startswith(word)]

    def cached(self):
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def machine(tmp_path, monkeypatch):
    result = Machine(tmp_path)
    monkeypatch.setenv("PATH", result.environ["PATH"])
    monkeypatch.setenv("CONTROL", result.environ["CONTROL"])
    return result


def test_all_programs_are_built_once_and_the_build_cache_is_removed(machine):
    assert machine.build().folder == machine.folder
    assert machine.cached() == sorted(PROGRAMS)
    assert not machine.work.exists()
    machine.build()
    assert len(machine.calls("build")) == len(PROGRAMS)


def test_failed_program_leaves_nothing_half_written_and_the_next_run_goes_on(machine):
    machine.misbehave("fail-kube-scheduler")
    with pytest.raises(
        BuildFailed, match=r"^kube-scheduler could not be built: kube-scheduler.go:1:1: broken$"
    ):
        machine.build()
    assert machine.cached() == ["etcd", "kube-apiserver", "kube-controller-manager"]
    assert (machine.work / "gocache").exists(), "what is compiled is kept for the next run"
    machine.behave()
    machine.build()
    assert machine.cached() == sorted(PROGRAMS)
    assert len(machine.calls("build")) == 2, "only what was missing is built"
    assert not machine.work.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_builder_leaves_no_process_and_no_half_program(machine, number):
    machine.misbehave("hang-kube-apiserver")
    with subprocess.Popen(
        [sys.executable, "-m", "trainer_operator.devcluster.build"],
        env=machine.environ,
        stderr=subprocess.PIPE,
        text=True,
    ) as builder:
        wait_until((machine.control / "hanging").exists)
        builder.send_signal(number)
        error = builder.stderr.read()
    if number is not signal.SIGKILL:
        assert builder.returncode == 130
        assert error.endswith("interrupted: run this again, it goes on where it was\n")
        assert machine.cached() == ["etcd"]
    wait_until(lambda: not running(f"{machine.folder}"))
    machine.behave()
    machine.build()
    assert machine.cached() == sorted(PROGRAMS)


def test_second_builder_waits_and_builds_nothing_again(machine):
    machine.misbehave("hang-kubectl")
    first = subprocess.Popen(
        [sys.executable, "-m", "trainer_operator.devcluster.build"],
        env=machine.environ,
        stderr=subprocess.DEVNULL,
    )
    wait_until((machine.control / "hanging").exists)
    second = threading.Thread(target=machine.build)
    second.start()
    wait_until(lambda: "another build is running" in machine.said.getvalue())
    machine.behave()
    first.kill()
    first.wait()
    second.join()
    assert machine.cached() == sorted(PROGRAMS)
    assert len(machine.calls("build")) == 1, "the second builds only what the first could not finish"


def test_folders_of_the_published_module_are_kept_beside_the_program(machine):
    crds = machine.control / "module" / "crds"
    crds.mkdir(parents=True)
    (crds / "job.yaml").write_text("kind: CustomResourceDefinition")
    target = dataclasses.replace(build.targets(["etcd"])[0], published="example.com/m", folders=("crds",))
    machine.build_targets(target)
    kept = build.kept_folder(machine.folder, "etcd")
    assert (kept / "crds" / "job.yaml").read_text() == "kind: CustomResourceDefinition"


def test_program_whose_folders_are_missing_never_reaches_the_cache(machine):
    target = dataclasses.replace(build.targets(["etcd"])[0], published="example.com/m", folders=("crds",))
    with pytest.raises(BuildFailed, match=r"^example.com/m has no folder crds that can be copied"):
        machine.build_targets(target)
    assert "etcd" not in machine.cached()


def test_missing_network_is_said_in_a_sentence(machine):
    machine.misbehave("offline")
    with pytest.raises(BuildFailed, match="Go modules could not be downloaded: connect to the network"):
        machine.build()


def test_program_of_a_wrong_version_never_reaches_the_cache(machine, monkeypatch):
    monkeypatch.setitem(machine.environ, "SAYS", "v0.0.0-master")
    with pytest.raises(BuildFailed, match="does not say that it is"):
        machine.build(("kube-apiserver",))
    assert machine.cached() == []


def test_checkout_without_the_modules_is_a_sentence(machine, tmp_path):
    with pytest.raises(AssetsMissing, match="run this from a checkout"):
        build.ensure(environ=machine.environ, tools=tmp_path, progress=PlainProgress(machine.said))


def test_old_go_on_the_path_is_named_and_replaced_by_a_private_one(machine, monkeypatch, tmp_path):
    monkeypatch.setenv("GO_VERSION", "1.19.8")
    private = tmp_path / "cache" / "trainer-operator" / "tools" / "go" / "go" / "bin"
    private.mkdir(parents=True)
    (private / "go").write_text(GO.replace("${GO_VERSION:-1.26.8}", "1.26.6"))
    (private / "go").chmod(0o755)
    machine.build(("etcd",))
    assert "go is 1.19.8, but 1.26.0 or newer is needed: using a private Go" in machine.said.getvalue()


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def running(text):
    result = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in result.stdout.splitlines() if text in line and "ps -eo" not in line]
