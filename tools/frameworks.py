"""Install PyTorch, JAX, TensorFlow and the Jupyter Kernel Gateway for the end-to-end suites, beside the project.

Never into it, never into the system.

`python3 tools/frameworks.py [--skip-to FILE] [NAME ...]` prints one line of JSON: for each framework, or each that is
named, the interpreter that has it, or why there is none. Each lies in a folder of its own in
~/.cache/trainer-operator/frameworks. Needs the network the first time.

- torch: Debian's own python3-torch with everything it depends on, unpacked without root; apt checks the archive's
  signature and hashes. PyPI's torch is not used: on x86-64 it needs gigabytes of CUDA libraries even on a CPU.
- jax, tensorflow, jupyter: wheels from PyPI, pinned by hash in tools/requirements.

TORCH_PYTHON, JAX_PYTHON, TENSORFLOW_PYTHON and JUPYTER_PYTHON name an interpreter that has the framework already; then
nothing is installed for it.

Guarantees: a folder appears only whole (made beside it, tried, then renamed); a warm run starts no download and imports
no framework. The exit code is 1 when a framework is missing on a machine where it is expected: x86-64 Debian 12 for
torch, Linux on x86-64 with Python 3.13 or older for tensorflow, everywhere for the others. With `--skip-to`, which is
for machines nobody chose, it is 0 then, and the reason is written to the file.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import bootstrap

DEBIAN_PYTHON = Path("/usr/bin/python3")
DEBIAN_PACKAGES = ("python3-torch", "python3-numpy")
NEVER_UNPACKED = ("libc6_", "libc-bin_", "libc6-")
"""The C library must be the one of the machine's own dynamic loader."""
LIBRARIES = tuple(
    f"usr/lib/{platform.machine()}-linux-gnu/{part}".rstrip("/") for part in ("", "blas", "lapack")
)
PATIENCE = 600.0
"""Seconds for one call of apt or dpkg."""
WRAPPER = """#!/bin/sh
export LD_LIBRARY_PATH={libraries}
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{packages}"
exec {python} {arguments}"$@"
"""


Found = dict[str, str]
"""Where a framework is, or why it is nowhere."""


class Missing(Exception):
    """Why a framework cannot be installed here, in one sentence."""


def main(arguments: list[str]) -> int:
    """Install what is missing, print where it is, and return the exit code."""
    parser = argparse.ArgumentParser(
        description="Install PyTorch, JAX, TensorFlow and the Jupyter Kernel Gateway beside the project, and say where they are."
    )
    parser.add_argument(
        "--skip-to", type=Path, metavar="FILE", help="write there what is missing and why, and end with 0"
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(FRAMEWORKS)}; all without"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in FRAMEWORKS]
    if unknown:
        parser.error(f"{unknown[0]} is none of {', '.join(FRAMEWORKS)}")
    skip_to: Path | None = given.skip_to
    found: dict[str, dict[str, str]] = {}
    code = 0
    for name in given.names or FRAMEWORKS:
        install, module, is_expected = FRAMEWORKS[name]
        try:
            python = os.environ.get(f"{name.upper()}_PYTHON")
            found[name] = (
                {"python": python, "version": version(Path(python), module)} if python else install()
            )
        except (Missing, bootstrap.SetupFault) as fault:
            print(f"{name}: cannot be installed here because {fault}", file=sys.stderr, flush=True)
            found[name] = {"reason": str(fault)}
            code |= is_expected()
    missing = [
        f"{name} cannot be installed: {each['reason']}" for name, each in found.items() if "reason" in each
    ]
    if skip_to is not None and missing:
        skip_to.write_text("; ".join(missing) + "\n")
        code = 0
    print(json.dumps(found, sort_keys=True))
    return code


def torch() -> Found:
    """Return an interpreter with Debian's PyTorch, unpacked into a private folder, and its version."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing(
            "it is taken from Debian's packages and this machine has no apt: name one in TORCH_PYTHON"
        )
    key = f"torch-{_digest(' '.join((WRAPPER, *DEBIAN_PACKAGES)).encode())}"
    return _made(key, "torch", _unpack_debian)


def jax() -> Found:
    """Return an interpreter of a virtual environment with JAX, and its version."""
    return _locked("jax")


def tensorflow() -> Found:
    """Return an interpreter of a virtual environment with TensorFlow, and its version."""
    if sys.version_info >= (3, 14):
        raise Missing("2.21 has no wheels for Python 3.14: name an interpreter in TENSORFLOW_PYTHON")
    return _locked("tensorflow")


def jupyter() -> Found:
    """Return an interpreter of a virtual environment with the Jupyter Kernel Gateway and a Python kernel, and its version."""
    return _locked("jupyter", "kernel_gateway", proof="import ipykernel")


def version(python: Path, module: str) -> str:
    """Return the framework's version, imported by this interpreter.

    Raises: Missing when it cannot be imported.
    """
    return _said(python, f"import {module}; print({module}.__version__)")


def _said(python: Path, code: str) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(
            f"{python} cannot import it: {done.stderr.strip().splitlines()[-1:] or done.returncode}"
        )
    return done.stdout.strip()


def _locked(name: str, module: str = "", *, proof: str = "import numpy") -> Found:
    """Return an interpreter of a virtual environment with what the lock of this name says; `proof` must run in it."""
    lock = bootstrap.REQUIREMENTS / f"{name}.txt"
    key = f"{name}-{_digest(lock.read_bytes())}-{sys.version_info.major}.{sys.version_info.minor}"
    module = module or name
    return _made(key, module, partial(_make_environment, module, proof, lock))


def _made(key: str, module: str, make: Callable[[Path], None]) -> Found:
    """Return the interpreter of a folder in the cache, made by `make` when it is not there, and the module's version."""
    folder = bootstrap.cache_root() / "frameworks" / key
    python, note = folder / "bin" / "python", folder / "VERSION"
    if not (python.exists() and note.exists()):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not python.exists():
                print(f"frameworks: making {folder}", file=sys.stderr, flush=True)
                shutil.rmtree(folder, ignore_errors=True)
                make(folder)
            note.write_text(version(python, module) + "\n")
    return {"python": str(python), "version": note.read_text().strip()}


def _unpack_debian(folder: Path) -> None:
    """Download Debian's packages with private package lists, and unpack them; `bin` comes last and makes it whole."""
    root, apt = folder / "root", folder / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True)
    root.mkdir()
    options = [f"-oDir::State::Lists={apt / 'lists'}", f"-oDir::Cache={apt / 'cache'}"]
    options += ["-oDebug::NoLocking=1", "-oAPT::Sandbox::User=", "-qq"]
    _run(["apt-get", *options, "update"], "apt cannot fetch its package lists")
    install = ["install", "--yes", "--download-only", "--no-install-recommends", *DEBIAN_PACKAGES]
    _run(["apt-get", *options, *install], "apt cannot fetch python3-torch")
    for archive in sorted((apt / "cache" / "archives").glob("*.deb")):
        if not archive.name.startswith(NEVER_UNPACKED):
            _run(["dpkg-deb", "-x", str(archive), str(root)], f"{archive.name} cannot be unpacked")
    shutil.rmtree(apt)
    shutil.rmtree(root / "usr" / "share" / "doc", ignore_errors=True)
    libraries = ":".join(
        str(root / part) for part in (*LIBRARIES, "usr/lib", f"lib/{platform.machine()}-linux-gnu")
    )
    incoming = folder / "bin.incoming"
    incoming.mkdir()
    for name, arguments in (("python", ""), ("torchrun", "-m torch.distributed.run ")):
        script = incoming / name
        packages = root / "usr/lib/python3/dist-packages"
        script.write_text(
            WRAPPER.format(libraries=libraries, packages=packages, python=DEBIAN_PYTHON, arguments=arguments)
        )
        script.chmod(0o755)
    _said(incoming / "python", "import numpy, torch")
    incoming.rename(folder / "bin")


def _make_environment(module: str, proof: str, lock: Path, folder: Path) -> None:
    uv = bootstrap.find_uv()
    incoming = folder.with_name(f"{folder.name}.incoming")
    shutil.rmtree(incoming, ignore_errors=True)
    environment: list[Path | str] = [
        uv,
        "venv",
        "--quiet",
        "--relocatable",
        "--python",
        sys.executable,
        incoming,
    ]
    bootstrap.run(environment, "make its environment")
    python = str(incoming / "bin" / "python")
    bootstrap.install(
        [uv, "pip", "sync", "--quiet", "--python", python, "--require-hashes", lock], "install it"
    )
    _said(Path(python), proof)
    version(Path(python), module)
    incoming.rename(folder)


def _run(command: list[str], fault: str) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{fault}: it took more than {PATIENCE:.0f} s") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith(("E:", "dpkg"))]
        raise Missing(f"{fault}: {said[-1] if said else f'exit code {done.returncode}'}")


def _is_debian_12() -> bool:
    release = bootstrap.read(Path("/etc/os-release"))
    return platform.machine() == "x86_64" and "VERSION_CODENAME=bookworm" in release.splitlines()


def _always() -> bool:
    return True


def _has_wheels() -> bool:
    return platform.system() == "Linux" and platform.machine() == "x86_64" and sys.version_info < (3, 14)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


FRAMEWORKS: dict[str, tuple[Callable[[], Found], str, Callable[[], bool]]] = {
    "torch": (torch, "torch", _is_debian_12),
    "jax": (jax, "jax", _always),
    "tensorflow": (tensorflow, "tensorflow", _has_wheels),
    "jupyter": (jupyter, "kernel_gateway", _always),
}
"""By name: what installs it, its module, and whether it must be there on this machine."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
