"""The operators of the demo: two processes of their own, of which one leads.

Both get the shipped role's rights and nothing more (RB5). Their metrics say who leads; a name is only taken as a
leader's when it said so before and after all others were asked, so two names in one look are two leaders indeed.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runtime.tasks import run_all
from trainer_operator.devcluster.ports import LOOPBACK
from trainer_operator.devcluster.process import Process

NAMES = ("operator-a", "operator-b")
LEADER_METRIC = "leader_election_master_status"
_TIMEOUT = 2.0
_LONGEST_PAGE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What both operators share."""

    kubeconfig: Path
    certificates: Path
    namespace: str
    logs: Path
    voluntary_interval: float = 5.0


@dataclass(slots=True)
class Operator:
    """One operator process."""

    name: str
    agent_port: int
    health_port: int
    process: Process | None = field(default=None)

    @property
    def url(self) -> str:
        """Where agents reach it."""
        return f"https://{LOOPBACK}:{self.agent_port}"

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.exit_code() is None


class Operators:
    """The operator processes.

    Guarantees: none of them outlives this process.
    """

    def __init__(self, settings: OperatorSettings, ports: Sequence[int]) -> None:
        """Name the operators; `ports` holds two for each. Nothing is started."""
        self._settings = settings
        self._operators = {
            name: Operator(name, ports[2 * number], ports[2 * number + 1])
            for number, name in enumerate(NAMES)
        }

    def __getitem__(self, name: str) -> Operator:
        return self._operators[name]

    def log(self, name: str) -> Path:
        """Return an operator's log file."""
        return self._settings.logs / f"{name}.log"

    def start(self, name: str) -> None:
        """Start an operator; call it from the main thread."""
        operator = self._operators[name]
        operator.process = Process(
            name, self.command(name), log=self.log(name), directory=self._settings.logs.parent
        )

    def command(self, name: str) -> list[str]:
        """Return an operator's command line."""
        operator, settings = self._operators[name], self._settings
        return [
            sys.executable,
            "-m",
            "trainer_operator.cli.main",
            "operator",
            f"--kubeconfig={settings.kubeconfig}",
            f"--certificate-folder={settings.certificates}",
            f"--agent-bind-address={LOOPBACK}:{operator.agent_port}",
            *(f"--agent-url={other.url}" for other in self._operators.values()),
            f"--health-probe-bind-address={LOOPBACK}:{operator.health_port}",
            "--leader-elect",
            f"--leader-election-namespace={settings.namespace}",
            f"--voluntary-interval={settings.voluntary_interval:g}",
            "--log-json",
        ]

    def kill(self, name: str) -> None:
        """End an operator as a crash would: SIGKILL, nothing is released."""
        process = self._operators[name].process
        if process is not None:
            process.send_signal(signal.SIGKILL)

    async def stop(self) -> None:
        """End all operators."""
        running = [o.process for o in self._operators.values() if o.process is not None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            await process.stop(grace=3.0)

    async def leaders(self) -> tuple[str, ...]:
        """Return who led during this look."""
        before = await self._claims()
        after = await self._claims()
        return tuple(name for name in NAMES if before[name] and after[name])

    def ended_by_itself(self, name: str) -> bool:
        """Tell whether an operator has ended, and not because it was killed."""
        process = self._operators[name].process
        code = process.exit_code() if process is not None else None
        return code is not None and code != -signal.SIGKILL

    def ended(self) -> str:
        """Say which operator ended by itself and why; empty while there is none."""
        for name, operator in self._operators.items():
            process = operator.process
            if process is not None and self.ended_by_itself(name):
                last = process.tail(lines=1) or "no output"
                return f"{name} ended with code {process.exit_code()}: {last} (log: {process.log})"
        return ""

    async def is_ready(self, name: str) -> bool:
        """Tell whether an operator serves."""
        return await asyncio.to_thread(_get, self._operators[name].health_port, "/readyz") is not None

    async def _claims(self) -> dict[str, bool]:
        pages = await run_all(*(self._metrics(operator) for operator in self._operators.values()))
        return {name: claims_to_lead(page) for name, page in zip(self._operators, pages, strict=True)}

    async def _metrics(self, operator: Operator) -> str:
        if not operator.is_running:
            return ""
        return await asyncio.to_thread(_get, operator.health_port, "/metrics") or ""


def claims_to_lead(page: str) -> bool:
    """Tell whether a metrics page says that its process leads."""
    for line in page.splitlines():
        if line.startswith(LEADER_METRIC):
            return float(line.rpartition(" ")[2]) == 1.0
    return False


def _get(port: int, path: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}{path}", timeout=_TIMEOUT) as answer:
            page: bytes = answer.read(_LONGEST_PAGE)
    except (OSError, urllib.error.URLError):
        return None
    return page.decode(errors="replace")
