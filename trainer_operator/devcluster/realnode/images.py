"""Container images without a registry: a Debian root file system by mmdebstrap, and thin layers on top of it.

The base is kept in the cache under a hash of its recipe and needs the network once. The layers on top hold files of a
checkout and are made anew each time, so that an image never runs yesterday's code. All images of a node are one OCI
archive, which `ctr images import` reads; the base is in it once.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_operator.devcluster.errors import BuildFailed
from trainer_operator.devcluster.filelock import locked
from trainer_operator.devcluster.paths import cache_root
from trainer_operator.devcluster.realnode.config import SANDBOX_IMAGE

SUITE = "bookworm"
PACKAGES = ("python3-minimal", "python3-numpy")
PYTHON_PATH = "usr/lib/python3/dist-packages"
"""Where Debian's Python finds packages, also when it is isolated from its environment."""
USER = "1000:1000"
"""Images name a user by number: kubelet cannot check a name against runAsNonRoot."""
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_PATIENCE = 600.0
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: an uncompressed tar archive of this hash."""

    digest: str
    size: int
    file: Path | None = None
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Image:
    """An image on top of the base: files by their path in it, and what it runs."""

    name: str
    files: Mapping[str, Path] = field(default_factory=dict)
    command: Sequence[str] = ("python3",)


SANDBOX = Image(SANDBOX_IMAGE, command=("sleep", "infinity"))


def ensure_base(environ: Mapping[str, str] = os.environ) -> Layer:
    """Return the base layer, making it when it is not in the cache.

    Guarantees: it is in the cache only whole; two makers take turns.
    Raises: BuildFailed.
    """
    recipe = json.dumps([SUITE, PACKAGES, _LEFT_OUT, platform.machine()])
    folder = cache_root(environ) / "images" / hashlib.sha256(recipe.encode()).hexdigest()[:12]
    with locked(folder.with_name(f"{folder.name}.lock"), waiting=lambda: None):
        archive, digest = folder / "base.tar", folder / "base.sha256"
        if not digest.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _make_base(archive)
            _write(digest, _digest_of(archive))
        return Layer(digest.read_text().strip(), archive.stat().st_size, file=archive)


def write_archive(path: Path, base: Layer, images: Iterable[Image]) -> None:
    """Write an OCI archive of images that share the base.

    Raises: OSError.
    """
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add_layer(archive, base)
        entries = []
        for image in images:
            top = _top_layer(image.files)
            layers = [base, top] if image.files else [base]
            if image.files:
                _add_layer(archive, top)
            config = _add_blob(archive, _config(image, layers))
            manifest = _add_blob(archive, _manifest(config, layers))
            entries.append(_descriptor("manifest", manifest) | {"annotations": _names(image.name)})
        _add(archive, "index.json", _json({"schemaVersion": 2, "manifests": entries}))


def folder_files(folder: Path, target: str, *, suffix: str = ".py") -> dict[str, Path]:
    """Return the files below a folder with this suffix, by their path below `target` in an image."""
    return {
        f"{target}/{path.relative_to(folder).as_posix()}": path
        for path in sorted(folder.rglob(f"*{suffix}"))
        if path.is_file()
    }


def _make_base(archive: Path) -> None:
    incoming = archive.with_name(".base.incoming.tar")
    incoming.unlink(missing_ok=True)
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    try:
        subprocess.run(
            [*command, SUITE, str(incoming)], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
        os.replace(incoming, archive)
    except FileNotFoundError:
        raise BuildFailed("images are made by mmdebstrap, which is not there: install it") from None
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"mmdebstrap made no image within {_PATIENCE:.0f} s: is the mirror slow?") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise BuildFailed(f"mmdebstrap could not make an image: {last}") from error
    finally:
        incoming.unlink(missing_ok=True)


def _top_layer(files: Mapping[str, Path]) -> Layer:
    """Pack files, with the folders above them, readable by everybody; the same files give the same hash."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as layer:
        folders = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
        for name in sorted(folders):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            layer.addfile(entry)
        for name, path in sorted(files.items()):
            _add(layer, name, path.read_bytes())
    content = stream.getvalue()
    return Layer(hashlib.sha256(content).hexdigest(), len(content), content=content)


def _config(image: Image, layers: Sequence[Layer]) -> bytes:
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return _json(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": USER,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Cmd": list(image.command),
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
        }
    )


def _manifest(config: Layer, layers: Sequence[Layer]) -> bytes:
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": _media_type("manifest"),
            "config": _descriptor("config", config),
            "layers": [_descriptor("layer", layer) for layer in layers],
        }
    )


def _descriptor(kind: str, blob: Layer) -> dict[str, Any]:
    return {"mediaType": _media_type(kind), "digest": f"sha256:{blob.digest}", "size": blob.size}


def _media_type(kind: str) -> str:
    return f"application/vnd.oci.image.{kind}.v1" + (".tar" if kind == "layer" else "+json")


def _names(name: str) -> dict[str, str]:
    return {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}


def _add_blob(archive: tarfile.TarFile, content: bytes) -> Layer:
    blob = Layer(hashlib.sha256(content).hexdigest(), len(content), content=content)
    _add_layer(archive, blob)
    return blob


def _add_layer(archive: tarfile.TarFile, layer: Layer) -> None:
    name = f"blobs/sha256/{layer.digest}"
    if layer.file is None:
        _add(archive, name, layer.content)
        return
    with layer.file.open("rb") as stream:
        archive.addfile(archive.gettarinfo(arcname=name, fileobj=stream), stream)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))


def _digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _write(path: Path, text: str) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    os.replace(temporary, path)


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
