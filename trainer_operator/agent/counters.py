"""What a process, the network and the GPUs of its pod do: the evidence for and against a stall (SL3).

Bytes are summed over all interfaces but loopback, and over InfiniBand ports, whose traffic no interface sees; those
ports are the node's, so that a busy neighbour makes the pod look busy, never idle. GPUs are asked by `nvidia-smi`,
a process that can be left alone when a broken driver does not answer, which a library in our own process could not.
"""

from __future__ import annotations

import glob
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Sequence

INTERFACES = "/proc/net/dev"
PORTS = "/sys/class/infiniband/*/ports/*/counters/port_%s_data"
_PORT_UNIT = 4  # ports count words of four bytes
_QUERY = ("--query-gpu=utilization.gpu,power.draw,power.limit", "--format=csv,noheader,nounits")
_PATIENCE = 10.0
"""Seconds that nvidia-smi may take; on a machine with eight GPUs it takes about one."""
_INTERVAL = 5.0
"""Seconds between two looks at the GPUs."""
OVERDUE = 30.0
"""Seconds without a step before which nobody is suspected, so that nobody asks for the GPUs (SL2)."""


@dataclass(frozen=True)
class Process:
    """Processor time of a process in hundredths of a second, and whether it waits for a disk right now."""

    ticks: int
    waits: bool


@dataclass(frozen=True)
class Traffic:
    """Bytes received and sent since the interfaces came up."""

    rx: int
    tx: int


@dataclass(frozen=True)
class Gpus:
    """The pod's GPUs in percent: how busy the idlest is, and what share of its limit the hottest one draws."""

    busy: float
    power: float


class Counters:
    """All counters of one pod, in the shape of a beat."""

    def __init__(self, pod_ip: str, gpus: Optional[GpuWatch] = None) -> None:
        self._pod_ip = pod_ip
        self._gpus = gpus or GpuWatch()

    def read(self, pid: Optional[int], *, overdue: bool) -> Dict[str, Any]:
        """Return what can be told; GPUs are looked at only while a step is overdue, which takes a process of its own."""
        process, bytes_moved, gpus = process_of(pid), traffic(self._pod_ip), self._gpus.look(needed=overdue)
        return {
            "cpuTicks": process.ticks if process else None,
            "diskWait": process.waits if process else False,
            "rx": bytes_moved.rx if bytes_moved else None,
            "tx": bytes_moved.tx if bytes_moved else None,
            "gpuBusy": gpus.busy if gpus else None,
            "gpuPower": gpus.power if gpus else None,
        }


def process_of(pid: Optional[int]) -> Optional[Process]:
    """Return what the kernel says of a process; None if it can't be told."""
    if pid is None:
        return None
    try:
        with open("/proc/%d/stat" % pid, "rb") as source:
            fields = source.read().rpartition(b")")[2].split()
        return Process(int(fields[11]) + int(fields[12]), fields[0] == b"D")
    except (OSError, ValueError, IndexError):
        return None


def traffic(pod_ip: str, *, interfaces: str = INTERFACES, ports: str = PORTS) -> Optional[Traffic]:
    """Return the pod's traffic so far; None if it can't be told, as where pods share the loopback interface."""
    if pod_ip.startswith("127.") or pod_ip == "::1":
        return None
    rx = tx = 0
    found = False
    try:
        with open(interfaces, encoding="ascii", errors="replace") as source:
            for line in source:
                name, colon, rest = line.partition(":")
                if colon and name.strip() != "lo":
                    fields = rest.split()
                    rx, tx, found = rx + int(fields[0]), tx + int(fields[8]), True
    except (OSError, ValueError, IndexError):
        return None
    return Traffic(rx + _port_bytes(ports % "rcv"), tx + _port_bytes(ports % "xmit")) if found else None


def parse_gpus(text: str) -> Optional[Gpus]:
    """Read the answer of nvidia-smi, a line for each GPU; None if a figure is missing, as on GPUs that are shared."""
    busy, power = [], []
    try:
        for line in text.strip().splitlines():
            used, drawn, limit = (float(part) for part in line.split(","))
            busy.append(used)
            power.append(100.0 * drawn / limit)
    except (ValueError, ZeroDivisionError):
        return None
    return Gpus(min(busy), max(power)) if busy else None


class GpuWatch:
    """Looks at the GPUs from time to time while that is needed, in a thread of its own.

    Guarantees: `look` never waits; at most one nvidia-smi runs at a time, and what it said is forgotten with the need.
    """

    def __init__(self, program: Optional[str] = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._program = program or shutil.which("nvidia-smi")
        self._clock = clock
        self._lock = threading.Lock()
        self._asking = False
        self._asked_at: Optional[float] = None
        self._last: Optional[Gpus] = None

    def look(self, *, needed: bool) -> Optional[Gpus]:
        """Return what was last seen, and have somebody look again when that is old."""
        if self._program is None:
            return None
        with self._lock:
            if not needed:
                self._last = self._asked_at = None
                return None
            now = self._clock()
            if not self._asking and (self._asked_at is None or now - self._asked_at >= _INTERVAL):
                self._asking, self._asked_at = True, now
                threading.Thread(target=self._ask, args=(self._program,), name="gpus", daemon=True).start()
            return self._last

    def _ask(self, program: str) -> None:
        seen = _run([program, *_QUERY])
        with self._lock:
            self._last, self._asking = parse_gpus(seen), False


def _run(command: Sequence[str]) -> str:
    """Return what a command prints; nothing if it can't be run or takes too long."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


def _port_bytes(pattern: str) -> int:
    total = 0
    for path in glob.glob(pattern):
        try:
            with open(path, encoding="ascii") as source:
                total += _PORT_UNIT * int(source.read())
        except (OSError, ValueError):
            continue
    return total
