"""Where the API server is and how to prove who we are.

A :class:`ClientConfig` is a value: reading it never touches the network. Files named in it are read when a client
opens, and again while it runs (K1). Three sources exist: a kubeconfig, the service account of the pod we run in, and
:meth:`ClientConfig.auto`, which takes the pod's if there is one.
"""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from runtime.errors import ConfigurationInvalid

__all__ = ["ClientConfig", "Timeouts"]

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines of requests in seconds (K8, W11); none is ever infinite."""

    connect: float = 10.0
    """To connect, TLS included."""
    read: float = 45.0
    """Between two pieces of an answer; above the server's own 34 s admission limit."""
    total: float = 60.0
    """For a whole request, as the server's default."""
    list_total: float = 180.0
    """For a page of a list; the first one may carry a whole collection."""
    watch_start: float = 30.0
    """From asking for a watch to its header."""
    watch_grace: float = 5.0
    """How much later than the server we end a watch."""
    watch_silence: float = 70.0
    """Without a byte after a bookmark was seen: above the bookmarks' 60 s, below the 75 s of history."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """An API server, credentials and limits."""

    server: str
    ca_data: bytes | None = field(default=None, repr=False)
    ca_file: str | None = None
    client_certificate_data: bytes | None = field(default=None, repr=False)
    client_certificate_file: str | None = None
    client_key_data: bytes | None = field(default=None, repr=False)
    client_key_file: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    exec_plugin: Mapping[str, Any] | None = field(default=None, repr=False)
    tls_server_name: str | None = None
    insecure: bool = False
    """Skip the check of the server's certificate; only a kubeconfig can ask for it."""
    namespace: str = "default"
    """The namespace the kubeconfig's context or the pod names."""
    user_agent: str = "python-controller-runtime"
    qps: float | None = None
    """Requests a second, None for no limit: API Priority and Fairness governs."""
    burst: int = 100
    in_flight: int = 64
    """Requests at once, over the whole client (K3)."""
    max_line: int = 16 * 1024 * 1024
    """Bytes of the largest watch event accepted (W12); etcd's own limit is 1.5 MiB, aggregated APIs have none."""
    timeouts: Timeouts = field(default_factory=Timeouts)

    def __post_init__(self) -> None:
        if not self.server.startswith(("http://", "https://")):
            raise ConfigurationInvalid(f"API server {self.server!r} is no http or https address")
        if self.qps is not None and not self.qps > 0:  # nor is it NaN
            raise ConfigurationInvalid(f"qps is {self.qps}, must be above zero or unset for no limit")

    @classmethod
    def auto(cls) -> Self:
        """Take the pod's service account if we run in a cluster, else the kubeconfig.

        Raises: ConfigurationInvalid when neither can be used.
        """
        if "KUBERNETES_SERVICE_HOST" in os.environ and not os.environ.get("KUBECONFIG"):
            return cls.in_cluster()
        return cls.from_kubeconfig()

    @classmethod
    def in_cluster(cls, root: Path = _SERVICE_ACCOUNT) -> Self:
        """Use the service account mounted into this pod.

        Raises: ConfigurationInvalid when we do not run in a pod.
        """
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise ConfigurationInvalid("KUBERNETES_SERVICE_HOST is not set, this is no pod in a cluster")
        if not (root / "token").is_file():
            raise ConfigurationInvalid(f"no service account token at {root / 'token'}")
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        namespace_file = root / "namespace"
        return cls(
            server=f"https://{host}:{port}",
            ca_file=str(root / "ca.crt"),
            token_file=str(root / "token"),
            namespace=namespace_file.read_text().strip() if namespace_file.is_file() else "default",
        )

    @classmethod
    def from_kubeconfig(
        cls, path: str | os.PathLike[str] | None = None, *, context: str | None = None
    ) -> Self:
        """Read a kubeconfig: `path`, else `$KUBECONFIG` (the first file there is), else `~/.kube/config`.

        Raises: ConfigurationInvalid naming the file and what is wrong with it.
        """
        file = _find_kubeconfig(path)
        try:
            document = yaml.safe_load(file.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigurationInvalid(f"kubeconfig {file} cannot be read: {error}") from error
        if not isinstance(document, dict):
            raise ConfigurationInvalid(f"kubeconfig {file} is not a YAML mapping")
        return cls(**_fields_of(document, file, context))


def _find_kubeconfig(path: str | os.PathLike[str] | None) -> Path:
    if path is not None:
        return Path(path)
    candidates = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    candidates = candidates or [Path.home() / ".kube" / "config"]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ConfigurationInvalid(f"no kubeconfig found, looked at {', '.join(map(str, candidates))}")


def _fields_of(document: dict[str, Any], file: Path, context: str | None) -> dict[str, Any]:
    name = context or document.get("current-context")
    if not name:
        raise ConfigurationInvalid(f"kubeconfig {file} has no current-context and none was chosen")
    chosen = _named(document, "contexts", "context", name=name, file=file)
    cluster = _named(document, "clusters", "cluster", name=chosen.get("cluster"), file=file)
    user = _named(document, "users", "user", name=chosen["user"], file=file) if chosen.get("user") else {}
    if user.get("auth-provider"):
        raise ConfigurationInvalid(
            f"kubeconfig {file}: auth-provider is gone from Kubernetes, use an exec plugin"
        )

    def decoded(section: dict[str, Any], field_name: str) -> bytes | None:
        text = section.get(field_name)
        try:
            return base64.b64decode(text, validate=True) if text else None
        except ValueError as error:
            raise ConfigurationInvalid(f"kubeconfig {file}: {field_name} is not base64") from error

    def beside(section: dict[str, Any], field_name: str) -> str | None:
        """Resolve a path against the kubeconfig's directory, as kubectl does."""
        text = section.get(field_name)
        return str(file.parent / text) if text else None

    return {
        "server": str(cluster.get("server") or "").rstrip("/"),
        "ca_data": decoded(cluster, "certificate-authority-data"),
        "ca_file": beside(cluster, "certificate-authority"),
        "client_certificate_data": decoded(user, "client-certificate-data"),
        "client_certificate_file": beside(user, "client-certificate"),
        "client_key_data": decoded(user, "client-key-data"),
        "client_key_file": beside(user, "client-key"),
        "token": user.get("token"),
        "token_file": beside(user, "tokenFile"),
        "exec_plugin": user.get("exec"),
        "tls_server_name": cluster.get("tls-server-name"),
        "insecure": bool(cluster.get("insecure-skip-tls-verify")),
        "namespace": chosen.get("namespace") or "default",
    }


def _named(
    document: dict[str, Any], section: str, inner: str, *, name: str | None, file: Path
) -> dict[str, Any]:
    for entry in document.get(section) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(inner) or {}
            if isinstance(found, dict):
                return found
    raise ConfigurationInvalid(f"kubeconfig {file} has no {inner} named {name!r}")
