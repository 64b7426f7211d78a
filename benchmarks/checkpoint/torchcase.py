"""One way of saving a torch state, measured in a process that trains: run by `torchpause` with an interpreter that has torch.

    torch-python -m benchmarks.checkpoint.torchcase METHOD FOLDER MEBIBYTES REPEATS AGENT_PYTHON

METHOD is plain, dcp, dcp-async or ours. The last line of output is JSON: the torch version, the pause, the time until it is durable and
what training lost for each of the repeated saves of a state that changed as a whole, and the bytes of one in which a tenth changed.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TENSORS = 40
_STEP_SIZE = 384
Durable = Callable[[], bool]
"""Whether what was saved would survive the loss of this machine's memory."""


class Way:
    """A way of saving: `save` returns when training may go on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, number: int) -> None:
        """Do before a save what costs training nothing."""

    def save(self, state: dict[str, Any], number: int) -> Durable:
        """Save, and return how to find out that it is durable."""
        raise NotImplementedError

    def close(self) -> None:
        """Give up what was opened."""


class Plain(Way):
    """torch.save, made durable."""

    def save(self, state: dict[str, Any], number: int) -> Durable:
        """Write one file."""
        with (self.folder / f"{number}.pt").open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        return lambda: True


class Distributed(Way):
    """torch.distributed.checkpoint, which syncs its files."""

    def save(self, state: dict[str, Any], number: int) -> Durable:
        """Write one folder."""
        dcp().save(state, checkpoint_id=str(self.folder / str(number)))
        return lambda: True


class DistributedAsync(Way):
    """The same while training goes on: it returns once the state is copied."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if not hasattr(dcp(), "async_save"):
            raise SystemExit(f"torch {torch.__version__} has no async_save")
        group = importlib.import_module("torch.distributed")
        group.init_process_group("gloo", store=group.HashStore(), rank=0, world_size=1)

    def save(self, state: dict[str, Any], number: int) -> Durable:
        """Begin to write one folder."""
        copied = {
            name: tensor.clone() for name, tensor in state.items()
        }  # it does not copy what is on the CPU
        done: Durable = dcp().async_save(copied, checkpoint_id=str(self.folder / str(number))).done
        return done


class Ours(Way):
    """`job.save`, with an agent in another process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        sdk = importlib.import_module("trainer_operator.agent.sdk.trainer_sdk")
        agent, self._store = folder / "agent", folder / "store" / "n" / "t-01234567"
        agent.mkdir(parents=True)
        self._agent = subprocess.Popen(
            [sys.argv[5], "-m", "benchmarks.checkpoint.agentside", str(agent), str(self._store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                key: value
                for key, value in os.environ.items()
                if key not in ("PYTHONHOME", "LD_LIBRARY_PATH")
            },
        )
        self._said: list[dict[str, Any]] = []
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()
        spool = self._wait("spool")["spool"]
        self._job = sdk.Job({"TRAINER_AGENT_SOCK": str(agent / "socket"), "TRAINER_SPOOL_DIR": spool})

    def prepare(self, number: int) -> None:
        """Have the agent ask for a checkpoint, as the operator's directive does."""
        base = self._ckpt(number - 1) if number > 1 else ""
        assert self._agent.stdin is not None
        order = {"ckpt": self._ckpt(number), "step": number, "base": base}
        self._agent.stdin.write(json.dumps(order) + "\n")
        self._agent.stdin.flush()
        self._wait("accepted", self._ckpt(number))

    def save(self, state: dict[str, Any], number: int) -> Durable:
        """Hand the state over."""
        if not self._job.should_checkpoint(number):
            raise SystemExit("the checkpoint that was asked for is gone")
        self._job.save(number, state)
        return lambda: self._has("committed", self._ckpt(number)) is not None

    def close(self) -> None:
        """End the agent."""
        assert self._agent.stdin is not None
        self._agent.stdin.close()
        self._agent.wait(60)

    def _ckpt(self, number: int) -> str:
        return f"{number:012d}-e1-00ab"

    def _has(self, kind: str, value: str | None = None) -> dict[str, Any] | None:
        return next((m for m in self._said if kind in m and value in (None, m[kind])), None)

    def _wait(self, kind: str, value: str | None = None) -> dict[str, Any]:
        with self._news:
            if not self._news.wait_for(lambda: self._has(kind, value) is not None, 60):
                raise SystemExit(f"the agent did not say {kind}")
        found = self._has(kind, value)
        assert found is not None
        return found

    def _listen(self) -> None:
        assert self._agent.stdout is not None
        for line in self._agent.stdout:
            with self._news:
                self._said.append(json.loads(line))
                self._news.notify_all()


WAYS: dict[str, type[Way]] = {"plain": Plain, "dcp": Distributed, "dcp-async": DistributedAsync, "ours": Ours}


def dcp() -> Any:
    """Return torch.distributed.checkpoint; there is none before torch 2."""
    try:
        return importlib.import_module("torch.distributed.checkpoint")
    except ImportError:
        raise SystemExit(f"torch {torch.__version__} has no torch.distributed.checkpoint") from None


def main() -> None:
    """Measure one way and print the figures."""
    warnings.simplefilter("ignore")
    method, folder, size, repeats = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    shape = (size * 2**20 // 4 // _TENSORS // 1024, 1024)
    state = {f"layer{number}.weight": torch.rand(shape) for number in range(_TENSORS)}
    way = WAYS[method](folder)
    a = torch.rand(_STEP_SIZE, _STEP_SIZE)
    pauses, durables, lost = [], [], []  # of which the first one is left out: it loads libraries
    for number in range(1, repeats + 2):
        for tensor in state.values():
            tensor.add_(1.0)
        way.prepare(number)
        alone = _steps(a, lambda began: time.monotonic() - began > 1.0)
        began = time.monotonic()
        durable = way.save(state, number)
        pauses.append(time.monotonic() - began)
        count = 0
        while not durable():
            torch.mm(a, a)
            count += 1
        durables.append(time.monotonic() - began)
        lost.append(durables[-1] - count * alone)
        _drop(folder, number - 1, method)
    copies = [_copy(state) for _ in range(repeats)]
    before = _size(folder)
    for number, tensor in enumerate(state.values()):
        if number % 10 == 0:
            tensor.add_(1.0)
    changed = sum(t.nbytes for n, t in enumerate(state.values()) if n % 10 == 0)
    way.prepare(repeats + 2)
    durable = way.save(state, repeats + 2)
    while not durable():
        time.sleep(0.01)
    written = _size(folder) - before
    way.close()
    total = sum(tensor.nbytes for tensor in state.values())
    figures = {
        "pauses": pauses[1:],
        "durable": durables[1:],
        "lost": lost[1:],
        "copies": copies,
        "written": written,
        "changed": changed,
        "total": total,
    }
    print(json.dumps({"torch": torch.__version__, **figures}))
    sys.stdout.flush()
    os._exit(0)  # a process group would want to be told


def _steps(a: Any, is_enough: Callable[[float], bool]) -> float:
    """Train for a while and return the seconds of a step."""
    began, count = time.monotonic(), 0
    while not is_enough(began):
        torch.mm(a, a)
        count += 1
    return (time.monotonic() - began) / count


def _copy(state: dict[str, Any]) -> float:
    """Return how long a copy in memory takes, below which no way can be whose state may change at once."""
    began = time.monotonic()
    copied = {name: tensor.clone() for name, tensor in state.items()}
    return (time.monotonic() - began) * bool(copied)


def _size(folder: Path) -> int:
    """Return the bytes of what lies in the folder; what is spooled on the way to the store is gone by then."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _drop(folder: Path, number: int, method: str) -> None:
    """Delete an older checkpoint, so that the disk need not hold all."""
    if method == "ours":
        return  # the next one may refer to it
    (folder / f"{number}.pt").unlink(missing_ok=True)
    shutil.rmtree(folder / str(number), ignore_errors=True)


if __name__ == "__main__":
    torch = importlib.import_module("torch")
    main()
