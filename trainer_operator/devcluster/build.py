"""Build the control plane's programs from the pinned Go modules under `tools/`.

`python -m trainer_operator.devcluster.build` does nothing within a moment when all programs are there.

Guarantees: a program appears in the cache only whole (built beside it, tried, then renamed); two builders take turns;
an interrupted build goes on where it was, because Go's build cache is private and is deleted only after the last
program; no build outlives the builder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainer_operator.devcluster import gotoolchain
from trainer_operator.devcluster.assets import (
    KUBERNETES_VERSION,
    PROGRAMS,
    Assets,
    cache_folder,
    find,
    missing_in,
)
from trainer_operator.devcluster.buildprogress import Progress, progress_on
from trainer_operator.devcluster.errors import AssetsMissing, BuildFailed, ClusterFault
from trainer_operator.devcluster.filelock import locked
from trainer_operator.devcluster.paths import cache_root

_TOOLS = Path(__file__).resolve().parents[2] / "tools"
_NEEDED_SPACE = 12 * 1024**3  # bytes; Go's build cache grows to 9 GB
_NETWORK_MARKS = (
    "dial tcp",
    "no such host",
    "i/o timeout",
    "connection refused",
    "proxyconnect",
    "TLS handshake",
)
_TETHER = Path(__file__).with_name("tether.py")


@dataclass(frozen=True, slots=True)
class Target:
    """One program: where its Go module is and what is built in it."""

    program: str
    module: str
    package: str
    linker_flags: str
    version_command: tuple[str, ...] = ("--version",)
    version: str = ""
    """What the program has to say about its version; empty accepts anything."""
    tags: str = ""
    published: str = ""
    """The Go module, as published, whose folders are kept beside the program."""
    folders: tuple[str, ...] = ()
    """These folders, such as that of its CRDs; see `kept_folder`."""


def kept_folder(folder: Path, program: str) -> Path:
    """Return where the folders are kept that came with this program of the cache; they are there when it is."""
    return folder / f"{program}.files"


def targets(programs: Iterable[str] = PROGRAMS) -> tuple[Target, ...]:
    """Return how each of these programs is built.

    Clients refuse a Kubernetes program without a version, so it is stamped in as the upstream build does.
    """
    major, minor, _ = KUBERNETES_VERSION.lstrip("v").split(".")
    component = "k8s.io/component-base/version"
    stamp = (
        f"-s -w -X {component}.gitVersion={KUBERNETES_VERSION} -X {component}.gitMajor={major} "
        f"-X {component}.gitMinor={minor} -X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES_VERSION}"
    )
    known = {"etcd": Target("etcd", "etcd", "go.etcd.io/etcd/server/v3", "-s -w")}
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet"):
        command = ("version", "--client") if name == "kubectl" else ("--version",)
        package = f"k8s.io/kubernetes/cmd/{name}"
        known[name] = Target(name, "controlplane", package, stamp, command, KUBERNETES_VERSION)
    return tuple(known[name] for name in programs)


def ensure(
    programs: Iterable[str] = PROGRAMS,
    *,
    environ: Mapping[str, str] = os.environ,
    tools: Path = _TOOLS,
    progress: Progress | None = None,
) -> Assets:
    """Return the programs, building those that are missing.

    Raises: AssetsMissing, BuildFailed; KeyboardInterrupt passes and the next call goes on.
    """
    programs = tuple(programs)
    assets = find(programs, environ=environ)
    if assets is not None:
        return assets
    folder = cache_folder(environ)
    ensure_targets(targets(programs), folder=folder, environ=environ, tools=tools, progress=progress)
    return Assets(folder)


def ensure_targets(
    wanted: Sequence[Target],
    *,
    folder: Path,
    environ: Mapping[str, str] = os.environ,
    tools: Path = _TOOLS,
    progress: Progress | None = None,
) -> None:
    """Build those of these programs that the folder does not hold.

    Raises: AssetsMissing, BuildFailed; KeyboardInterrupt passes and the next call goes on.
    """
    names = [target.program for target in wanted]
    if not missing_in(folder, names):
        return
    progress = progress or progress_on(sys.stderr)
    work = folder.with_name(f"{folder.name}.build")
    lock = folder.with_name(f"{folder.name}.lock")
    with locked(lock, waiting=lambda: progress.say("another build is running: waiting for it to end")):
        missing = missing_in(folder, names)  # the other build may have made them
        if missing:
            chosen = tuple(target for target in wanted if target.program in missing)
            _build(chosen, folder=folder, work=work, tools=tools, environ=environ, progress=progress)


def go_environment(environ: Mapping[str, str], *, work: Path, private: bool) -> dict[str, str]:
    """Return the environment of a Go build: our flags, none of the user's, a private build cache."""
    kept = {
        key: value for key, value in environ.items() if key not in {"GOFLAGS", "GOOS", "GOARCH", "GOROOT"}
    }
    result = {
        **kept,
        "GOCACHE": str(work / "gocache"),
        "GOFLAGS": "-mod=readonly -modcacherw",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    if private:  # who has no Go has no use for a module cache
        result["GOMODCACHE"] = str(work / "modcache")
    return result


def explain(target: Target, output: Iterable[str]) -> str:
    """Turn Go's output into one sentence that says what to do."""
    lines = [line for line in output if line.strip() and not line.startswith("go: downloading")]
    if any(mark in line for line in lines for mark in _NETWORK_MARKS):
        return (
            f"{target.program} could not be built because Go modules could not be downloaded: connect to the network "
            "(or set GOPROXY) and run this again, it goes on where it was"
        )
    if any("no space left on device" in line for line in lines):
        return f"{target.program} could not be built because the disk is full: free some space and run this again"
    last = next((line.strip() for line in reversed(lines)), "Go gave no reason")
    return f"{target.program} could not be built: {last}"


def _build(
    wanted: tuple[Target, ...],
    *,
    folder: Path,
    work: Path,
    tools: Path,
    environ: Mapping[str, str],
    progress: Progress,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    work.mkdir(exist_ok=True)
    _check_space(work)
    toolchain = _toolchain(tools, {target.module for target in wanted}, environ=environ, progress=progress)
    progress.say(
        f"building {', '.join(target.program for target in wanted)} from source with Go {toolchain.version} "
        f"(once; up to 8 minutes on two cores; into {folder})"
    )
    environment = go_environment(environ, work=work, private=toolchain.private)
    for target in wanted:
        _build_one(
            target, toolchain.go, folder=folder, tools=tools, environment=environment, progress=progress
        )
    progress.say("removing Go's build cache")
    shutil.rmtree(work, ignore_errors=True)
    progress.say(f"the programs in {folder} are ready")


def _toolchain(
    tools: Path, modules_used: Collection[str], *, environ: Mapping[str, str], progress: Progress
) -> gotoolchain.Toolchain:
    modules = [tools / name / "go.mod" for name in sorted(modules_used)]
    try:
        needed = max(gotoolchain.needed_version(path.read_text()) for path in modules)
    except OSError:
        raise AssetsMissing(
            f"the pinned Go modules are not in {tools}: run this from a checkout of the project, "
            "or set KUBEBUILDER_ASSETS to a folder that holds the control plane's programs"
        ) from None
    private = cache_root(environ) / "tools"
    return gotoolchain.find(
        needed,
        requirements=tools / "requirements" / "go.txt",
        folder=private / "go",
        tools=private,
        say=progress.say,
    )


def _build_one(
    target: Target, go: Path, *, folder: Path, tools: Path, environment: dict[str, str], progress: Progress
) -> None:
    incoming = folder / f".{target.program}.incoming"
    incoming.unlink(missing_ok=True)
    module = tools / target.module
    tail: list[str] = []
    arguments = [
        "build",
        "-v",
        "-trimpath",
        "-tags",
        target.tags,
        "-ldflags",
        target.linker_flags,
        "-o",
        str(incoming),
        target.package,
    ]
    progress.begin(
        target.program, expected=_count_packages(target, go, module=module, environment=environment)
    )
    try:
        with _running([str(go), *arguments], directory=module, environment=environment) as process:
            for line in process.stdout or ():
                tail = [*tail[-19:], line.rstrip()]
                progress.line(line.rstrip())
            code = process.wait()
        if code != 0:
            raise BuildFailed(explain(target, tail))
        _try_out(target, incoming)
        _keep_folders(target, go, module=module, folder=folder, environment=environment)
        os.replace(incoming, folder / target.program)
    finally:
        incoming.unlink(missing_ok=True)
        progress.end()


def _keep_folders(
    target: Target, go: Path, *, module: Path, folder: Path, environment: dict[str, str]
) -> None:
    """Copy what is kept of the published module, which the build has downloaded."""
    if not target.folders:
        return
    command = [str(go), "list", "-m", "-f", "{{.Dir}}", target.published]
    with _running(command, directory=module, environment=environment) as process:
        lines = [line.strip() for line in process.stdout or ()]
    kept = kept_folder(folder, target.program)
    shutil.rmtree(kept, ignore_errors=True)
    try:
        for name in target.folders:
            shutil.copytree(Path(lines[-1]) / name, kept / name, copy_function=shutil.copyfile)
    except (OSError, IndexError) as error:
        raise BuildFailed(f"{target.published} has no folder {name} that can be copied: {error}") from error


def _count_packages(target: Target, go: Path, *, module: Path, environment: dict[str, str]) -> int:
    """Return how many packages the program is made of, which is what the progress bar counts.

    This downloads the modules where that has not been done; a failure is left to the build to tell.
    """
    command = [str(go), "list", "-deps", "-tags", target.tags, target.package]
    with _running(command, directory=module, environment=environment) as process:
        return sum(1 for line in process.stdout or () if not line.startswith("go: "))


@contextmanager
def _running(
    command: list[str], *, directory: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Run Go in a process group of its own that is gone when the context ends."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), *command],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _try_out(target: Target, program: Path) -> None:
    try:
        result = subprocess.run(
            [program, *target.version_command], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildFailed(f"{target.program} was built but does not run: {error}") from error
    if target.version not in result.stdout:
        raise BuildFailed(f"{target.program} was built but does not say that it is {target.version}")


def _check_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free + sum(
        file.stat().st_size for file in (folder / "gocache").rglob("*") if file.is_file()
    )
    if free < _NEEDED_SPACE:
        raise BuildFailed(
            f"building needs {_NEEDED_SPACE // 1024**3} GB free on the disk of {folder} for a while, "
            f"and there are {free // 1024**3} GB: free some, or set XDG_CACHE_HOME to a larger disk"
        )


def main() -> int:
    """Make sure that the control plane's programs are there, and say where."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends Go's compilers too, as Ctrl-C does
    try:
        assets = ensure()
    except ClusterFault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: run this again, it goes on where it was", file=sys.stderr)
        return 130
    if "--quiet" not in sys.argv[1:]:
        print(assets.folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
