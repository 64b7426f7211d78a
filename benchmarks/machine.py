"""Facts about the machine and the versions of what is measured; no names and no paths."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["facts"]

_PACKAGES = ("aiohttp", "msgspec", "orjson", "uvloop", "kubernetes-asyncio")
_CLIENT_GO = "0.36.3"


def facts() -> dict[str, Any]:
    """Return processor, memory, kernel and versions."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": _field(Path("/proc/cpuinfo"), "model name") or platform.machine(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load_before": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _PACKAGES},
        **_go(),
    }


def _go() -> dict[str, str]:
    try:
        said = subprocess.run(
            ["go", "version"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"go": said.split()[2].removeprefix("go"), "client-go": _CLIENT_GO}


def _field(path: Path, name: str) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
