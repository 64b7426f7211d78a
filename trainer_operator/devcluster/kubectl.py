"""The real kubectl, called as a function."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from trainer_operator.devcluster.errors import KubectlFailed


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with one kubeconfig; `kubectl("get", "pods")` returns what it prints."""

    program: Path
    kubeconfig: Path

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        """Run kubectl and return its standard output.

        Raises: KubectlFailed with kubectl's own message.
        """
        result = self.run(*arguments, stdin=stdin, timeout=timeout)
        if result.returncode != 0:
            raise KubectlFailed(
                result.stderr.strip() or "kubectl failed without a word", returncode=result.returncode
            )
        return result.stdout

    def run(
        self, *arguments: str, stdin: str | None = None, timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl and return its exit code and both outputs, whatever they are.

        Raises: KubectlFailed when it does not end within `timeout` seconds.
        """
        try:
            return subprocess.run(
                [self.program, *arguments],
                input=stdin if stdin is not None else "",
                capture_output=True,
                text=True,
                timeout=timeout,
                env=self.environ(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise KubectlFailed(
                f"kubectl {' '.join(arguments)} did not end within {timeout:.0f} s", returncode=-1
            ) from None

    def wait_established(self, *, timeout: float = 60.0) -> None:
        """Wait until the API server serves all custom resources.

        kubectl's own wait fails on a definition that is so new that its conditions are null, so it is asked again.
        Raises: KubectlFailed with what kubectl said last.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                self("wait", "--for=condition=Established", "crd", "--all", f"--timeout={timeout:.0f}s")
            except KubectlFailed as failed:
                if "accessor error" not in str(failed) or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def environ(self) -> dict[str, str]:
        """Return the environment that points kubectl to the cluster."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "KUBECTL_KUBERC": "false"}
