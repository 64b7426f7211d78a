"""Kubeconfig files that hold everything a client needs, so that one file can be copied elsewhere."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from pathlib import Path

from trainer_operator.devcluster.certificates import KeyPair


def render(*, url: str, user: str, authority: bytes, certificate: bytes, key: bytes, cluster: str) -> str:
    """Return a kubeconfig with one context; JSON is YAML, and every client reads it."""
    context = f"{user}@{cluster}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": cluster, "cluster": {"server": url, "certificate-authority-data": _encode(authority)}}
        ],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": _encode(certificate), "client-key-data": _encode(key)},
            }
        ],
        "contexts": [
            {"name": context, "context": {"cluster": cluster, "user": user, "namespace": "default"}}
        ],
        "current-context": context,
    }
    return json.dumps(document, indent=2) + "\n"


def write(path: Path, *, url: str, user: str, authority: Path, pair: KeyPair, cluster: str) -> Path:
    """Write a kubeconfig for this client certificate, readable by its owner only.

    Guarantees: readers see the old file or the new one, never a part.
    """
    text = render(
        url=url,
        user=user,
        authority=authority.read_bytes(),
        certificate=pair.certificate.read_bytes(),
        key=pair.key.read_bytes(),
        cluster=cluster,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    os.replace(temporary, path)
    return path


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
