"""Train a perceptron on handwritten digits, with all-reduce or with parameter servers, and survive what happens.

    python3 train.py --mode allreduce        every worker holds the model; gradients are summed over a ring
    python3 train.py --mode ps               servers hold the model; workers push gradients and get parameters
    python3 train.py --local                 one process, no operator: the reference result

The result depends on the seed alone: batches are a pure function of (seed, step), and a restart goes on from a state
that an undisturbed run also went through.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import model
import numpy as np
import wire
from data import Batch, Digits, Floats, Schedule, load
from ring import Ring
from server import Client, Server, follow, owned

try:
    import trainer_sdk as sdk
except ImportError:
    sdk = None  # only --local works then

_BUDGET = 600.0
_EX_TEMPFAIL = 75


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    mode: str
    epochs: int
    batch: int
    seed: int
    pace: float
    log_dir: str
    local: bool


class StepLog:
    """JSON lines of every applied step, so that anybody can check that no sample was trained twice."""

    def __init__(self, directory: str, job: Any) -> None:
        self._job = job
        self._file = None
        if directory:
            Path(directory).mkdir(parents=True, exist_ok=True)
            self._file = (Path(directory) / f"{job.role}-{job.index}.jsonl").open("a", encoding="utf-8")

    def applied(self, batch: Batch, rank: int | None) -> None:
        """Note that a step is applied; `rank` is None for a server, which sees the whole batch."""
        if self._file is None:
            return
        world = self._job.world
        first, end = batch.bounds(rank, world) if rank is not None else (batch.first, batch.end)
        entry = {
            "member": f"{self._job.role}-{self._job.index}",
            "epoch": self._job.epoch,
            "psEpoch": self._job.ps_epoch,
            "step": batch.step,
            "dataEpoch": batch.data_epoch,
            "from": first,
            "to": end,
            "rank": rank,
            "world": world,
            "pid": os.getpid(),
        }
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()


class Training:
    """What all modes share: data, schedule, and the reports after a step."""

    def __init__(self, options: Options, digits: Digits, job: Any) -> None:
        self.options, self.digits, self.job = options, digits, job
        self.schedule = Schedule(len(self.digits.train_labels), options.batch, seed=options.seed)
        self.total = options.epochs * self.schedule.steps_per_epoch
        self.log = StepLog(options.log_dir, job)
        self._began = time.monotonic()

    def gradient(self, parameters: model.Tensors, batch: Batch) -> model.Tensors:
        """Return this rank's part of the summed gradient of a batch."""
        mine = batch.part(self.job.rank, self.job.world)
        return model.gradient(parameters, self.digits.train_images[mine], self.digits.train_labels[mine])

    def finished(self, batch: Batch, parameters: model.Tensors) -> None:
        """Report a finished step, at the end of a data epoch with the accuracy, and keep the pace."""
        self.log.applied(batch, self.job.rank)
        self.job.step(batch.step, samples=self.schedule.consumed(batch.step))
        if batch.step % self.schedule.steps_per_epoch == 0:
            self.job.epoch_done(batch.data_epoch + 1, metrics=self._metrics(parameters))
        if self.options.pace:
            time.sleep(max(0.0, self._began + self.options.pace - time.monotonic()))
            self._began = time.monotonic()

    def accuracy(self, parameters: model.Tensors) -> float:
        """Return the accuracy on the test images."""
        return model.accuracy(parameters, self.digits.test_images, self.digits.test_labels)

    def conclude(self, parameters: model.Tensors) -> None:
        """Print and report the result; rank 0 speaks for all."""
        if self.job.rank == 0 and self.job.role != "ps":
            accuracy = self.accuracy(parameters)
            self.job.epoch_done(self.options.epochs, metrics={"accuracy": accuracy})
            print(f"accuracy {accuracy:.4f} after {self.total} steps", flush=True)
        self.job.done()

    def _metrics(self, parameters: model.Tensors) -> dict[str, float]:
        return {"accuracy": self.accuracy(parameters)} if self.job.rank == 0 else {}


def train_all_reduce(training: Training) -> None:
    """Train with every worker holding the whole model."""
    job = training.job
    restored = job.restore()
    step, state = (restored.step, restored.state) if restored is not None else (0, _fresh(training))
    parameters, momentum = model.from_state(state)
    job.phase("rendezvous")
    places = [(member.address, member.port) for member in job.workers] or [(job.address, job.port)]
    ring: Ring | None = None
    try:
        ring = Ring(places, job.rank, token=os.environ.get("PET_RDZV_ID") or f"{job.name}-{job.epoch}")
        while step < training.total:
            job.pause_point()
            batch = training.schedule.batch(step + 1)
            summed = _sum(ring, training.gradient(parameters, batch))
            model.apply(parameters, momentum, summed, batch=len(batch.samples))
            step = batch.step
            training.finished(batch, parameters)
            if job.should_checkpoint(step):
                job.save(step, model.to_state(parameters, momentum))
    except wire.Lost as error:
        if ring is not None:
            ring.close()  # so that the others learn of it too
        _await_next_epoch(job, error)
    training.conclude(parameters)


def train_with_servers(training: Training) -> None:
    """Train against parameter servers; a lost one is waited for, never a reason to end (PSR2).

    When the number of workers changes, the servers refuse us as well: our rank and world are new after the wait (ME5).
    """
    job = training.job
    job.phase("rendezvous")
    is_starting = True
    while True:
        client, step, parameters = _reach(job, is_starting=is_starting)
        is_starting = False
        try:
            while step < training.total:
                job.pause_point()
                batch = training.schedule.batch(step + 1)
                parameters = client.push(batch.step, job.rank, training.gradient(parameters, batch))
                step = batch.step
                training.finished(batch, parameters)
            client.done(job.rank)
        except wire.Lost as error:
            print(
                f"no parameter server goes on with us after step {step}, waiting for one: {error}",
                file=sys.stderr,
                flush=True,
            )
            continue
        finally:
            client.close()
        training.conclude(parameters)
        return


def serve(training: Training) -> None:
    """Be a parameter server, or first the standby of one."""
    job = training.job
    if not job.is_standby:
        _serve(training, job.restore())
    else:
        update = _stand_by(job)
        if update is not None:
            _serve(training, job.restore_at(update.step))
    job.done()


def _stand_by(job: Any) -> Any:
    """Keep the snapshots of the server of our shard; return the update by which we serve, None when all is over (PSR3)."""
    update, delay = None, 0.05
    while update is None or job.is_standby:
        server = job.servers[job.rank]
        try:
            for step, state in follow(
                (server.address, server.port), source=job.address, ps_epoch=job.ps_epoch
            ):
                job.snapshot(step, state)
                job.step(step)
                delay = 0.05
        except wire.Lost:
            update = job.wait_ps(timeout=random.uniform(0.02, delay))
            delay = min(5.0, delay * 2)
        else:
            return None
    return update


def _serve(training: Training, restored: Any) -> None:
    job, schedule = training.job, training.schedule
    names = owned(job.rank, max(1, len(job.servers)))
    step, state = (restored.step, restored.state) if restored is not None else (0, _fresh(training, names))
    server = Server(
        job,
        state,
        step,
        total=training.total,
        batch_size=lambda number: len(schedule.batch(number).samples),
        consumed=schedule.consumed,
        on_applied=lambda number: training.log.applied(schedule.batch(number), None),
        fresh=lambda: _fresh(training, names),
    )
    with wire.listen(
        job.address, job.port
    ) as listener:  # not while we stand by: who calls us then is mistaken
        job.phase("train")
        server.serve(listener)


def train_locally(training: Training) -> None:
    """Train in this process alone: what every other mode must arrive at."""
    parameters, momentum = model.from_state(_fresh(training))
    for step in range(1, training.total + 1):
        batch = training.schedule.batch(step)
        model.apply(parameters, momentum, training.gradient(parameters, batch), batch=len(batch.samples))
        training.finished(batch, parameters)
    training.conclude(parameters)


def main() -> int:
    """Train as the command line and the environment say."""
    options = _options()
    if sdk is None and not options.local:
        print(
            "trainer_sdk is not here: the operator's agent brings it; without it use --local", file=sys.stderr
        )
        return 64
    with_agent = sdk is not None and not options.local
    digits = load()  # before init: whoever joins a world that trains is ready when it is let in
    job = sdk.init(soft_epochs=options.mode == "ps") if with_agent else _Alone()
    training = Training(options, digits, job)
    if options.local:
        train_locally(training)
    elif training.job.role == "ps":
        serve(training)
    elif options.mode == "ps":
        train_with_servers(training)
    else:
        train_all_reduce(training)
    return 0


class _Alone:
    """Stands in for the SDK's job where there is neither agent nor SDK."""

    name, role, index, rank, world, epoch, ps_epoch = "local", "worker", 0, 0, 1, 0, 0

    def step(self, n: int, samples: int = 0) -> None:
        """Report to nobody."""

    def epoch_done(self, n: int, metrics: dict[str, float] | None = None) -> None:
        """Report to nobody."""

    def done(self) -> None:
        """Report to nobody."""


def _fresh(training: Training, names: tuple[str, ...] = model.NAMES) -> model.Tensors:
    parameters = {
        name: value for name, value in model.initial(training.options.seed).items() if name in names
    }
    return model.to_state(parameters, model.zeros_like(parameters))


def _sum(ring: Ring, gradient: model.Tensors) -> model.Tensors:
    """Sum all tensors over all ranks in one go."""
    flat: Floats = ring.sum(np.concatenate([value.ravel() for value in gradient.values()]))
    summed, at = {}, 0
    for name, value in gradient.items():
        summed[name] = flat[at : at + value.size].reshape(value.shape)
        at += value.size
    return summed


def _reach(job: Any, *, is_starting: bool) -> tuple[Client, int, model.Tensors]:
    """Connect to all servers of the newest psEpoch and pull; 0.5 s doubling to 10 s between tries (PSR2)."""
    deadline, delay = time.monotonic() + _BUDGET, 0.1 if is_starting else 0.5
    while True:
        update = job.ps_update() if is_starting else job.wait_ps(timeout=random.uniform(0.05, delay))
        if update is not None:
            delay = 0.5
        servers = [(member.address, member.port) for member in job.servers]
        try:
            client = Client(servers, source=job.address, ps_epoch=job.ps_epoch, patience=0.0)
            try:
                return (client, *client.pull())
            except wire.Lost:
                client.close()
                raise
        except wire.Lost as error:
            if time.monotonic() >= deadline:
                raise SystemExit(f"no parameter servers for {_BUDGET:.0f} s: {error}") from error
        delay = min(10.0, delay * 2)
        if is_starting:
            time.sleep(random.uniform(0.05, min(delay, 1.0)))


def _await_next_epoch(job: Any, error: wire.Lost) -> None:
    """Wait for the agent to end this process: a lost neighbour is not our failure, the next epoch goes on (ME3)."""
    print(
        f"lost a neighbour in epoch {job.epoch}, waiting for the next epoch: {error}",
        file=sys.stderr,
        flush=True,
    )
    job.phase("rendezvous")
    time.sleep(_BUDGET)
    raise SystemExit(_EX_TEMPFAIL)


def _options() -> Options:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", choices=("allreduce", "ps"), default="allreduce")
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("TRAINER_EPOCHS") or 0) or 20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--pace", type=float, default=0.0, help="least duration of a step, in seconds")
    parser.add_argument(
        "--log-dir", default="", help="write every applied step as JSON lines into this folder"
    )
    parser.add_argument(
        "--local", action="store_true", help="train in this process alone, without the operator"
    )
    given = parser.parse_args()
    if given.epochs < 1 or given.batch < 1 or given.pace < 0:
        parser.error("--epochs and --batch must be at least 1, --pace not negative")
    return Options(**vars(given))


if __name__ == "__main__":
    sys.exit(main())
