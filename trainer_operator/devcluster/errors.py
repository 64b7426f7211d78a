"""Errors of the development cluster.

::

    ClusterFault                 what happened and what to do, in one sentence
    ├── AssetsMissing            control plane programs are neither there nor can be built
    ├── BuildFailed              a program could not be built
    ├── ComponentFailed          a control plane program did not start or ended
    ├── KubectlFailed            kubectl ended with an error
    └── ClusterNotRunning        the named cluster is not up

The command line prints the message and nothing else, so each must stand alone.
"""

from __future__ import annotations


class ClusterFault(Exception):
    """Anything that keeps the development cluster from doing what was asked."""


class AssetsMissing(ClusterFault):
    """The control plane's programs are not there and cannot be built."""


class BuildFailed(ClusterFault):
    """A control plane program could not be built."""


class ComponentFailed(ClusterFault):
    """A program of the control plane did not become ready, or ended."""


class ClusterNotRunning(ClusterFault):
    """The named cluster is not up."""


class KubectlFailed(ClusterFault):
    """kubectl ended with an error; its own message is the text."""

    def __init__(self, message: str, *, returncode: int) -> None:
        super().__init__(message)
        self.returncode = returncode
