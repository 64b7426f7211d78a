"""Folders of the development cluster: where binaries are cached and where a cluster keeps its state.

The XDG variables are honoured. A relative XDG path is ignored, as the XDG base directory specification demands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from trainer_operator.devcluster.errors import ClusterFault

APPLICATION = "trainer-operator"
_CLUSTER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for everything that can be downloaded or built again."""
    return _base(environ, "XDG_CACHE_HOME", ".cache") / APPLICATION


def state_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that holds one folder per development cluster."""
    return _base(environ, "XDG_STATE_HOME", ".local/state") / APPLICATION


def cluster_folder(name: str, *, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the state folder of the cluster of this name.

    Raises: ClusterFault when the name could escape the state folder or not serve as a DNS label.
    """
    if not _CLUSTER_NAME.fullmatch(name):
        message = (
            f"cluster name {name!r} is not allowed: use up to 32 lower-case letters, digits and dashes, "
            "beginning and ending with a letter or digit"
        )
        raise ClusterFault(message)
    return state_root(environ) / name


def _base(environ: Mapping[str, str], variable: str, default: str) -> Path:
    value = environ.get(variable, "")
    return Path(value) if os.path.isabs(value) else Path(environ.get("HOME") or Path.home()) / default
