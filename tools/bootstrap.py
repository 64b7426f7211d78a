"""Make this checkout ready to run: private uv, virtual environment, control plane programs.

`python3 tools/bootstrap.py [--assets]` needs Python 3.11+ with pip, and the network the first time only. Each step
says what it does and is skipped when it was done for the same inputs, so that a warm run ends in well under a second.
Only the standard library is imported: nothing is installed yet when this runs.

Guarantees: interrupted anywhere, the next run repairs what was left half-done; two runs at once take turns.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
REQUIREMENTS = ROOT / "tools" / "requirements"
STAMP = VENV / ".bootstrap"
OLDEST_PYTHON = (3, 11)
OLDEST_UV = (0, 5)


class SetupFault(Exception):
    """What went wrong and what to do, in one sentence."""


def main(arguments: list[str]) -> int:
    """Do what is missing; return the exit code."""
    try:
        require_python()
        with LOCK.open("rb") as lock:
            take_turn(lock)
            prepare_environment()
        if "--assets" in arguments:
            return build_control_plane()
    except SetupFault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: run this again, it goes on where it was", file=sys.stderr)
        return 130
    return 0


def say(text: str) -> None:
    """Tell what is being done."""
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


def take_turn(lock: BinaryIO) -> None:
    """Wait for another run in this checkout; the lock file serves as the lock, which ends with the process."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another run in this checkout")
        fcntl.flock(lock, fcntl.LOCK_EX)


def prepare_environment() -> None:
    """Make `.venv` what requirements.lock says, unless it is already."""
    wanted = fingerprint()
    if PYTHON.exists() and read(STAMP) == wanted:
        return
    uv = find_uv()
    STAMP.unlink(missing_ok=True)
    if not works(PYTHON):
        say(f"making the virtual environment {VENV}")
        run(
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, VENV],
            "make the virtual environment",
        )
    target = ["--quiet", "--python", str(PYTHON)]
    say("installing the locked dependencies")
    install([uv, "pip", "sync", *target, "--require-hashes", LOCK], "install the dependencies")
    say("installing this project in place")
    build = ["--no-deps", "--build-constraint", str(REQUIREMENTS / "build.txt")]
    install([uv, "pip", "install", *target, *build, "--editable", ROOT], "install this project")
    STAMP.write_text(wanted)


def build_control_plane() -> int:
    """Find or build etcd, kube-apiserver and their peers; the builder itself says what it does."""
    return subprocess.run(
        [PYTHON, "-m", "trainer_operator.devcluster.build", "--quiet"], cwd=ROOT, check=False
    ).returncode


def fingerprint() -> str:
    """Return what the virtual environment depends on: when it changes, the environment is made anew."""
    digest = hashlib.sha256()
    for path in (LOCK, ROOT / "pyproject.toml", REQUIREMENTS / "build.txt"):
        digest.update(path.read_bytes())
    return f"{digest.hexdigest()} {sys.version_info[0]}.{sys.version_info[1]} {ROOT}\n"


def find_uv() -> str:
    """Return uv: the one on the PATH, or a private one that is installed when it is missing."""
    on_path = shutil.which("uv")
    if on_path is not None and uv_version(on_path) >= OLDEST_UV:
        return on_path
    folder = cache_root() / "tools" / "uv"
    uv = folder / "bin" / "uv"
    if uv_version(uv) >= OLDEST_UV:
        return str(uv)
    say(f"installing a private uv into {folder}")
    incoming = folder.with_name("uv.incoming")
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.parent.mkdir(parents=True, exist_ok=True)
    require_pip()
    requirements = ["--require-hashes", "--requirement", str(REQUIREMENTS / "uv.txt")]
    run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", incoming, *requirements], "install uv"
    )
    shutil.rmtree(folder, ignore_errors=True)
    incoming.rename(folder)
    return str(uv)


def require_python() -> None:
    """Refuse a Python that is too old; this file itself is valid for those too."""
    if sys.version_info < OLDEST_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        raise SetupFault(
            f"Python 3.11 or newer is needed and {sys.executable} is {found}: run `make PYTHON=python3.11`"
        )


def require_pip() -> None:
    """Say so when this Python has no pip, which some distributions package apart."""
    result = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if result.returncode != 0:
        raise SetupFault(
            f"{sys.executable} has no pip: install it (Debian: apt install python3-pip) or put uv on the PATH"
        )


def uv_version(uv: Path | str) -> tuple[int, int]:
    """Return the version of this uv, (0, 0) when it does not run."""
    try:
        result = subprocess.run([uv, "--version"], capture_output=True, text=True, timeout=30, check=True)
        major, minor = result.stdout.split()[1].split(".")[:2]
        return int(major), int(minor)
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return (0, 0)


def works(python: Path) -> bool:
    """Tell whether this interpreter starts and is new enough; its base may have been removed since."""
    code = f"import sys; raise SystemExit(sys.version_info[:2] != {sys.version_info[:2]})"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def install(command: list[Path | str], purpose: str) -> None:
    """Run an installation from uv's cache, and with the network where the cache does not hold everything."""
    if start([*command, "--offline"], quiet=True) != 0:
        run(command, purpose)


def run(command: list[Path | str], purpose: str) -> None:
    """Run a step, with its output shown."""
    if start(command) != 0:
        raise SetupFault(f"could not {purpose} (see above): without network, connect and run this again")


def start(command: list[Path | str], *, quiet: bool = False) -> int:
    """Run a program without the environments of other projects; return its exit code."""
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    environment |= {"PIP_ROOT_USER_ACTION": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    words = [str(part) for part in command]
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(
        words, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False
    ).returncode


def read(path: Path) -> str:
    """Return the text of a file, empty when there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""


def cache_root() -> Path:
    """Return our cache folder, the one that `trainer_operator.devcluster.paths` names."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "trainer-operator"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
