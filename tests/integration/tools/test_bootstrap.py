"""The set-up, with a stand-in for uv: what is done, what is skipped, what is repaired."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

UV = f"""#!/bin/bash
# A stand-in for uv. Files in $CONTROL tell it to misbehave.
echo "$@" >> "$CONTROL/calls"
[ "$1" = --version ] && {{ echo "uv ${{UV_VERSION:-0.13.9}}"; exit; }}
[ "$1" = venv ] && {{ mkdir -p .venv/bin; ln -sf {sys.executable} .venv/bin/python; exit; }}
[ -e "$CONTROL/hang" ] && {{ touch "$CONTROL/hanging"; exec sleep 600; }}
case "$*" in *--offline*) [ -e "$CONTROL/cached" ] || {{ echo "not cached" >&2; exit 1; }} ;;
  *) [ -e "$CONTROL/no-network" ] && {{ echo "no network" >&2; exit 1; }} ;;
esac
exit 0
"""


class Checkout:
    """A checkout's files that the set-up reads, and a PATH with the stand-in."""

    def __init__(self, root):
        self.root = root / "checkout"
        self.control = root / "control"
        self.bin = root / "bin"
        for folder in (self.root, self.control, self.bin):
            folder.mkdir()
        shutil.copytree(ROOT / "tools" / "requirements", self.root / "tools" / "requirements")
        shutil.copy(ROOT / "tools" / "bootstrap.py", self.root / "tools")
        (self.root / "requirements.lock").write_text("one==1\n")
        (self.root / "pyproject.toml").write_text("[project]\n")
        (self.bin / "uv").write_text(UV)
        (self.bin / "uv").chmod(0o755)
        self.environ = {
            **os.environ,
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "CONTROL": str(self.control),
            "XDG_CACHE_HOME": str(root / "cache"),
        }

    def start(self, *arguments):
        return subprocess.Popen(
            [sys.executable, str(self.root / "tools" / "bootstrap.py"), *arguments],
            cwd="/",
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments):
        with self.start(*arguments) as process:
            _, error = process.communicate(timeout=60)
        return process.returncode, error

    def calls(self, word):
        calls = self.control / "calls"
        return (
            [line for line in calls.read_text().splitlines() if line.startswith(word)]
            if calls.exists()
            else []
        )


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_second_run_does_nothing_and_needs_no_network(checkout):
    assert checkout.run()[0] == 0
    assert (checkout.root / ".venv" / "bin" / "python").exists()
    before = (checkout.control / "calls").read_text()
    (checkout.control / "no-network").touch()
    assert checkout.run() == (0, "")
    assert (checkout.control / "calls").read_text() == before


def test_dependencies_are_installed_by_hash(checkout):
    checkout.run()
    assert any("--require-hashes" in call for call in checkout.calls("pip sync"))
    assert any("--no-deps" in call and "--editable" in call for call in checkout.calls("pip install"))


@pytest.mark.parametrize("file", ["requirements.lock", "pyproject.toml", "tools/requirements/build.txt"])
def test_changed_input_is_installed_again_into_the_same_environment(checkout, file):
    checkout.run()
    with (checkout.root / file).open("a") as stream:
        stream.write("# changed\n")
    assert checkout.run()[0] == 0
    assert len(checkout.calls("venv")) == 1
    assert len([call for call in checkout.calls("pip sync") if "--offline" not in call]) == 2


def test_environment_whose_python_is_gone_is_made_again(checkout):
    checkout.run()
    (checkout.root / ".venv" / "bin" / "python").unlink()
    assert checkout.run()[0] == 0
    assert (checkout.root / ".venv" / "bin" / "python").exists()
    assert len(checkout.calls("venv")) == 2


def test_cached_packages_are_installed_without_network(checkout):
    (checkout.control / "cached").touch()
    (checkout.control / "no-network").touch()
    assert checkout.run()[0] == 0


def test_missing_network_is_said_in_a_sentence_and_the_next_run_goes_on(checkout):
    (checkout.control / "no-network").touch()
    code, error = checkout.run()
    assert code == 1
    assert error.endswith(
        "error: could not install the dependencies (see above): without network, connect and run this again\n"
    )
    assert "Traceback" not in error
    (checkout.control / "no-network").unlink()
    assert checkout.run()[0] == 0


def test_interrupted_run_is_finished_by_the_next(checkout):
    (checkout.control / "hang").touch()
    with checkout.start() as process:
        wait_until((checkout.control / "hanging").exists)
        process.kill()
    (checkout.control / "hang").unlink()
    assert not (checkout.root / ".venv" / ".bootstrap").exists()
    assert checkout.run()[0] == 0
    assert (checkout.root / ".venv" / ".bootstrap").exists()


def test_two_runs_at_once_take_turns(checkout):
    (checkout.control / "hang").touch()
    with checkout.start() as first:
        wait_until((checkout.control / "hanging").exists)
        (checkout.control / "hang").unlink()
        with checkout.start() as second:
            assert second.stderr.readline() == "bootstrap: waiting for another run in this checkout\n"
            first.kill()
            assert second.wait(timeout=60) == 0


def test_old_uv_on_the_path_is_not_used(checkout):
    """Without network and without a newer one, the run ends with a sentence instead of a half-done environment."""
    checkout.environ |= {"UV_VERSION": "0.1.2", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/nonexistent"}
    code, error = checkout.run()
    assert code == 1
    assert "installing a private uv" in error
    assert re.search(r"error: (could not install uv \(see above\)|\S+ has no pip: install it)", error)
    assert not (checkout.root / ".venv").exists()


def test_missing_control_plane_fails_the_run(checkout):
    """The builder is not part of this checkout: its absence must not pass for success."""
    code, _ = checkout.run("--assets")
    assert code != 0


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
