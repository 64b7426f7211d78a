"""Train a small network on handwritten digits with JAX on several processes, and lose nothing when one is lost.

    python3 train.py                 on a laptop: one process, no operator; under a Trainer: its command

What a training that uses JAX needs for the operator is marked with (1) to (5).
"""

from __future__ import annotations

import os
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

try:
    import trainer_sdk as sdk  # the agent in the pod brings it
except ImportError:
    sdk = None

DIGITS = os.environ.get("DIGITS", "digits.csv.gz")
"""A file of scikit-learn: sklearn/datasets/data/digits.csv.gz."""
SEED, BATCH, RATE, MOMENTUM = 7, 64, 0.05, 0.9
EPOCHS = int(os.environ.get("TRAINER_EPOCHS") or 15)
PACE = float(os.environ.get("PACE") or 0.0)
"""Least duration of a step in seconds, so that there is something to watch."""
Tensors = dict[str, jax.Array]


def main() -> None:
    """Train, or go on with the training."""
    job = sdk.init() if sdk is not None else None
    if "JAX_COORDINATOR_ADDRESS" in os.environ:  # (1) JAX itself reads the address only
        jax.distributed.initialize(
            os.environ["JAX_COORDINATOR_ADDRESS"],
            num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
            process_id=int(os.environ["JAX_PROCESS_ID"]),
        )
    rank, world = jax.process_index(), jax.process_count()
    mesh = jax.make_mesh((world,), ("members",), devices=jax.devices())
    everywhere, split = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("members",)))

    table = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
    images, labels, per_epoch = table[:, :-1] / 16, table[:, -1].astype(int), len(table) // BATCH
    restored = job.restore() if job is not None else None  # (2) where the last epoch of members came to
    start, state = (restored.step, restored.state) if restored is not None else (0, fresh())
    parameters, momentum = (
        {name: jax.device_put(state[f"{kind}.{name}"], everywhere) for name in ("w1", "b1", "w2", "b2")}
        for kind in ("parameter", "momentum")
    )
    print(f"rank {rank} of {world} begins after step {start}", flush=True)

    @jax.jit
    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec(), PartitionSpec("members"), PartitionSpec("members")),
        out_specs=PartitionSpec(),
        check_vma=False,  # the sum over members is written out below
    )
    def update(
        parameters: Tensors, momentum: Tensors, images: jax.Array, labels: jax.Array
    ) -> tuple[Tensors, Tensors]:
        gradient = jax.lax.psum(jax.grad(summed_loss)(parameters, images, labels), "members")
        momentum = jax.tree.map(lambda m, g: MOMENTUM * m + g / BATCH, momentum, gradient)
        return jax.tree.map(lambda p, m: p - RATE * m, parameters, momentum), momentum

    for step in range(start + 1, EPOCHS * per_epoch + 1):
        began = time.monotonic()
        if job is not None:
            job.pause_point()
        epoch, position = divmod(step - 1, per_epoch)  # (3) the batch depends on the step and the seed only
        order = np.random.default_rng((SEED, epoch)).permutation(len(images))
        mine = order[position * BATCH : (position + 1) * BATCH].reshape(world, -1)[rank]
        batch = (jax.make_array_from_process_local_data(split, part[mine]) for part in (images, labels))
        parameters, momentum = jax.block_until_ready(update(parameters, momentum, *batch))
        if job is not None:
            job.step(step, samples=step * BATCH)  # (4) tell the operator, and save when it asks for it
            if position == per_epoch - 1:
                job.epoch_done(epoch + 1, metrics={"loss": total_loss(parameters, images, labels)})
            if job.should_checkpoint(step):
                parts = {"parameter": parameters, "momentum": momentum}
                job.save(
                    step,
                    {f"{kind}.{k}": np.asarray(v) for kind, part in parts.items() for k, v in part.items()},
                )
        time.sleep(max(0.0, began + PACE - time.monotonic()))

    print(f"rank {rank}: final loss {total_loss(parameters, images, labels)!r}", flush=True)
    if job is not None:
        job.done()  # (5) an exit with 0 is no failure, and this says why it came


def fresh() -> dict[str, np.ndarray]:
    """Return the state to begin with, the same in every process."""
    random = np.random.default_rng(SEED)
    shapes = {"w1": (64, 32), "b1": (32,), "w2": (32, 10), "b2": (10,)}
    parameters = {
        f"parameter.{name}": np.float32(random.normal(0, 0.1, shape)) for name, shape in shapes.items()
    }
    return parameters | {f"momentum.{name}": np.zeros(shape, np.float32) for name, shape in shapes.items()}


def summed_loss(parameters: Tensors, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the sum of the cross entropies of some images."""
    hidden = jax.nn.relu(images @ parameters["w1"] + parameters["b1"])
    logits = jax.nn.log_softmax(hidden @ parameters["w2"] + parameters["b2"])
    return -jnp.take_along_axis(logits, labels[:, None], axis=1).sum()


def total_loss(parameters: Tensors, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the loss over all images, computed by this process alone."""
    local = {name: np.asarray(value) for name, value in parameters.items()}
    return float(summed_loss(local, images, labels)) / len(images)


if __name__ == "__main__":
    main()
