"""Train a small network on handwritten digits with DistributedDataParallel, and lose nothing when a worker is lost.

    python3 train.py                 on a laptop: one process, no operator
    python3 train.py / torchrun train.py       the command of a Trainer; the agent sets MASTER_ADDR, RANK, PET_* ...

What a training that uses PyTorch needs for the operator is marked with (1) to (4).
"""

from __future__ import annotations

import io
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

try:
    import trainer_sdk as sdk  # the agent in the pod brings it
except ImportError:
    sdk = None

DIGITS = os.environ.get("DIGITS", "digits.csv.gz")
"""A file of scikit-learn: sklearn/datasets/data/digits.csv.gz."""
SEED, BATCH = 7, 64
EPOCHS = int(os.environ.get("TRAINER_EPOCHS") or 15)
PACE = float(os.environ.get("PACE") or 0.0)
"""Least duration of a step in seconds, so that there is something to watch."""


def main() -> None:
    """Train, or go on with the training."""
    job = sdk.init() if sdk is not None else None
    for name, alone in (
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "0"),
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
    ):
        os.environ.setdefault(name, alone)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    table = torch.from_numpy(np.loadtxt(DIGITS, delimiter=","))
    images, labels, per_epoch = table[:, :-1].float() / 16, table[:, -1].long(), len(table) // BATCH
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    restored = job.restore() if job is not None else None  # (1) where the last epoch of members came to
    start = restored.step if restored is not None else 0
    if restored is not None:
        state = torch.load(io.BytesIO(bytes(restored.state["torch"])))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    print(f"rank {rank} of {world} begins after step {start}", flush=True)

    parallel = DistributedDataParallel(model)
    for step in range(start + 1, EPOCHS * per_epoch + 1):
        began = time.monotonic()
        if job is not None:
            job.pause_point()
        epoch, position = divmod(step - 1, per_epoch)  # (2) the batch depends on the step and the seed only
        order = np.random.default_rng((SEED, epoch)).permutation(len(images))
        mine = order[position * BATCH : (position + 1) * BATCH][rank::world]
        optimizer.zero_grad()
        loss = functional.cross_entropy(parallel(images[mine]), labels[mine], reduction="sum")
        (
            loss * world / BATCH
        ).backward()  # DDP takes the mean over ranks; this makes it the mean over the batch
        optimizer.step()
        if job is not None:
            job.step(step, samples=step * BATCH)  # (3) tell the operator, and save when it asks for it
            if position == per_epoch - 1:
                job.epoch_done(epoch + 1, metrics={"loss": total_loss(model, images, labels)})
            if job.should_checkpoint(step):
                job.save(
                    step,
                    {"torch": packed({"model": model.state_dict(), "optimizer": optimizer.state_dict()})},
                )
        time.sleep(max(0.0, began + PACE - time.monotonic()))

    print(f"rank {rank}: final loss {total_loss(model, images, labels)!r}", flush=True)
    dist.destroy_process_group()
    if job is not None:
        job.done()  # (4) an exit with 0 is no failure, and this says why it came


def total_loss(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the loss over all images."""
    with torch.no_grad():
        return float(functional.cross_entropy(model(images), labels))


def packed(state: dict[str, object]) -> memoryview:
    """Return any state that PyTorch can save as bytes, which the SDK takes as they are."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getbuffer()


if __name__ == "__main__":
    main()
